"""Markdown that a model wrote as Slack's rich text: built by code, so that nothing in it acts.

The text of a rich_text element is shown as it is: no mention, emoji, link or image is read from
it (docs.slack.dev/reference/block-kit/blocks/rich-text-block).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.replies.cite import STOPS, Links
from bot.replies.markdown import OPEN, Line, cells, lines, unaddressed

Json = dict[str, Any]

REQUESTER = "\ue000"
"""Stands for the requester's mention. A private character: `printable` leaves none of a model's."""

MAX_DEPTH = 6
"""Emphasis within emphasis; deeper marks are shown as they are."""
MAX_INDENT = 8

HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?P<text>.*?)[ \t]*#*[ \t]*")
ITEM = re.compile(r"(?P<indent>[ \t]*)(?P<mark>[-*+•]|\d{1,9}[.)])(?:[ \t]+(?P<text>.*))?")
RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
QUOTE = re.compile(r"[ \t]{0,3}(?:>[ \t]?)+")
CHECKBOX = re.compile(r"\[([ xX])\] ")

INLINE = re.compile(
    rf"""(?x)
      (?P<code>(?<!`)(?P<ticks>`+)(?!`)(?P<coded>.+?)(?<!`)(?P=ticks)(?!`))
    | \[(?P<label>[^\[\]\n]{{1,300}})\]\((?P<to>https?://[^()\s]+)\)
    | (?P<requester>{REQUESTER})
    | \\(?P<escaped>[!-/:-@\[-`{{-~])
    | (?P<web>https?://[^\s<>()\[\]|"'*`]+)
    | (?P<strong>\*\*(?=\S)(?P<bold>.{{1,1500}}?)(?<=\S)\*\*(?!\*)
               |(?<!\w)__(?=\S)(?P<bold_>.{{1,1500}}?)(?<=\S)__(?!\w))
    | ~~(?=\S)(?P<strike>.{{1,1500}}?)(?<=\S)~~
    | \*(?=[^\s*])(?P<italic>[^*]{{1,1500}}?)(?<=[^\s*])\*(?!\*)
    | (?<!\w)_(?=[^\s_])(?P<italic_>[^_]{{1,1500}}?)(?<=[^\s_])_(?!\w)
    """
)
STYLES = {"bold": "bold", "bold_": "bold", "strike": "strike"}
STYLES |= {"italic": "italic", "italic_": "italic"}


def blocks(text: str, links: Links, requester: str = "") -> tuple[Json, ...]:
    """The blocks of a part: rich_text, and at most one table, as Slack allows in a message."""
    maker = _Maker(links, requester)
    table: list[str] = []
    for line in lines(text):
        if table and line.kind not in ("rule", "row"):
            maker.table(table)
            table = []
        if line.kind in ("header", "rule", "row"):
            table.append(line.text)
        elif line.end:
            maker.code(line)
        else:
            maker.text(line.text.rstrip("\n"))
    if table:
        maker.table(table)
    return tuple(maker.done())


@dataclass
class _Maker:
    links: Links
    requester: str
    made: list[Json] = field(default_factory=list)
    parts: list[Json] = field(default_factory=list)
    """Of the rich_text block that is being made."""
    open: Json | None = None
    """The last of them, while it may go on."""
    gap: bool = False
    """An empty line came before this one."""
    indents: list[int] = field(default_factory=list)
    """Of the list that goes on, one a level; and in `numbers` its last number on each."""
    numbers: list[int] = field(default_factory=list)
    indent: int = 0
    """Characters in front of the fence that is open."""

    def text(self, line: str) -> None:
        if not line.strip():
            self.gap = True
            if self.open and self.open["type"] == "rich_text_quote":
                self.open = None
            return
        if quote := QUOTE.match(line):
            self._add("rich_text_quote", self._quoted(line[quote.end() :]))
        elif RULE.fullmatch(line):
            self._add("rich_text_section", [_leaf("———")])
        elif item := ITEM.fullmatch(line):
            self._item(item)
        elif self.indents and line[:1] in " \t" and self.parts[-1]["type"] == "rich_text_list":
            inside = self.parts[-1]["elements"][-1]["elements"]
            inside += [_leaf("\n"), *self.inline(line.strip())]
        else:
            self._add("rich_text_section", self._words(line))
        self.gap = False

    def _words(self, line: str) -> list[Json]:
        heading = HEADING.fullmatch(line)
        if heading and heading["text"]:
            return self.inline(heading["text"], ("bold",))
        return self.inline(line.strip())

    def _quoted(self, line: str) -> list[Json]:
        item = ITEM.fullmatch(line)
        if item and not item["mark"][0].isdigit():
            return [_leaf(f"{item['indent']}• "), *self.inline(item["text"] or "")]
        return self._words(line)

    def _add(self, kind: str, leaves: list[Json]) -> None:
        """A line of a section or a quote."""
        self.indents, self.numbers = [], []
        if self.open and self.open["type"] == kind:
            breaks = "\n\n" if self.gap else "\n"
        else:
            breaks = "\n" if self.gap and self.parts and kind == "rich_text_section" else ""
            self._begin({"type": kind, "elements": []})
        assert self.open is not None
        before = self.open["elements"]
        before[-1:] = _merged([*before[-1:], *([_leaf(breaks)] if breaks else []), *leaves])

    def _begin(self, part: Json) -> None:
        self.parts.append(part)
        self.open = part

    def _item(self, item: re.Match[str]) -> None:
        width = len(item["indent"].expandtabs(4))
        while self.indents and width < self.indents[-1]:
            self.indents.pop()
            self.numbers.pop()
        if not self.indents or width > self.indents[-1]:
            self.indents.append(width)
            self.numbers.append(0)
        ordered = item["mark"][0].isdigit()
        given = int(item["mark"][:-1]) if ordered else 0
        number = max(given, self.numbers[-1] + 1) if ordered else 0
        style, level = "ordered" if ordered else "bullet", min(len(self.indents) - 1, MAX_INDENT)
        follows = not ordered or number == self.numbers[-1] + 1
        self.numbers[-1] = number
        last = self.open if self.open and self.open["type"] == "rich_text_list" else None
        if not (last and follows and (last["style"], last.get("indent", 0)) == (style, level)):
            last = {"type": "rich_text_list", "style": style, "elements": []}
            last |= {"indent": level} if level else {}
            last |= {"offset": number - 1} if number > 1 else {}
            self._begin(last)
        words = CHECKBOX.sub(lambda m: "☐ " if m[1] == " " else "☑ ", item["text"] or "", count=1)
        leaves = self.inline(words) or [_leaf(" ")]
        last["elements"].append({"type": "rich_text_section", "elements": leaves})

    def code(self, line: Line) -> None:
        bare = line.text.rstrip("\n")
        if line.kind == "open":
            opened = OPEN.fullmatch(bare)
            self.indent = len(opened["indent"]) if opened else 0
            self._begin({"type": "rich_text_preformatted", "elements": []})
        elif line.kind == "code" and self.open:
            inner = bare[self.indent :] if not bare[: self.indent].strip(" \t>") else bare
            coded = [e["text"] for e in self.open["elements"]]
            self.open["elements"] = [_leaf("\n".join([*coded, self._plain(inner)]))]
        elif self.open:
            shown = "".join(e["text"] for e in self.open["elements"])
            self.open["elements"] = [_leaf(shown if shown.strip() else " ")]
            self.open = None
        self.gap, self.indents, self.numbers = False, [], []

    def table(self, rows: Sequence[str]) -> None:
        """A table block; a second one of the same part is shown as it was written."""
        if any(block["type"] == "table" for block in self.made):
            shown = self._plain("".join(rows).rstrip("\n"))
            self._begin({"type": "rich_text_preformatted", "elements": [_leaf(shown)]})
            self.open = None
            return
        self._close()
        content = [cells(row) for row in (rows[0], *rows[2:])]
        width = max(map(len, content))
        sides = cells(rows[1]) if len(rows) > 1 else []
        settings = [{"align": _side(mark), "is_wrapped": True} for mark in sides]
        shown_rows = [
            [self._cell(c) for c in [*row, *[""] * (width - len(row))]] for row in content
        ]
        self.made.append({"type": "table", "rows": shown_rows, "column_settings": settings})

    def _cell(self, text: str) -> Json:
        leaves = self.inline(text.replace("\\|", "|"))
        if not leaves:  # Slack takes no empty cell
            return {"type": "raw_text", "text": "–"}
        section = {"type": "rich_text_section", "elements": leaves}
        return {"type": "rich_text", "elements": [section]}

    def _close(self) -> None:
        if self.parts:
            self.made.append({"type": "rich_text", "elements": self.parts})
        self.parts, self.open, self.gap = [], None, False
        self.indents, self.numbers = [], []

    def done(self) -> list[Json]:
        self._close()
        return self.made

    # ---- within a line

    def inline(self, text: str, styles: tuple[str, ...] = ()) -> list[Json]:
        leaves = _merged(self._leaves(text, styles))
        return [e | {"text": self._plain(e["text"])} if e["type"] == "text" else e for e in leaves]

    def _leaves(self, text: str, styles: tuple[str, ...], depth: int = 0) -> Iterator[Json]:
        at = 0
        for found in INLINE.finditer(text) if depth < MAX_DEPTH else ():
            yield self._text(text[at : found.start()], styles)
            yield from self._found(found, styles, depth)
            at = found.end()
        yield self._text(text[at:], styles)

    def _found(self, found: re.Match[str], styles: tuple[str, ...], depth: int) -> Iterator[Json]:
        if found["code"]:
            yield _leaf(found["coded"], (*styles, "code"))
        elif found["to"]:
            yield from self._link(found["label"], found["to"], styles, depth)
        elif found["web"]:
            address = found["web"].rstrip(STOPS)
            if self.links.may_link(address):
                yield {"type": "link", "url": address, **_style(styles)}
                yield self._text(found["web"][len(address) :], styles)
            else:
                yield self._text(found["web"], styles)
        elif found["requester"]:
            yield {"type": "user", "user_id": self.requester, **_style(styles)}
        elif found["escaped"]:
            yield _leaf(found["escaped"], styles)
        else:
            name, inner = next((n, found[n]) for n in STYLES if found[n] is not None)
            yield from self._leaves(inner, tuple(dict.fromkeys((*styles, STYLES[name]))), depth + 1)

    def _link(self, label: str, to: str, styles: tuple[str, ...], depth: int) -> Iterator[Json]:
        if not self.links.may_link(to):
            yield from self._leaves(f"{label} ({to})", styles, depth + 1)
            return
        words = "".join(e.get("text", "") for e in self._leaves(label, (), MAX_DEPTH - 1))
        shown = f"[{words}]" if words.isdigit() else self._plain(words)
        yield {"type": "link", "url": to, "text": shown or to, **_style(styles)}

    @staticmethod
    def _text(text: str, styles: tuple[str, ...]) -> Json:
        said = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return _leaf(said, styles)

    def _plain(self, text: str) -> str:
        """Text that is shown as it is; what became an address by being put together is none."""
        bare = unaddressed(text).replace("\N{WORD JOINER}", "").replace(REQUESTER, "")
        return self.links.defused(bare)


def _leaf(text: str, styles: tuple[str, ...] = ()) -> Json:
    return {"type": "text", "text": text, **_style(styles)}


def _style(styles: tuple[str, ...]) -> Json:
    return {"style": dict.fromkeys(styles, True)} if styles else {}


def _merged(leaves: Iterator[Json] | Sequence[Json]) -> list[Json]:
    """The leaves with neighbours of one style as one, and without empty ones."""
    made: list[Json] = []
    for leaf in leaves:
        last = made[-1] if made else {}
        if leaf["type"] == "text" == last.get("type") and leaf.get("style") == last.get("style"):
            made[-1] = {**last, "text": last["text"] + leaf["text"]}
        elif leaf["type"] != "text" or leaf["text"]:
            made.append(leaf)
    return made


def _side(mark: str) -> str:
    if mark.endswith(":"):
        return "center" if mark.startswith(":") else "right"
    return "left"
