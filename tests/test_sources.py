"""What a sweep reads: channels chosen by name, large ones cut between threads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import SetupError
from bot.tasks.sources import chosen, split
from scopes.label import TRUSTED
from scopes.slack_reader import ChannelInfo, SlackConversation
from scopes.tool import Item, Window, estimate_tokens

START = datetime(2025, 3, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(days=30))
CHANNELS = [
    ChannelInfo(f"C0{n}", name, False, True, "")
    for n, name in enumerate(["billing", "support-es", "support-fr", "random"])
]


def conversation(number: int, letters: int) -> SlackConversation:
    at = START + timedelta(minutes=number)
    root = Item(f"C1/{number}", "x" * letters, None, TRUSTED, at=at, by="Ana")
    return SlackConversation(root, ())


def size(found: list[SlackConversation]) -> int:
    return sum(estimate_tokens(i.line()) + 1 for c in found for i in c.items)


@given(st.lists(st.integers(1, 900), max_size=60), st.integers(60, 800), st.integers(1, 12))
def test_shares_hold_every_thread_once_and_stay_below_both_caps(
    lengths: list[int], max_tokens: int, max_threads: int
) -> None:
    found = [conversation(n, length) for n, length in enumerate(lengths)]
    shares = [
        [c for c in found if c.root.at and window.opens(c.root.at)]
        for window in split(found, WINDOW, max_tokens, max_threads)
    ]
    assert [c for share in shares for c in share] == found
    for share in shares:
        assert 1 <= len(share) <= max_threads
        assert size(share) <= max_tokens or len(share) == 1


def test_shares_are_about_alike() -> None:
    found = [conversation(n, 100) for n in range(90)]
    shares = split(found, WINDOW, 100_000, 40)
    counts = [sum(bool(c.root.at and w.opens(c.root.at)) for c in found) for w in shares]
    assert counts == [30, 30, 30]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["support-*"], ["support-es", "support-fr"]),
        (["#random", "support-*"], ["random", "support-es", "support-fr"]),
        (["C00"], ["billing"]),
        (["#C00", "billing", "bill*"], ["billing"]),
        (["*"], ["billing", "support-es", "support-fr", "random"]),
        (["Support-ES"], ["support-es"]),
    ],
)
def test_channels_are_chosen_by_name_pattern_or_id_each_once(
    patterns: list[str], names: list[str]
) -> None:
    assert [c.name for c in chosen(CHANNELS, patterns)] == names


@pytest.mark.parametrize("pattern", ["suport-*", "", "C0", "#"])
def test_a_pattern_that_matches_nothing_names_what_there_is(pattern: str) -> None:
    with pytest.raises(SetupError) as caught:
        chosen(CHANNELS, ["billing", pattern])
    assert repr(pattern) in caught.value.message
    assert "#support-es" in caught.value.hint
