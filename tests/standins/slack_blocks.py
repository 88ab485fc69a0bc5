"""Checks blocks as Slack does: their shapes, their limits, the sum of their characters.

Limits: docs.slack.dev/reference/block-kit; `MAX_CHARACTERS`: github.com/slackapi/bolt-js #2509. How
deep a list may be indented stands nowhere, and is what Slack's own composer makes. Blocks and
elements that the product does not use are refused as unknown.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bot.local.slack.json import numbered
from bot.local.slack.records import Json
from bot.local.slack.state import SlackError
from standins.slack_shapes import Misfit, choice, flag, items, only, string, text, whole_number

MAX_BLOCKS = 50
MAX_VIEW_BLOCKS = 100
MAX_CHARACTERS = 13_200
MAX_MARKDOWN = 12_000
MAX_TABLE_CHARACTERS = 10_000

STATUSES = ("pending", "in_progress", "complete", "error")
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
_COUNTED = ("text", "title")


def checked(blocks: Sequence[Json], most: int = MAX_BLOCKS) -> tuple[Json, ...]:
    """The blocks with the ids that Slack gives to those without; SlackError as Slack refuses.

    `most` is MAX_BLOCKS for those of a message, whose characters are counted, too.
    """
    try:
        if len(blocks) > most:
            raise Misfit("/blocks", f"no more than {most} items allowed")
        for number, block in enumerate(blocks):
            _check(block, f"/blocks/{number}")
        _check_together(blocks)
    except Misfit as misfit:
        raise refusal("invalid_blocks", misfit) from None
    size = sum(len(each) for block in blocks for each in _strings(block))
    if size > MAX_CHARACTERS and most == MAX_BLOCKS:
        raise SlackError("msg_blocks_too_long")
    return numbered(blocks)


def refusal(code: str, misfit: Misfit) -> SlackError:
    """The error as Slack words it, with the JSON pointer to what is wrong."""
    sentence = f"{misfit.what} [json-pointer:{misfit.where}]"
    messages = [f"[ERROR] {sentence}"]
    return SlackError(code, errors=[sentence], response_metadata={"messages": messages})


def _check(block: Json, at: str) -> None:
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in _BLOCKS:
        raise Misfit(f"{at}/type", f"unsupported type: {kind}")
    string(block, "block_id", at, 255, required=False)
    _BLOCKS[kind](block, at)


def _check_together(blocks: Sequence[Json]) -> None:
    """What holds for the blocks of one message only as a whole."""
    ids = [block["block_id"] for block in blocks if block.get("block_id")]
    for number, each in enumerate(ids):
        if each in ids[:number]:
            raise Misfit("/blocks", f"`block_id` {each} already exists")
    markdown = [b["text"] for b in blocks if b["type"] == "markdown"]
    if sum(map(len, markdown)) > MAX_MARKDOWN:
        raise Misfit("/blocks", f"markdown must be less than {MAX_MARKDOWN + 1} characters")
    tables = [block for block in blocks if block["type"] == "table"]
    if len(tables) > 1:
        raise Misfit("/blocks", "only_one_table_allowed")
    if sum(len(each) for table in tables for each in _strings(table)) > MAX_TABLE_CHARACTERS:
        raise Misfit("/blocks", f"tables hold more than {MAX_TABLE_CHARACTERS} characters")


def _section(block: Json, at: str) -> None:
    if not block.get("text") and not block.get("fields"):
        raise Misfit(at, "missing required field: text")
    text(block, "text", at, 3000, required=False)
    for number, _ in enumerate(items(block, "fields", at, 10, required=False)):
        text(block["fields"], number, f"{at}/fields", 2000)
    if accessory := block.get("accessory"):
        _check_element(accessory, f"{at}/accessory")


def _header(block: Json, at: str) -> None:
    text(block, "text", at, 150, ("plain_text",))


def _markdown(block: Json, at: str) -> None:
    string(block, "text", at, MAX_MARKDOWN)


def _context(block: Json, at: str) -> None:
    for number, _ in enumerate(items(block, "elements", at, 10)):
        text(block["elements"], number, f"{at}/elements", 2000)


def _actions(block: Json, at: str) -> None:
    _elements(block, at, 25)


def _context_actions(block: Json, at: str) -> None:
    _elements(block, at, 5, ("feedback_buttons",))


def _elements(block: Json, at: str, most: int, allowed: Sequence[str] = ()) -> None:
    seen: set[str] = set()
    for number, element in enumerate(items(block, "elements", at, most)):
        where = f"{at}/elements/{number}"
        if allowed and element.get("type") not in allowed:
            raise Misfit(f"{where}/type", f"unsupported type: {element.get('type')}")
        _check_element(element, where)
        action = str(element.get("action_id") or "")
        if action and action in seen:
            raise Misfit(f"{where}/action_id", f"`action_id` {action} already exists")
        seen.add(action)


def _input(block: Json, at: str) -> None:
    text(block, "label", at, 2000, ("plain_text",))
    text(block, "hint", at, 2000, ("plain_text",), required=False)
    _check_element(block.get("element"), f"{at}/element")


def _check_element(element: Any, at: str) -> None:
    """Misfit where Slack would refuse the element of a block."""
    if not isinstance(element, dict):
        raise Misfit(at, "must provide an object")
    kind = element.get("type")
    if not isinstance(kind, str) or kind not in _ELEMENTS:
        raise Misfit(f"{at}/type", f"unsupported type: {kind}")
    string(element, "action_id", at, 255, required=False)
    _ELEMENTS[kind](element, at)


def _button(element: Json, at: str) -> None:
    text(element, "text", at, 75, ("plain_text",))
    string(element, "url", at, 3000, required=False)
    string(element, "value", at, 2000, required=False)
    if element.get("style") is not None:
        choice(element, "style", at, ("primary", "danger"))


def _feedback(element: Json, at: str) -> None:
    for key in ("positive_button", "negative_button"):
        text(element.get(key), "text", f"{at}/{key}", 75, ("plain_text",))
        string(element[key], "value", f"{at}/{key}", 2000)


def _select(element: Json, at: str) -> None:
    text(element, "placeholder", at, 150, ("plain_text",), required=False)
    for number, option in enumerate(items(element, "options", at, 100)):
        text(option, "text", f"{at}/options/{number}", 75)
        string(option, "value", f"{at}/options/{number}", 150)


def _radio_buttons(element: Json, at: str) -> None:
    for number, option in enumerate(items(element, "options", at, 10)):
        text(option, "text", f"{at}/options/{number}", 75)
        string(option, "value", f"{at}/options/{number}", 150)


def _text_input(element: Json, at: str) -> None:
    text(element, "placeholder", at, 150, ("plain_text",), required=False)


_ELEMENTS: Mapping[str, Callable[[Json, str], None]] = {
    "button": _button,
    "feedback_buttons": _feedback,
    "static_select": _select,
    "radio_buttons": _radio_buttons,
    "plain_text_input": _text_input,
}


def rich_text(block: Any, at: str) -> None:
    """A rich_text block: sections, lists, quotes and preformatted text of typed elements."""
    only(block, at, ("type", "block_id", "elements"))
    for count, part in enumerate(items(block, "elements", at, None)):
        where = f"{at}/elements/{count}"
        kind = choice(part, "type", where, tuple(_PARTS))
        only(part, where, ("type", "elements", *_PARTS[kind]))
        whole_number(part, "border", where, 1)
        if kind == "rich_text_list":
            _rich_list(part, where)
        else:
            _leaves(part, where, ("text", "link") if kind == "rich_text_preformatted" else ())


def _rich_list(part: Json, at: str) -> None:
    choice(part, "style", at, ("bullet", "ordered"))
    whole_number(part, "indent", at, MAX_INDENT)
    whole_number(part, "offset", at, MAX_OFFSET)
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
            whole_number(leaf, key, at, MAX_OFFSET * 100)
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


def _table(block: Json, at: str) -> None:
    rows = block.get("rows")
    if not isinstance(rows, list) or not 0 < len(rows) <= 100:
        raise Misfit(f"{at}/rows", "must have between 1 and 100 rows")
    for number, row in enumerate(rows):
        where = f"{at}/rows/{number}"
        if not isinstance(row, list) or not 0 < len(row) <= 20:
            raise Misfit(where, "must have between 1 and 20 cells")
        for index, cell in enumerate(row):
            _cell(cell, f"{where}/{index}")
    for number, column in enumerate(items(block, "column_settings", at, 20, required=False)):
        where = f"{at}/column_settings/{number}"
        only(column, where, ("align", "is_wrapped"))
        if column.get("align") is not None:
            choice(column, "align", where, ("left", "center", "right"))
        flag(column, "is_wrapped", where)


def _cell(cell: Any, at: str) -> None:
    kind = choice(cell, "type", at, ("raw_text", "raw_number", "rich_text"))
    if kind == "rich_text":
        rich_text(cell, at)
    elif kind == "raw_text":
        string(cell, "text", at, 10**9)


def task_card(block: Json, at: str) -> None:
    """A task_card block, also as one of the tasks of a plan."""
    string(block, "task_id", at, 255)
    string(block, "title", at, 256)
    choice(block, "status", at, STATUSES)
    for key in ("details", "output"):
        if block.get(key) is not None:
            rich_text(block[key], f"{at}/{key}")


def _plan(block: Json, at: str) -> None:
    string(block, "title", at, 256)
    for number, task in enumerate(items(block, "tasks", at, 50, required=False)):
        task_card(task, f"{at}/tasks/{number}")


_BLOCKS: Mapping[str, Callable[[Json, str], None]] = {
    "section": _section,
    "header": _header,
    "markdown": _markdown,
    "divider": lambda block, at: None,
    "context": _context,
    "actions": _actions,
    "context_actions": _context_actions,
    "input": _input,
    "rich_text": rich_text,
    "table": _table,
    "task_card": task_card,
    "plan": _plan,
}


def _strings(value: Any, key: str = "") -> Iterator[str]:
    """Every text that a reader sees."""
    if isinstance(value, str):
        if key in _COUNTED:
            yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _strings(each, name)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
