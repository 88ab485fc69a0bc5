"""Convert a model's markdown to Slack blocks: neutralize links and mentions, cut long texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from bot.citations import CITATION_PATTERN, SENTENCE_ENDS, Links, ids_in, neutralize_links
from config.sections import ReplySettings
from scopes.clean import find_unsettled, printable, redact

MAX_COLUMNS = 20
"""Maximum columns of a table."""
MAX_ROWS = 99
"""Maximum rows of a table below its header; Slack allows 100 including it."""
PIPE = re.compile(r"(?<!\\)\|")
"""A mark between two cells."""
MAX_URL = 500
MAX_INDENT = 8
"""Levels of indent that Slack allows in a list."""

Json = dict[str, Any]
UNUSED_BLOCK_RULES = ("code", "html_block", "reference", "lheading")
"""Blocks of CommonMark that a chat does not need."""
LINE_PARSER = MarkdownIt("commonmark", {"maxNesting": 60}).enable("table")
LINE_PARSER.disable([*UNUSED_BLOCK_RULES, "normalize", "inline", "text_join"])

CODE_SPAN = re.compile(r"((?<!`)(`+)(?!`).+?(?<!`)\2(?!`))")


LINE = re.compile(r"[^\n]*\n|[^\n]+")


@lru_cache(16)  # a text is cut and rendered, and parsing takes most of the time
def lines(text: str) -> tuple[tuple[bool, str], ...]:
    """Return the lines of a text with their line breaks, each with whether a fence contains it."""
    fences = [token.map or (0, 0) for token in LINE_PARSER.parse(text) if token.type == "fence"]
    code = {number for first, end in fences for number in range(first, end)}
    return tuple((number in code, line) for number, line in enumerate(LINE.findall(text)))


def segments(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text in pieces, each with whether it is code."""
    for code, line in lines(text):
        if code:
            yield True, line
            continue
        at = 0
        for span in CODE_SPAN.finditer(line):
            yield False, line[at : span.start()]
            yield True, span[0]
            at = span.end()
        yield False, line[at:]


CONTROL_SEQUENCE = re.compile(r"<([@#!])([^<>|\n]*)(?:\|([^<>\n]*))?>")
"""Slack's control sequences, which Slack also interprets inside markdown."""
CONTROL_START = re.compile(r"<+(?=[@#!])")
MAX_NESTED = 8
"""Levels of nested sequences that get their names; deeper ones are cut off."""
GROUP_MENTION = re.compile(r"@(?=(?:channel|here|everyone)\b)", re.IGNORECASE)
QUOTE = re.compile(r"[ \t]*(?:>[ \t]?)*")
REFERENCE_DEFINITION = re.compile(r"^([ \t>]*\[[^\]\n]+\]):", re.MULTILINE)
"""A reference definition, which would set the address of a link elsewhere in the text."""


def harmless(text: str) -> str:
    """Escape everything in a `printable` text that Slack would interpret, such as mentions.

    Angle brackets are escaped outside code: Slack reads its `<...>` sequences inside markdown
    blocks, and shows an entity as its character without reading it again (measured in
    github.com/PostHog/posthog/pull/95054). Addresses that `citations.defang` kept are the
    requester's.
    """
    text = GROUP_MENTION.sub("@\N{WORD JOINER}", replace_mentions(text))
    pieces, fresh = [], True
    for code, piece in segments(text):
        pieces.append(piece if code else _escape(piece, fresh))
        if piece:
            fresh = piece.endswith("\n")
    return REFERENCE_DEFINITION.sub(r"\1 :", "".join(pieces))


def replace_mentions(text: str) -> str:
    """Replace Slack's control sequences by names."""
    for _ in range(MAX_NESTED):
        if (replaced := CONTROL_SEQUENCE.sub(_name_mention, text)) == text:
            return text
        text = replaced
    return CONTROL_START.sub("", text)


