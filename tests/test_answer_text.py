"""An answer in a terminal: what it cites is numbered, and nothing that strangers wrote acts."""

from __future__ import annotations

import re

from document_kit import answer_document
from hypothesis import given
from hypothesis import strategies as st

from bot.reports.answer import answer_text
from bot.terminal import BOLD, PLAIN, printable

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


def test_a_table_that_would_break_words_is_a_list() -> None:
    titles = [f"Title{n}" for n in range(9)]
    rows = [titles, ["---"] * 9, [f"considerable{n}" for n in range(9)]]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = " ".join(" ".join(shown(answer_text(answer_document({"answer": table})))).split())
    assert "• considerable0 · Title1: considerable1 · Title2: considerable2 · " in text
    narrow = "\n".join(f"| {' | '.join(row[:4])} |" for row in rows)
    lines = shown(answer_text(answer_document({"answer": narrow})))
    assert [line.split() for line in lines[:3:2]] == [titles[:4], rows[2][:4]]


def shown(text: str) -> list[str]:
    """The lines without what is bold on a terminal."""
    return text.replace(BOLD, "").replace(PLAIN, "").splitlines()


@given(st.text())
def test_nothing_that_is_printed_steers_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert len(shown) == len(text)
    assert [c for c in shown if c.isalnum()] == [c for c in text if c.isalnum()]
