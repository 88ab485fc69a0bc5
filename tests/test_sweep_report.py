"""A sweep as text, as Markdown and as a table: all that its readers need, and nothing acts."""

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
from report_kit import BEFORE, EVIL, LINK, finding, section, sweeps, swept

from bot.reports.documents import SweepReport
from bot.reports.files import COLUMNS, QUIET, findings_csv, harmless
from bot.reports.markdown import plain, report_markdown
from bot.reports.problems import is_urgent
from bot.reports.sweep import MOST_FINDINGS, sweep_view
from bot.reports.text import WIDTH, report_text

Json = dict[str, Any]
ACTING = re.compile(r"(?<!\\)(?:\\\\)*[\[\]<>`~]")
"""Marks that are not escaped."""
MADE = re.compile(r"\[[^\[\]]+\]\(https://acme\.slack\.com/[A-Za-z0-9/_.?=&-]+\)")
QUOTING = re.compile(r"^> ", re.MULTILINE)


def text_of(document: Json) -> str:
    """As text, on one line."""
    return " ".join(report_text(sweep_report(document)).split())


def markdown(document: Json) -> str:
    return report_markdown(sweep_report(document))


def rows(document: Json) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table(document))))


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
        "5 customers: 3 wait for the team, 1 waits for a fix, "
        "1 has to reply · 1 solved · " in text
    )
    assert "40 messages in 12 threads read" in text
    who = "Café Sol, Bar Luna (also [3]) (2 without an owner), for up to 11 days"
    assert f"1. Issue F1.1 ↗1 · {who}" in text
    who = "Café Sol, Bar Luna (also [3]) · #csm-es · open since 4 Mar (11 days, Café Sol)"
    assert f"{who} · unsolved" in text
    assert "3 customers · #csm-es" in text
    assert "· 1 channel ·" in text
    assert (
        "Issue F1.4 ↗4 Hotel Mar · #csm-es · open since 4 Mar (11 days) · waits for the cust"
        in text
    )
    assert "Closed: 1" in text
    assert "Issue F1.5" not in text
    assert "price unknown" in text


def test_an_issue_says_who_waits_since_when_for_how_much_and_who_acts_by_when() -> None:
    case = {"customer": "Café Sol", "waits_since": "2025-03-09T08:00:00Z", "amount": "2 x 59 €"}
    waits: Json = {"waits": ["Ana Ruiz"], "waits_since": "2025-03-09T08:00:00Z"}
    named = finding("F1.1", "unanswered", **waits, cases=[case], deadline="2025-03-12")
    unnamed = finding("F1.2", customers=[], owner="Luis", **waits)
    text = text_of(swept(section("csm-es", named), section("csm-fr", unnamed)))
    told = "Café Sol · #csm-es · open since 4 Mar (11 days), wrote again 9 Mar · 2 x 59 €"
    assert text.count(told) == 1
    assert text.count("was due 12 Mar, passed · money is lost") == 1
    assert "Ana Ruiz · #csm-fr · open since 4 Mar (11 days), wrote again 9 Mar" in text
    assert "→ owner missing: Answer Ana." in text
    assert "BY PERSON Luis [2] owner missing [1]" in text
    assert "→ Luis: Answer Ana." in text


def test_what_is_urgent_stands_first_over_all_channels_and_the_overdue_before_the_oldest() -> None:
    old = {"since": "2025-03-02T08:00:00Z"}
    found = [
        finding("F1.1", severity="low", **old),
        finding("F1.2", severity="medium", deadline="2025-03-17"),
        finding("F1.3", severity="medium", **old),
        finding("F2.1", "unanswered"),
        finding("F2.2", "unanswered", since="2025-03-13T08:00:00Z", deadline="2025-03-14"),
        finding("F2.3", "unanswered", **old),
    ]
    document = sweep_report(swept(section("a", *found[:3]), section("b", *found[3:])))
    first = [line.text for line in sweep_view(document).first]
    assert first == [f"Issue F{id}" for id in ("2.2", "2.3", "2.1", "1.2")]


def tracked(key: str, status: str = "tracked") -> Json:
    return {"status": status, "key": key, "title": "Charged twice", "link": f"{LINK}7"}


def shared() -> Json:
    """Two bugs and a problem without one, in two channels."""
    bug: Json = {"tracker": tracked("BUG-1")}
    cases = [
        {"customer": "Bar Luna", "since": "2025-03-05T08:00:00Z", "amount": "45 €"},
        {"customer": "Café Sol", "since": "2025-03-03T08:00:00Z"},
    ]
    return swept(
        section(
            "csm-es",
            finding("F1.1", "known", customers=["Bar Luna", "Café Sol"], cases=cases, **bug),
            finding("F1.2", customers=["Hotel Mar"], claim="The till hangs"),
        ),
        section(
            "csm-fr",
            finding("F2.1", "unanswered", customers=["Le Coq"], wants="a refund", **bug),
            finding("F2.2", customers=["Chez Max"], claim="The till is slow"),
            finding("F2.3", "solved", customers=["Le Petit"], **bug),
            finding("F2.4", customers=["Le Bon"], tracker=tracked("BUG-2", "closed")),
        ),
        patterns=[{"text": "Slow tills", "findings": ["F1.2", "F2.2"], "markets": ["csm-es"]}],
        top_lines=[{"text": "Refund them", "findings": ["F1.1", "F2.1"]}],
    )


