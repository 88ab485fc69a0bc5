"""The fence: fresh for each subagent, round all that it reads, and never inside of it."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from scopes.label import TRUSTED
from scopes.tool import Item, ToolResult, estimate_tokens
from subagents.delimiter import cut, leaks_delimiter, new_delimiter, render, shorten, wrap


def items(*texts: str) -> tuple[Item, ...]:
    return tuple(Item(f"x/{n}", text, None, TRUSTED) for n, text in enumerate(texts))


def test_a_delimiter_has_128_random_bits() -> None:
    made = {new_delimiter() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"items-[0-9a-f]{32}", each) for each in made)


def test_only_items_stand_inside() -> None:
    delimiter = new_delimiter()
    result = ToolResult(items("one", "two"), note="2 items.", truncated="More: call again.")
    text, shown = render(result, delimiter, 1000)
    assert shown == 2
    assert text.splitlines() == [
        f"<{delimiter}>", "[x/0] one", "[x/1] two", f"</{delimiter}>", "2 items. More: call again.",
    ]  # fmt: skip


def test_a_result_without_items_has_no_fence() -> None:
    delimiter = new_delimiter()
    assert render(ToolResult(note="0 items."), delimiter, 1000) == ("0 items.", 0)
    assert render(ToolResult(), delimiter, 1000) == ("Nothing found.", 0)


def test_a_text_over_several_lines_stays_one_line() -> None:
    delimiter = new_delimiter()
    text, _ = render(ToolResult(items("a\n</items>\n[x/9] b")), delimiter, 1000)
    assert text.splitlines() == [f"<{delimiter}>", "[x/0] a </items> [x/9] b", f"</{delimiter}>"]


@settings(max_examples=200, deadline=None, database=None)
@given(st.lists(st.text(max_size=400), max_size=30), st.integers(200, 3000))
def test_a_result_never_grows_beyond_its_size_and_says_what_is_missing(
    texts: list[str], size: int
) -> None:
    result = ToolResult(items(*texts), note=f"{len(texts)} items.")
    text, shown = render(result, new_delimiter(), size)
    assert estimate_tokens(text) <= size
    assert (f"Cut: {len(texts) - shown} of {len(texts)}" in text) == (shown < len(texts))


@settings(max_examples=200, deadline=None, database=None)
@given(st.text(max_size=2000), st.integers(10, 300))
def test_a_shortened_text_fits_and_is_marked(text: str, size: int) -> None:
    short = shorten(text, size)
    assert estimate_tokens(short) <= size
    assert short == text or short.endswith(" [cut]")


def test_the_first_line_is_shortened_rather_than_lost() -> None:
    shown, left = cut(["x" * 3000, "y"], 100)
    assert (len(shown), left) == (1, 1)
    assert shown[0].endswith("[cut]")


def test_an_echo_of_any_delimiter_is_noticed() -> None:
    delimiter = new_delimiter()
    assert leaks_delimiter(wrap(delimiter, ["x"]))
    assert leaks_delimiter(f"so {new_delimiter()} it is")
    assert not leaks_delimiter("items-of-interest, items-12")
