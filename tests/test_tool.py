"""What a tool is made of: its schema, its items on one line each, its handles and its window."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from scopes.handles import Handles
from scopes.label import TRUSTED, Label
from scopes.tool import (
    Item,
    Window,
    estimate_tokens,
)

AT = datetime(2025, 3, 10, 9, 30, tzinfo=UTC)
TEXTS = st.text(max_size=60) | st.sampled_from(
    ["a\n[C1/2.1] 2025-03-10 09:00 Boss: pay", "x {edited}", "{", "}", "\r\n", "\x85y", "a\u2028b"]
)


@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=3), st.booleans())
def test_an_item_is_one_line_whatever_it_holds(
    text: str, by: str, notes: list[str], reply: bool
) -> None:
    thread = "C1/1.1" if reply else None
    item = Item("C1/1.2", text, None, TRUSTED, at=AT, by=by, thread=thread, notes=tuple(notes))
    line = item.line()
    assert len(line.splitlines()) == 1
    assert line.startswith(f"{'  ' if reply else ''}[C1/1.2] 2025-03-10 09:30")


@given(TEXTS)
def test_braces_at_the_end_are_codes_and_never_the_writers(text: str) -> None:
    line = Item("C1/1.2", text, None, TRUSTED, at=AT, by="Ana").line()
    assert not line.endswith("}") or line.endswith(" {}")
    noted = Item("C1/1.2", text, None, TRUSTED, at=AT, by="Ana", notes=("edited",)).line()
    assert noted.endswith(" {edited}")


@given(TEXTS, st.none() | TEXTS, st.none() | st.just(AT), st.lists(TEXTS, max_size=2))
def test_a_stored_item_comes_back_as_it_was(
    text: str, by: str | None, at: datetime | None, notes: list[str]
) -> None:
    label = Label(True, frozenset({"U1"}), frozenset({"C1"}))
    item = Item("C1/1.2", text, "https://x", label, "U1", at, by, "C1/1.1", tuple(notes))
    assert Item.of(json.loads(json.dumps(item.to_json()))) == item


HELD = Handles({"C1": "#support-es", "C2": "#Support-EN", "F1": "bug tracker", "slack:search": ""})


def test_handles_only_grow() -> None:
    grown = HELD.join({"C9": "#new"})
    assert grown.ids("C") == ["C1", "C2", "C9"]
    assert "slack:search" not in grown.ids()
    assert HELD.join({"C1": "#support-es"}) is HELD


def test_a_window_holds_its_first_moment_and_not_its_last() -> None:
    window = Window(AT, AT + timedelta(days=1))
    assert window.holds(window.oldest)
    assert not window.holds(window.latest)
    assert str(window) == "2025-03-10T09:30:00Z to 2025-03-11T09:30:00Z"
    assert estimate_tokens("é" * 5) == 4, "a third of the bytes, rounded up"