def _name_mention(match: re.Match[str]) -> str:
    sign, target, label = match.groups()
    name = (label or target.split("^")[0]).lstrip("@#")
    return ("#" if sign == "#" else "@") + name


def _escape(piece: str, begins_line: bool) -> str:
    quote = QUOTE.match(piece)
    mark = quote[0] if quote and begins_line else ""
    rest = piece[len(mark) :].replace("<", "&lt;").replace(">", "&gt;")
    return mark + re.sub(r"\](?=\((?!https?://))", "] ", rest.replace("![", "! ["))


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A paragraph, list, quote, fence or table of a text, outside of all others."""

    lines: Sequence[str]
    is_table: bool = False
    head: str = ""
    """The lines before each of its pieces: what opens the fence, or the titles of the table."""
    end: str = ""
    """The lines after each of its pieces."""

    def pieces(self, limit: int) -> Iterator[str]:
        """Yield it whole, or in pieces of at most `limit` characters, cut at lines or words."""
        room = max(limit - len(self.head) - len(self.end) - 1, limit // 4)
        piece, rows = "", 0
        for line in (short for each in self.lines for short in _shorten(each, room)):
            if piece and (len(piece) + len(line) > room or (self.is_table and rows == MAX_ROWS)):
                yield self._frame(piece)
                piece, rows = "", 0
            piece, rows = piece + line, rows + 1
        yield self._frame(piece)

    def _frame(self, piece: str) -> str:
        gap = "\n" if self.end and piece and not piece.endswith("\n") else ""
        return f"{self.head}{piece}{gap}{self.end}"


def _shorten(line: str, most: int) -> Iterator[str]:
    while len(line) > most:
        end = line.rfind(" ", 0, most) + 1 or most
        yield line[:end]
        line = line[end:]
    yield line


def text_blocks(text: str) -> Iterator[TextBlock]:
    """Yield the blocks of a text, each with the empty lines after it."""
    raw = LINE.findall(text)
    tokens = [token for token in LINE_PARSER.parse(text) if token.level == 0 and token.map]
    spans = [token.map or (0, 0) for token in tokens]
    for token, (first, last), (end, _) in zip(
        tokens, spans, [*spans[1:], (len(raw), 0)], strict=True
    ):
        if token.type == "fence":
            head, after = f"{token.markup}{token.info}\n", "".join(raw[last:end])
            yield TextBlock(LINE.findall(token.content), False, head, f"{token.markup}\n{after}")
        elif token.type == "table_open":
            rows = list(takewhile(lambda line: "|" in line, raw[first + 2 : end]))
            yield TextBlock(rows, True, "".join(raw[first : first + 2]), "\n")
            if rest := raw[
                first + 2 + len(rows) : end
            ]:  # these are no rows, whatever the grammar says
                yield TextBlock(rest)
        else:
            yield TextBlock(raw[first:end])


REQUESTER = "\ue000"
"""Placeholder for the requester's mention: a private character that `printable` removes."""
WEB = re.compile(r"://[^\s<>()\[\]|\"'*`]+")
UNSPACED_BOLD = re.compile(r"(?<=\w)\*\*(?=[^\w\s*])|(?<=[^\w\s*])\*\*(?=\w)")
"""Bold marks that CommonMark does not accept where no space separates words (Japanese)."""
STYLES = {"strong": "bold", "em": "italic", "s": "strike"}


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": 60}).enable(["table", "strikethrough"])
    parser.disable([*UNUSED_BLOCK_RULES, "normalize", "image", "html_inline", "autolink", "entity"])
    parser.inline.ruler.push("web", _web)
    return parser


def _web(state: StateInline, silent: bool) -> bool:
    """Find an address in plain text: an inline rule for `://`."""
    scheme = re.search(r"https?\Z", state.pending)
    found = WEB.match(state.src, state.pos, state.posMax)
    if not (scheme and found):
        return False
    rest = found[0].rstrip(SENTENCE_ENDS)
    if not silent:
        state.pending = state.pending[: scheme.start()]
        state.push("web", "", 0).content = scheme[0] + rest
    state.pos += len(rest)
    return True


