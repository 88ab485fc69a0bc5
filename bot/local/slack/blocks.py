"""Checks blocks as Slack does: their shapes, their limits, the sum of their characters.

Limits: docs.slack.dev/reference/block-kit; `MAX_CHARACTERS`: github.com/slackapi/bolt-js #2509.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bot.local.slack.elements import check_element
from bot.local.slack.records import Json
from bot.local.slack.rich import rich_text
from bot.local.slack.shapes import Misfit, choice, flag, items, only, string, text
from bot.local.slack.state import SlackError

MAX_BLOCKS = 50
MAX_VIEW_BLOCKS = 100
MAX_CHARACTERS = 13_200
MAX_MARKDOWN = 12_000
MAX_TABLE_CHARACTERS = 10_000

STATUSES = ("pending", "in_progress", "complete", "error")
_COUNTED = ("text", "title", "alt_text")


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
    ids = {block.get("block_id") for block in blocks}
    fresh = (f"b{number}" for number in range(1, 1000) if f"b{number}" not in ids)
    return tuple({**b, "block_id": b.get("block_id") or next(fresh)} for b in blocks)


def refusal(code: str, misfit: Misfit) -> SlackError:
    """The error as Slack words it, with the JSON pointer to what is wrong."""
    sentence = f"{misfit.what} [json-pointer:{misfit.where}]"
    messages = [f"[ERROR] {sentence}"]
    return SlackError(code, errors=[sentence], response_metadata={"messages": messages})


def _check(block: Json, at: str, allowed: Sequence[str] = ()) -> None:
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in (allowed or _BLOCKS):
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
        check_element(accessory, f"{at}/accessory")


def _header(block: Json, at: str) -> None:
    text(block, "text", at, 150, ("plain_text",))


def _markdown(block: Json, at: str) -> None:
    string(block, "text", at, MAX_MARKDOWN)


def _nothing(block: Json, at: str) -> None:
    """A block that Slack makes itself, or whose content it hardly checks."""


def _image(block: Json, at: str) -> None:
    check_element(block, at)
    text(block, "title", at, 2000, ("plain_text",), required=False)


def _context(block: Json, at: str) -> None:
    for number, element in enumerate(items(block, "elements", at, 10)):
        where = f"{at}/elements/{number}"
        if element.get("type") == "image":
            check_element(element, where)
        else:
            text(block["elements"], number, f"{at}/elements", 2000)


def _actions(block: Json, at: str) -> None:
    _elements(block, at, 25)


def _context_actions(block: Json, at: str) -> None:
    _elements(block, at, 5, ("feedback_buttons", "icon_button"))


def _elements(block: Json, at: str, most: int, allowed: Sequence[str] = ()) -> None:
    seen: set[str] = set()
    for number, element in enumerate(items(block, "elements", at, most)):
        where = f"{at}/elements/{number}"
        if allowed and element.get("type") not in allowed:
            raise Misfit(f"{where}/type", f"unsupported type: {element.get('type')}")
        check_element(element, where)
        action = str(element.get("action_id") or "")
        if action and action in seen:
            raise Misfit(f"{where}/action_id", f"`action_id` {action} already exists")
        seen.add(action)


def _input(block: Json, at: str) -> None:
    text(block, "label", at, 2000, ("plain_text",))
    text(block, "hint", at, 2000, ("plain_text",), required=False)
    check_element(block.get("element"), f"{at}/element")


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


def _alert(block: Json, at: str) -> None:
    text(block, "text", at, 3000)


def _card(block: Json, at: str) -> None:
    if not any(block.get(key) for key in ("title", "body", "actions", "hero_image")):
        raise Misfit(at, "missing required field: title")
    text(block, "title", at, 150, required=False)
    text(block, "subtitle", at, 150, required=False)
    text(block, "body", at, 200, required=False)


def _carousel(block: Json, at: str) -> None:
    for number, card in enumerate(items(block, "elements", at, 10)):
        _check(card, f"{at}/elements/{number}", ("card",))


def _container(block: Json, at: str) -> None:
    if not block.get("title") and not block.get("rich_text_title"):
        raise Misfit(at, "missing required field: title")
    text(block, "title", at, 150, ("plain_text",), required=False)
    text(block, "subtitle", at, 150, required=False)
    for number, child in enumerate(items(block, "child_blocks", at, 10)):
        _check(child, f"{at}/child_blocks/{number}")


_BLOCKS: Mapping[str, Callable[[Json, str], None]] = {
    "section": _section,
    "header": _header,
    "markdown": _markdown,
    "divider": _nothing,
    "image": _image,
    "context": _context,
    "actions": _actions,
    "context_actions": _context_actions,
    "input": _input,
    "rich_text": rich_text,
    "table": _table,
    "task_card": task_card,
    "plan": _plan,
    "alert": _alert,
    "card": _card,
    "carousel": _carousel,
    "container": _container,
    "file": _nothing,
    "video": _nothing,
    "call": _nothing,
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
