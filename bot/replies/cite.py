"""Citations in what a parent wrote: known ids are kept for code to link, unknown ones go."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

CITED = re.compile(r"\[((?:F\d+\.\d+)(?:\s*[,;]\s*F\d+\.\d+)*)\]")
SPACED = re.compile(rf"(?:(?<![ \t])[ \t]+)?{CITED.pattern}")
ID = r"[^\[\],;\s/]++(?:/[^\[\],;\n]{1,120}+)?"
"""Of a finding, or of an item as a tool showed it: behind a slash it may hold spaces."""
SHAPED = re.compile(
    r"F\d+\.\d+|note/\d+|talk/[\da-f]{8,}|schedule/[a-z\d-]+|file/[^@]+@\d+(?::\d+)?"
    r"|[A-Z](?=[A-Z]*\d)[A-Z\d]+/\d+\.\d{6}|\d{10}\.\d{6}"
    r"|[CDGUW](?:0[A-Z\d]{7,}|(?=[A-Z]*\d+[A-Z])[A-Z\d]{8})"
)
"""What can be nothing but an id: where it is of nothing known, it is taken out.

Ids of Slack have a 0 behind the first letter; old ones are nine signs, of which digits and letters
take turns. So the number of an account, and a word with a number, stay.
"""
WRITTEN = re.compile(rf"(?:(?<![ \t])[ \t]+)?\[({ID}(?:\s*[,;]\s*{ID})*+)\]")
OPEN = re.compile(
    rf"(?:(?<![ \t])[ \t]+)?"
    rf"(?:\[(?:{ID}\s*[,;]\s*)*+[^\[\],;\s/]*+(?:/[^\[\],;\n]{{0,120}}+)?\s*)?\Z"
)
"""The end of a text that may still become a citation; the space before one goes with it."""
WHOLE_HEADING = re.compile(
    r"(\*{1,3})(?!\s)(?:[^*]|(?<=\w)\*(?=\w))+\1|(_{1,3})(?:[^_]|(?<=\w)_(?=\w))+\2|[|\s:-]+"
)
"""A line that is all emphasis, or the rule of a table."""
MARKERS = re.compile(r"\s*(?:(?:[>•\-–#]|\*(?=\s)|\d{1,2}[.)](?=\s))\s*)*")
"""What begins a line of a list, a quote or a heading."""
MARKED = re.compile(r"<((?:https?|mailto):[^<>|\s]*)\|([^<>]*)>")
MARKING = re.compile(r"<(?:https?|mailto):[^<>|\s]*\|[^<>]*\Z")
"""Slack's markup of a link, and the end of a text that may still become it."""
ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]{0,30}://|www\.)[^\s<>()\[\]|\"'*`]+", re.IGNORECASE)
"""A scheme has an end, or a long word would be looked through from each of its letters on."""
ALLOWED = re.compile(r"https://(?P<host>[a-zA-Z0-9.-]+)(?:/[a-zA-Z0-9._~!$&'*+,;=:/%-]*)?")
"""An address that has nothing but an ASCII host and a path."""
FILES = (
    "json|ya?ml|txt|csv|tsv|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|html?|xml|log|toml|ini|cfg|conf"
    "|env|lock|sql|jsx?|tsx?|css|exe|java|cpp|rb"
)
"""Ends of file names that are no top-level domains."""
BARE = re.compile(
    r"(?P<web>https?://[^\s()]+)"
    rf"|(?<![\w-])(?:[\w-]{{1,63}}\.)+(?!(?:{FILES})(?![^\W_]))[^\W\d_]{{2,24}}(?![^\W_]|@)",
    re.IGNORECASE,
)
"""Of a host at least its last two names, whatever stands around them; a punycode end begins with
letters, and that is enough to part it from the name before."""
WEB = re.compile(r"https?://|www\.", re.IGNORECASE)
MAX_HELD = 2_500
"""Characters that a stream holds back at most: the longest address and list of citations."""
STOPS = ".,;:!?"
"""What ends a sentence rather than the address in front of it."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence or line of an answer, and what it rests on."""

    text: str
    """Without citations."""
    findings: tuple[str, ...]
    """Ids of findings, and of what was looked up."""


def ids_in(text: str) -> list[str]:
    return [i for group in CITED.findall(text) for i in re.findall(r"F\d+\.\d+", group)]


NOTHING: Mapping[str, str] = MappingProxyType({})


