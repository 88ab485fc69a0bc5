"""Adapt tools of outside servers: give them names and labels, and put them under the gate's rules.

A server's schema of arguments is reduced to a small, plain one that is safe for validation.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, ClassVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from pydantic import BaseModel, ConfigDict, create_model, model_validator
from pydantic_core import PydanticCustomError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable

import scopes
from scopes.clean import printable
from scopes.effects import Access, Effect, Part, PreparedCall
from scopes.label import WORKSPACE, Label, Readers
from scopes.mcp_servers.servers import Connection, Offer, ServerAnswer, Unreachable
from scopes.tool import (
    PART_CHARS,
    Item,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    not_found,
    one_line,
    parts_of,
    readable,
    under,
)

ACCESS_EFFECTS: dict[str, tuple[Access, Effect]] = {
    "read": (Access.READ, Effect.NONE),
    "search": (Access.EGRESS, Effect.SEARCH),
    "write": (Access.WRITE, Effect.KEEP),
    "send": (Access.EGRESS, Effect.SEND),
}
"""Access of a server in the settings -> access and effect of its calls for the gate."""
REPEATABLE = (Effect.NONE, Effect.SEARCH)
NAME_CHARS = 64
DESCRIPTION_CHARS = 300
RESERVED_TOOL_NAMES = ("submit_result", "run_subagent", "run_subagents", "challenge")
"""Names of tools that no scope has, and no server may take."""

CallRecorder = Callable[[str, str], Awaitable[bool]]
"""Takes the key of a call and its run, and records that it begins; False = it began before."""


@dataclass(frozen=True, slots=True)
class ServerTools:
    """One server of the settings."""

    name: str
    scope: str
    access: str
    readers: Readers
    connection: Connection
    begin: CallRecorder

    @property
    def handle(self) -> str:
        return f"mcp:{self.name}"

    @property
    def label(self) -> Label:
        """Return the label of all its answers."""
        return Label(True, self.readers, frozenset({self.handle}), outside=True)


def tool_name(server: str, tool: str, others: Collection[str] = ()) -> str:
    """Return `<server>_<tool>`, with a digest if that is no valid name or ambiguous.

    It depends on nothing that a server may change. `others` are the names of the other servers.
    """
    safe = _safe(tool)
    name = f"{server}_{safe}"
    is_taken = name in _ours() or any(name.startswith(f"{o}_") for o in others if o > server)
    if safe == tool and len(name) <= NAME_CHARS and not is_taken:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{name[: NAME_CHARS - 9]}_{digest}"


def _safe(tool: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", tool)


@cache
def _ours() -> frozenset[str]:
    named = {tool.name for scope in scopes.MODULES for tool in scopes.scope(scope).tools}
    return frozenset(
        named | {tool.name for tool in scopes.tools_of("parent")} | set(RESERVED_TOOL_NAMES)
    )


def tool_of(server: ServerTools, offer: Offer, name: str) -> Tool:
    """Return a tool of a server as one of ours. Raises Unfit for what cannot be offered."""
    access, effect = ACCESS_EFFECTS[server.access]
    several = server.readers == WORKSPACE or len(server.readers) > 1
    schema = sanitize_schema(offer.schema)
    words = dict.fromkeys(schema["properties"], Part.WORDS)

    async def run(ctx: ToolContext, /, **arguments: Any) -> ToolResult:
        await _may_run(server, offer, name, ctx)
        with under(server.label):
            answer = await call_tool(ctx, arguments)
            if answer.failed and effect is Effect.SEND:  # only a person sees the result
                raise ToolError(f"{server.name} says that this failed.")
        return result_of(server, offer, answer, ctx)

    async def call_tool(ctx: ToolContext, arguments: Mapping[str, Any]) -> ServerAnswer:
        try:
            await server.connection.ready()
            if effect not in REPEATABLE and not await server.begin(ctx.key, ctx.run):
                raise ToolError("This was begun before and may have been done: look, then decide.")
            return await server.connection.call(offer.name, arguments)
        except Unreachable as error:
            raise ToolError(_away(server.name, error, effect in REPEATABLE)) from error

    async def prepare(ctx: ToolContext, /, **arguments: Any) -> PreparedCall:
        await _may_run(server, offer, name, ctx)
        return PreparedCall(arguments, {"tool": f"{offer.name} of the server {server.name}"})

    return Tool(
        name=name,
        description=f"{server.name} says of it: {plain(offer.description, DESCRIPTION_CHARS)}",
        input_model=arguments_of(name, schema),
        run=run,
        access=access,
        needs=server.handle,
        handle_arguments={},
        effect=effect,
        parts=words if effect is Effect.SEARCH else {},
        sandboxed=False,
        prepare=prepare if effect in (Effect.SEND, Effect.KEEP) else None,
        shared=effect is Effect.KEEP and several,
    )


async def _may_run(server: ServerTools, offer: Offer, name: str, ctx: ToolContext) -> None:
    """Raise ToolError if the requester may not read there now, the tool is no longer the approved
    one, or what was read here would be stored where others read it."""
    if not await ctx.may_read(server.handle):
        raise ToolError(not_found("such thing", name))
    if not server.connection.still_offers(offer):
        raise ToolError(
            f"{server.name} has changed what this tool is; it is off until an administrator "
            "confirms it. Do without it."
        )
    if ACCESS_EFFECTS[server.access][1] is Effect.KEEP and not ctx.label.within(server.label):
        raise ToolError(
            f"What you have read may not be written to {server.name}: others can read it there. "
            "Put it into your result instead."
        )


def _away(server: str, error: Unreachable, repeatable: bool) -> str:
    if error.sent and not repeatable:
        return f"{server} {error}. It may have been done: look before you try again."
    return f"{server} {error}. Try again once, or do without it."


def result_of(
    server: ServerTools, offer: Offer, answer: ServerAnswer, ctx: ToolContext
) -> ToolResult:
    """Return an answer as delimited items, including the server's text on a failure."""
    room = ctx.max_output_tokens * 3
    whole = "\n".join(answer.texts)
    text = printable(readable(whole[: room + PART_CHARS]))
    unread = len(whole[room + PART_CHARS :])
    shown = text.encode()[:room].decode(errors="ignore")
    digest = hashlib.sha256(ctx.key.encode()).hexdigest()[:8]
    id = f"{server.name}/{_safe(offer.name)[:40]}-{digest}"
    items = tuple(
        Item(f"{id}#{n}", piece, None, server.label) for n, piece in enumerate(parts_of(shown), 1)
    )
    notes = []
    if answer.failed:
        notes.append("The call failed; what the server says of it stands above.")
    if answer.left_out:
        kinds = ", ".join(f"{n} {kind}" for kind, n in answer.left_out.items())
        notes.append(f"Not shown, as they are no text: {kinds}.")
    omitted, total = len(text) - len(shown) + unread, len(text) + unread
    cut = f"Left out: {omitted:,} of {total:,} characters. Ask for less." if omitted else ""
    return ToolResult(items, truncated=cut, note=" ".join(notes), label=server.label)


