"""HTML cut into tags and text as a browser cuts it (WHATWG HTML, 13.2.5), in linear time."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from html.entities import html5
from types import MappingProxyType
from typing import NamedTuple

RAW = frozenset("style script xmp iframe noembed noframes textarea title plaintext".split())
"""Elements whose content is text, whatever it looks like."""

_SPACE = r"[ \t\n\f]"
_NAME = re.compile(r"[a-zA-Z][^ \t\n\f/>]*")
_ATTRIBUTE = re.compile(
    r"[ \t\n\f/]*([^ \t\n\f/>][^ \t\n\f/>=]*)"
    rf"(?:{_SPACE}*={_SPACE}*(?:\"([^\"]*)(?:\"|\Z)|'([^']*)(?:'|\Z)"
    r"|([^ \t\n\f>\"'][^ \t\n\f>]*)?))?"
)
_BARE_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)>")
"""Most tags: this tells them faster than the rules for all."""
_TAG_END = re.compile(r"[ \t\n\f/]*(/?)>")
_MARKUP = re.compile(r"<(?=[a-zA-Z!?]|/[^>]|/>)")
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
_BOGUS = re.compile(r"<[^>]*(?:>|\Z)")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_DOCTYPE = re.compile(r"<!doctype([^>]*)", re.IGNORECASE)
_SCRIPT = re.compile(r"(<!--)|(-->)|<(/?)script(?=[ \t\n\f/>])", re.IGNORECASE)
_LONG_NUMBER = re.compile(r"&#(?:[xX][0-9a-fA-F]{100,}|[0-9]{100,});?")
_REFERENCE = re.compile(r"&(?:#[xX]?[0-9a-fA-F]+;?|[a-zA-Z0-9]+(?:;|(?![=a-zA-Z0-9;])))")
_MODERN = re.compile(r"\s*html\s*(?:(?:system|public)\b(?!.*(?:3\.2|4\.0\w* trans|frameset)).*)?$")


class Token(NamedTuple):
    """Text, or a start or end tag."""

    kind: str
    """`text`, `start` or `end`."""
    name: str = ""
    """Of the tag, in lower case."""
    text: str = ""
    """The text; of a start tag of RAW elements all that is in them."""
    attributes: Mapping[str, str] = MappingProxyType({})
    closed: bool = False
    """Whether the tag ends in `/>`."""


class CssTokens:
    """The tokens of a document, one by one: what comes next depends on where the tree stands."""

    def __init__(self, source: str) -> None:
        source = source.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        self.source, self.at = source, 0
        self.in_tag = False
        """Whether the document ends within a tag."""
        doctype = _DOCTYPE.search(source[:2_000])
        self.quirks = doctype is None or not _MODERN.match(doctype[1].lower())
        """Whether a browser takes it for a page of the nineties, as it does most mail."""

    def next(self, foreign: bool, data: bool) -> Token | None:
        """Return the next token; None at the end.

        In `foreign` content, of svg and math, no element is RAW; where `data` may stand, in any
        element of them, there are CDATA sections.
        """
        while self.at < len(self.source):
            if not _MARKUP.match(self.source, self.at):
                return self.plain()
            token = self.markup(foreign, data)
            if token is not None:
                return token
        return None

    def plain(self) -> Token:
        found = _MARKUP.search(self.source, self.at + 1)
        end = found.start() if found else len(self.source)
        text, self.at = self.source[self.at : end], end
        return Token("text", text=_unescaped(text))

    def markup(self, foreign: bool, data: bool) -> Token | None:
        bare = _BARE_TAG.match(self.source, self.at)
        if bare is not None:
            self.at, tag = bare.end(), bare[2].lower()
            if bare[1]:
                return Token("end", tag)
            return Token("start", tag, self.raw(tag) if tag in RAW and not foreign else "")
        second = self.source[self.at + 1]
        if second == "!":
            return self.declaration(data)
        start = self.at + (2 if second == "/" else 1)
        name = _NAME.match(self.source, start)
        if name is None:
            self.skip(_BOGUS)
            return None
        self.at = name.end()
        attributes = self.attributes()
        end = _TAG_END.match(self.source, self.at)
        if end is None:  # a tag that never ends takes the rest of the document with it
            self.at, self.in_tag = len(self.source), True
            return None
        self.at = end.end()
        tag = name[0].lower()
        if second == "/":
            return Token("end", tag)
        closed = self.source[end.end() - 2] == "/"
        text = self.raw(tag) if tag in RAW and not foreign else ""
        return Token("start", tag, text, attributes, closed)

    def declaration(self, allowed: bool) -> Token | None:
        data = _CDATA.match(self.source, self.at) if allowed else None
        if data is None:
            comment = self.source.startswith("<!--", self.at)
            self.skip(_COMMENT if comment else _BOGUS)
            return None
        self.at = data.end()
        return Token("text", text=data[1])

    def skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.source, self.at)
        self.at = found.end() if found else len(self.source)

    def attributes(self) -> dict[str, str]:
        held: dict[str, str] = {}
        while (found := _ATTRIBUTE.match(self.source, self.at)) is not None:
            self.at = found.end()
            form = found.lastindex or 1  # how it was quoted, if there is a value
            value = found[form] if form > 1 else ""
            if "&" in value:
                value = _REFERENCE.sub(_reference, value)
            held.setdefault(found[1].lower(), value)
        return held

    def raw(self, tag: str) -> str:
        """Return text up to the end tag of a RAW element, which is the next token."""
        start = self.at
        if tag == "plaintext":
            self.at = len(self.source)
        elif tag == "script":
            self.at = self.script_end()
        else:
            end = re.compile(rf"</{tag}(?=[ \t\n\f/>])", re.IGNORECASE).search(self.source, start)
            self.at = end.start() if end else len(self.source)
        text = self.source[start : self.at]
        return _unescaped(text) if tag in ("title", "textarea") else text

    def script_end(self) -> int:
        """Return where a script ends: not at a `</script>` that ends a `<script>` in a comment in
        it.
        """
        commented = nested = False
        for found in _SCRIPT.finditer(self.source, self.at):
            if found[1]:
                commented = True
            elif found[2]:
                commented = nested = False
            elif not found[3]:
                nested = commented
            elif nested:
                nested = False
            else:
                return found.start()
        return len(self.source)


def _unescaped(text: str) -> str:
    # `html.unescape` raises for numbers of more digits than Python converts
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _reference(match: re.Match[str]) -> str:
    name = match[0][1:]
    return _unescaped(match[0]) if name[0] == "#" or name in html5 else match[0]