@pytest.mark.parametrize("render", [report_text, report_markdown])
def test_one_bug_stands_once_with_all_who_wait_for_it(
    render: Callable[[SweepReport], str],
) -> None:
    text = " ".join(render(sweep_report(shared())).replace("\\", "").replace("|", "").split())
    assert "BUG-1 Charged twice" in text
    assert (
        "4 customers, #csm-fr, #csm-es: 1 waits for the team, 2 wait for a fix, 1 solved · in the "
        "tracker" in text
    )
    coq, sol, luna = (text.rindex(f"{name} #csm-") for name in ("Le Coq", "Café Sol", "Bar Luna"))
    assert coq < sol < luna
    assert "unanswered · money is lost · a refund" in text
    assert "5 Mar 45 €" in text
    assert "Slow tills" in text
    assert "2 customers, #csm-es, #csm-fr: 2 wait for the team" in text
    assert text.count("Refund them") == 1
    assert "BUG-2 Charged twice (closed in the tracker, still reported)" in text


def test_a_problem_that_the_tracker_does_not_have_says_so() -> None:
    missing: Json = {"tracker": {"status": "untracked"}}
    found = [finding("F1.1", **missing), finding("F1.2", "waiting"), finding("F1.3")]
    pattern = {"text": "Slow tills", "findings": ["F1.1", "F1.2"], "markets": ["a"]}
    text = text_of(swept(section("a", *found), patterns=[pattern]))
    assert "1 customer, #a: 1 waits for the team · not in the tracker" in text
    assert text.count("not in the tracker") == 1


def test_a_customer_of_a_problem_counts_once_with_its_most_urgent_state() -> None:
    bug: Json = {"tracker": tracked("BUG-1")}
    found = [
        finding("F1.1", "solved", customers=["Bar Luna", "Bar Sol"], **bug),
        finding("F1.2", "known", customers=["Bar Luna", "Le Coq"], **bug),
        finding("F1.3", customers=["Le Coq"], **bug),
        finding("F1.4", "unanswered", customers=["Le Coq"], **bug),
    ]
    text = text_of(swept(section("a", *found)))
    head = "1 open problem (1 urgent) · 2 customers: 1 waits for the team, 1 waits for a fix"
    assert f"{head} · 2 solved" in text
    assert "#a 1 open problem (1 urgent) [1]" in text
    told = "3 customers, #a: 1 waits for the team, 1 waits for a fix, 1 solved"
    assert f"{told} · in the tracker" in text


def test_a_later_report_counts_a_problem_once_by_what_changed() -> None:
    bug: Json = {"tracker": tracked("BUG-1"), "change": "new"}
    found = [
        finding("F1.1", **bug),
        finding("F1.2", **bug),
        finding("F1.3", change="changed", age_days=3),
        finding("F1.4", "solved", customers=["Bar Luna", "Bar Sol"], change="solved"),
        finding("F1.5", "solved", customers=["Bar Luna"]),
    ]
    text = text_of(swept(section("a", *found), compared=BEFORE))
    told = "1 new, 1 still open for up to 3 days (1 of them changed), 2 solved"
    assert f"2 open problems (2 urgent) · {told} · compared" in text
    assert "#a 2 open problems (2 urgent), 1 new [1] [2]" in text
    assert "#a (2) · SOLVED: 2 Bar Luna, Bar Sol: Issue F1.4" in text


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
def test_urgent_is_what_is_severe_or_has_a_day_that_passed_or_is_near(
    more: Json, urgent: bool
) -> None:
    document = sweep_report(swept(section("a", finding("F1.1", **more))))
    at = datetime.fromisoformat(document.as_of)
    assert is_urgent(document.findings()[0], at) == urgent


def test_a_line_that_cites_a_joined_finding_leads_to_the_one_that_stands() -> None:
    one = finding("F1.1", joined=["F2.1"])
    line = {"text": "Pay back", "findings": ["F2.1", "F1.1"], "customers": 2, "messages": 4}
    document = swept(section("csm-es", one), top_lines=[line])
    (first,) = sweep_view(sweep_report(document)).first
    assert [reference.label for reference in first.references] == ["1"]


def test_a_known_bug_and_what_was_declined_are_told_and_are_not_open() -> None:
    found = [finding("F1.1", "known"), finding("F1.2", "declined")]
    document = swept(section("csm-es", *found))
    text = text_of(document)
    assert "no open problem" in text
    assert "◇ 1. Issue F1.1 ↗1 Café Sol · #csm-es · open since 4 Mar (11 days) · known bug" in text
    assert "Closed: 1" in text
    assert "#csm-es (1) Café Sol: Issue F1.2" in text
    assert [row["state"] for row in rows(document)] == ["known", "declined"]


