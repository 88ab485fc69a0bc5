"""Citations in a parent's text: code links known ids and removes unknown ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

from pydantic import BaseModel

from scopes.clean import printable, redact
from scopes.resources import FILE_REFERENCE
from scopes.tool import Item, one_line
from subagents.delimiter import clip
from subagents.evidence import SourceLog
from subagents.result import Finding, SubagentResult

CITATION_PATTERN = re.compile(r"\[((?:F\d+\.\d+)(?:\s*[,;]\s*F\d+\.\d+)*)\]")
SPACED_CITATION_PATTERN = re.compile(rf"(?:(?<![ \t])[ \t]+)?{CITATION_PATTERN.pattern}")
ID = r"[^\[\],;\s/]++(?:/[^\[\],;\n]{1,120}+)?"
"""Id of a finding, or of an item as a tool showed it: after a slash it may contain spaces."""
ID_SHAPE_PATTERN = re.compile(
    r"F\d+\.\d+|note/\d+|talk/[\da-f]{8,}|schedule/[a-z\d-]+|file/[^@]+@\d+(?::\d+)?"
    r"|[A-Z](?=[A-Z]*\d)[A-Z\d]+/\d+\.\d{6}|\d{10}\.\d{6}"
    r"|[CDGUW](?:0[A-Z\d]{7,}|(?=[A-Z]*\d+[A-Z])[A-Z\d]{8})"
)
"""Matches text that can only be an id: if it is unknown, it is removed.

Ids of Slack have a 0 after the first letter; old ones have nine characters, in which digits and
letters alternate. So account numbers, and words with a number, stay.
"""
WRITTEN = re.compile(rf"(?:(?<![ \t])[ \t]+)?\[({ID}(?:\s*[,;]\s*{ID})*+)\]")
OPEN = re.compile(
    rf"(?:(?<![ \t])[ \t]+)?"
    rf"(?:\[(?:{ID}\s*[,;]\s*)*+[^\[\],;\s/]*+(?:/[^\[\],;\n]{{0,120}}+)?\s*)?\Z"
)
"""The end of a text that may still become a citation, with the space before it."""
WHOLE_HEADING = re.compile(
    r"(\*{1,3})(?!\s)(?:[^*]|(?<=\w)\*(?=\w))+\1|(_{1,3})(?:[^_]|(?<=\w)_(?=\w))+\2|[|\s:-]+"
)
"""A line with only emphasis, or the rule of a table."""
RULE = re.compile(r"[|\s:-]*-[|\s:-]*")
"""The line below the titles of a table."""
PARENTHESIS = re.compile(r"[(\uff08].*[)\uff09][.\u3002]?")
"""A line in parentheses, including full-width ones."""
QUESTION = ("?", "\uff1f", "\u061f")
MARKERS = re.compile(r"\s*(?:(?:[>•\-–#]|\*(?=\s)|\d{1,2}[.)](?=\s))\s*)*")
"""Markers at the start of a line of a list, a quote or a heading."""
SLACK_LINK = re.compile(r"<((?:https?|mailto):[^<>|\s]*)\|([^<>]*)>")
OPEN_SLACK_LINK = re.compile(r"<(?:https?|mailto):[^<>|\s]*\|[^<>]*\Z")
"""Slack's markup of a link, and the end of a text that may still become it."""
ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]{0,30}://|www\.)[^\s<>()\[\]|\"'*`]+", re.IGNORECASE)
"""The length of a scheme is limited; otherwise a long word would be scanned from each letter on."""
ALLOWED_ADDRESS = re.compile(r"https://(?P<host>[a-zA-Z0-9.-]+)(?:/[a-zA-Z0-9._~!$&'*+,;=:/%-]*)?")
"""An address with only an ASCII host and a path."""
FILES = (
    "json|ya?ml|txt|csv|tsv|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|html?|xml|log|toml|ini|cfg|conf"
    "|env|lock|sql|jsx?|tsx?|css|exe|java|cpp|rb"
)
"""File name extensions that are not top-level domains."""
BARE = re.compile(
    r"(?P<web>https?://[^\s()]+)"
    rf"|(?<![\w-])(?<![\w-]\.)(?:[\w-]+\.)+(?!(?:{FILES})(?![^\W_]))[^\W\d_]{{2,24}}(?![^\W_]|@)",
    re.IGNORECASE,
)
"""Matches at least the last two names of a host in any surroundings; a punycode ending begins with
letters, which is enough to separate it from the name before. A match can begin only at the first
of names joined by dots, so the time stays linear."""
WEB = re.compile(r"https?://|www\.", re.IGNORECASE)
MAX_HELD = 2_500
"""Maximum characters that a stream holds back: the longest address and list of citations."""
SENTENCE_ENDS = ".,;:!?"
"""Characters that end a sentence rather than the address before them."""


