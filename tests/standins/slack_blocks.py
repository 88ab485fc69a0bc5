"""The shapes of blocks, chunks and views that Slack accepts, and the sum of their characters.

Limits: docs.slack.dev/reference/block-kit; `MAX_CHARACTERS`: github.com/slackapi/bolt-js #2509. The
depth of lists is not documented and is that of Slack's own composer. Blocks and elements that the
product does not use are refused as unknown.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import CoreSchema, SchemaValidator, ValidationError
from pydantic_core import core_schema as cs

from bot.local.slack.json import number_blocks
from bot.local.slack.records import Json
from bot.local.slack.state import SlackError

MAX_BLOCKS = 50
MAX_VIEW_BLOCKS = 100
MAX_CHARACTERS = 13_200
MAX_MARKDOWN = 12_000
MAX_TABLE_CHARACTERS = 10_000
MAX_TASK_TEXT = 256
_COUNTED = ("text", "title")

# ---- shapes: a field whose name ends with `?` may be missing, or null


def _chars(most: int = 40_000, least: int = 1, pattern: str | None = None) -> CoreSchema:
    return cs.str_schema(min_length=least, max_length=most, pattern=pattern, strict=True)


def _number(most: int) -> CoreSchema:
    return cs.int_schema(ge=0, le=most, strict=True)


def _one_of(*words: str) -> CoreSchema:
    return cs.literal_schema(list(words))


def _list(item: CoreSchema, most: int | None = None, least: int = 1) -> CoreSchema:
    return cs.list_schema(item, min_length=least, max_length=most)


def _object(fields: Mapping[str, CoreSchema], *, exact: bool = False) -> CoreSchema:
    shapes = {
        name.removesuffix("?"): cs.typed_dict_field(
            cs.nullable_schema(shape) if name.endswith("?") else shape,
            required=not name.endswith("?"),
        )
        for name, shape in fields.items()
    }
    return cs.typed_dict_schema(shapes, extra_behavior="forbid" if exact else "ignore")


def _kinds(shapes: Mapping[str, CoreSchema]) -> CoreSchema:
    """Return the shape of an object whose `type` names one of these shapes."""
    return cs.tagged_union_schema(dict(shapes), "type")


def _words(most: int, *kinds: str) -> CoreSchema:
    return _object({"type": _one_of(*(kinds or ("plain_text", "mrkdwn"))), "text": _chars(most)})


def _plain(most: int) -> CoreSchema:
    return _words(most, "plain_text")


_ANY = cs.any_schema()
_BOOL = cs.bool_schema(strict=True)
_OPTION = _object({"text": _words(75), "value": _chars(150)})
_OPINION = _object({"text": _plain(75), "value": _chars(2000)})
_ELEMENTS = {
    "button": {
        "text": _plain(75),
        "url?": _chars(3000, 0),
        "value?": _chars(2000, 0),
        "style?": _one_of("primary", "danger"),
    },
    "feedback_buttons": {"positive_button": _OPINION, "negative_button": _OPINION},
    "static_select": {"placeholder?": _plain(150), "options": _list(_OPTION, 100)},
    "radio_buttons": {"options": _list(_OPTION, 10)},
    "plain_text_input": {"placeholder?": _plain(150)},
}
_ELEMENT_KINDS = {
    kind: _object({"action_id?": _chars(255, 0), **fields}) for kind, fields in _ELEMENTS.items()
}
_ELEMENT = _kinds(_ELEMENT_KINDS)

_STYLES = "bold italic strike code".split()
_STYLE = _object({f"{name}?": _BOOL for name in _STYLES}, exact=True)
_LEAF_FIELDS: Mapping[str, Mapping[str, CoreSchema]] = {
    "text": {"text": _chars()},
    "link": {
        "url": _chars(3000, pattern=r"^[a-zA-Z][a-zA-Z0-9+.-]*:\S"),
        "text?": _chars(least=0),
    },
    "user": {"user_id": _chars(pattern=r"^[UW][A-Z0-9]+$")},
    "channel": {"channel_id": _chars(pattern=r"^[CDG][A-Z0-9]+$")},
    "emoji": {"name": _chars(), "unicode?": _ANY},
    "date": {"timestamp?": _number(10**11), "format": _chars(), "url?": _ANY, "fallback?": _ANY},
}
_LEAVES = {
    kind: _object({"type": _ANY, "style?": _STYLE, **fields}, exact=True)
    for kind, fields in _LEAF_FIELDS.items()
}
_LEAF = _kinds(_LEAVES)
_LINKED = _kinds({kind: _LEAVES[kind] for kind in ("text", "link")})
_PART_FIELDS: Mapping[str, Mapping[str, CoreSchema]] = {
    "rich_text_section": {"elements": _list(_LEAF, least=0)},
    "rich_text_quote": {"elements": _list(_LEAF, least=0)},
    "rich_text_preformatted": {"elements": _list(_LINKED, least=0)},
}
_PARTS = {
    kind: _object({"type": _ANY, **fields}, exact=True) for kind, fields in _PART_FIELDS.items()
}
_PARTS["rich_text_list"] = _object(
    {
        "type": _ANY,
        "style": _one_of("bullet", "ordered"),
        "elements": _list(_kinds({"rich_text_section": _PARTS["rich_text_section"]})),
        "indent?": _number(8),
        "offset?": _number(10**9),
    },
    exact=True,
)
_RICH_TEXT = _object(
    {"type": _ANY, "block_id?": _chars(255, 0), "elements": _list(_kinds(_PARTS))}, exact=True
)

_STATUS = _one_of("pending", "in_progress", "complete", "error")
_TITLE = _chars(MAX_TASK_TEXT)
_CARD = {"task_id": _chars(255), "title": _TITLE, "status": _STATUS}
_COLUMN = _object({"align?": _one_of("left", "center", "right"), "is_wrapped?": _BOOL}, exact=True)
_CELL = _kinds({"raw_text": _object({"text": _chars(10**9)}), "rich_text": _RICH_TEXT})
_FEEDBACK = _kinds({"feedback_buttons": _ELEMENT_KINDS["feedback_buttons"]})
_BLOCKS: Mapping[str, Mapping[str, CoreSchema]] = {
    "section": {
        "text?": _words(3000), "fields?": _list(_words(2000), 10), "accessory?": _ELEMENT,
    },
    "header": {"text": _plain(150)},
    "markdown": {"text": _chars(MAX_MARKDOWN)},
    "divider": {},
    "context": {"elements": _list(_words(2000), 10)},
    "actions": {"elements": _list(_ELEMENT, 25)},
    "context_actions": {"elements": _list(_FEEDBACK, 5)},
    "input": {"label": _plain(2000), "hint?": _plain(2000), "element": _ELEMENT},
    "table": {
        "rows": _list(_list(_CELL, 20), 100),
        "column_settings?": _list(_COLUMN, 20),
    },
    "plan": {"title": _TITLE, "tasks?": _list(_object(_CARD), 50)},
}  # fmt: skip
_BLOCK_KINDS = {
    kind: _object({"block_id?": _chars(255, 0), **fields}) for kind, fields in _BLOCKS.items()
} | {"rich_text": _RICH_TEXT}

_CHUNK = {
    "markdown_text": _object({"text": _chars(10**9)}),
    "plan_update": _object({"title": _TITLE}),
    "task_update": _object(
        {"type": _ANY, "id": _chars(255), "title": _TITLE, "status": _STATUS}, exact=True
    ),
}
_VIEW = {
    "private_metadata?": _chars(3000, 0),
    "callback_id?": _chars(255, 0),
    "blocks": _list(cs.dict_schema(), least=0),
}
_BUTTONS = {"title": _plain(24), "submit?": _plain(24), "close?": _plain(24)}

BLOCKS = SchemaValidator(_list(_kinds(_BLOCK_KINDS), least=0))
CHUNKS = SchemaValidator(_list(_kinds(_CHUNK), least=0))
HOME = SchemaValidator(_kinds({"home": _object(_VIEW)}))
MODAL = SchemaValidator(_kinds({"modal": _object({**_VIEW, **_BUTTONS})}))
PROMPTS = SchemaValidator(_list(_object({"title": _chars(), "message": _chars()}), 4))


# ---- checks


def fit(shape: SchemaValidator, value: Any, place: str, code: str) -> None:
    """Raise SlackError with this code where a value, sent at `place`, has another shape."""
    try:
        shape.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        tag = ("type",) if first["type"].startswith("union_tag") else ()
        where = [place, *_follow_path(value, (*first["loc"], *tag))]
        raise refusal(code, "/".join(map(str, where)), first["msg"]) from None


def _follow_path(value: Any, places: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the places that lead into a value; pydantic names the kinds of objects among them."""
    for number, place in enumerate(places, 1):
        inside = isinstance(value, list if isinstance(place, int) else dict) and (
            isinstance(place, int) or place in value
        )
        if inside or number == len(places):
            yield place
        value = value[place] if inside else value