def test_a_section_that_is_not_whole_says_so_and_why() -> None:
    bad = section("csm-es", finding("F1.1"), status="partial", summary="Slack gave no answer.")
    document = swept(bad, status="partial")
    document["coverage"]["not_covered"] = [{"source": "csm-es", "reason": "Slack gave no answer"}]
    text = text_of(document)
    assert "(1 urgent) [1] · read in part · Slack gave no" in text
    assert "Issue F1.1" in text
    assert "NOT COVERED · csm-es: Slack gave no answer" in text


def test_lines_are_as_wide_as_a_terminal_and_links_stay_whole() -> None:
    link = f"{LINK}1{'x' * 100}"
    long = finding("F1.1", claim="word " * 100, links=[link])
    text = report_text(sweep_report(swept(section("csm-es", long))))
    assert all(len(line) <= WIDTH or "https://" in line for line in text.splitlines())
    assert link in text


@pytest.mark.parametrize(
    ("shown", "elsewhere"),
    [(report_text, "assistant show abc123 --json"), (report_markdown, "findings.csv")],
)
def test_what_is_too_much_is_counted_and_found_elsewhere(
    shown: Callable[[SweepReport], str], elsewhere: str
) -> None:
    many = (finding(f"F1.{n}", "waiting") for n in range(MOST_FINDINGS + 10))
    text = shown(sweep_report(swept(section("a", *many))))
    assert len(re.findall(r"[ *]Issue F1\.", text)) == MOST_FINDINGS
    assert f"10 more, left out here: {elsewhere}" in " ".join(text.split())


# ---- as Markdown


@given(sweeps())
@settings(max_examples=30, deadline=None)
def test_nothing_in_it_acts_but_links_to_slack(document: Json) -> None:
    text = QUOTING.sub("", MADE.sub("", markdown(document)))
    assert [line for line in text.splitlines() if ACTING.search(line)] == []
    assert "https://" not in text
    assert not re.search(r"@\w", text)
    assert not re.search(r"(?<!\[)\bwww\.", text)


@given(st.text())
def test_text_of_strangers_stays_readable(text: str) -> None:
    bare = re.sub(r"\\([\\`*_\[\]<>~#&])", r"\1", plain(text)).replace("\N{WORD JOINER}", "")
    assert bare.replace("[.]", ".") == text.replace("\N{WORD JOINER}", "").replace("[.]", ".")


def test_markup_of_strangers_is_shown_as_it_is() -> None:
    one = finding("F1.1", claim=EVIL, owner="ana@evil.example")
    text = markdown(swept(section("a", one)))
    assert "\\*b\\* \\_i\\_ \\`c\\` \\[x\\](evil" in text
    assert "ana@\N{WORD JOINER}evil\\[.\\]example" in text


# ---- in the language of its readers


@pytest.mark.parametrize(
    ("language", "said"),
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
        (
            "es",
            [
                "4 problemas abiertos",
                "SIGUE ABIERTO 12 días",
                "falta responsable: Answer",
                "del 1 mar 2025 al 15 mar",
            ],
        ),
        ("ja", ["4 open problems"]),
    ],
)
def test_the_words_of_a_report_are_those_of_its_readers(language: str, said: list[str]) -> None:
    old = [finding(f"F1.{n}", change="open", age_days=12) for n in range(4)]
    sections = (section("csm-es", *old), section("csm-fr"), section("csm-de"))
    text = text_of(swept(*sections, compared=BEFORE, language=language))
    assert [words for words in said if words not in text] == []


# ---- as a table


def test_excel_sees_that_it_is_utf_8() -> None:
    assert findings_csv(sweep_report(swept())).startswith(b"\xef\xbb\xbf")
    assert table(swept()).splitlines() == [",".join(f'"{name}"' for name in COLUMNS)]


@given(sweeps())
@settings(max_examples=30, deadline=None)
def test_everything_has_its_row_and_no_cell_is_a_formula_however_cells_are_parted(
    document: Json,
) -> None:
    ids = [f["id"] for s in document["sections"] for f in s["findings"]]
    found = rows(document)
    assert sorted(row["finding"] for row in found if row["finding"]) == sorted(ids)
    assert sum(row["change"] == QUIET for row in found) == len(document["still_open"])
    numbers = [int(row["number"]) for row in found if row["number"]]
    assert numbers == sorted(numbers)
    assert {*numbers} == {*range(1, len({*numbers}) + 1)}
    for between in ",;\t":
        read = csv.reader(io.StringIO(table(document)), delimiter=between)
        cells = [cell.split("'")[0] for row in read for cell in row]
        assert [cell for cell in cells if re.match(r"[\s\"']*[=+\-@\t\r]", cell)] == []


@pytest.mark.parametrize(
    ("text", "shown"),
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
def test_what_would_be_a_formula_is_text(text: object, shown: str) -> None:
    assert harmless(text) == shown


def test_addresses_that_strangers_wrote_are_no_links() -> None:
    one = finding("F1.1", claim="See https://evil.example/x", links=["https://evil.example/"])
    (row,) = rows(swept(section("a", one)))
    assert (row["claim"], row["link"], row["links"]) == ("See evil[.]example/x", "", "")
