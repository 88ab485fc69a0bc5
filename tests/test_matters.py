"""The first lines of a digest: what counts, what is dropped, what stands in for a model."""

from __future__ import annotations

from typing import Any

import pytest

from bot.tasks.overview import by_urgency, read_triage_lines
from bot.tasks.triage import category_of
from scopes.label import TRUSTED
from subagents.result import Finding, SubagentResult


def judged(number: int, **value: Any) -> SubagentResult:
    given = {
        **{"category": "other", "priority": "low", "deadline": "", "asked_of_me": False},
        **{"key_facts": [], "proposed_action": "", "evidence": ["t/1"], **value},
    }
    finding = Finding(
        id=f"F{number}.1", claim=f"claim {number}", next_step=f"do {number}", evidence=["t/1"]
    )
    return SubagentResult(
        id=f"s{number}",
        scope="email",
        model="fast",
        status="complete",
        stopped_by="none",
        contract="triage",
        value=given,
        findings=[finding],
        label=TRUSTED.to_json(),
    )


KNOWN = {f"F{n}.1" for n in range(1, 7)}


def test_lines_keep_what_they_cite_and_lose_what_they_do_not() -> None:
    lines = read_triage_lines(
        "1. Answer Ana. [F1.1]\n\nNobody said this.\n- Pay it [F9.1]\n- Call [F2.1], [F9.1]", KNOWN
    )

    assert [(s.text, s.findings) for s in lines.first] == [
        ("1. Answer Ana.", ("F1.1",)),
        ("Call", ("F2.1",)),
    ]


def test_a_matter_has_two_threads_and_each_thread_one_matter() -> None:
    lines = read_triage_lines(
        "SAME: the outage [F1.1] [F2.1] [F1.1]\nSAME: alone [F3.1]\nsame: again [F2.1] [F4.1]"
        "\nSAME: the invoice [F4.1][F5.1]",
        KNOWN,
    )

    assert [(s.text, s.findings) for s in lines.matters] == [
        ("the outage", ("F1.1", "F2.1")),
        ("the invoice", ("F4.1", "F5.1")),
    ]
    assert lines.first == ()
    assert lines.topics({"F1.1": "t1", "F2.1": "t2"})[0].to_json() == {
        "text": "the outage",
        "threads": ["t1", "t2"],
    }


def test_code_puts_first_what_is_asked_or_urgent_and_due_soonest() -> None:
    results = [
        judged(1),
        judged(2, priority="high"),
        judged(3, asked_of_me=True, deadline="2026-03-20"),
        judged(4, asked_of_me=True, deadline="2026-03-12"),
        judged(5, asked_of_me=True, priority="medium"),
    ]

    assert [s.findings for s in by_urgency(results)] == [("F4.1",), ("F3.1",), ("F2.1",)]
    assert by_urgency(results[:1]) == []


@pytest.mark.parametrize(
    ("said", "names", "meant"),
    [
        ("Customer ", ("customer", "other"), "customer"),
        ("lottery", ("customer", "other"), "other"),
        ("lottery", ("customer", "rest"), "rest"),
    ],
)
def test_a_category_is_one_of_those_that_are_configured(
    said: str, names: tuple[str, ...], meant: str
) -> None:
    assert category_of(said, names) == meant
