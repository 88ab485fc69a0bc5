"""A sweep as text, as Markdown and as a table: all that its readers need, and nothing acts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from document_kit import gaps_of, sweep_report
from hypothesis import given, settings
from hypothesis import strategies as st
from report_kit import BEFORE, EVIL, LINK, finding, section, still, sweeps, swept

from bot.reports.documents import SweepReport
from bot.reports.files import COLUMNS, QUIET, findings_csv, harmless
from bot.reports.markdown import plain, report_markdown
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


def test_a_section_counts_what_it_shows() -> None:
    found = [
        finding("F1.1", customers=["Café Sol", "Bar Luna"], messages=7),
        finding("F1.2", customers=[], people=3),
        finding("F1.3", customers=[], people=1, messages=1),
        finding("F1.4", "waiting"),
        finding("F1.5", "none"),
    ]
    text = text_of(swept(section("csm-es", *found), cost_usd=None))
    assert "● 3 open (3 high) · 40 messages in 12 threads read" in text
    assert "Café Sol, Bar Luna · 7 messages" in text
    assert "3 customers · 2 messages · since 4 Mar 2025" in text
    assert "1 customer · 1 message" in text
    assert "· 1 channel ·" in text
    assert "Waiting, known or closed · ● 4. · waits for the customer · Issue F1.4" in text
    assert "Issue F1.5" not in text
    assert "price unknown" in text


def test_a_finding_says_who_waits_since_when_and_who_acts_next() -> None:
    waits: Json = {"waits": ["Ana Ruiz"], "waits_since": "2025-03-09T08:00:00Z"}
    named = finding("F1.1", **waits)
    unnamed = finding("F1.2", customers=[], owner="Luis", **waits)
    text = text_of(swept(section("csm-es", named, unnamed)))
    assert "Café Sol · waits since 9 Mar 2025 · 2 messages · since 4 Mar 2025" in text
    assert "Ana Ruiz · waits since 9 Mar 2025" in text
    assert "Owner: Luis → Answer Ana." in text


def test_five_open_issues_of_a_channel_stand_whole_and_the_rest_on_one_line_each() -> None:
    many = [finding(f"F1.{n}") for n in range(1, 8)]
    text = text_of(swept(section("csm-es", *many)))
    whole, _, rest = text.partition("Also open")
    assert whole.count("→ Answer Ana.") == 5
    assert rest.count("· unsolved · Issue") == 2
    assert "→" not in rest.partition("SOURCES")[0]


@pytest.mark.parametrize(("model", "shown"), [("claude", True), ("offline", False)])
def test_what_the_subagents_say_of_a_channel_reaches_the_reader(model: str, shown: bool) -> None:
    text = text_of(swept(section("csm-es", finding("F1.1")), model=model))
    assert ("What it found, in a sentence." in text) == shown


def test_a_line_that_cites_a_joined_finding_leads_to_the_one_that_stands() -> None:
    one = finding("F1.1", joined=["F2.1"])
    line = {"text": "Pay back", "findings": ["F2.1", "F1.1"], "customers": 2, "messages": 4}
    document = swept(section("csm-es", one), top_lines=[line])
    (first,) = sweep_view(sweep_report(document)).first
    assert [reference.label for reference in first.references] == ["1"]
    assert first.findings == ("F1.1",)


def test_a_known_bug_and_what_was_declined_are_told_and_are_not_open() -> None:
    found = [finding("F1.1", "known"), finding("F1.2", "declined")]
    document = swept(section("csm-es", *found))
    text = text_of(document)
    assert "no open issue" in text
    assert "Waiting, known or closed · ● 1. · known bug · Issue F1.1" in text
    assert "● 2. · declined · Issue F1.2" in text
    assert [row["state"] for row in rows(document)] == ["known", "declined"]


def test_a_section_that_is_not_whole_says_so_and_why() -> None:
    bad = section("csm-es", finding("F1.1"), status="partial", summary="Slack gave no answer.")
    document = swept(bad, status="partial")
    document["coverage"]["not_covered"] = [{"source": "csm-es", "reason": "Slack gave no answer"}]
    text = text_of(document)
    assert "(read in part)" in text
    assert "Slack gave no answer. " in text
    assert "Issue F1.1" in text
    assert "NOT COVERED · csm-es: Slack gave no answer" in text


def test_many_gaps_are_cut_with_their_number() -> None:
    document = swept(section("csm-es"))
    document["coverage"]["not_covered"] = gaps_of(*(f"gap\n{n}" for n in range(14)))
    text = text_of(document)
    assert text.count("· gap") == 10
    assert "and 4 more" in text


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
    many = (finding(f"F1.{n}", "solved") for n in range(MOST_FINDINGS + 10))
    text = shown(sweep_report(swept(section("a", *many))))
    assert text.count(" · solved · Issue") == MOST_FINDINGS
    assert f"10 more, left out here: {elsewhere}" in " ".join(text.split())


# ---- as Markdown


def test_a_report_reads_from_what_to_do_first_to_what_it_cost() -> None:
    one = finding("F1.1", change="open", age_days=3, owner="Ana", quotes=["No *funciona*"])
    document = swept(
        section("csm-es", one, finding("F1.2", "solved", change="solved")),
        title="weekly",
        compared=BEFORE,
        top_lines=[{"text": "Pay back", "findings": ["F1.1"], "customers": 1, "messages": 2}],
        patterns=[{"text": "Twice", "findings": ["F1.1"], "markets": ["csm-es", "csm-fr"]}],
        still_open=[still()],
    )
    text = markdown(document)
    told = [
        "# Customer issues: weekly",
        "**2 open (1 high) · 2 still open for up to 12 days, 1 solved · compared with",
        f"1. Pay back (1 customer, 2 messages) [1]({one['links'][0]})",
        f"- Twice · **#csm-es, #csm-fr** [1]({one['links'][0]})",
        "## #csm-es",
        "### **● 1. STILL OPEN 3 days** · unsolved · **Issue F1.1**",
        "> «No \\*funciona\\*»",
        "- **✓ 2. SOLVED** · solved · Issue F1.2",
        "## Still open, no news in this window",
        f"The till hangs · nobody · [open]({LINK}1740000000000100)",
        "run abc123",
    ]
    at = [text.find(each) for each in told]
    assert -1 not in at, told[at.index(-1)]
    assert at == sorted(at)


@pytest.mark.parametrize("language", ["en", "de"])
def test_no_line_begins_with_a_number_that_a_list_would_take(language: str) -> None:
    text = markdown(swept(section("a", finding("F1.1")), language=language))
    assert [line for line in text.splitlines() if re.match(r"\d+[.)] ", line)] == []


@given(sweeps())
@settings(max_examples=60, deadline=None)
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


def test_what_is_still_open_and_high_is_to_be_done_where_nothing_newer_is() -> None:
    old = [
        still("Receipts without a number", severity="high", age_days=9),
        still("The printer is slow"),
        still("Charged twice", severity="high", age_days=12),
    ]
    document = swept(section("csm-es"), compared=BEFORE, still_open=old)
    first, second = (line for line in markdown(document).splitlines() if re.match(r"\d\.", line))
    assert "Charged twice" in first
    assert "12 days" in first
    assert "https://" in first
    assert "Receipts without a number" in second
    url = old[2]["links"][0]
    assert f"DO FIRST 1. #csm-es: Charged twice · STILL OPEN 12 days {url}" in text_of(document)


# ---- in the language of its readers


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("de", ["4 offen (4 dringend)", "NOCH OFFEN, 12 Tage", "niemand", "1. März 2025"]),
        ("es", ["abiertos: 4", "SIGUE ABIERTO 12 días", "nadie", "del 1 mar 2025 al 15 mar"]),
        ("ja", ["4 open (4 high)"]),
    ],
)
def test_the_words_of_a_report_are_those_of_its_readers(language: str, said: list[str]) -> None:
    old = [finding(f"F1.{n}", change="open", age_days=12) for n in range(4)]
    sections = (section("csm-es", *old), section("csm-fr"), section("csm-de"))
    text = text_of(swept(*sections, compared=BEFORE, language=language))
    assert [words for words in said if words not in text] == []
    assert "No funciona el pago." in text


# ---- as a table


def test_a_row_holds_all_that_is_known_of_a_finding() -> None:
    tracker = {"status": "closed", "key": "BUG-1", "title": "Twice", "link": f"{LINK}7"}
    one = finding(
        "F1.1",
        change="open",
        age_days=3,
        first="2025-03-12T00:00:00Z",
        issue="i-0a1b2c3d",
        customers=["Café Sol", "Bar Luna"],
        tracker=tracker,
        quotes=["Uno", "Dos"],
        waits=["Ana Ruiz", "Luis Gil"],
        waits_since="2025-03-05T09:00:00Z",
    )
    document = swept(section("csm-es", one), compared=BEFORE, still_open=[still()])
    row, quiet = rows(document)
    assert row == {
        **{"number": "1", "market": "csm-es", "change": "open", "state": "unsolved"},
        **{"severity": "high", "severity_reason": "money is lost", "claim": "Issue F1.1"},
        **{"customers": "Café Sol; Bar Luna", "people": "1", "owner": "nobody"},
        **{"next_step": "Answer Ana.", "messages": "2", "since": "2025-03-04T09:00:00Z"},
        **{"first_seen": "2025-03-12T00:00:00Z", "age_days": "3", "tracker_status": "closed"},
        **{"tracker_key": "BUG-1", "tracker_title": "Twice", "tracker_link": f"{LINK}7"},
        **{"quotes": "Uno | Dos", "link": one["links"][0], "links": one["links"][0]},
        **{"finding": "F1.1", "issue": "i-0a1b2c3d"},
        **{"waits": "Ana Ruiz; Luis Gil", "waits_since": "2025-03-05T09:00:00Z"},
    }
    known = ("market", "issue", "first_seen", "age_days", "change")
    assert [quiet[name] for name in known] == [
        *("csm-es", "i-0a1b2c3d", "2025-03-03T08:00:00Z", "12", QUIET)
    ]


def test_excel_sees_that_it_is_utf_8() -> None:
    assert findings_csv(sweep_report(swept())).startswith(b"\xef\xbb\xbf")
    assert table(swept()).splitlines() == [",".join(f'"{name}"' for name in COLUMNS)]


@given(sweeps())
@settings(max_examples=60, deadline=None)
def test_everything_has_its_row_and_no_cell_is_a_formula_however_cells_are_parted(
    document: Json,
) -> None:
    ids = [f["id"] for s in document["sections"] for f in s["findings"]]
    found = rows(document)
    assert sorted(row["finding"] for row in found if row["finding"]) == sorted(ids)
    assert sum(row["change"] == QUIET for row in found) == len(document["still_open"])
    assert [int(row["number"]) for row in found if row["number"]] == list(range(1, len(ids) + 1))
    for between in ",;\t":
        read = csv.reader(io.StringIO(table(document)), delimiter=between)
        cells = [cell.split("'")[0] for row in read for cell in row]
        assert [cell for cell in cells if re.match(r"[\s\"']*[=+\-@\t\r]", cell)] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+49 30 1234", "'+49 30 1234"),
        ("-5 %", "'-5 %"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'=1"),
        ("\uff1d1+1", "'=1+1"),
        ('"=1"', '"\'=1"'),
        ("a;=1", "a;'=1"),
        ("a; b", "a; b"),
        ("two\r\n=lines", "two =lines"),
        ("a=b", "a=b"),
        (None, ""),
    ],
)
def test_what_would_be_a_formula_is_text(text: object, shown: str) -> None:
    assert harmless(text) == shown


def test_addresses_that_strangers_wrote_are_no_links() -> None:
    one = finding("F1.1", claim="See https://evil.example/x", links=["https://evil.example/"])
    (row,) = rows(swept(section("a", one)))
    assert (row["claim"], row["link"], row["links"]) == ("See evil[.]example/x", "", "")
