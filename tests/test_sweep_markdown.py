"""A sweep as Markdown: all that its readers need, and no markup but that of code."""

from __future__ import annotations

import re
from typing import Any

import pytest
from document_kit import sweep_report
from hypothesis import given, settings
from hypothesis import strategies as st
from report_kit import BEFORE, EVIL, LINK, finding, section, still, sweeps, swept

from bot.reports.markdown import plain, report_markdown

Json = dict[str, Any]
ACTING = re.compile(r"(?<!\\)(?:\\\\)*[\[\]<>`~]")
"""Marks that are not escaped."""
MADE = re.compile(r"\[[^\[\]]+\]\(https://acme\.slack\.com/[A-Za-z0-9/_.?=&-]+\)")
QUOTING = re.compile(r"^> ", re.MULTILINE)


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
    text = report_markdown(sweep_report(document))
    told = [
        "# Customer issues: weekly",
        "**2 open (1 high) · 2 still open for up to 12 days, 1 solved · compared with the report "
        "up to 1 Mar 2025** · 1 Mar 2025 to 15 Mar 2025",
        f"1. Pay back (1 customer, 2 messages) [1]({one['links'][0]})",
        f"- Twice · **#csm-es, #csm-fr** [1]({one['links'][0]})",
        "## #csm-es",
        "### **● 1. STILL OPEN 3 days** · unsolved · **Issue F1.1**",
        "> «No \\*funciona\\*»",
        "- Owner: **Ana**",
        "- → Answer Ana.",
        "- Severity high: money is lost",
        "- **✓ 2. SOLVED** · solved · Issue F1.2",
        "## Still open, no news in this window",
        f"The till hangs · nobody · [open]({LINK}1740000000000100)",
        "- $0.1234 · 12,345 tokens · run abc123",
    ]
    at = [text.find(each) for each in told]
    assert -1 not in at, told[at.index(-1)]
    assert at == sorted(at)


@pytest.mark.parametrize("language", ["en", "de", "cs", "fr"])
def test_no_line_begins_with_a_number_that_a_list_would_take(language: str) -> None:
    window = {"oldest": "2025-03-01T00:00:00Z", "latest": "2025-03-15T00:00:00Z"}
    text = report_markdown(
        sweep_report(swept(section("a", finding("F1.1")), language=language, window=window))
    )
    assert [line for line in text.splitlines() if re.match(r"\d+[.)] ", line)] == []


@given(sweeps())
@settings(max_examples=60, deadline=None)
def test_nothing_in_it_acts_but_links_to_slack(document: Json) -> None:
    text = QUOTING.sub("", MADE.sub("", report_markdown(sweep_report(document))))
    assert [line for line in text.splitlines() if ACTING.search(line)] == []
    assert "https://" not in text
    assert not re.search(r"@\w", text)
    assert not re.search(r"(?<!\[)\bwww\.", text)


@given(st.text())
def test_text_of_strangers_stays_readable(text: str) -> None:
    bare = re.sub(r"\\([\\`*_\[\]<>~#&])", r"\1", plain(text)).replace("\N{WORD JOINER}", "")
    assert bare.replace("[.]", ".") == text.replace("\N{WORD JOINER}", "").replace("[.]", ".")


def test_markup_of_strangers_is_shown_as_it_is() -> None:
    document = swept(section("a", finding("F1.1", claim=EVIL, owner="ana@evil.example")))
    text = report_markdown(sweep_report(document))
    assert "\\*b\\* \\_i\\_ \\`c\\` \\[x\\](evil" in text
    assert "ana@\N{WORD JOINER}evil\\[.\\]example" in text


def test_what_is_too_much_is_left_out_and_said() -> None:
    many = swept(section("a", *(finding(f"F1.{n}") for n in range(310))))
    assert "10 more, left out here: findings.csv" in report_markdown(sweep_report(many))


def test_what_is_still_open_and_high_is_to_be_done_where_nothing_newer_is() -> None:
    old = [
        still("Receipts without a number", severity="high", age_days=9),
        still("The printer is slow"),
        still("Charged twice", severity="high", age_days=12),
    ]
    text = report_markdown(sweep_report(swept(section("csm-es"), compared=BEFORE, still_open=old)))
    first, second = (line for line in text.splitlines() if line.startswith(("1.", "2.")))
    assert "Charged twice" in first
    assert "12 days" in first
    assert "https://" in first
    assert "Receipts without a number" in second
    assert not any(line.startswith("3.") for line in text.splitlines())
