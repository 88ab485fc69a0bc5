"""Tools: functions with a docstring, typed arguments, and items as their result."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, get_type_hints
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, create_model
from pydantic_core import PydanticSerializationError, to_json

from scopes.effects import EFFECTS, Access, Effect, HandleArgument, Handles, Part, PreparedCall
from scopes.intent import EMPTY_INTENT, Intent
from scopes.label import TRUSTED_LABEL, Label

T = TypeVar("T")
P = ParamSpec("P")


class ToolError(Exception):
    """A failure that the model can fix; its text is shown to the model and says what to do."""

    label: Label = TRUSTED_LABEL
    """Label of what it reveals, if only by being raised: see `under`."""
    undone: Mapping[str, str] = MappingProxyType({})
    """Task -> why it is not done, in words for the requester: see `ToolResult.undone`."""


@contextmanager
def under(label: Label) -> Iterator[None]:
    """Add this label to each failure in the block: it reveals something of the source, such as that
    a text does not occur or that a query took too long."""
    try:
        yield
    except ToolError as error:
        error.label = error.label.join(label)
        raise


class SourceFailed(Exception):
    """A failure that no model can fix; code makes its text, which holds nothing of the source."""

    remedy = ""
    """Who can change it, and how; empty if it passes by itself."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too high: ceil(UTF-8 bytes / 3)."""
    return -(-len(text.encode(errors="replace")) // 3)


def readable(value: Any) -> Any:
    """Return JSON data without halves of surrogate pairs, which JSON can hold but UTF-8 cannot."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [readable(each) for each in value]
    if isinstance(value, dict):
        return {readable(key): readable(each) for key, each in value.items()}
    return value


def compact_json(value: Any) -> str:
    """Return JSON without spaces that can be encoded as UTF-8."""
    try:
        return to_json(value).decode()  # five times faster than the standard library
    except PydanticSerializationError:  # half of a surrogate pair, or too deep for it
        return json.dumps(value, separators=(",", ":"))


def format_count(number: int, noun: str) -> str:
    """Return a number of things in English: `1 finding`, `1,200 findings`."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def size_of(count: int) -> str:
    """Return bytes as people read them: `1.2 kB`."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} B"


def one_line(text: str) -> str:
    """Return a text on one line, so that no text can pass for a second item."""
    return " ".join(text.split())


_BREAKS = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")
"""Characters other than a line feed that may look like the end of a line, or like nothing."""


@dataclass(frozen=True, slots=True)
class Item:
    """The unit that is read, cited and labelled."""

    id: str
    """`C123/1740498077.000100`, `<thread>/<message>`, `q1#row3`, `path:12`, a URL, `note/7`."""
    text: str
    link: str | None
    label: Label
    author: str | None = None
    """Id of the author; None if the source has none."""
    at: datetime | None = None
    """UTC; None if the source has none."""
    by: str | None = None
    """Name shown for the author, unique in its workspace."""
    thread: str | None = None
    """Id of the item that this one replies to; None for a single one or the first of a thread."""
    notes: tuple[str, ...] = ()
    """Facts that code adds: reactions, `edited`, `bot`, `before window`."""
    verbatim: bool = False
    """True if its lines are shown unchanged, each after a bar: the text of a file."""
    query: str = ""
    """Of a row of a database: `data:shop: SELECT ...`, shown where the row is a source."""
    unread: str = ""
    """Why its text was not read, or not whole; empty when it was."""

    def gap(self) -> str:
        """Return why it was not read, and its author and day; empty when it was."""
        named = ", ".join(filter(None, (self.by, f"{self.at:%Y-%m-%d}" if self.at else "")))
        return f"{self.unread} ({named or self.id})" if self.unread else ""

    def line(self) -> str:
        if self.verbatim:
            return "\n|".join([f"[{self.id}]", *_BREAKS.sub("\ufffd", self.text).split("\n")])
        when = f" {self.at.isoformat(' ')[:16]}" if self.at else ""  # strftime takes a third longer
        by = one_line(self.by or "")
        who = f" {by}:" if by else ":" if when else ""
        text = one_line(self.text)
        # A text that itself ends like notes gets empty notes: code always writes the last braces.
        facts = one_line("; ".join(self.notes)) if self.notes else ""
        notes = f" {{{facts}}}" if self.notes or text.endswith("}") else ""
        return f"{'  ' if self.thread else ''}[{self.id}]{when}{who} {text}{notes}"


PART_CHARS = 1500
"""Characters of a long text that are one item."""
BEFORE_WINDOW = "before window"
"""The note of an item that is shown as context and is not counted as read."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a run reads, `[oldest, latest)` in UTC, and the part of it for one context."""

    oldest: datetime
    latest: datetime
    opened_from: datetime | None = None
    opened_before: datetime | None = None
    """Only threads opened in `[opened_from, opened_before)`: set if code splits a source."""

    def holds(self, at: datetime) -> bool:
        return self.oldest <= at < self.latest

    def opens(self, at: datetime) -> bool:
        return (self.opened_from is None or at >= self.opened_from) and (
            self.opened_before is None or at < self.opened_before
        )

    def format(self, zone: str) -> str:
        """Return it as people in a time zone read it, to the minute."""
        oldest = self.oldest.astimezone(ZoneInfo(zone))
        return f"{oldest:%Y-%m-%d %H:%M} to {minute(self.latest, zone)}"

    def __str__(self) -> str:
        return f"{iso(self.oldest)} to {iso(self.latest)}"


def minute(at: datetime, zone: str) -> str:
    """Return a time as people in a time zone read it, to the minute."""
    return f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} ({zone})"


