"""A sweep report as text, Markdown and CSV: its content, and that no foreign text is active."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime
from typing import Any

import pytest
from document_kit import sweep_report
from hypothesis import given, settings
from hypothesis import strategies as st
from report_kit import BEFORE, LINK, finding, section, still, sweeps, swept

from bot.reports.documents import Period, SweepReport
from bot.reports.files import COLUMNS, NO_NEWS, findings_csv, harmless
from bot.reports.formats import periods
from bot.reports.markdown import plain, report_markdown
from bot.reports.problems import is_urgent
from bot.reports.sweep import sweep_view
from bot.reports.sweep_details import MOST_FINDINGS
from bot.reports.text import report_text
from bot.terminal import without_bold

Json = dict[str, Any]
ACTIVE = re.compile(r"(?<!\\)(?:\\\\)*[\[\]<>`~]")
"""Markup that is not escaped."""
SLACK_LINK = re.compile(r"\[[^\[\]]+\]\(https://acme\.slack\.com/[A-Za-z0-9/_.?=&-]+\)")
QUOTE = re.compile(r"^> ", re.MULTILINE)


def text_of(document: Json) -> str:
    """Return the report as text, on one line."""
    return " ".join(without_bold(report_text(sweep_report(document))).split())


def rows(document: Json) -> list[dict[str, str]]:
    return csv_rows(sweep_report(document))


def csv_rows(report: SweepReport) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(findings_csv(report).decode("utf-8-sig"))))


# ---- as text


def test_issue_line_shows_who_waits_since_when_and_the_owner() -> None:
    waits: Json = {"waits": ["Ana Ruiz"], "waits_since": "2025-03-09T08:00:00Z"}
    one = finding("F1.1", customers=[], owner="Luis", **waits)
    text = text_of(swept(section("csm-fr", one), cost_usd=None))
    assert "Ana Ruiz · #csm-fr · open since 4 Mar (11 days), wrote again 9 Mar" in text
    assert "→ Luis: Answer Ana." in text
    assert "price unknown" in text
    own = finding("F1.1", next_step="Ana Ruiz: send the export.", **waits)
    assert "→ Ana Ruiz: send the export." in text_of(swept(section("csm-fr", own)))


def test_days_of_a_sweep_are_those_of_its_readers() -> None:
    """At the end of this window it is 1 o'clock of the 17th in Auckland, where the 4th was over."""
    waits: Json = {"since": "2025-03-04T21:00:00Z", "deadline": "2025-03-17"}
    window = {"oldest": "2025-03-02T00:00:00Z", "latest": "2025-03-16T12:00:00Z"}
    found = swept(section("csm-fr", finding("F1.1", **waits)), window=window)
    assert "2–16 Mar 2025" in (text := text_of(found))
    assert "due tomorrow, Mon 17 Mar" in text
    assert "open since 4 Mar (12 days)" in text
    assert "2–17 Mar 2025" in (text := text_of({**found, "zone": "Pacific/Auckland"}))
    assert "due today, Mon 17 Mar" in text
    assert "open since 5 Mar (12 days)" in text


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


TRACKED: Json = {
    "tracker": {"status": "tracked", "key": "BUG-1", "title": "Charged twice", "link": f"{LINK}7"}
}


def test_urgent_tasks_come_first_with_their_near_deadline() -> None:
    found = [finding("F1.1", severity="low"), finding("F1.2", deadline="2025-03-15")]
    lines = [{"text": f"Eva Sol: call Bar {n}", "findings": [f"F1.{n}"]} for n in (1, 2)]
    text = text_of(swept(section("a", *found), top_lines=lines))
    assert "DO FIRST 1. Eva Sol: call Bar 2 [1] ↗1 · due today, Sat 15 Mar OPEN" in text
    assert "Eva Sol • [2] call Bar 1 ↗2" in text.partition("BY PERSON")[2]


def test_the_short_form_of_a_long_report_leaves_out_its_details() -> None:
    found = [finding(f"F1.{n}", claim=f"Till {n} hangs") for n in range(1, 60)]
    document = sweep_report(swept(section("a", *found)))
    short = report_text(document, whole=False)
    assert "Till 59 hangs" in report_text(document)
    assert "Till 59 hangs" not in short
    assert "`assistant show abc123` shows it in full" in short
    few = sweep_report(swept(section("a", *found[:3])))
    assert report_text(few, whole=False) == report_text(few)


