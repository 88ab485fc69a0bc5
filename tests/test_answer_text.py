"""An answer in a terminal: what it cites is numbered, and nothing that strangers wrote acts."""

from __future__ import annotations

import re
from typing import Any

from document_kit import answer_document
from hypothesis import given
from hypothesis import strategies as st

from bot.reports.answer import answer_text
from bot.terminal import BOLD, PLAIN, printable
from config.words import phrase

Json = dict[str, Any]
LINK = "https://acme.slack.com/archives/C1/p1741597200000100"


def test_citations_become_numbers_in_the_order_of_the_text() -> None:
    document = answer_document(
        {
            "kind": "ask",
            "answer": "Cards fail [F2.1]. Bills [F1.1; F2.1] too.\n\nMore [F9.9][F1.3].",
            "links": {"F1.1": [LINK], "F2.1": [LINK + "2"], "F1.3": []},
            "statements": [{"text": "One."}, {"text": "Two."}],
            "cited": 1,
            "cost_usd": None,
        }
    )
    text = answer_text(document)
    assert "Cards fail [1]. Bills [1] [2] too." in text
    assert text.index(f"[1] {LINK}2") < text.index(f"[2] {LINK}")
    assert "F9.9" not in text
    assert "2 sources · price unknown" in text
    assert "statements" not in text.partition("links and statements")[0]
    assert "1 of 2 statements cited" in answer_text(document, whole=True)


def answered(answer: str, *findings: Json, **more: Any) -> str:
    links = {f["id"]: f.get("links", []) for f in findings}
    document = {
        "kind": "ask",
        "answer": answer,
        "links": links,
        "subagents": [{"findings": findings}],
    }
    return answer_text(answer_document({**document, **more}))


def shown(text: str) -> list[str]:
    """The lines without what is bold on a terminal."""
    return text.replace(BOLD, "").replace(PLAIN, "").splitlines()


def test_markdown_is_shown_without_its_marks() -> None:
    text = answered(
        "**Spain** leads, *by far*.\n"
        "- one\n"
        "  1. `two`\n\n"
        "| Market | Refunded | Note |\n|---|---|---|\n"
        f"| Spain | €505.00 | {'long ' * 20}|\n| Italy | €1,144.00 | – |\n"
    )
    assert text.startswith(f"{BOLD}Spain{PLAIN} leads, by far.\n")
    assert shown(text)[:5] == ["Spain leads, by far.", "", "• one", "  1. two", ""]
    table = shown(text)[5:10]
    assert [line[:20] for line in table] == [
        "Market    Refunded  ",
        "─" * 20,
        "Spain      €505.00  ",
        " " * 20,
        "Italy    €1,144.00  ",
    ]
    assert max(map(len, table)) <= 92


def test_a_statement_is_named_by_what_it_reads_and_stands_once() -> None:
    sql = "SELECT market, sum(x) FROM refunds JOIN orders USING (id) WHERE day > 1 GROUP BY market"
    query = f"data:sales: {sql}"
    rows = [f"q-1a2b3c#row{n}" for n in (1, 2, 3)]
    one: Json = {"id": "F1.1", "evidence": rows[:1], "queries": [query]}
    same: Json = {"id": "F1.2", "evidence": rows[1:], "queries": [query]}
    tables: Json = {"id": "F1.3", "evidence": ["t-1a2b3c"], "sources": ["data:sales"]}
    text = answered("A [F1.1]. B [F1.2] [F1.1]. C [F1.3].", one, same, tables)
    assert "A [1]. B [1]. C [2]." in text
    named = "Database sales: refunds and orders by market, filtered by day, 3 rows"
    assert f"\n[1] {named}\n[2] Database sales: its list of tables\n" in text
    assert "SELECT" not in text
    assert "q-1a2b3c" not in text


def test_many_messages_stand_together_by_channel() -> None:
    def message(number: int, channel: str) -> Json:
        link = f"https://acme.slack.com/archives/{channel}/p{number}"
        wrote = {"author": f"Ana {number}", "at": f"2026-03-{number:02}T23:30:00Z"}
        evidence = [f"{channel}/{number}.1"]
        return {"id": f"F1.{number}", "evidence": evidence, "links": [link], **wrote}

    found = [message(n, "C0A" if n % 2 else "C0B") for n in range(1, 9)]
    cited = " ".join(f"[{f['id']}]" for f in found)
    window = [{"oldest": "2026-03-01T00:00:00Z", "latest": "2026-03-16T00:00:00Z"}]
    more = {"places": {"C0A": "#ana", "C0B": "#ben"}, "windows": window, "zone": "Europe/Madrid"}
    lines = shown(answered(f"All {cited}.", *found, **more))
    assert lines[0] == "All [1–8]."
    assert "#ana: [1] Ana 1 2 Mar · [3] Ana 3 4 Mar · [5] Ana 5 6 Mar · [7] Ana 7 8 Mar" in lines
    assert not any("https:" in line for line in lines)
    few = shown(answered("Two [F1.1] [F1.2].", *found, **more))
    assert few[3:5] == ["[1] #ana, Ana 1 2 Mar", f"    {found[0]['links'][0]}"]


def test_the_line_below_says_what_was_not_covered_in_plain_words() -> None:
    gap = {"reason": "The amounts: no channel names them.", "subagent": "s1"}
    cover = {"not_covered": [gap], "items": 1, "complete": 1}
    text = answered("None.", status="partial", coverage=cover)
    assert "\nNot covered: The amounts: no channel names them.\n" in text
    assert phrase("answer.incomplete") not in text


@given(st.text())
def test_nothing_that_is_printed_steers_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert len(shown) == len(text)
    assert [c for c in shown if c.isalnum()] == [c for c in text if c.isalnum()]


def test_what_people_write_with_is_printed_as_it_is() -> None:
    for text in ("a\tb\nc", "👩‍👩‍👧 é ß 漢字", "می‌خواهم", "Łódź — «ok»"):
        assert printable(text) == text
