"""Checks rich_text blocks: their parts, and the typed elements of those.

docs.slack.dev/reference/block-kit/blocks/rich-text-block; how deep a list may be indented stands
nowhere, and is what Slack's own composer makes.
"""

import re
from collections.abc import Mapping
from typing import Any

from bot.local.slack.records import Json
from bot.local.slack.shapes import Misfit, choice, flag, items, number, only, string

MAX_INDENT = 8
MAX_OFFSET = 10**9
MAX_URL = 3000

_STYLES = "bold italic strike code underline highlight client_highlight unlink".split()
_PARTS: Mapping[str, tuple[str, ...]] = {
    "rich_text_section": (),
    "rich_text_list": ("style", "indent", "offset", "border"),
    "rich_text_quote": ("border",),
    "rich_text_preformatted": ("border", "language"),
}
_LEAVES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("text",), ()),
    "link": (("url",), ("text", "unsafe")),
    "user": (("user_id",), ()),
    "channel": (("channel_id",), ()),
    "usergroup": (("usergroup_id",), ()),
    "emoji": (("name",), ("unicode", "skin_tone", "display_url")),
    "broadcast": (("range",), ()),
    "color": (("value",), ()),
    "date": (("timestamp", "format"), ("url", "fallback")),
}
"""What each element needs, and what it may have besides a style."""
_IDS = {"user_id": r"[UW][A-Z0-9]+", "channel_id": r"[CDG][A-Z0-9]+", "usergroup_id": r"S[A-Z0-9]+"}


def rich_text(block: Any, at: str) -> None:
    """A rich_text block: sections, lists, quotes and preformatted text of typed elements."""
    only(block, at, ("type", "block_id", "elements"))
    for count, part in enumerate(items(block, "elements", at, None)):
        where = f"{at}/elements/{count}"
        kind = choice(part, "type", where, tuple(_PARTS))
        only(part, where, ("type", "elements", *_PARTS[kind]))
        number(part, "border", where, 1)
        if kind == "rich_text_list":
            _list(part, where)
        else:
            _leaves(part, where, ("text", "link") if kind == "rich_text_preformatted" else ())


def _list(part: Json, at: str) -> None:
    choice(part, "style", at, ("bullet", "ordered"))
    number(part, "indent", at, MAX_INDENT)
    number(part, "offset", at, MAX_OFFSET)
    for count, item in enumerate(items(part, "elements", at, None)):
        where = f"{at}/elements/{count}"
        choice(item, "type", where, ("rich_text_section",))
        only(item, where, ("type", "elements"))
        _leaves(item, where)


def _leaves(part: Json, at: str, allowed: tuple[str, ...] = ()) -> None:
    for count, leaf in enumerate(items(part, "elements", at, None, least=0)):
        _leaf(leaf, f"{at}/elements/{count}", allowed or tuple(_LEAVES))


def _leaf(leaf: Json, at: str, allowed: tuple[str, ...]) -> None:
    kind = choice(leaf, "type", at, allowed)
    needed, others = _LEAVES[kind]
    only(leaf, at, ("type", "style", *needed, *others))
    for key in needed:
        if key == "timestamp":
            number(leaf, key, at, MAX_OFFSET * 100)
            continue
        value = string(leaf, key, at, MAX_URL if key == "url" else 40_000)
        if key in _IDS and not re.fullmatch(_IDS[key], value):
            raise Misfit(f"{at}/{key}", "invalid id")
    if kind == "broadcast":
        choice(leaf, "range", at, ("here", "channel", "everyone"))
    if kind == "link":
        if not re.match(r"[a-z][a-z0-9+.-]*:\S", leaf["url"], re.IGNORECASE):
            raise Misfit(f"{at}/url", "invalid url")
        string(leaf, "text", at, 40_000, required=False)
    if (style := leaf.get("style")) is not None:
        only(style, f"{at}/style", _STYLES)
        for key in style:
            flag(style, key, f"{at}/style")
