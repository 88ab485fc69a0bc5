"""The messages of a report as the text and the page of a mail: what acts in Slack is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import count
from typing import Any

from bot.replies.render import Part

Json = Mapping[str, Any]

_STYLES = (("code", "code"), ("strike", "s"), ("italic", "i"), ("bold", "b"))
_WEB = re.compile(r"https?://[^\s<>\"]+", re.I)
_PAGE = (
    '<!DOCTYPE html><html><head><meta charset="utf-8"></head>'
    '<body style="font:14px/1.5 sans-serif;max-width:46em">{}</body></html>'
)


def text_of(parts: Iterable[Part]) -> str:
    """The messages as plain text, apart by a line."""
    made = ["\n".join(filter(None, map(_text, part.blocks))) or part.text for part in parts]
    return "\n\n".join(made) + "\n"


def page_of(parts: Iterable[Part]) -> str:
    """The same as HTML: only text, lists and links to the web, and nothing that is fetched."""
    made = ["".join(map(_html, part.blocks)) or f"<p>{escape(part.text)}</p>" for part in parts]
    return _PAGE.format("<hr>".join(made))


# ---- blocks


def _text(block: Json) -> str:
    match block.get("type"):
        case "rich_text":
            return "\n".join(_lines(each) for each in _elements(block)).strip("\n")
        case "header" | "section" | "markdown":
            return "\n".join(_said(block))
        case "context":
            return " · ".join(_said(block))
        case "table":
            return "\n".join(" | ".join(map(_text, row)) for row in block.get("rows") or ())
    return str(block.get("text") or "") if block.get("type") == "raw_text" else ""


def _html(block: Json) -> str:
    match block.get("type"):
        case "rich_text":
            return "".join(_piece(each) for each in _elements(block))
        case "header":
            return f"<h2>{escape(' '.join(_said(block)))}</h2>"
        case "section" | "markdown":
            return f"<p>{_broken(' '.join(_said(block)))}</p>"
        case "context":
            return f'<p style="color:#666;font-size:12px">{_broken(" · ".join(_said(block)))}</p>'
        case "table":
            return f"<table>{''.join(map(_row, block.get('rows') or ()))}</table>"
    return escape(str(block.get("text") or "")) if block.get("type") == "raw_text" else ""


def _said(block: Json) -> Iterator[str]:
    """The texts of a header, a section or a context."""
    inside = [block.get("text"), *(block.get("fields") or ()), *_elements(block)]
    for each in inside:
        text = each.get("text") if isinstance(each, Mapping) else each
        if isinstance(text, str):
            yield text


def _row(cells: Sequence[Json]) -> str:
    return f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in cells)}</tr>"


# ---- what rich text is made of


def _lines(element: Json) -> str:
    match element.get("type"):
        case "rich_text_list":
            indent = "  " * int(element.get("indent") or 0)
            numbers = count(int(element.get("offset") or 0) + 1)
            marks = (f"{n}." for n in numbers) if element.get("style") == "ordered" else None
            made = (_leaves(each) for each in _elements(element))
            return "\n".join(f"{indent}{next(marks) if marks else '-'} {each}" for each in made)
        case "rich_text_quote":
            return "\n".join(f"> {line}" for line in _leaves(element).splitlines())
    return _leaves(element)


def _leaves(element: Json) -> str:
    return "".join(_leaf(leaf) for leaf in _elements(element))


def _leaf(leaf: Json) -> str:
    url, text = str(leaf.get("url") or ""), _words(leaf)
    return f"{text} ({url})" if url and url != text else text


def _piece(element: Json) -> str:
    inside = "".join(map(_inline, _elements(element)))
    match element.get("type"):
        case "rich_text_list":
            ordered = element.get("style") == "ordered"
            start = f' start="{int(element.get("offset") or 0) + 1}"' if ordered else ""
            rows = "".join(
                f"<li>{''.join(map(_inline, _elements(e)))}</li>" for e in _elements(element)
            )
            return f"<ol{start}>{rows}</ol>" if ordered else f"<ul>{rows}</ul>"
        case "rich_text_quote":
            return f"<blockquote>{inside}</blockquote>"
        case "rich_text_preformatted":
            return f"<pre>{inside}</pre>"
    return f"<p>{inside}</p>"


def _inline(leaf: Json) -> str:
    made = _broken(_words(leaf))
    for name, tag in _STYLES:
        if (leaf.get("style") or {}).get(name):
            made = f"<{tag}>{made}</{tag}>"
    url = str(leaf.get("url") or "")
    return f'<a href="{escape(url)}">{made}</a>' if _WEB.fullmatch(url) else made


def _words(leaf: Json) -> str:
    match leaf.get("type"):
        case "date":
            return str(leaf.get("fallback") or "")
        case "emoji":
            return f":{leaf.get('name')}:"
        case "user":
            return f"@{leaf.get('user_id')}"
        case "channel":
            return f"#{leaf.get('channel_id')}"
    return str(leaf.get("text") or leaf.get("url") or "")


def _broken(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _elements(block: Json) -> Sequence[Json]:
    return block.get("elements") or ()