class CitedStatement(BaseModel):
    """A sentence or line of an answer, without citations, and the ids of the findings and looked-up
    items that it cites."""

    text: str
    findings: list[str] = []


def ids_in(text: str) -> list[str]:
    return [i for group in CITATION_PATTERN.findall(text) for i in re.findall(r"F\d+\.\d+", group)]


EMPTY_MAPPING: Mapping[str, str] = MappingProxyType({})


def drop_unknown(
    text: str,
    known: Collection[str],
    looked_up: Mapping[str, str] = EMPTY_MAPPING,
    files: Mapping[str, str] = EMPTY_MAPPING,
) -> str:
    """Return the text with one bracket for each known id, and without unknown ids.

    `known` are findings; an item of `looked_up` gets its id for the answer instead of its own. For
    `files`, only the name stays, without a bracket: they are attached to the answer and are not
    its source.
    """

    def put(match: re.Match[str]) -> str:
        ids = [each.strip() for each in re.split("[,;]", match[1])]
        if not all(i in looked_up or ID_SHAPE_PATTERN.fullmatch(i) for i in ids):
            return match.group()
        found = [i if i in known else looked_up[i] for i in ids if i in known or i in looked_up]
        names = ", ".join(files[i] for i in ids if i in files and i not in looked_up)
        space = match.group().partition("[")[0]
        return space + names + "".join(f"[{i}]" for i in found) if found or names else ""

    return WRITTEN.sub(put, text)


@dataclass(frozen=True, slots=True)
class Links:
    """The addresses that may stay clickable in a model's text."""

    request: str = ""
    """The requester's own text: an address in it may be repeated exactly."""
    hosts: tuple[str, ...] = ()
    """Hosts that an administrator allows, for https without query, fragment, port or user."""
    own_urls: Collection[str] = ()
    """Addresses built by code."""

    def defang(self, text: str) -> str:
        """Return the text with no clickable address except these."""
        requested = _addresses(self.request)

        def put(match: re.Match[str]) -> str:
            address = match.group().rstrip(SENTENCE_ENDS)
            if address in requested or self._is_allowed(address):
                return match.group()
            return match.group().rpartition("://")[2].replace(".", "[.]")

        unmarked = SLACK_LINK.sub(lambda m: f"{m[2]} ({m[1]})", text)
        return ADDRESS.sub(put, unmarked)

    def may_link(self, address: str) -> bool:
        """Return whether Slack may turn an address into a link."""
        if address in self.own_urls:
            return True
        is_web = re.match(r"https?://", address) is not None
        return is_web and (address in _addresses(self.request) or self._is_allowed(address))

    def _is_allowed(self, address: str) -> bool:
        match = ALLOWED_ADDRESS.fullmatch(address)
        return match is not None and match["host"].lower() in self.hosts


@lru_cache(maxsize=64)
def _addresses(text: str) -> frozenset[str]:
    found = (address.rstrip(SENTENCE_ENDS) for address in ADDRESS.findall(text))
    return frozenset(address for address in found if WEB.match(address))


def neutralize_links(text: str) -> str:
    """Return the text so that Slack does not turn bare hosts and mail addresses into links."""
    return BARE.sub(lambda m: m[0] if m["web"] else m[0].replace(".", "[.]"), text)


def settled_length(text: str) -> int:
    """Return the length of an unfinished text that cannot become part of a citation or address."""

    def solid(match: re.Match[str]) -> str:
        return "x" * len(match.group())

    words = OPEN.sub(solid, WRITTEN.sub(solid, SLACK_LINK.sub(solid, text)))
    link = OPEN_SLACK_LINK.search(text)
    return min(len(words) - len(re.split(r"\s", words)[-1]), link.start() if link else len(text))


def statements(text: str, known: Collection[str]) -> list[CitedStatement]:
    """Return the statements of an answer.

    It leaves out text that states nothing about a source: headings, lines that only introduce a
    list, lines in parentheses (caveats and proposals, according to the prompt), and questions
    without a citation. A row of a table is one statement; its titles are not.
    """
    found: list[CitedStatement] = []
    for line, below in pairwise([*text.splitlines(), ""]):
        if line.lstrip().startswith("|"):
            found += [] if RULE.fullmatch(below) else _row(line, known)
            continue
        content = MARKERS.sub("", line, count=1).strip()
        if not content or line.lstrip().startswith("#") or content.rstrip("*_ ").endswith(":"):
            continue
        if WHOLE_HEADING.fullmatch(content) or PARENTHESIS.fullmatch(content):
            continue
        for sentence in _sentences(content):
            findings = list(dict.fromkeys(i for i in ids_in(sentence) if i in known))
            plain = SPACED_CITATION_PATTERN.sub("", sentence).strip(" .")
            if plain:
                found.append(CitedStatement(text=plain, findings=findings))
            elif findings and found:  # a citation after the full stop
                found[-1].findings += findings
    return [each for each in found if each.findings or not each.text.endswith(QUESTION)]