def refusal(code: str, where: str, what: str) -> SlackError:
    """Return the error as Slack words it, with the JSON pointer to the fault."""
    sentence = f"{what} [json-pointer:{where}]"
    messages = [f"[ERROR] {sentence}"]
    return SlackError(code, errors=[sentence], response_metadata={"messages": messages})


def check_blocks(
    blocks: Sequence[Json], most: int = MAX_BLOCKS, code: str = "invalid_blocks"
) -> tuple[Json, ...]:
    """Return the blocks, each with an id; raise SlackError where Slack refuses them.

    `most` is MAX_BLOCKS for blocks of a message, whose characters are counted, too.
    """
    if len(blocks) > most:
        raise refusal(code, "/blocks", f"no more than {most} items allowed")
    fit(BLOCKS, list(blocks), "/blocks", code)
    for where, what in _wrong_together(blocks):
        raise refusal(code, where, what)
    if _size(blocks) > MAX_CHARACTERS and most == MAX_BLOCKS:
        raise SlackError("msg_blocks_too_long")
    return number_blocks(blocks)


def _wrong_together(blocks: Sequence[Json]) -> Iterator[tuple[str, str]]:
    """Yield where and how the blocks of one message are wrong only as a whole."""
    if _repeats(block.get("block_id") for block in blocks):
        yield "/blocks", "the same `block_id` already exists"
    for number, block in enumerate(blocks):
        if block["type"] == "section" and not (block.get("text") or block.get("fields")):
            yield f"/blocks/{number}", "missing required field: text"
        if "actions" in block["type"] and _repeats(e.get("action_id") for e in block["elements"]):
            yield f"/blocks/{number}/elements/action_id", "the same `action_id` already exists"
    if sum(len(b["text"]) for b in blocks if b["type"] == "markdown") > MAX_MARKDOWN:
        yield "/blocks", f"markdown must be less than {MAX_MARKDOWN + 1} characters"
    tables = [block for block in blocks if block["type"] == "table"]
    if len(tables) > 1:
        yield "/blocks", "only_one_table_allowed"
    if _size(tables) > MAX_TABLE_CHARACTERS:
        yield "/blocks", f"tables hold more than {MAX_TABLE_CHARACTERS} characters"


def _repeats(ids: Iterator[str | None]) -> bool:
    present = [id for id in ids if id]
    return len(set(present)) < len(present)


def _size(value: Any, key: str = "") -> int:
    """Return the number of characters that a reader sees."""
    if isinstance(value, str):
        return len(value) if key in _COUNTED else 0
    if isinstance(value, Mapping):
        return sum(_size(each, name) for name, each in value.items())
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 0
