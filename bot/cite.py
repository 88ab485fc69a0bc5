"""Citations in what a parent wrote: known finding ids become links, unknown ones go."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

CITED = re.compile(r"\[((?:F\d+\.\d+)(?:\s*[,;]\s*F\d+\.\d+)*)\]")
SPACED = re.compile(rf"[ \t]*{CITED.pattern}")
OPEN = re.compile(r"[ \t]*(?:\[[F\d.,;\s]*)?\Z")
"""The end of a text that may still become a citation; the space before one goes with it."""
MARKERS = re.compile(r"\s*(?:(?:[>•\-–#]|\*(?!\*)|\d{1,2}[.)](?=\s))\s*)*")
"""What begins a line of a list, a quote or a heading."""


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


def statements(text: str, known: Collection[str]) -> list[Statement]:
    """The statements of an answer. Headings, and lines that only lead to a list, are none."""
    found = []
    for line in text.splitlines():
        bare = MARKERS.sub("", line, count=1).strip()
        if not bare or line.lstrip().startswith("#") or bare.rstrip("*_ ").endswith(":"):
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
    """Streams text on, holding back a bracket until it is known whether it cites something."""

    known: Callable[[], Collection[str]]
    on_text: Callable[[str], None]
    _held: str = field(default="")

    def __call__(self, text: str) -> None:
        self._held += text
        end = OPEN.search(self._held)
        start = end.start() if end else len(self._held)
        ready, self._held = self._held[:start], self._held[start:]
        if ready:
            self.on_text(drop_unknown(ready, self.known()))

    def close(self) -> None:
        """Let go of what is still held back."""
        if self._held:
            self.on_text(drop_unknown(self._held, self.known()))
            self._held = ""