PARSER = _parser()


@dataclass(frozen=True, slots=True)
class Leaf:
    """An element of rich text: words of one style, a link, or a mention of the requester."""

    text: str
    styles: tuple[str, ...] = ()
    url: str = ""
    user: str = ""

    def element(self) -> Json:
        style = {"style": dict.fromkeys(self.styles, True)} if self.styles else {}
        if self.user:
            return {"type": "user", "user_id": self.user, **style}
        if self.url:
            words = {"text": self.text} if self.text else {}
            return {"type": "link", "url": self.url, **words, **style}
        return {"type": "text", "text": self.text, **style}

    @property
    def is_text(self) -> bool:
        return not (self.url or self.user)

    @property
    def shown(self) -> str:
        """Return its text; for a link, the words of the link."""
        return self.text or self.url or self.user


Leaves = list[Leaf]
PartKind = Literal["section", "quote", "preformatted", "list"]


@dataclass(slots=True)
class RichPart:
    """A paragraph, quote, code or list of a rich_text block."""

    kind: PartKind
    leaves: Leaves = field(default_factory=list)
    items: list[Leaves] = field(default_factory=list)
    """For a list: the leaves of each item."""
    ordered: bool = False
    indent: int = 0
    first: int = 1
    """For an ordered list: its first number."""

    def element(self) -> Json:
        kind = f"rich_text_{self.kind}"
        if self.kind != "list":
            return {"type": kind, "elements": _elements(self.leaves)}
        items = [{"type": "rich_text_section", "elements": _elements(i)} for i in self.items]
        result: Json = {"type": kind, "style": "ordered" if self.ordered else "bullet"}
        result |= {"elements": items}
        result |= {"indent": self.indent} if self.indent else {}
        return result | ({"offset": self.first - 1} if self.first > 1 else {})


def _elements(leaves: Leaves) -> list[Json]:
    return [leaf.element() for leaf in leaves or [Leaf(" ")]]


Side = Literal["left", "center", "right"]
SIDES: Mapping[str, Side] = {"left": "left", "center": "center", "right": "right"}


@dataclass(slots=True)
class RichTable:
    """A table with its titles in the first row."""

    rows: list[list[Leaves]]
    sides: list[Side]
    """Alignment of each column."""

    def block(self) -> Json:
        sides = [{"align": side, "is_wrapped": True} for side in self.sides]
        rows = [[_cell(leaves) for leaves in row] for row in self.rows]
        return {"type": "table", "rows": rows, "column_settings": sides}


def _cell(leaves: Leaves) -> Json:
    if not leaves:  # Slack rejects an empty cell
        return {"type": "raw_text", "text": "–"}
    return {"type": "rich_text", "elements": [RichPart("section", leaves).element()]}


def parse(text: str, links: Links, requester: str = "") -> list[RichPart | RichTable]:
    """Return the parts of a text, in order."""
    text = UNSPACED_BOLD.sub("\N{WORD JOINER}**\N{WORD JOINER}", text)
    builder = _Builder(text.split("\n"), links, requester)
    for token in PARSER.parse(text):
        builder.add(token)
    return builder.parts


def blocks(text: str, links: Links, requester: str = "") -> tuple[Json, ...]:
    """Return the blocks of a part; Slack accepts one table at most."""
    result: list[Json] = []
    elements: list[Json] = []
    for part in parse(text, links, requester):
        if isinstance(part, RichTable):
            result.append(part.block())
            elements = []
            continue
        if not elements:
            result.append({"type": "rich_text", "elements": elements})
        elements.append(part.element())
    return tuple(result)