def _row(line: str, known: Collection[str]) -> list[CitedStatement]:
    findings = list(dict.fromkeys(i for i in ids_in(line) if i in known))
    cells = (cell.strip() for cell in SPACED_CITATION_PATTERN.sub("", line).split("|"))
    text = " | ".join(filter(None, cells))
    is_row = text and not RULE.fullmatch(line)
    return [CitedStatement(text=text, findings=findings)] if is_row else []


def _sentences(line: str) -> list[str]:
    return [s for s in re.split(r"(?<=[.!?])\s+(?=[^a-z\[])|(?<=\d\])\s*(?=[A-ZÀ-Þ*])", line) if s]


PARENT_ID_PREFIX = "F0."
"""Prefix of the ids of items that the parent looked up: no subagent has the number 0."""
MAX_ITEM_CHARS = 80
"""Maximum characters of an item in the list of sources."""


@dataclass(frozen=True, slots=True)
class CitationIndex:
    """The findings and items that a run may currently cite."""

    earlier: Mapping[str, Finding]
    results: Mapping[str, SubagentResult]
    reading: SourceLog
    """The parent's log: what its own tools returned."""

    def findings(self) -> dict[str, list[str]]:
        """Return the links of each finding by its id."""
        found = [f for r in self.results.values() for f in r.findings]
        return {f.id: f.links for f in (*self.earlier.values(), *found)}

    def map_item_ids(self, first: int | None = None) -> dict[str, str]:
        """Return the id of each item as shown to the parent -> its id in the answer.

        `first`: only the first so many; cited items were shown before the text was written.
        """
        return {item.id: id for id, item in self.items(first).items()}

    def files(self) -> dict[str, str]:
        """Return id -> name of each file that a subagent reports."""
        texts = (t for r in self.results.values() for t in (r.text, *(f.claim for f in r.findings)))
        return {id: name for text in texts for id, name in FILE_REFERENCE.findall(text)}

    def links(self) -> dict[str, list[str]]:
        """Return all links by their ids in the answer; an item may have none."""
        own = {id: [item.link] if item.link else [] for id, item in self.items().items()}
        return self.findings() | own

    def items(self, first: int | None = None) -> dict[str, Item]:
        """Return the items shown to the parent, by the ids in the answer; only the `first` ones if
        set."""
        return {
            f"{PARENT_ID_PREFIX}{n}": item
            for n, item in enumerate(self.reading.seen_items(first), 1)
        }


def without_own(text: str) -> str:
    """Remove citations of looked-up items from an answer, for use in a later request."""
    return re.sub(rf" ?\[{re.escape(PARENT_ID_PREFIX)}\d+\]", "", text)


def beginning(item: Item) -> str:
    """Return the beginning of an item, on one line without secrets."""
    by = f"{item.by}: " if item.by else ""
    return clip(one_line(redact(printable(f"{by}{item.text}"))), MAX_ITEM_CHARS)


@dataclass
class CitationFilter:
    """Streams text, holding back text that may still become a citation or an address.

    Text without an end is released with a space after it, so that later text does not extend it.
    """

    index: CitationIndex
    links: Links = Links()
    _buffer: str = field(default="")

    def add(self, text: str) -> str:
        """Add the next piece of text; return the part that is ready."""
        self._buffer += text
        start = settled_length(self._buffer)
        ready, self._buffer = self._clean(self._buffer[:start]), self._buffer[start:]
        if len(self._buffer) > MAX_HELD:
            ready += f"{self.close()} "
        return ready

    def close(self) -> str:
        """Return the text that is still held back."""
        ready, self._buffer = self._clean(self._buffer), ""
        return ready

    def drop(self) -> None:
        """Drop the text that is still held back, because the text restarts."""
        self._buffer = ""

    def _clean(self, text: str) -> str:
        if not text:
            return ""
        files = self.index.files() if "file/" in text else EMPTY_MAPPING  # all results are searched
        cleaned = drop_unknown(text, self.index.findings(), self.index.map_item_ids(), files)
        return self.links.defang(cleaned)
