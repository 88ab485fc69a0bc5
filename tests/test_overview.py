"""The lines that a parent writes above a report."""

from __future__ import annotations

from typing import Any

import pytest
from document_kit import RESULT

from bot.tasks.overview import by_urgency, read_overview, read_triage_lines
from subagents.result import Finding, SubagentResult

# ---- the lines of the parent

CHANNELS = {
    **dict.fromkeys(("F1.1", "F1.2", "F1.3"), "csm-germany"),
    **dict.fromkeys(("F2.1", "F2.2"), "csm-spain"),
}


def test_overview_lines_are_parsed_by_kind_and_uncited_ones_are_dropped() -> None:
    overview = read_overview(
        "- Refund the double charges [F1.1][F2.1]\n"
        "PROBLEM: Double charges [F1.1] [F2.1]\n"
        "**PROBLEM:** Slow tills [F1.2][F1.3]\n"
        "PROBLEM: one of them is taken [F1.1][F2.2]\n"
        "PROBLEM: nobody [F9.9]\n"
        "TRACKED: [F1.1] = BUG-2\n"
        "- TRACKED: [F1.2] [F2.1] = **BUG-4**.\n"
        "TRACKED: [F9.9] = BUG-2\n"
        "DECIDE: Whether the bank fee is paid [F2.1]\n"
        "DECIDE: Something that no finding says\n"
        "MAIN: It is all fine.\n"
        "MAIN: Release 3.8 is behind it. Nobody acts. [F1.1] [F9.9] [F2.1]\n"
        "All clear!",
        CHANNELS,
    )
    assert overview.headline is not None
    assert overview.headline.text == "Release 3.8 is behind it. Nobody acts."
    assert overview.headline.findings == ["F1.1", "F2.1"]
    assert [s.text for s in overview.decisions] == ["Whether the bank fee is paid"]
    assert [s.text for s in overview.first] == ["Refund the double charges"]
    assert [each.to_json() for each in overview.problems] == [
        {
            "text": "Double charges",
            "findings": ["F1.1", "F2.1"],
            "markets": ["csm-germany", "csm-spain"],
        },
        {"text": "Slow tills", "findings": ["F1.2", "F1.3"], "markets": ["csm-germany"]},
    ]
    assert overview.pairs == (("F1.1", "BUG-2"), ("F1.2", "BUG-4"), ("F2.1", "BUG-4"))


def triage_result(number: int, **value: Any) -> SubagentResult:
    fields = {
        **{"category": "other", "priority": "low", "deadline": "", "asked_of_me": False},
        **{"key_facts": [], "proposed_action": "", "evidence": ["t/1"], **value},
    }
    finding = Finding(
        id=f"F{number}.1", claim=f"claim {number}", next_step=f"do {number}", evidence=["t/1"]
    )
    changes = {"id": f"s{number}", "contract": "triage", "value": fields, "findings": [finding]}
    return SubagentResult.model_validate({**RESULT, **changes})


KNOWN = {f"F{n}.1": "" for n in range(1, 7)}
THREADS = {id: f"t{id[1]}" for id in KNOWN}


def test_triage_lines_without_a_known_citation_are_dropped() -> None:
    lines = read_triage_lines(
        "1. Answer Ana. [F1.1]\n\nNobody said this.\n- Pay it [F9.1]\n- Call [F2.1], [F9.1]",
        KNOWN,
        THREADS,
    )

    assert [(s.text, s.findings) for s in lines.first] == [
        ("1. Answer Ana.", ["F1.1"]),
        ("Call", ["F2.1"]),
    ]


def test_topic_needs_two_threads_and_a_thread_belongs_to_one_topic() -> None:
    lines = read_triage_lines(
        "SAME: the outage [F1.1] [F2.1] [F1.1]\nSAME: alone [F3.1]\nsame: again [F2.1] [F4.1]"
        "\nSAME: the invoice [F4.1][F5.1]",
        KNOWN,
        THREADS,
    )

    assert [(topic.text, topic.threads) for topic in lines.matters] == [
        ("the outage", ["t1", "t2"]),
        ("the invoice", ["t4", "t5"]),
    ]
    assert lines.first == []


CLAIMS = {
    "F1.1": "Down from 18:02 to 21:47 on 2026-03-14.",
    "F2.1": "Ask whether it is over. 2.940 Euro are open.",
    "F3.1": "The refund runs at 16:00.",
}
OUTAGE = "SAME: the outage [F1.1][F2.1]\n"


def test_topic_keeps_known_and_next_lines_supported_by_its_threads() -> None:
    lines = read_triage_lines(
        f"KNOWN: It ended on 14 March at 21:47, 2,940 Euro are open [F1.1][F2.1].\n{OUTAGE}"
        "- NEXT: Tell her that it ended at 21:47. [F2.1][F1.1]\n"
        "NEXT: Tell her again. [F2.1][F1.1]",
        CLAIMS,
        THREADS,
    )
    (topic,) = lines.matters
    assert [(each.text, each.threads) for each in topic.known] == [
        ("It ended on 14 March at 21:47, 2,940 Euro are open.", ["t1", "t2"])
    ]
    assert [(each.text, each.threads) for each in topic.steps] == [
        ("Tell her that it ended at 21:47.", ["t2", "t1"])
    ]
    assert (lines.first, lines.dropped) == ([], 0)


@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        ("KNOWN: It ended at 21:48. [F1.1]", 1),
        ("KNOWN: It ended at 21:47. [F2.1]", 1),
        ("KNOWN: The refund runs at 16:00. [F1.1][F3.1]", 0),  # a thread of another topic
        ("KNOWN: It is over.", 0),
        ("NEXT: Tell her. [F2.1]", 0),  # nothing answers it
        ("NEXT: Tell her that 14 customers wait. [F2.1][F3.1]", 1),
    ],
)
def test_topic_lines_unsupported_by_their_cited_threads_are_dropped(
    line: str, dropped: int
) -> None:
    lines = read_triage_lines(OUTAGE + line, CLAIMS, THREADS)
    assert [(each.known, each.steps) for each in lines.matters] == [([], [])]
    assert lines.dropped == dropped


def test_by_urgency_orders_requested_and_due_threads_by_deadline() -> None:
    results = [
        triage_result(1),
        triage_result(2, priority="high"),
        triage_result(3, asked_of_me=True, deadline="2026-03-20"),
        triage_result(4, priority="high", deadline="2026-03-12"),
        triage_result(5, asked_of_me=True, priority="medium"),
    ]

    assert [s.findings for s in by_urgency(results, THREADS)] == [["F4.1"], ["F3.1"], ["F5.1"]]
    assert by_urgency(results[:2], THREADS) == [], "nothing is asked, and nothing is due"
