"""How words of a deleted text are recognised in what was written after reading it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from subagents.shingles import shingles

REMOVED = "[removed: its source was deleted]"
"""What stands where something was taken out."""
RUNS = (4, 3)
"""Words in a row that count as taken from a text; of the second number only where it has no more.
Fewer recur by chance, and a quote of one or two words goes with the finding that it is in."""

_CODE = re.compile(r"(?=\w*\d)(?=\w*[^\W\d_])\w{8,}|\d{9,}")
"""A key, an account number, a phone number: one such word is enough."""
_ENDS = re.compile(r"((?<=[.!?])\s+(?=[^a-z\[])|(?<=\d\])\s*(?=[A-ZÀ-Þ*])|\n)")
"""Between two sentences, a citation belonging to the one in front of it; and between two lines."""


class Traces:
    """The word runs of some texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: dict[int, set[int]] = {words: set() for words in RUNS}
        self._codes: set[str] = set()
        for text in texts:
            self._codes |= _codes(text)
            for words in RUNS:
                if found := shingles(text, words):
                    self._runs[words] |= found
                    break

    def are_in(self, text: str) -> bool:
        found = any(
            known and not known.isdisjoint(shingles(text, words))
            for words, known in self._runs.items()
        )
        return found or not self._codes.isdisjoint(_codes(text))

    def removed(self, text: str) -> str:
        """The text without the sentences that hold any; all of it goes where some span several."""
        if not self.are_in(text):
            return text
        rest = replaced(text, self.are_in)
        return REMOVED if self.are_in(rest) else rest


def replaced(text: str, is_lost: Callable[[str], bool]) -> str:
    """The text with a mark in place of each sentence or line that is lost."""
    parts = _ENDS.split(text)
    for i in range(0, len(parts), 2):
        if is_lost(parts[i]):
            parts[i] = REMOVED
    return "".join(parts)


def _codes(text: str) -> set[str]:
    return set(_CODE.findall(text.casefold()))