def drop_unknown(
    text: str,
    known: Collection[str],
    looked_up: Mapping[str, str] = NOTHING,
    files: Mapping[str, str] = NOTHING,
) -> str:
    """The text with one bracket a known id; ids that nothing has are taken out.

    `known` are findings; an item of `looked_up` gets its id for the answer in place of its own. Of
    `files` the name is left, without a bracket: they go with the answer and are no source of it.
    """

    def put(match: re.Match[str]) -> str:
        ids = [each.strip() for each in re.split("[,;]", match[1])]
        if not all(i in looked_up or SHAPED.fullmatch(i) for i in ids):
            return match.group()
        found = [i if i in known else looked_up[i] for i in ids if i in known or i in looked_up]
        names = ", ".join(files[i] for i in ids if i in files and i not in looked_up)
        space = match.group().partition("[")[0]
        return space + names + "".join(f"[{i}]" for i in found) if found or names else ""

    return WRITTEN.sub(put, text)


@dataclass(frozen=True, slots=True)
class Links:
    """Which addresses may stay alive in what a model wrote."""

    asked: str = ""
    """The requester's own text: an address that stands in it may be repeated, letter by letter."""
    hosts: tuple[str, ...] = ()
    """Hosts that an administrator allows, for https without query, fragment, port or user."""
    made: Collection[str] = ()
    """Addresses that code makes."""

    def defused(self, text: str) -> str:
        """The text with no live address but these."""
        asked = _addresses(self.asked)

        def put(match: re.Match[str]) -> str:
            address = match.group().rstrip(STOPS)
            if address in asked or self._is_allowed(address):
                return match.group()
            return match.group().rpartition("://")[2].replace(".", "[.]")

        bare = MARKED.sub(lambda m: f"{m[2]} ({m[1]})", text)
        return ADDRESS.sub(put, bare)

    def may_link(self, address: str) -> bool:
        """Whether Slack may make a link of it."""
        if address in self.made:
            return True
        is_web = re.match(r"https?://", address) is not None
        return is_web and (address in _addresses(self.asked) or self._is_allowed(address))

    def _is_allowed(self, address: str) -> bool:
        match = ALLOWED.fullmatch(address)
        return match is not None and match["host"].lower() in self.hosts


@lru_cache(maxsize=64)
def _addresses(text: str) -> frozenset[str]:
    found = (address.rstrip(STOPS) for address in ADDRESS.findall(text))
    return frozenset(address for address in found if WEB.match(address))


def defused(text: str, allowed: str, hosts: Sequence[str] = ()) -> str:
    """The text with no live address but those in `allowed` or at `hosts`."""
    return Links(allowed, tuple(hosts)).defused(text)


def inert(text: str) -> str:
    """The text for where Slack makes links of bare hosts and mail addresses: it makes none."""
    return BARE.sub(lambda m: m[0] if m["web"] else m[0].replace(".", "[.]"), text)


def settled(text: str) -> int:
    """How much of a text that goes on can no longer become part of a citation or an address."""

    def solid(match: re.Match[str]) -> str:
        return "x" * len(match.group())

    words = OPEN.sub(solid, WRITTEN.sub(solid, MARKED.sub(solid, text)))
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
    """Streams text on, holding back what may still become a citation or an address.

    What does not end is let go of with a space behind it, so that nothing more becomes part of it.
    """

    known: Callable[[], Collection[str]]
    on_text: Callable[[str], None]
    allowed: str = ""
    """Addresses that may stay: those in this text."""
    hosts: Sequence[str] = ()
    """Hosts whose addresses may stay."""
    looked_up: Callable[[], Mapping[str, str]] = dict
    files: Callable[[], Mapping[str, str]] = dict
    _held: str = field(default="")

    def __call__(self, text: str) -> None:
        self._held += text
        start = settled(self._held)
        ready, self._held = self._held[:start], self._held[start:]
        if ready:
            self.on_text(self._clean(ready))
        if len(self._held) > MAX_HELD:
            self.close()
            self.on_text(" ")

    def close(self) -> None:
        """Let go of what is still held back."""
        if self._held:
            self.on_text(self._clean(self._held))
            self._held = ""

    def drop(self) -> None:
        """Forget what is still held back: its text begins again."""
        self._held = ""

    def _clean(self, text: str) -> str:
        files = self.files() if "file/" in text else NOTHING  # all results are looked through
        kept = drop_unknown(text, self.known(), self.looked_up(), files)
        return defused(kept, self.allowed, self.hosts)