MAX_BYTES = 6_000
"""Maximum bytes of one schema as JSON: it is sent to every subagent of its scope."""
MAX_NODES, MAX_DEPTH = 200, 8
MAX_CHOICES, CHOICE_CHARS = 50, 80
TEXT_CHARS = 160
"""Maximum characters of the description of one argument."""
MAX_FAULTS, FAULT_CHARS = 5, 300
ARGUMENT = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""A name as the Messages API takes it."""
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
FORMATS = ("date-time", "date", "time", "email", "uri", "uuid")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")
_BRACKETS = str.maketrans("<>", "()")


class Unfit(Exception):
    """A tool that cannot be offered; the text says why, without words of the server."""


def plain(text: object, limit: int) -> str:
    """Return a stranger's text on one line, cut at `limit`, with nothing hidden and no markup."""
    line = one_line(printable(readable(str(text)[: limit * 8]))).translate(_BRACKETS)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def sanitize_schema(schema: Any) -> dict[str, Any]:
    """Return the schema with only the parts that we know: references resolved, no patterns (they
    can take forever), only named arguments. Raises Unfit.
    """
    if not isinstance(schema, Mapping):
        raise Unfit("the schema of its arguments is far too large, or none")
    reduced = _Reader(schema).node(schema)
    reduced = {"type": "object", "properties": reduced.get("properties", {})} | {
        key: reduced[key] for key in ("required",) if key in reduced
    }
    if len(json.dumps(reduced)) > MAX_BYTES:
        raise Unfit(f"the schema of its arguments takes more than {MAX_BYTES:,} bytes")
    return reduced | {"additionalProperties": False}