def iso(at: datetime) -> str:
    """Return ISO 8601 in UTC with a `Z`, to the second unless there are fractions."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


async def nobody(thing: str) -> bool:
    """Return False: nothing may be read until the gate says otherwise."""
    return False


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The caller of a tool, as the tool sees it: never the environment or the model."""

    run: str
    requester: str | None
    clients: Mapping[type, object]
    max_output_tokens: int
    """Maximum tokens of the lines of the items together; the rest is cut."""
    handles: Handles = field(default_factory=Handles)
    label: Label = TRUSTED_LABEL
    window: Window | None = None
    intent: Intent = EMPTY_INTENT
    """What the requester asked for; the gate reads it, no tool needs it."""
    key: str = ""
    """Names this call, the same in a replay: its writes happen once under this name."""
    scope: str = ""
    """Name of the context's scope; `parent` for a parent."""
    context: str = ""
    """Id of the context, such as `s3`."""
    turn: int | None = None
    """Number of the model's reply that asks for the call; None if code makes it."""
    findings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Id of each finding that its model may refer to -> ids of the threads in its evidence."""
    may_read: Callable[[str], Awaitable[bool]] = nobody
    """Whether the requester may read a thing; set by the gate, for tools that list or search."""

    def client(self, kind: type[T]) -> T:
        """Return the client of this kind; a KeyError means that the composition root forgot it."""
        return cast(T, self.clients[kind])


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Items, their share of the source, and what was left out."""

    items: tuple[Item, ...] = ()
    holds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Source id -> ids of all its items in the window, if the call reads a whole source."""
    truncated: str = ""
    """What was left out and how to get it, in one sentence; empty when nothing was."""
    handles: Mapping[str, str] = field(default_factory=dict)
    """Things that this call listed: a context that listed them may hand them to a subagent."""
    note: str = ""
    """One line made by code, shown outside the fence."""
    label: Label = TRUSTED_LABEL
    """Label of what the call touched, if no item has it: only its members may learn that a private
    channel is empty."""
    undone: Mapping[str, str] = field(default_factory=dict)
    """Task -> why it is not done yet, in words for the requester; empty = a later call did it.
    A page, a search or a query that was cut is undone until a call reads on or finds less."""
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind and place (`files in src`) -> ids of all that the call listed and that can be read."""
    reads: tuple[str, ...] = ()
    """Ids of such things that the call read or searched."""


def not_found(kind: str, value: str) -> str:
    """Return the one answer for what is absent, hidden or outside the handles."""
    return f"No {kind} {one_line(value)[:80]}. Use an id that you were given or that a tool listed."


@cache  # pydantic takes a millisecond for each
def tool_schema(
    name: str, description: str, model: type[BaseModel], *, strict: bool = False
) -> dict[str, Any]:
    """Return the tool as the Messages API takes it; the same object each time, not to be changed.

    Titles and defaults are left out to save tokens; `strict` makes the API hold to the schema
    (unknown arguments of other tools are refused by the gate).
    """
    raw = model.model_json_schema()
    schema = _compact(raw, raw.get("$defs", {}), strict)
    schema.setdefault("properties", {})
    schema.pop("description", None)
    head = {"name": name, "description": description, "input_schema": schema}
    return {**head, "strict": True} if strict else head


