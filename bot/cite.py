"""Citations in what a parent wrote: known finding ids become links, unknown ones go."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

CITED = re.compile(r"\[((?:F\d+\.\d+)(?:\s*[,;]\s*F\d+\.\d+)*)\]")
SPACED = re.compile(rf"[ \t]*{CITED.pattern}")
OPEN = re.compile(r"[ \t]*(?:\[[F\d.,;\s]*)?\Z")
"""The end of a text that may still become a citation; the space before one goes with it."""
WHOLE_HEADING = re.compile(r"\*[^*]+\*|_[^_]+_|[|\s:-]+")
"""A line that is all emphasis, or the rule of a table."""
MARKERS = re.compile(r"\s*(?:(?:[>•\-–#]|\*(?!\*)|\d{1,2}[.)](?=\s))\s*)*")
"""What begins a line of a list, a quote or a heading."""
MARKED = re.compile(r"<((?:https?|mailto):[^<>|\s]*)\|([^<>]*)>")
MARKING = re.compile(r"<(?:https?|mailto):[^<>|\s]*\|[^<>]*\Z")
"""Slack's markup of a link, and the end of a text that may still become it."""
ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]{0,30}://|www\.)[^\s<>()\[\]|\"'*`]+", re.IGNORECASE)
"""A scheme has an end, or a long word would be looked through from each of its letters on."""
STOPS = ".,;:!?"
"""What ends a sentence rather than the address in front of it."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence or line of an answer, and the findings that it rests on."""

    text: str
    """Without citations."""
    findings: tuple[str, ...]


def ids_in(text: str) -> list[str]:
    return [i for group in CITED.findall(text) for i in re.findall(r"F\d+\.\d+", group)]


def drop_unknown(text: str, known: Collection[str]) -> str:
    """The text with one bracket a known id; ids that no finding has are taken out."""

    def put(match: re.Match[str]) -> str:
        found = [i for i in ids_in(match.group()) if i in known]
        space = match.group().partition("[")[0]
        return space + "".join(f"[{i}]" for i in found) if found else ""

    return SPACED.sub(put, text)


def defused(text: str, allowed: str) -> str:
    """The text with no live address but those that occur in `allowed`; links are made by code."""

    asked = {found.rstrip(STOPS) for found in ADDRESS.findall(allowed)}

    def put(match: re.Match[str]) -> str:
        address = match.group().rstrip(STOPS)
        if address in asked:
            return match.group()
        return match.group().rpartition("://")[2].replace(".", "[.]")

    bare = MARKED.sub(lambda m: f"{m[2]} ({m[1]})", text)
    return ADDRESS.sub(put, bare)


def settled(text: str) -> int:
    """How much of a text that goes on can no longer become part of a citation or an address."""

    def solid(match: re.Match[str]) -> str:
        return "x" * len(match.group())

    words = OPEN.sub(solid, SPACED.sub(solid, MARKED.sub(solid, text)))
    link = MARKING.search(text)
    return min(len(words) - len(re.split(r"\s", words)[-1]), link.start() if link else len(text))


def statements(text: str, known: Collection[str]) -> list[Statement]:
    """The statements of an answer. Headings, and lines that only lead to a list, are none."""
    found = []
    for line in text.splitlines():
        bare = MARKERS.sub("", line, count=1).strip()
        if not bare or line.lstrip().startswith("#") or bare.rstrip("*_ ").endswith(":"):
            continue
        if WHOLE_HEADING.fullmatch(bare) or (bare[0] == "(" and bare[-1] == ")"):
            continue
        for sentence in _sentences(bare):
            cited = tuple(dict.fromkeys(i for i in ids_in(sentence) if i in known))
            said = SPACED.sub("", sentence).strip(" .")
            if said:
                found.append(Statement(said, cited))
            elif cited and found:  # a citation that stands after the full stop
                last = found.pop()
                found.append(Statement(last.text, (*last.findings, *cited)))
    return found


def _sentences(line: str) -> list[str]:
    return [s for s in re.split(r"(?<=[.!?])\s+(?=[^a-z\[])|(?<=\d\])\s*(?=[A-ZÀ-Þ*])", line) if s]


@dataclass
class CitationFilter:
    """Streams text on, holding back what may still become a citation or an address."""

    known: Callable[[], Collection[str]]
    on_text: Callable[[str], None]
    allowed: str = ""
    """Addresses that may stay: those in this text."""
    _held: str = field(default="")

    def __call__(self, text: str) -> None:
        self._held += text
        start = settled(self._held)
        ready, self._held = self._held[:start], self._held[start:]
        if ready:
            self.on_text(self._clean(ready))

    def close(self) -> None:
        """Let go of what is still held back."""
        if self._held:
            self.on_text(self._clean(self._held))
            self._held = ""

    def drop(self) -> None:
        """Forget what is still held back: its text begins again."""
        self._held = ""

    def _clean(self, text: str) -> str:
        return defused(drop_unknown(text, self.known()), self.allowed)