@dataclass
class _Builder:
    lines: list[str]
    links: Links
    requester: str
    parts: list[RichPart | RichTable] = field(default_factory=list)
    open: list[Token] = field(default_factory=list)
    """The opening tokens of the blocks around the current one."""
    end: int = 0
    """The line after the last paragraph, fence or table."""
    mark: str = ""
    """Bullet or number of an item in a quote, because Slack has no lists there."""
    table: RichTable = field(default_factory=lambda: RichTable([], []))

    def add(self, token: Token) -> None:
        if token.nesting == 1:
            self.open.append(token)
            self._begin(token)
        elif token.nesting == -1:
            opening = self.open.pop()
            if opening.type == "table_open":
                self._table(opening)
        elif token.type == "fence":
            words = f"{token.info.strip()}\n" if " " in token.info.strip() else ""
            self._code(words + token.content.removesuffix("\n"), token)
        elif token.type == "hr":
            self._paragraph([Leaf("———")], token)
        elif self._inside("table"):
            bold = ("bold",) if self._inside("thead") else ()
            self.table.rows[-1].append(self._leaves(token, bold))
        else:
            bold = ("bold",) if self._inside("heading") else ()
            self._paragraph(self._leaves(token, bold), token)

    def _inside(self, *names: str) -> list[Token]:
        return [token for token in self.open if token.type.removesuffix("_open") in names]

    def _begin(self, token: Token) -> None:
        if token.type == "list_item_open":
            self._item()
        elif token.type == "blockquote_open" and len(self._inside("blockquote")) == 1:
            self.parts.append(RichPart("quote"))
        elif token.type == "tr_open":
            self.table.rows.append([])
        elif token.type == "th_open":
            style = str(token.attrs.get("style", ""))
            self.table.sides.append(SIDES.get(style.removeprefix("text-align:"), "left"))

    def _last(self) -> RichPart | None:
        """Return the last part, unless it is a table."""
        last = self.parts[-1] if self.parts else None
        return None if isinstance(last, RichTable) else last

    def _item(self) -> None:
        *above, inner = self._inside("bullet_list", "ordered_list")
        ordered = inner.type == "ordered_list_open"
        number = int(inner.attrs.get("start", 1)) if ordered else 1
        inner.attrs |= {"start": number + 1}
        if self._inside("blockquote"):
            self.mark = f"{number}. " if ordered else "• "
            return
        new = RichPart("list", [], [[]], ordered, min(len(above), MAX_INDENT), number)
        last = self._last()
        follows = last and (not ordered or last.first + len(last.items) == number)
        if (
            last
            and follows
            and (last.kind, last.ordered, last.indent) == (new.kind, ordered, new.indent)
        ):
            last.items.append([])
        else:
            self.parts.append(new)

    def _paragraph(self, leaves: Leaves, token: Token) -> None:
        last = self._last()
        gap = self._advance(token)
        if last and last.kind == "list" and self._inside("list_item"):
            item = last.items[-1]
            last.items[-1] = _merge([*item, Leaf("\n"), *leaves] if item else leaves)
            return
        kind: PartKind = "quote" if self._inside("blockquote") else "section"
        breaks = "\n" if gap and last and kind == "section" else ""
        if last is None or last.kind != kind:
            last = RichPart(kind)
            self.parts.append(last)
        elif last.leaves:
            breaks = "\n\n" if gap else "\n"
        before = last.leaves
        before[-1:] = _merge([*before[-1:], Leaf(breaks), Leaf(self.mark), *leaves])
        self.mark = ""

    def _advance(self, token: Token) -> bool:
        """Record where a block ends; return whether empty lines precede it."""
        start, before = token.map[0] if token.map else self.end, self.end
        self.end = token.map[1] if token.map else self.end
        return start > before

    def _code(self, text: str, token: Token) -> None:
        self._advance(token)
        shown = self._plain(text)
        self.parts.append(RichPart("preformatted", [Leaf(shown if shown.strip() else " ")]))

    def _table(self, token: Token) -> None:
        """Add a table; one that Slack or the grammar would cut is shown as its source text."""
        self._advance(token)
        first, end = token.map or (0, 0)
        source, columns = self.lines[first:end], len(self.table.sides)
        widest = max(len(PIPE.findall(line.strip("> \t").strip("|"))) for line in source) + 1
        if self.open or widest > columns or columns > MAX_COLUMNS:
            self._code(without_addresses("\n".join(source)), token)
        else:
            self.parts.append(self.table)
        self.table = RichTable([], [])

    def _leaves(self, token: Token, styles: Sequence[str]) -> Leaves:
        found: Leaves = []
        active = list(styles)
        start, url = 0, ""
        for each in token.children or ():
            style = STYLES.get(each.type.rpartition("_")[0])
            if style and each.nesting == 1:
                active.append(style)
            elif style:
                active.remove(style)
            elif each.type == "link_open":
                start, url = len(found), str(each.attrs.get("href"))
            elif each.type == "link_close":
                found[start:] = self._link(found[start:], url, tuple(dict.fromkeys(active)))
            else:
                found += self._leaf(each, tuple(dict.fromkeys(active)))
        merged = [replace(f, text=self._plain(f.text)) if f.is_text else f for f in _merge(found)]
        return [leaf for leaf in merged if leaf.text or leaf.url]

    def _leaf(self, token: Token, styles: tuple[str, ...]) -> Iterator[Leaf]:
        if token.type == "web":
            linkable = self.links.may_link(token.content)
            yield Leaf("" if linkable else token.content, styles, token.content if linkable else "")
        elif token.type == "code_inline":
            yield Leaf(token.content, (*styles, "code"))
        elif token.type in ("softbreak", "hardbreak"):
            yield Leaf("\n", styles)
        else:
            text = token.content.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
            first, *others = text.split(REQUESTER)
            yield Leaf(first, styles)
            for other in others:
                yield Leaf(self.requester, styles, user=self.requester)
                yield Leaf(other, styles)

    def _link(self, label: Leaves, url: str, styles: tuple[str, ...]) -> Leaves:
        if not self.links.may_link(url):
            return [*label, Leaf(f" ({url})", styles)]
        words = "".join(leaf.text or leaf.url for leaf in label if not leaf.user)
        shown = f"[{words}]" if words.isdigit() else self._plain(words)
        return [Leaf(shown or url, styles, url)]

    def _plain(self, text: str) -> str:
        """Return text to show literally; an address that results from joining is neutralized."""
        visible = replace_mentions(text).replace("\N{WORD JOINER}", "").replace(REQUESTER, "")
        return self.links.defang(visible)