def test_later_report_counts_each_problem_once_by_its_change() -> None:
    found = [
        finding("F1.1", change="new", **TRACKED),
        finding("F1.2", change="new", **TRACKED),
        finding("F1.3", change="changed", age_days=3),
        finding("F1.4", "solved", customers=["Bar Luna", "Bar Sol"], change="solved"),
        finding("F1.5", "solved", customers=["Bar Luna"]),
    ]
    text = text_of(swept(section("a", *found), compared=BEFORE))
    counts = "1 new, 1 still open for up to 3 days (1 of them changed), 2 solved"
    assert f"2 open problems (2 urgent) · {counts} · compared" in text
    assert "#a 2 open problems (2 urgent), 1 new [1] [2]" in text
    assert "#a (2) · SOLVED: 1 • Bar Luna, Bar Sol: Issue F1.4 ↗5 • Bar Luna: Issue F1.5" in text


def test_issue_without_news_is_listed_first_only_if_it_is_severe() -> None:
    kept = [still("A wrong date"), still("Payments fail", severity="high")]
    one = finding("F1.1", severity="low", change="open", age_days=5)
    text = text_of(swept(section("a", one), compared=BEFORE, still_open=kept))
    assert "DO FIRST 1. #csm-es: Payments fail · STILL OPEN 12 days ↗1 OPEN PROBLEMS" in text
    assert "1. ○ Issue F1.1 ○ Café Sol · #a · open since 4 Mar (11 days) · STILL OPEN 5" in text


def test_urgent_problems_without_a_task_are_listed_first_with_their_first_case() -> None:
    later = {"since": "2025-03-07T08:00:00Z", "customers": ["Café Sol"]}
    found = [
        finding("F1.1", "unanswered", **later, **TRACKED),
        finding("F1.2", customers=["Bar Luna"], **TRACKED),
    ]
    text = text_of(swept(section("a", *found)))
    task = "Bar Luna: money is lost → owner missing: Answer Ana. and 1 more [1] ↗1 · 11 days"
    assert f"DO FIRST 1. {task}" in text


def test_shared_problem_has_a_line_for_each_finding_with_all_its_customers() -> None:
    bug: Json = {"severity": "medium", **TRACKED}
    found = [
        finding("F1.1", "solved", customers=["Bar 1"], **bug),
        finding("F1.2", customers=[f"Bar {n}" for n in range(2, 7)], **bug),
    ]
    lines = text_of(swept(section("a", *found))).partition("1 solved · in the tracker")[2]
    names = "Bar 2, Bar 3, Bar 4, Bar 5, Bar 6"
    assert f"◐ {names} · #a · open since 4 Mar (11 days, Bar 2) · unsolved · money" in lines
    assert lines.index("Bar 6") < lines.index("✓ Bar 1 · #a")


def test_owner_of_one_finding_is_proposed_for_the_other_findings_of_its_problem() -> None:
    found = [
        finding("F1.1", "unanswered", **TRACKED),
        finding("F1.2", owner="Ana Ruiz", **TRACKED),
    ]
    text = text_of(swept(section("a", *found)))
    assert "→ Ana Ruiz (proposed): Answer Ana." in text
    line = {"text": "Eva Sol (proposed): pay back", "findings": ["F1.1"]}
    text = text_of(swept(section("a", *found), top_lines=[line]))
    assert "→ Eva Sol (proposed)" in text
    assert "Ana Ruiz (proposed)" not in text


def test_closed_issues_name_their_customers() -> None:
    found = [
        finding("F1.1", "solved", customers=["Bar Luna", "Bar Sol"], claim="Refund arrived"),
        finding("F1.2", "declined", customers=["Bar Luna"], claim="Bar Luna: wants a till"),
    ]
    document = swept(section("a", *found))
    text = text_of(document)
    assert "#a (2) • Bar Luna, Bar Sol: Refund arrived" in text
    assert "Bar Luna: wants a till" in text
    assert "2 solved" in text
    assert "solved" not in text_of(swept(section("a", found[1]))).partition("✓ solved")[0]
    assert [row["state"] for row in rows(document)] == ["solved", "declined"]