DROPPED_KEYWORDS = frozenset(
    {"title", "default", "$defs", "minLength", "maxLength", "maxItems", "minItems"}
    | {"additionalProperties"}
)
"""Keywords that cost tokens or that strict schemas refuse; pydantic still enforces them."""

NON_STRICT_KEYWORDS = frozenset({"minimum", "maximum"})
"""Keywords that only strict schemas refuse."""


def _compact(node: Any, defs: Mapping[str, Any], strict: bool) -> Any:
    match node:
        case list():
            return [_compact(child, defs, strict) for child in node]
        case {"$ref": reference}:
            return _compact(defs[reference.rpartition("/")[2]], defs, strict)
        case dict():
            dropped = DROPPED_KEYWORDS | NON_STRICT_KEYWORDS if strict else DROPPED_KEYWORDS
            kept = {k: _compact(v, defs, strict) for k, v in node.items() if k not in dropped}
            if members := node.get("properties"):  # they may have the names of keywords
                kept["properties"] = {n: _compact(m, defs, strict) for n, m in members.items()}
            closed = strict and kept.get("type") == "object"
            return {**kept, "additionalProperties": False} if closed else kept
    return node


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A function that a model may call, with the facts that the gate needs."""

    name: str
    description: str
    input_model: type[BaseModel]
    run: Callable[..., Awaitable[ToolResult]]
    access: Access
    needs: str | None
    """An open handle without which the tool finds nothing; None = it needs none."""
    handle_arguments: Mapping[str, str]
    """Argument name -> kind of thing, for those that must be within the caller's handles."""
    effect: Effect
    parts: Mapping[str, Part]
    """Argument name -> its role in what leaves."""
    sandboxed: bool
    """Runs code without any way to a file, a network or a secret."""
    prepare: Callable[..., Awaitable[PreparedCall]] | None = None
    """Prepares a call before a person is asked about it; raises ToolError if it cannot be done."""
    client: object = None
    """The kind of client without which it is not offered; None = it is always offered."""
    shared: bool = False
    """True if others find what it stores, in any space."""

    @property
    def choices(self) -> frozenset[str]:
        """Return the arguments that take one of a few words, which the schema lists."""
        properties = self.input_model.model_json_schema().get("properties", {})
        return frozenset(
            name for name, each in properties.items() if "enum" in each or "const" in each
        )

    @property
    def required_kinds(self) -> frozenset[str]:
        """Return the kinds of things that each call has to name."""
        arguments, fields = self.handle_arguments.items(), self.input_model.model_fields
        return frozenset(kind for name, kind in arguments if fields[name].is_required())

    def schema(self) -> dict[str, Any]:
        return tool_schema(self.name, self.description, self.input_model)


def tool(
    access: Access = Access.READ,
    effect: Effect | None = None,
    *,
    needs: str | None = None,
    sandboxed: bool = False,
    prepare: Callable[..., Awaitable[PreparedCall]] | None = None,
    client: object = None,
) -> Callable[[Callable[Concatenate[ToolContext, P], Awaitable[ToolResult]]], Tool]:
    """Make a tool of a function: the model reads its docstring, the signature is its schema.

    A tool with EGRESS must state its effect. Raises TypeError if access and effect do not match.
    """
    kind = effect or {Access.READ: Effect.NONE, Access.WRITE: Effect.KEEP}.get(access)
    if kind is None or kind not in EFFECTS[access]:
        raise TypeError(f"a tool of access {access} has one of the effects {EFFECTS[access]}")

    def make(function: Callable[Concatenate[ToolContext, P], Awaitable[ToolResult]]) -> Tool:
        name = function.__name__
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        handles: dict[str, str] = {}
        parts: dict[str, Part] = {}
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            hint = hints[parameter.name]
            required = parameter.default is inspect.Parameter.empty
            fields[parameter.name] = (hint, ... if required else parameter.default)
            for mark in getattr(hint, "__metadata__", ()):
                if isinstance(mark, HandleArgument):
                    handles[parameter.name] = mark.kind
                if isinstance(mark, Part):
                    parts[parameter.name] = mark
        model = create_model(f"{name}_input", __config__=ConfigDict(extra="forbid"), **fields)
        text = inspect.cleandoc(function.__doc__ or "")
        how = (access, needs, handles, kind, parts, sandboxed, prepare, client)
        return Tool(name, text, model, function, *how)

    return make


