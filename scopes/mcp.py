"""Tools of servers outside, made ours: named, labelled, and put under the rules of the gate."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import scopes
from scopes.clean import printable
from scopes.effects import Access, Effect, Part, Prepared
from scopes.label import WORKSPACE, Label, Readers
from scopes.mcp_servers.schema import arguments_of, plain, taken_over
from scopes.mcp_servers.servers import Connection, Offer, ServerAnswer, Unreachable
from scopes.tool import (
    PART,
    Item,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    not_found,
    parts_of,
    readable,
    under,
)

KINDS: dict[str, tuple[Access, Effect]] = {
    "read": (Access.READ, Effect.NONE),
    "search": (Access.EGRESS, Effect.SEARCH),
    "write": (Access.WRITE, Effect.KEEP),
    "send": (Access.EGRESS, Effect.SEND),
}
"""Access of a server, as the settings say it -> what its calls do, as the gate knows it."""
REPEATABLE = (Effect.NONE, Effect.SEARCH)
NAME_CHARS = 64
DESCRIPTION_CHARS = 300
RESERVED = ("submit_result", "run_subagent", "run_subagents", "challenge")
"""Names of tools that no scope has, and no server may take."""

Begin = Callable[[str, str], Awaitable[bool]]
"""Takes the key of a call and its run, and notes that it begins; False = it had begun before."""


@dataclass(frozen=True, slots=True)
class ServerTools:
    """One server of the settings."""

    name: str
    scope: str
    access: str
    readers: Readers
    connection: Connection
    begin: Begin

    @property
    def handle(self) -> str:
        return f"mcp:{self.name}"

    @property
    def label(self) -> Label:
        """Of all that it says."""
        return Label(True, self.readers, frozenset({self.handle}), outside=True)


def tool_name(server: str, tool: str, others: Collection[str] = ()) -> str:
    """`<server>_<tool>`; where that is no name, or could be that of another tool, with a digest.

    It depends on nothing that a server may change. `others` are the names of the other servers.
    """
    safe = _safe(tool)
    name = f"{server}_{safe}"
    taken = name in _ours() or any(name.startswith(f"{o}_") for o in others if o > server)
    if safe == tool and len(name) <= NAME_CHARS and not taken:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{name[: NAME_CHARS - 9]}_{digest}"


def _safe(tool: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", tool)


@cache
def _ours() -> frozenset[str]:
    named = {tool.name for scope in scopes.MODULES for tool in scopes.scope(scope).tools}
    return frozenset(named | {tool.name for tool in scopes.tools_of("parent")} | set(RESERVED))


def tool_of(server: ServerTools, offer: Offer, name: str) -> Tool:
    """Return a tool of a server as one of ours. Raises Unfit for what cannot be offered."""
    access, effect = KINDS[server.access]
    several = server.readers == WORKSPACE or len(server.readers) > 1
    schema = taken_over(offer.schema)
    words = dict.fromkeys(schema["properties"], Part.WORDS)

    async def run(ctx: ToolContext, /, **arguments: Any) -> ToolResult:
        await _may_run(server, offer, name, ctx)
        with under(server.label):
            answer = await called(ctx, arguments)
            if answer.failed and effect is Effect.SEND:  # a result is shown to a person alone
                raise ToolError(f"{server.name} says that this failed.")
        return result_of(server, offer, answer, ctx)

    async def called(ctx: ToolContext, arguments: Mapping[str, Any]) -> ServerAnswer:
        try:
            await server.connection.ready()
            if effect not in REPEATABLE and not await server.begin(ctx.key, ctx.run):
                raise ToolError("This was begun before and may have been done: look, then decide.")
            return await server.connection.call(offer.name, arguments)
        except Unreachable as error:
            raise ToolError(_away(server.name, error, effect in REPEATABLE)) from error

    async def prepare(ctx: ToolContext, /, **arguments: Any) -> Prepared:
        await _may_run(server, offer, name, ctx)
        return Prepared(arguments, {"tool": f"{offer.name} of the server {server.name}"})

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
    """ToolError where the requester may not read there by now, the tool is no longer what was
    approved, or what was read here would be stored where others read it."""
    if not await ctx.may_read(server.handle):
        raise ToolError(not_found("such thing", name))
    if not server.connection.still_offers(offer):
        raise ToolError(
            f"{server.name} has changed what this tool is; it is off until an administrator "
            "confirms it. Do without it."
        )
    if KINDS[server.access][1] is Effect.KEEP and not ctx.label.within(server.label):
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
    """Return an answer as items, all of them fenced, what a server says of a failure, too."""
    room = ctx.max_output_tokens * 3
    whole = "\n".join(answer.texts)
    text = printable(readable(whole[: room + PART]))
    unread = len(whole[room + PART :])
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
    left, all_of_it = len(text) - len(shown) + unread, len(text) + unread
    cut = f"Left out: {left:,} of {all_of_it:,} characters. Ask for less." if left else ""
    return ToolResult(items, truncated=cut, note=" ".join(notes), label=server.label)