def test_partly_read_tracker_is_noted_with_the_reason() -> None:
    tracker = {"status": "partial", "title": "Bugs", "reason": "No access."}
    text = text_of(swept(section("a", finding("F1.1")), tracker=tracker))
    assert "Tracker (Bugs): read in part: No access." in text


def test_issue_that_the_tracker_has_closed_is_marked() -> None:
    closed = "closed in the tracker, still reported"
    open_row = text_of(swept(section("a", finding("F1.1", **TRACKED))))
    assert closed not in open_row
    assert "owner missing · BUG-1 (in the tracker)" in open_row
    row = {**TRACKED["tracker"], "status": "closed"}
    assert closed in text_of(swept(section("a", finding("F1.1", tracker=row))))


def test_market_counts_only_its_own_customers_of_a_shared_problem() -> None:
    one = finding("F1.1", customers=["Bar Luna"], **TRACKED)
    other = finding("F2.1", customers=["Bar Sol"], **TRACKED)
    text = text_of(swept(section("a", one), section("b", other)))
    assert "#a 1 open problem (1 urgent) [1] · 1 customer waits" in text


def test_window_of_part_of_a_day_is_shown_with_its_times() -> None:
    window = {"oldest": "2025-03-15T08:00:00Z", "latest": "2025-03-15T09:30:00Z"}
    assert "08:00–09:30" in text_of(swept(section("a", finding("F1.1")), window=window))
    assert periods([Period(**window)], "Europe/Madrid") == "15 Mar 2025, 09:00–10:30"


def test_claim_is_cut_only_after_a_clause_and_if_it_is_long() -> None:
    for claim in (
        "The till of the bar hangs each evening after eight. Nobody answers the phone",
        "Down. " + " ".join(["The till of the bar hangs each evening after eight"] * 4),
    ):
        assert claim in text_of(swept(section("a", finding("F1.1", severity="low", claim=claim))))


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


def test_report_counts_omitted_findings_and_says_where_they_are() -> None:
    many = (finding(f"F1.{n}", "waiting") for n in range(MOST_FINDINGS + 10))
    text = text_of(swept(section("a", *many)))
    assert len(re.findall(r" Issue F1\.", text)) == MOST_FINDINGS
    assert "10 more, left out here: `assistant show abc123 --json`" in text


# ---- as Markdown


@given(sweeps())
@settings(max_examples=30, deadline=None)
def test_only_links_to_slack_are_active_in_markdown_reports(document: Json) -> None:
    text = QUOTE.sub("", SLACK_LINK.sub("", report_markdown(sweep_report(document))))
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
    [("de", "4 offene Probleme"), ("ja", "4 open problems")],
)
def test_report_uses_its_language_and_falls_back_to_english(language: str, expected: str) -> None:
    found = [finding(f"F1.{n}") for n in range(4)]
    assert expected in text_of(swept(section("csm-es", *found), language=language))


# ---- as CSV


@given(sweeps())
@settings(max_examples=30, deadline=None)
def test_csv_has_a_row_for_every_finding_and_no_formula_with_any_separator(document: Json) -> None:
    ids = [f["id"] for s in document["sections"] for f in s["findings"]]
    found = rows(document)
    assert sorted(row["finding"] for row in found if row["finding"]) == sorted(ids)
    assert sum(row["change"] == NO_NEWS for row in found) == len(document["still_open"])
    numbers = [int(row["number"]) for row in found if row["number"]]
    assert numbers == sorted(numbers)
    assert {*numbers} == {*range(1, len({*numbers}) + 1)}
    table = findings_csv(sweep_report(document)).decode("utf-8-sig")
    for between in ",;\t":
        read = csv.reader(io.StringIO(table), delimiter=between)
        cells = [cell.split("'")[0] for row in read for cell in row]
        assert [cell for cell in cells if re.match(r"[\s\"']*[=+\-@\t\r]", cell)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
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
