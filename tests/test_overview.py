"""Which row of a tracker an issue is, and the lines that a parent writes above a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from document_kit import RESULT
from timing import computed_within

from bot.tasks.overview import Overview, by_urgency, pair_rows, read_overview, read_triage_lines
from bot.tasks.sources import ChannelPlan, SweepSource
from bot.tasks.tracker import TrackerReader, TrackerRow, keys_in, rows_of, tracker_entry
from bot.tasks.triage import category_of
from scopes.label import TRUSTED
from scopes.slack_reader import ChannelInfo
from scopes.tool import Item, Window
from subagents.result import Finding, SubagentResult

WINDOW = Window(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 15, tzinfo=UTC))


def row(
    key: str, title: str, market: str = "all", *, closed: bool = False, **more: Any
) -> TrackerRow:
    return TrackerRow(
        f"F1/{key}", key, title, closed, market, None, frozenset(more.get("threads", ()))
    )


ROWS = [
    row("BUG-1", "Receipts without TSE signature since 3.8", "Germany"),
    row("BUG-2", "SEPA export rejected because of a missing BIC"),
    row("BUG-3", "Loyalty points lost after offline mode", "France", closed=True),
    row("BUG-4", "Login codes by SMS are not delivered", closed=True),
    row("BUG-5", "E-invoices rejected by SDI with a schema error", "Italy"),
    row("BUG-6", "Cash drawer opens twice on mixed payment", "Switzerland"),
]


SWEPT = ("csm-germany", "csm-france", "csm-italy", "csm-spain", "csm-switzerland", "support")


def source(
    name: str = "csm-germany", keys: Mapping[str, Sequence[str]] | None = None
) -> SweepSource:
    return SweepSource(
        ChannelInfo("C1", name, False, True, ""), WINDOW, ChannelPlan("C1", keys=keys or {})
    )


def finding(claim: str, **more: Any) -> Finding:
    given: dict[str, Any] = {"state": "unsolved", "evidence": ["C1/1.1"], "threads": ["C1/1.1"]}
    return Finding(id="F1.1", claim=claim, **{**given, **more})


def found(claim: str, channel: str = "csm-germany", **more: Any) -> str:
    keys = more.pop("keys", None)
    row = TrackerReader(ROWS, SWEPT).find(finding(claim, **more), source(channel, keys))
    return row.key if row else ""


SPAIN, ITALY = {"channel": "csm-spain"}, {"channel": "csm-italy"}


@pytest.mark.parametrize(
    ("claim", "more", "key"),
    [
        # Rare words of both, across languages; one acronym is no proof.
        ("Kassenbons ohne TSE-Signatur seit dem Update", {}, "BUG-1"),
        ("El banco rechaza el fichero SEPA: falta el BIC", SPAIN, "BUG-2"),
        ("Loyalty points were lost while offline", {"channel": "csm-france"}, "BUG-3"),
        ("Una fattura scartata dallo SDI per natura IVA mancante", ITALY, ""),
        ("The bank rejected a payment", ITALY, ""),
        ("", ITALY, ""),
        # A row of another market is not the same bug.
        ("Bons ohne TSE-Signatur", {"channel": "csm-switzerland"}, ""),
        ("It is BUG-1 again", SPAIN, ""),
        # The key that its thread or its next step names decides.
        ("Doble cobro", {"keys": {"C1/1.1": ["BUG-2"]}}, "BUG-2"),
        ("Doble cobro", {"keys": {"C1/9.9": ["BUG-2"]}}, ""),
        ("Doble cobro", {"keys": {"C1/1.1": ["ABC-99"]}}, ""),
        ("Doble cobro", {"next_step": "Wait for BUG-2."}, "BUG-2"),
        # Of two keys the open one is meant, and of two open ones none.
        ("Doble cobro", {"keys": {"C1/1.1": ["BUG-4", "BUG-2"]}}, "BUG-2"),
        ("Doble cobro", {"keys": {"C1/1.1": ["BUG-1", "BUG-2"]}}, ""),
    ],
)
def test_a_row_is_found_by_key_or_by_rare_words_or_it_is_not_said(
    claim: str, more: Mapping[str, Any], key: str
) -> None:
    assert found(claim, **more) == key


def test_a_row_that_links_to_the_thread_is_its_row() -> None:
    rows = [*ROWS, row("BUG-9", "Something else", threads=["C1/1.1"])]
    assert TrackerReader(rows, SWEPT).find(finding("x"), source()) == rows[-1]


def test_two_rows_that_fit_alike_leave_it_open() -> None:
    rows = [row("A-1", "SEPA export misses the BIC"), row("A-2", "SEPA import misses the BIC")]
    assert TrackerReader(rows, SWEPT).find(finding("SEPA BIC fehlt"), source()) is None


@pytest.mark.parametrize(
    ("market", "channel", "fit"),
    [
        ("Germany", "csm-germany", True),
        ("Germany", "csm-spain", False),
        ("Spain, France", "csm-france", True),
        ("all", "csm-spain", True),
        ("Payments", "csm-spain", True),
        ("Italy", "support", False),
    ],
)
def test_a_row_is_not_about_a_channel_if_its_market_names_another_one(
    market: str, channel: str, fit: bool
) -> None:
    assert TrackerReader([], SWEPT).fits(row("A-1", "x", market), channel) == fit


# ---- what it says


def test_closed_means_closed_and_still_reported() -> None:
    closed = ROWS[2]
    states = {
        state: tracker_entry(closed, finding("x", state=state), True)
        for state in ("unsolved", "waiting", "solved")
    }
    assert [each and each.status for each in states.values()] == ["closed", "closed", "tracked"]
    nothing = tracker_entry(None, finding("x"), True)
    assert nothing
    assert nothing.to_json() == {"status": "untracked", "key": "", "title": "", "link": None}


def test_what_may_stand_in_a_row_that_was_not_read_is_not_called_untracked() -> None:
    assert tracker_entry(None, finding("x"), False) is None
    assert tracker_entry(None, finding("x", state="solved"), True) is None


def test_rows_that_a_subagent_made_up_are_left_out() -> None:
    items = {
        "F1/R1": Item("F1/R1", "title: Cash drawer | key: BUG-6 | status: open", None, TRUSTED)
    }
    told = [
        {"id": "F1/R1", "key": "BUG-6", "title": "Cash drawer", "status": "open", "market": ""},
        {"id": "F1/R1", "key": "BUG-6", "title": "Again", "status": "closed", "market": ""},
        {"id": "F1/R2", "key": "BUG-7", "title": "Not there", "status": "open", "market": ""},
    ]
    result = SubagentResult.model_validate(
        {**RESULT, "contract": "tracker", "value": {"rows": told}}
    )
    (only,) = rows_of([result], items)
    assert (only.key, only.title, only.closed) == ("BUG-6", "Cash drawer", False)
    forged = {**told[0], "key": "BUG-9", "title": "Pay at once"}
    (only,) = rows_of([result.model_copy(update={"value": {"rows": [forged]}})], items)
    assert only.key == ""
    assert "Pay" not in only.title


def test_keys_are_read_as_people_write_them() -> None:
    text = "See BUG-12, <https://x/BUG-12|BUG-12> and ABC2-7; not utf-8 or 3.8."
    assert keys_in(text) == ["BUG-12", "ABC2-7"]


# ---- the lines of the parent

CHANNELS = {
    **dict.fromkeys(("F1.1", "F1.2", "F1.3"), "csm-germany"),
    **dict.fromkeys(("F2.1", "F2.2"), "csm-spain"),
}


def test_lines_are_told_apart_and_what_rests_on_nothing_is_dropped() -> None:
    overview = read_overview(
        "- Refund the double charges [F1.1][F2.1]\n"
        "PROBLEM: Double charges [F1.1] [F2.1]\n"
        "**PROBLEM:** Slow tills [F1.2][F1.3]\n"
        "PROBLEM: one of them is taken [F1.1][F2.2]\n"
        "PROBLEM: nobody [F9.9]\n"
        "TRACKED: [F1.1] = BUG-2\n"
        "- TRACKED: [F1.2] [F2.1] = **BUG-4**.\n"
        "TRACKED: [F9.9] = BUG-2\n"
        "All clear!",
        CHANNELS,
    )
    assert [s.text for s in overview.first] == ["Refund the double charges"]
    assert [each.to_json() for each in overview.shared_patterns(CHANNELS)] == [
        {
            "text": "Double charges",
            "findings": ["F1.1", "F2.1"],
            "markets": ["csm-germany", "csm-spain"],
        },
        {"text": "Slow tills", "findings": ["F1.2", "F1.3"], "markets": ["csm-germany"]},
    ]
    assert overview.pairs == (("F1.1", "BUG-2"), ("F1.2", "BUG-4"), ("F2.1", "BUG-4"))


def test_many_findings_of_no_row_are_read_at_once() -> None:
    """A parent that does as a message says, or forgets the row, does not hold up the bot."""
    ids = ", ".join(["F1.1"] * 15)
    with computed_within(1):
        assert read_overview(f"TRACKED: {ids}", CHANNELS).pairs == ()
        assert read_overview(f"TRACKED: {ids * 100} = BUG-2", CHANNELS).pairs[-1] == (
            "F1.1",
            "BUG-2",
        )


def test_a_pair_holds_if_its_row_exists_and_its_market_fits() -> None:
    pairs = (("F1.1", "BUG-2"), ("F2.1", "BUG-1"), ("F1.2", "BUG-99"))
    named = pair_rows(Overview(pairs=pairs), TrackerReader(ROWS, SWEPT), CHANNELS)
    assert {id: row.key for id, row in named.items()} == {"F1.1": "BUG-2"}
    both = Overview(pairs=(("F1.1", "BUG-2"), ("F1.1", "BUG-4")))
    assert pair_rows(both, TrackerReader(ROWS, SWEPT), CHANNELS) == {}


def judged(number: int, **value: Any) -> SubagentResult:
    given = {
        **{"category": "other", "priority": "low", "deadline": "", "asked_of_me": False},
        **{"key_facts": [], "proposed_action": "", "evidence": ["t/1"], **value},
    }
    finding = Finding(
        id=f"F{number}.1", claim=f"claim {number}", next_step=f"do {number}", evidence=["t/1"]
    )
    told = {"id": f"s{number}", "contract": "triage", "value": given, "findings": [finding]}
    return SubagentResult.model_validate({**RESULT, **told})


KNOWN = {f"F{n}.1": "" for n in range(1, 7)}


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
        "known": [],
        "steps": [],
    }


TOLD = {
    "F1.1": "Down from 18:02 to 21:47 on 2026-03-14.",
    "F2.1": "Ask whether it is over. 2.940 Euro are open.",
    "F3.1": "The refund runs at 16:00.",
}
OUTAGE = "SAME: the outage [F1.1][F2.1]\n"


def test_what_threads_of_a_matter_say_together_and_answer_each_other_is_kept() -> None:
    lines = read_triage_lines(
        f"KNOWN: It ended on 14 March at 21:47, 2,940 Euro are open [F1.1][F2.1].\n{OUTAGE}"
        "- NEXT: Tell her that it ended at 21:47. [F2.1][F1.1]\n"
        "NEXT: Tell her again. [F2.1][F1.1]",
        TOLD,
    )
    (topic,) = lines.topics({"F1.1": "t1", "F2.1": "t2"})
    assert [(each.text, each.threads) for each in topic.known] == [
        ("It ended on 14 March at 21:47, 2,940 Euro are open.", ["t1", "t2"])
    ]
    assert [(each.text, each.threads) for each in topic.steps] == [
        ("Tell her that it ended at 21:47.", ["t2", "t1"])
    ]
    assert (lines.first, lines.dropped) == ((), 0)


def test_what_another_thread_tells_replaces_what_a_draft_leaves_open() -> None:
    told = {"F1.1": "Confirm the date.", "F2.1": "The run is on 16 March."}
    same = "SAME: Refunds [F1.1][F2.1]\n"
    draft = "Hola: [la fecha]. [Nada]."
    for line, expected in (
        ("FILL: [la fecha] = el 16 de marzo [F1.1][F2.1]", "Hola: [el 16 de marzo]. [Nada]."),
        ("FILL: [la fecha] = el 17 de marzo [F1.1][F2.1]", draft),
        ("FILL: [la fecha] = el 16 de marzo [F1.1]", draft),
        ("FILL: [otra cosa] = el 16 de marzo [F1.1][F2.1]", draft),
        ("FILL: [la fecha] = mira evil.example [F1.1][F2.1]", draft),
    ):
        assert read_triage_lines(same + line, told).filled("F1.1", draft) == expected


@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        ("KNOWN: It ended at 21:48. [F1.1]", 1),
        ("KNOWN: It ended at 21:47. [F2.1]", 1),
        ("KNOWN: The refund runs at 16:00. [F1.1][F3.1]", 0),  # a thread of another matter
        ("KNOWN: It is over.", 0),
        ("NEXT: Tell her. [F2.1]", 0),  # nothing answers it
        ("NEXT: Tell her that 14 customers wait. [F2.1][F3.1]", 1),
    ],
)
def test_what_the_cited_threads_of_a_matter_do_not_say_is_dropped(line: str, dropped: int) -> None:
    lines = read_triage_lines(OUTAGE + line, TOLD)
    assert [(each.known, each.steps) for each in lines.matters] == [((), ())]
    assert lines.dropped == dropped


def test_code_puts_first_what_is_asked_or_urgent_and_due_soonest() -> None:
    results = [
        judged(1),
        judged(2, priority="high"),
        judged(3, asked_of_me=True, deadline="2026-03-20"),
        judged(4, priority="high", deadline="2026-03-12"),
        judged(5, asked_of_me=True, priority="medium"),
    ]

    assert [s.findings for s in by_urgency(results)] == [("F4.1",), ("F3.1",), ("F5.1",)]
    assert by_urgency(results[:2]) == [], "nothing is asked, and nothing is due"


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