def tokens_of(item: Item) -> int:
    """Return the tokens of an item as shown, the end of its line included."""
    return estimate_tokens(item.line()) + 1


def most_tokens_of(item: Item) -> int:
    """Return an upper bound for the tokens of an item on one line, without making the line."""
    text = "".join((item.id, item.text, item.by or "", *item.notes))
    return estimate_tokens(text) + 12 + len(item.notes)  # for its time, brackets and the like


def fit_items(items: Iterable[Item], max_tokens: int) -> tuple[Item, ...]:
    """Return the first items that fit together, at least one."""
    kept: list[Item] = []
    for item in items:
        max_tokens -= tokens_of(item)
        if max_tokens < 0 and kept:
            break
        kept.append(item)
    return tuple(kept)


def page_start(cursor: str, count: int) -> int:
    """Return the number of the first of `count` things that a page shows. Raises ToolError."""
    if cursor and not (re.fullmatch(r"[0-9]{1,9}", cursor) and int(cursor) < count):
        raise ToolError(f"No page {cursor[:20]!r}. Use the cursor that the last page gave.")
    return int(cursor or 0)


def check_text(text: str) -> None:
    """Raise ToolError if the text is empty."""
    if not text.strip():
        raise ToolError("The text is empty. Write what is to be said.")


def parts_of(text: str) -> list[str]:
    """Return a text in parts of about `PART_CHARS` characters that end with a line or a word."""
    parts: list[str] = []
    text, start = re.sub(r"\n{2,}", "\n", text.strip()), 0
    while len(text) - start > PART_CHARS:
        half, end = start + PART_CHARS // 2, start + PART_CHARS
        at = max(text.rfind("\n", half, end), 0) or max(text.rfind(" ", half, end), 0) or end
        parts.append(text[start:at].strip())
        start = at
        while text[start].isspace():
            start += 1
    return [*parts, text[start:]] if text else parts


async def open_to(ctx: ToolContext, things: Container[str]) -> list[str]:
    """Return the ones of these things that the context holds and its requester may read."""
    held = [each for each in ctx.handles.titles if each in things]
    return [each for each in held if await ctx.may_read(each)]


def only(kind: str, things: list[str]) -> str:
    """Return the only thing in the list. Raises ToolError for none or several."""
    if not things:
        raise ToolError(f"No {kind} is open to this task. Say so in your result.")
    if len(things) > 1:
        raise ToolError(f"Name a {kind}: {', '.join(sorted(things))}.")
    return things[0]


Opener = Callable[[], object]


def name_of(kind: type) -> str:
    """Return the name of a kind of client: `scopes.sandbox:Sandbox`."""
    return f"{kind.__module__}:{kind.__qualname__}"


def names_in(clients: Mapping[type, object]) -> set[str]:
    """Return the names of all kinds that these clients include, whether open or not."""
    unopened = clients.unopened if isinstance(clients, Clients) else {}
    return {*map(name_of, clients), *unopened}


class Clients(Mapping[type, object]):
    """Clients by their kind. Iteration yields the open ones; a look-up opens one.

    Clients that are not open are known by name, so that their modules are imported on first use.
    """

    def __init__(self, opened: Mapping[type, object], unopened: Mapping[str, Opener]) -> None:
        self._opened = dict(opened)
        self.unopened = dict(unopened)
        """Name of a kind -> what opens it."""

    def __getitem__(self, kind: type) -> object:
        if kind not in self._opened and (opener := self.unopened.get(name_of(kind))):
            self._opened[kind] = opener()
            del self.unopened[name_of(kind)]
        return self._opened[kind]

    def __contains__(self, kind: object) -> bool:
        is_open = kind in self._opened
        return is_open or (isinstance(kind, type) and name_of(kind) in self.unopened)

    def __iter__(self) -> Iterator[type]:
        return iter(list(self._opened))

    def __len__(self) -> int:
        return len(self._opened)


def with_clients(clients: Mapping[type, object], more: Mapping[type, object]) -> Clients:
    """Return these clients with others added."""
    both = [each.unopened for each in (clients, more) if isinstance(each, Clients)]
    return Clients({**clients, **more}, {n: o for each in both for n, o in each.items()})