class _Reader:
    """Reads one schema once; all its references point into itself."""

    def __init__(self, root: Any) -> None:
        self._root = Registry().resolver_with_root(Resource.opaque(root))
        self._remaining = MAX_NODES

    def node(self, node: Any, depth: int = 0) -> dict[str, Any]:
        self._remaining -= 1
        if self._remaining < 0 or depth > MAX_DEPTH:
            raise Unfit("the schema of its arguments is too large, or refers to itself")
        match node:
            case bool():
                return {}
            case {"$ref": reference}:
                reduced = self.node(self._target(reference), depth + 1)
            case {"allOf": [alone]}:
                reduced = self.node(alone, depth + 1)
            case {"anyOf": [_, *_] as branches} | {"oneOf": [_, *_] as branches} if (
                "properties" not in node
            ):
                reduced = {"anyOf": [self.node(each, depth + 1) for each in branches]}
            case Mapping():
                reduced = _values(node) | self._parts(node, depth)
            case _:
                raise Unfit("the schema of its arguments is no JSON schema")
        return reduced | _description(node)

    def _parts(self, node: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return the schema of the members of an object, or of a list."""
        items, members = node.get("items"), node.get("properties")
        reduced = {"items": self.node(items, depth + 1)} if isinstance(items, Mapping) else {}
        if not isinstance(members, Mapping):
            return reduced
        required = [name for name in _list(node, "required") if isinstance(name, str)]
        kept = {n: m for n, m in members.items() if ARGUMENT.fullmatch(n)}
        if not set(required) <= set(kept):
            raise Unfit("it needs an argument that is not described, or not named plainly")
        is_closed = node.get("additionalProperties") in (None, False)
        return reduced | {
            "type": "object",
            "properties": {n: self.node(m, depth + 1) for n, m in kept.items()},
            **({"required": required} if required else {}),
            **({"additionalProperties": False} if is_closed else {}),
        }

    def _target(self, reference: Any) -> Any:
        """Return the target of a reference within the schema; look up no other document."""
        try:
            return self._root.lookup(reference).contents
        except (Unresolvable, AttributeError, TypeError, ValueError):
            why = "the schema of its arguments refers to another document, or to what is not there"
            raise Unfit(why) from None


def _description(node: Mapping[str, Any]) -> dict[str, str]:
    match node:
        case {"description": str(text)} if text.strip():
            return {"description": plain(text, TEXT_CHARS)}
    return {}


def _list(node: Mapping[str, Any], name: str) -> list[Any]:
    found = node.get(name)
    return found if isinstance(found, list) else []


def _values(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the value itself, as far as we know its keywords."""
    kind, form = node.get("type"), node.get("format")
    kinds = [k for k in (kind if isinstance(kind, list) else [kind]) if k in TYPES]
    choices = [node["const"]] if "const" in node else _list(node, "enum")
    is_plain = len(choices) <= MAX_CHOICES and all(map(_is_choice, choices))
    return {
        **({"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}),
        **({"enum": choices} if choices and is_plain else {}),
        **({"format": form} if form in FORMATS else {}),
        **{key: node[key] for key in BOUNDS if _is_number(node.get(key))},
        **{key: node[key] for key in LENGTHS if _is_length(node.get(key))},
    }


def _is_choice(value: Any) -> bool:
    if isinstance(value, str):
        return plain(value, CHOICE_CHARS) == value
    return value is None or isinstance(value, bool) or _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Arguments(BaseModel):
    """The arguments of an outside tool: checked by its schema, and passed on unchanged."""

    model_config = ConfigDict(extra="allow")

    declared: ClassVar[dict[str, Any]]
    checks: ClassVar[Draft202012Validator]

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, arguments: Any) -> Any:
        faults = [_fault(each) for each in islice(cls.checks.iter_errors(arguments), MAX_FAULTS)]
        if faults:
            raise PydanticCustomError("unfit", "{why}", {"why": "; ".join(faults)})
        return arguments

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        return deepcopy(cls.declared)


def arguments_of(name: str, schema: dict[str, Any]) -> type[Arguments]:
    """Return the class for a sanitized schema."""
    model = create_model(f"{name}_input", __base__=Arguments)
    model.declared = schema
    model.checks = Draft202012Validator(schema)
    return model


def _fault(error: ValidationError) -> str:
    """Return the error in words, for the author of the arguments."""
    place = ".".join(map(str, error.absolute_path)) or "the arguments"
    return f"{place}: {error.message[:FAULT_CHARS]}"
