"""Which row of a tracker an issue is: by link, by key, by rare words; else it is not said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from timing import computed_within

from bot.tasks.overview import Overview, pair_rows, read_overview
from bot.tasks.sources import ChannelPlan, SweepSource
from bot.tasks.tracker import TrackerReader, TrackerRow, keys_in, rows_of, tracker_entry
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


@pytest.mark.parametrize(
    ("claim", "channel", "key"),
    [
        ("Kassenbons ohne TSE-Signatur seit dem Update", "csm-germany", "BUG-1"),
        ("El banco rechaza el fichero SEPA: falta el BIC", "csm-spain", "BUG-2"),
        ("The loyalty points of a customer were lost while offline", "csm-france", "BUG-3"),
    ],
)
def test_rare_words_of_both_find_a_row_across_languages(claim: str, channel: str, key: str) -> None:
    assert found(claim, channel) == key


@pytest.mark.parametrize(
    "claim",
    [
        "Una fattura scartata dallo SDI per natura IVA mancante",  # one acronym is no proof
        "The bank rejected a payment",
        "",
    ],
)
def test_where_words_do_not_prove_it_nothing_is_said(claim: str) -> None:
    assert found(claim, "csm-italy") == ""


def test_a_row_of_another_market_is_not_the_same_bug() -> None:
    assert found("Bons ohne TSE-Signatur", "csm-switzerland") == ""
    assert found("It is BUG-1 again", "csm-spain") == ""


def test_the_key_that_a_thread_names_decides() -> None:
    assert found("Doble cobro", keys={"C1/1.1": ["BUG-2"]}) == "BUG-2"
    assert found("Doble cobro", keys={"C1/9.9": ["BUG-2"]}) == ""
    assert found("Doble cobro", next_step="Wait for BUG-2.") == "BUG-2"
    assert found("Doble cobro", keys={"C1/1.1": ["ABC-99"]}) == ""


def test_of_two_keys_the_open_one_is_meant_and_of_two_open_ones_none() -> None:
    assert found("x", keys={"C1/1.1": ["BUG-4", "BUG-2"]}) == "BUG-2"
    assert found("x", keys={"C1/1.1": ["BUG-1", "BUG-2"]}) == ""


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
        ("", "csm-spain", True),
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
    result = SubagentResult(
        id="s1",
        scope="slack",
        model="fast",
        status="complete",
        stopped_by="none",
        contract="tracker",
        value={"rows": told},
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

CHANNELS = {"F1.1": "csm-germany", "F1.2": "csm-germany", "F2.1": "csm-spain"}


def test_lines_are_told_apart_and_what_rests_on_nothing_is_dropped() -> None:
    overview = read_overview(
        "- Refund the double charges [F1.1][F2.1]\n"
        "PATTERN: Double charges in #csm-germany and #csm-spain [F1.1] [F2.1]\n"
        "**PATTERN:** Only one channel [F1.1][F1.2]\n"
        "PATTERN: nobody [F9.9]\n"
        "TRACKED: [F1.1] = BUG-2\n"
        "- TRACKED: [F1.2] [F2.1] = **BUG-4**.\n"
        "TRACKED: [F9.9] = BUG-2\n"
        "All clear!",
        CHANNELS,
    )
    assert [s.text for s in overview.first] == ["Refund the double charges"]
    assert [each.to_json() for each in overview.shared_patterns(CHANNELS)] == [
        {
            "text": "Double charges in #csm-germany and #csm-spain",
            "findings": ["F1.1", "F2.1"],
            "markets": ["csm-germany", "csm-spain"],
        }
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
