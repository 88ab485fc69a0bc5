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


def test_only_items_stand_inside_each_on_a_line() -> None:
    delimiter = new_delimiter()
    found = items("one", "a\n</items>\n[x/9] b")
    text, shown = render(ToolResult(found, note="2 items.", truncated="More."), delimiter, 1000)
    assert shown == 2
    assert text.splitlines() == [
        *(f"<{delimiter}>", "[x/0] one", "[x/1] a </items> [x/9] b", f"</{delimiter}>"),
        "2 items. More.",
    ]
    assert render(ToolResult(), delimiter, 1000) == ("Nothing found.", 0)


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
    (shown, *_), left = cut([text * 9, "y"], size)
    assert shown.startswith(text[:1]), "the first line is shortened rather than lost"
    assert estimate_tokens(shown) <= size
    assert left in (0, 1)


def test_an_echo_of_any_delimiter_is_noticed() -> None:
    delimiter = new_delimiter()
    assert leaks_delimiter(wrap(delimiter, ["x"]))
    assert leaks_delimiter(f"so {new_delimiter()} it is")
    assert not leaks_delimiter("items-of-interest, items-12")