def _merge(leaves: Leaves) -> Leaves:
    """Merge neighbouring text of one style and drop empty text."""
    merged: Leaves = []
    for leaf in leaves:
        last = merged[-1] if merged else None
        if last and last.is_text and leaf.is_text and leaf.styles == last.styles:
            merged[-1] = replace(last, text=last.text + leaf.text)
        elif leaf.text or not leaf.is_text:
            merged.append(leaf)
    return merged


MARK_START = re.compile(r"[<`\[|~@!]")
"""Characters that may begin a mark of markdown or Slack that is not closed yet."""


CITATIONS = re.compile(rf"{CITATION_PATTERN.pattern}(?:[ \t]*{CITATION_PATTERN.pattern})*")
"""Citations side by side."""


@dataclass
class Numbers:
    """Numbers the sources of citations in order of first occurrence, each once."""

    links: Mapping[str, Sequence[str]]
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Finding -> keys of its sources without a link, such as statements."""
    by_source: dict[str, int] = field(default_factory=dict)
    """Address or key of a source -> its number."""
    cited: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Finding -> the numbers of its sources."""

    def of(self, finding: str) -> tuple[int, ...]:
        """Return the numbers of a finding's sources."""
        if finding not in self.cited:
            url = self.url(finding)
            keys = [*filter(None, [url]), *self.keys.get(finding, ())] or [finding]
            self.cited[finding] = tuple(
                self.by_source.setdefault(key, len(self.by_source) + 1) for key in keys
            )
        return self.cited[finding]

    def put(self, text: str, code: bool) -> str:
        """Return the text with citations as links, or as plain numbers where links cannot be."""
        apart = text if code else re.sub(r"\](?=\[F\d+\.\d)", "] ", text)
        return CITATIONS.sub(lambda m: self._marks(ids_in(m[0]), code), apart)

    def _marks(self, findings: Sequence[str], code: bool) -> str:
        marks: dict[int, str] = {}
        for finding in findings:
            url = self.url(finding)
            for number in self.of(finding):
                linked = not code and self.by_source.get(url) == number
                marks.setdefault(number, f"[{number}]({url})" if linked else f"[{number}]")
        return " ".join(marks.values())

    def url(self, finding: str) -> str:
        return next(filter(None, map(address, self.links.get(finding) or ())), "")


