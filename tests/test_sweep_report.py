"""A sweep report as text, Markdown and CSV: its content, and that no foreign text is active."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from document_kit import sweep_report
from hypothesis import given, settings
from hypothesis import strategies as st
from report_kit import BEFORE, LINK, finding, section, sweeps, swept

from bot.reports.documents import SweepReport
from bot.reports.files import COLUMNS, NO_NEWS, findings_csv, harmless
from bot.reports.markdown import plain, report_markdown
from bot.reports.problems import days_since, is_urgent
from bot.reports.sweep import sweep_view
from bot.reports.sweep_details import MOST_FINDINGS
from bot.reports.text import WIDTH, report_text

Json = dict[str, Any]
ACTIVE = re.compile(r"(?<!\\)(?:\\\\)*[\[\]<>`~]")
"""Markup that is not escaped."""
SLACK_LINK = re.compile(r"\[[^\[\]]+\]\(https://acme\.slack\.com/[A-Za-z0-9/_.?=&-]+\)")
QUOTE = re.compile(r"^> ", re.MULTILINE)


def text_of(document: Json) -> str:
    """Return the report as text, on one line."""
    return " ".join(report_text(sweep_report(document)).split())


def markdown(document: Json) -> str:
    return report_markdown(sweep_report(document))


def rows(document: Json) -> list[dict[str, str]]:
    return csv_rows(sweep_report(document))


def csv_rows(report: SweepReport) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(findings_csv(report).decode("utf-8-sig"))))


def table(document: Json) -> str:
    return findings_csv(sweep_report(document)).decode("utf-8-sig")


# ---- as text


def test_a_report_counts_what_it_shows() -> None:
    found = [
        finding("F1.1", customers=["Café Sol", "Bar Luna"], messages=7),
        finding("F1.2", customers=[], people=3),
        finding("F1.3", "known", customers=["Le Coq", "Bar Luna"]),
        finding("F1.4", "waiting", customers=["Hotel Mar"]),
        finding("F1.5", "none"),
        finding("F1.6", "solved"),
    ]
    text = text_of(swept(section("csm-es", *found), cost_usd=None))
    assert (
        "2 open problems (2 urgent) · 2 more wait for the customer or a fix · "
        "5 customers: 3 wait for the team, 1 waits for a fix or a promise, "
        "1 has to reply · 1 solved · " in text
    )
    assert "40 messages in 12 threads read" in text
    who = "Café Sol, Bar Luna (also [3]) (2 without an owner), for up to 11 days"
    assert f"● 1. Issue F1.1 · {who} → owner missing" in text
    who = "Café Sol, Bar Luna (also [3]) · #csm-es · open since 4 Mar (11 days, Café Sol)"
    assert f"{who} unsolved → owner missing: Answer Ana." in text
    assert "3 customers · #csm-es" in text
    assert "· 1 channel ·" in text
    assert (
        "Issue F1.4 ↗4 Hotel Mar · #csm-es · open since 4 Mar (11 days) waits for the customer"
        in text
    )
    assert "Closed: 1" in text
    assert "Issue F1.5" not in text
    assert "price unknown" in text


def test_issue_line_shows_customer_waiting_time_amount_deadline_and_owner() -> None:
    case = {"customer": "Café Sol", "waits_since": "2025-03-09T08:00:00Z", "amount": "2 x 59 €"}
    waits: Json = {"waits": ["Ana Ruiz"], "waits_since": "2025-03-09T08:00:00Z"}
    named = finding("F1.1", "unanswered", **waits, cases=[case], deadline="2025-03-12")
    unnamed = finding("F1.2", customers=[], owner="Luis", **waits)
    text = text_of(swept(section("csm-es", named), section("csm-fr", unnamed)))
    expected = "Café Sol · #csm-es · open since 4 Mar (11 days), wrote again 9 Mar · 2 x 59 €"
    assert text.count(expected) == 1
    assert "1. Café Sol: money is lost · was due 12 Mar, passed → owner missing: " in text
    assert "unanswered · was due 12 Mar, passed → owner missing: Answer Ana." in text
    assert "Ana Ruiz · #csm-fr · open since 4 Mar (11 days), wrote again 9 Mar" in text
    assert "→ owner missing: Answer Ana." in text
    assert "→ Luis: Answer Ana." in text


def test_urgent_issues_of_all_channels_come_first_with_near_deadlines_before_overdue() -> None:
    old = {"since": "2025-03-02T08:00:00Z"}
    found = [
        finding("F1.1", severity="low", **old),
        finding("F1.2", severity="medium", deadline="2025-03-17"),
        finding("F1.3", severity="medium", **old),
        finding("F2.1", "unanswered"),
        finding("F2.2", "unanswered", since="2025-03-13T08:00:00Z", deadline="2025-03-14"),
        finding("F2.3", "unanswered", **old),
        finding("F2.4", since="2025-03-12T08:00:00Z", deadline="2025-03-16"),
    ]
    document = sweep_report(swept(section("a", *found[:3]), section("b", *found[3:])))
    first = [line.references[0].label for line in sweep_view(document).first]
    assert first == ["1", "2", "3", "4", "5"]
    numbers = {row["finding"]: row["number"] for row in csv_rows(document)}
    assert [numbers[f"F{id}"] for id in ("2.4", "2.2", "2.3", "2.1", "1.2")] == first


def tracker_entry(key: str, status: str = "tracked") -> Json:
    return {"status": status, "key": key, "title": "Charged twice", "link": f"{LINK}7"}


def test_each_task_of_a_problem_is_listed_with_its_person_and_waiting_time() -> None:
    bug: Json = {"tracker": tracker_entry("BUG-1"), "owner": ""}
    found = [
        finding(
            f"F1.{n}",
            "unanswered",
            customers=[f"Bar {n}"],
            cases=[{"customer": f"Bar {n}", "waits_since": f"2025-03-0{n}T08:00:00Z"}],
            **bug,
        )
        for n in (1, 2, 3)
    ]
    lines = [
        {"text": "Eva Sol (proposed): call Bar 1", "findings": ["F1.1"]},
        {"text": "Luis Gil: tell the others", "findings": ["F1.2"]},
    ]
    text = text_of(swept(section("a", *found), top_lines=lines))
    first = text.partition("DO FIRST")[2].partition("OPEN PROBLEMS")[0]
    assert first.startswith(" 1. Eva Sol (proposed): call Bar 1 [1] ↗1 · no reply since 1 Mar 2. ")
    assert "2. Luis Gil: tell the others [1] ↗2 · no reply since 2 Mar 3. Bar 3: " in first
    assert "by person" not in text


def test_remaining_tasks_are_listed_by_person_with_their_links() -> None:
    found = [finding(f"F1.{n}", customers=[f"Bar {n}"]) for n in range(1, 14)]
    found.append(finding("F1.14", severity="low", customers=["Bar 14"]))
    found[4]["deadline"] = "2025-03-15"
    lines = [
        {"text": f"Eva Sol (proposed): call Bar {n}", "findings": [f"F1.{n}"]}
        for n in (14, *range(1, 14))
    ]
    lines.insert(4, {"text": "Eva Sol: tell Bar 1 and Bar 2", "findings": ["F1.1", "F1.2"]})
    text = text_of(swept(section("a", *found), top_lines=lines))
    first = "1. Eva Sol (proposed): call Bar 1 [2] ↗1 2. Eva Sol (proposed): call Bar 2 [3] ↗2"
    assert f"DO FIRST {first}" in text
    assert "4. Eva Sol: tell Bar 1 and Bar 2 [2] ↗1 [3] ↗2 5." in text
    assert "6. Eva Sol (proposed): call Bar 5 [1] ↗5 · due today, Sat 15 Mar" in text
    by_person = text.partition("by person ")[2].partition(" Open problems")[0].strip("─ ")
    assert by_person.startswith(
        "Eva Sol · [14] (proposed) call Bar 14 ↗14 · [6] (proposed) call Bar 6 ↗"
    )
    assert by_person.count("call Bar") == 9
    assert "call Bar" not in text.partition("Open problems")[2]


def test_the_short_form_of_a_long_report_leaves_out_its_details() -> None:
    found = [finding(f"F1.{n}", claim=f"Till {n} hangs") for n in range(1, 60)]
    found.append(finding("F1.60", "waiting", claim="The reply is missing"))
    document = sweep_report(swept(section("a", *found)))
    whole, short = report_text(document), report_text(document, whole=False)
    for detail in ("Open problems ─", "Till 59 hangs"):
        assert detail in whole
        assert detail not in short
    assert "The reply is missing" in short
    assert "`assistant show abc123` shows it in full" in short
    few = sweep_report(swept(section("a", *found[:3])))
    assert report_text(few, whole=False) == report_text(few)


def test_later_report_counts_each_problem_once_by_its_change() -> None:
    bug: Json = {"tracker": tracker_entry("BUG-1"), "change": "new"}
    found = [
        finding("F1.1", **bug),
        finding("F1.2", **bug),
        finding("F1.3", change="changed", age_days=3),
        finding("F1.4", "solved", customers=["Bar Luna", "Bar Sol"], change="solved"),
        finding("F1.5", "solved", customers=["Bar Luna"]),
    ]
    text = text_of(swept(section("a", *found), compared=BEFORE))
    counts = "1 new, 1 still open for up to 3 days (1 of them changed), 2 solved"
    assert f"2 open problems (2 urgent) · {counts} · compared" in text
    assert "#a 2 open problems (2 urgent), 1 new [1] [2]" in text
    assert "#a (2) · SOLVED: 2 Bar Luna, Bar Sol: Issue F1.4" in text


def test_urgent_problems_without_a_task_are_listed_first_with_their_first_case() -> None:
    bug: Json = {"tracker": tracker_entry("BUG-1")}
    late: Json = {"customers": ["Bar Sol", "Bar Mar"], "deadline": "2025-03-14"}
    late |= {"wants": "a new till", "since": "2025-03-14T08:00:00Z"}
    found = [
        finding("F1.1", "unanswered", customers=["Café Sol"], since="2025-03-07T08:00:00Z", **bug),
        finding("F1.2", customers=["Bar Luna"], **bug),
        finding("F1.3", severity="low", **late),
    ]
    text = text_of(swept(section("a", *found))).replace(" ↗1", "")
    first = text.partition("BY MARKET")[0]
    expected = "1. Bar Luna: money is lost → owner missing: Answer Ana. and 1 more [1] · 11 days"
    assert expected in first
    expected = "2. Bar Sol +1: a new till · was due 14 Mar, passed → owner missing: Answer Ana. [2]"
    assert expected in first
    assert "unsolved · was due 14 Mar, passed → owner missing: Answer Ana." in text


def test_customer_is_listed_once_with_the_last_message_of_all_its_threads() -> None:
    bug: Json = {"tracker": tracker_entry("BUG-1"), "severity": "medium"}
    first = {"customer": "Bar 1", "since": "2025-03-01T08:00:00Z"}
    first["waits_since"] = "2025-03-14T08:00:00Z"
    again = {"customer": "Bar 1", "since": "2025-03-13T08:00:00Z"}
    again |= {"waits_since": again["since"], "link": f"{LINK}10002"}
    other = {**again, "customer": "Bar 2", "waits_since": None}
    found = [
        finding("F1.1", customers=["Bar 1"], cases=[first], **bug),
        finding("F1.2", customers=["Bar 1", "Bar 2"], cases=[again, other], **bug),
    ]
    table = text_of(swept(section("a", *found))).partition("Customer Opened")[2]
    assert "No reply since ◐ Bar 1 1 Mar 14 Mar unsolved" in table
    assert table.count("◐ Bar 1") == 1
    assert "◐ Bar 2 13 Mar" in table
    assert f"{LINK}10002 Bar 1, Bar 2" in table


def test_owner_of_one_finding_is_proposed_for_the_other_findings_of_its_problem() -> None:
    bug: Json = {"tracker": tracker_entry("BUG-1")}
    found = [
        finding("F1.1", "unanswered", customers=["Bar 1", "Bar 2"], **bug),
        finding("F1.2", owner="Ana Ruiz", **bug),
        finding("F1.3", owner="Luis Gil", **bug),
        finding("F1.4", claim="Stands alone"),
    ]
    text = text_of(swept(section("a", *found)))
    assert "(2 without an owner)" in text
    assert "→ Ana Ruiz (proposed): Answer Ana." in text
    assert "→ Luis Gil: Answer Ana." in text
    line = {"text": "Eva Sol (proposed): pay back", "findings": ["F1.1"]}
    text = text_of(swept(section("a", *found), top_lines=[line]))
    assert "1. Eva Sol (proposed): pay back [1]" in text
    assert "→ Eva Sol (proposed)" in text
    assert "Ana Ruiz (proposed)" not in text.partition("Open problems")[2].partition("2.")[0]


def test_closed_issues_name_each_customer_once() -> None:
    found = [
        finding("F1.1", "solved", customers=["Bar Luna", "Bar Sol"], claim="Refund arrived"),
        finding("F1.2", "declined", customers=["Bar Luna"], claim="Bar Luna: wants a till"),
        finding("F1.3", "known"),
    ]
    document = swept(section("a", *found))
    text = text_of(document)
    assert "no open problem" in text
    assert "◇ 1. Issue F1.3 ↗1 Café Sol · #a · open since 4 Mar (11 days) known, not done" in text
    assert [row["state"] for row in rows(document)] == ["known", "solved", "declined"]
    assert "Closed: 2 ─" in text
    assert "#a (2) Bar Luna, Bar Sol: Refund arrived" in text


def test_report_marks_issues_closed_in_or_missing_from_the_tracker() -> None:
    keys = ("BUG-1", "BUG-2", "BUG-2")
    found = [finding(f"F1.{n}", tracker=tracker_entry(k, "closed")) for n, k in enumerate(keys)]
    tracker = {"status": "complete", "title": "Bugs", "untracked": 1, "tracked": 4, "closed": 3}
    missing: Json = {"tracker": {"status": "untracked"}}
    found += [
        *(finding("F1.5", **missing), finding("F1.6", "waiting"), finding("F1.7")),
        finding("F1.8", severity="low", **missing),
        finding("F1.9", "known", **missing),
    ]
    pattern = {"text": "Slow tills", "findings": ["F1.5", "F1.6"], "markets": ["a"]}
    text = text_of(swept(section("a", *found), tracker=tracker, patterns=[pattern]))
    assert "1 customer, #a: 1 waits for the team · not in the tracker" in text
    assert text.count("not in the tracker") == 4
    for problem in ("1. BUG-2 Charged twice", "2. Issue F1.0"):
        entry = text.partition(problem)[2].partition("●")[0]
        assert "closed in the tracker, still reported" in entry
    tracker |= {"status": "partial", "reason": "No access."}
    text = text_of(swept(section("a", *found), tracker=tracker))
    assert "Tracker (Bugs): read in part: No access." in text


@pytest.mark.parametrize(
    ("since", "days"),
    [
        ("2025-03-08T23:59:00+00:00", 7),
        ("2025-03-09T00:00:00+00:00", 6),
        ("2025-03-09T00:30:00+01:00", 7),
        ("2025-03-15T00:00:00+00:00", 0),
    ],
)
def test_waiting_time_is_counted_in_calendar_days(since: str, days: int) -> None:
    assert days_since(since, datetime.fromisoformat("2025-03-15T00:00:00+00:00")) == days


@pytest.mark.parametrize(
    ("more", "urgent"),
    [
        ({}, True),
        ({"state": "known"}, False),
        ({"severity": "medium", "deadline": "2025-03-18"}, False),
        ({"severity": "medium", "deadline": "2025-03-17"}, True),
        ({"severity": "low", "deadline": "2025-03-01"}, True),
    ],
)
def test_issue_is_urgent_when_severe_or_its_deadline_is_near_or_past(
    more: Json, urgent: bool
) -> None:
    document = sweep_report(swept(section("a", finding("F1.1", **more))))
    at = datetime.fromisoformat(document.as_of)
    assert is_urgent(document.findings()[0], at) == urgent


def test_reference_to_a_merged_finding_points_to_the_remaining_one() -> None:
    one = finding("F1.1", joined=["F2.1"])
    line = {"text": "Pay back", "findings": ["F2.1", "F1.1"], "customers": 2, "messages": 4}
    document = swept(section("csm-es", one), top_lines=[line])
    (first,) = sweep_view(sweep_report(document)).first
    assert [reference.label for reference in first.references] == ["1"]


def test_lines_are_wrapped_to_terminal_width_without_breaking_links() -> None:
    link = f"{LINK}1{'x' * 100}"
    long = finding("F1.1", claim="word " * 100, links=[link])
    text = report_text(sweep_report(swept(section("csm-es", long))))
    assert all(len(line) <= WIDTH or "https://" in line for line in text.splitlines())
    assert link in text


@pytest.mark.parametrize(
    ("render", "elsewhere"),
    [(report_text, "assistant show abc123 --json"), (report_markdown, "findings.csv")],
)
def test_report_counts_omitted_findings_and_says_where_they_are(
    render: Callable[[SweepReport], str], elsewhere: str
) -> None:
    many = (finding(f"F1.{n}", "waiting") for n in range(MOST_FINDINGS + 10))
    text = render(sweep_report(swept(section("a", *many))))
    assert len(re.findall(r"[ *]Issue F1\.", text)) == MOST_FINDINGS
    assert f"10 more, left out here: {elsewhere}" in " ".join(text.split())


# ---- as Markdown


@given(sweeps())
@settings(max_examples=30, deadline=None)
def test_only_links_to_slack_are_active_in_markdown_reports(document: Json) -> None:
    text = QUOTE.sub("", SLACK_LINK.sub("", markdown(document)))
    assert [line for line in text.splitlines() if ACTIVE.search(line)] == []
    assert "https://" not in text
    assert not re.search(r"@\w", text)
    assert not re.search(r"(?<!\[)\bwww\.", text)


@given(st.text())
def test_markdown_escaping_preserves_the_text(text: str) -> None:
    bare = re.sub(r"\\([\\`*_\[\]<>~#&])", r"\1", plain(text)).replace("\N{WORD JOINER}", "")
    assert bare.replace("[.]", ".") == text.replace("\N{WORD JOINER}", "").replace("[.]", ".")


# ---- languages


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        (
            "de",
            [
                "4 offene Probleme",
                "NOCH OFFEN, 12 Tage",
                "Zuständiger fehlt: Answer",
                "1. März 2025",
            ],
        ),
        ("ja", ["4 open problems"]),
    ],
)
def test_report_uses_its_language_and_falls_back_to_english(
    language: str, expected: list[str]
) -> None:
    old = [finding(f"F1.{n}", change="open", age_days=12) for n in range(4)]
    sections = (section("csm-es", *old), section("csm-fr"), section("csm-de"))
    text = text_of(swept(*sections, compared=BEFORE, language=language))
    assert [words for words in expected if words not in text] == []


# ---- as CSV


@given(sweeps())
@settings(max_examples=30, deadline=None)
def test_csv_has_a_row_for_every_finding_and_no_formula_with_any_separator(
    document: Json,
) -> None:
    ids = [f["id"] for s in document["sections"] for f in s["findings"]]
    found = rows(document)
    assert sorted(row["finding"] for row in found if row["finding"]) == sorted(ids)
    assert sum(row["change"] == NO_NEWS for row in found) == len(document["still_open"])
    numbers = [int(row["number"]) for row in found if row["number"]]
    assert numbers == sorted(numbers)
    assert {*numbers} == {*range(1, len({*numbers}) + 1)}
    for between in ",;\t":
        read = csv.reader(io.StringIO(table(document)), delimiter=between)
        cells = [cell.split("'")[0] for row in read for cell in row]
        assert [cell for cell in cells if re.match(r"[\s\"']*[=+\-@\t\r]", cell)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'=1"),
        ("\uff1d1+1", "'=1+1"),
        ('"=1"', '"\'=1"'),
        ("a;=1", "a;'=1"),
        (None, ""),
    ],
)
def test_formula_cells_are_escaped_as_text(text: object, expected: str) -> None:
    assert harmless(text) == expected


def test_external_addresses_in_csv_cells_are_not_links() -> None:
    one = finding("F1.1", claim="See https://evil.example/x", links=["https://evil.example/"])
    (row,) = rows(swept(section("a", one)))
    assert (row["claim"], row["link"], row["links"]) == ("See evil[.]example/x", "", "")
    empty = findings_csv(sweep_report(swept())).decode("utf-8")
    assert empty == "\ufeff" + ",".join(f'"{name}"' for name in COLUMNS) + "\r\n"