@dataclass(frozen=True, slots=True)
class Prose:
    """Makes text by a model safe to show."""

    links: Mapping[str, Sequence[str]]
    """Links of the findings."""
    settings: ReplySettings
    request: str = ""
    """The requester's own words: addresses in them may be repeated."""
    requester: str = ""
    """The user who may be mentioned."""

    def collect_links(self) -> Links:
        citation_urls = {address(url) for urls in self.links.values() for url in urls}
        return Links(self.request, self.settings.link_hosts, citation_urls - {""})

    def link_citations(self, text: str, numbers: Numbers) -> str:
        """Return markdown with citations as numbered links; nothing else in it is active."""
        clean = self.collect_links().defang(redact(printable(text)))
        if self.requester:
            mention = rf"<@{re.escape(self.requester)}(?:\|[^<>\n]*)?>"
            clean = re.sub(mention, REQUESTER, clean)
        return "".join(numbers.put(piece, code) for code, piece in segments(harmless(clean)))

    def for_stream(self, markdown: str) -> str:
        """Make our own markdown safe for a stream, in which Slack detects addresses."""
        return neutralize_links(markdown).replace(REQUESTER, f"<@{self.requester}>")

    def live(self, text: str) -> str:
        """Return the part of an unfinished answer that can be shown.

        A later result begins with this one. It leaves out a table, the first line of a fence, the
        last word, and text that may still become a secret or a Slack mark.
        """
        most, settled = self.settings.message_chars, _settle(printable(text).lstrip())
        shown = self.for_stream(self.link_citations(settled, Numbers(self.links)))
        return shown if len(shown) <= most else shown[: shown.rfind("\n", 0, most) + 1]


def _settle(text: str) -> str:
    start = text.rfind("\n") + 1
    masked = CITATION_PATTERN.sub(lambda m: "x" * len(m[0]), text[start:])
    unsure = MARK_START.search(masked)
    settled = text[: start + unsure.start()] if unsure else text
    settled = settled[: find_unsettled(settled)]
    return settled[: _open_table(settled)].rstrip()


def _open_table(text: str) -> int:
    """Return where an unfinished table at the end begins; the text's length if there is none."""
    at = len(text)
    for code, line in reversed(lines(text)):
        if code or "|" not in line:
            break
        at -= len(line)
    return at


def without_addresses(text: str) -> str:
    """Return markdown without the addresses of its citations."""
    return re.sub(r"\[(\d+)\]\(https?://[^()\s]*\)", r"[\1]", text)


def address(url: str) -> str:
    """Return the address in the form allowed in a link; empty if it is not an address."""
    if not re.match(r"https?://", url) or len(url) > MAX_URL:
        return ""
    return re.sub(r"[\s()<>|\"\\`*\[\]]", lambda m: f"%{ord(m[0]):02X}", url)
