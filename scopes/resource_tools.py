"""Tools for named files: those of the request, which go with its answer, and those of a space."""

from __future__ import annotations

import asyncio

from scopes.clean import printable, redacted
from scopes.effects import Access, Said
from scopes.label import TRUSTED
from scopes.resources import (
    Resource,
    Resources,
    asked,
    file_name,
    kind_of,
    resources_of,
    space_of_run,
)
from scopes.sizes import size_of
from scopes.spaces import Space, label_of, may_see, space_of
from scopes.tool import (
    Item,
    ToolContext,
    ToolError,
    ToolResult,
    fitting,
    one_line,
    tool,
    under,
)

WRITTEN = ("md", "txt", "csv", "json")
"""Endings of what a model may write."""
PIECE = 1_000
"""Characters from which on a line counts as several."""


@tool(Access.WRITE, client=Resources)
async def save_resource(ctx: ToolContext, name: str, text: Said, space: Space = "") -> ToolResult:
    """Keep a text file: without a space it goes with the answer."""
    name = file_name(name, *WRITTEN)
    if not text.strip():
        raise ToolError("A file needs a text.")
    where = _space(ctx, space)
    content = text.encode(errors="replace")
    files = resources_of(ctx)
    given = (name, kind_of(name), content, ctx.label, ctx.run)
    kept = await files.save(where, ctx.key, *given)
    return ToolResult(note=f"Kept as {kept.id}.", label=await files.before(kept))


@tool(client=Resources)
async def read_resource(
    ctx: ToolContext, name: str, version: int = 0, line: int = 1, space: Space = ""
) -> ToolResult:
    """Read a kept file from a line on; version 0 is the newest."""
    name, told = asked(name)
    found = await resources_of(ctx).get(_space(ctx, space), name, version or told or None)
    if found is None:
        raise ToolError(_absent(name))
    label = found.label.join(await label_of(ctx, space) if space else TRUSTED)
    if not await may_see(ctx, found.label):
        raise ToolError(_absent(name))
    if found.kind == "image/png":
        picture = f"a picture, {size_of(found.size)}"
        return ToolResult((Item(found.id, picture, None, label, at=found.at),))
    lines = await asyncio.to_thread(_lines, found)
    with under(label):
        if not 1 <= line <= max(1, len(lines)):
            raise ToolError(f"The file has {len(lines)} lines. Ask for one of them.")
    numbered = enumerate(lines[line - 1 :], line)
    items = (Item(f"{found.id}:{n}", said, None, label) for n, said in numbered if said.strip())
    shown = fitting(items, ctx.max_output_tokens)
    last = int(shown[-1].id.rpartition(":")[2]) if shown else len(lines)
    rest = any(each.strip() for each in lines[last:])
    more = f"read_resource(line={last + 1}) reads on." if rest else ""
    undone = {} if rest else {f"read {found.id}": ""}
    if rest and line == 1:  # who begins elsewhere looks something up
        undone = {f"read {found.id}": f"{found.id} was read to line {last} of {len(lines)}"}
    note = f"Lines: {len(lines)}."
    return ToolResult(shown, truncated=more, note=note, undone=undone, label=label)


@tool(client=Resources)
async def list_resources(ctx: ToolContext, space: Space = "") -> ToolResult:
    """List kept files: those of this request, or of a space."""
    listed = await resources_of(ctx).listed(_space(ctx, space))
    files = [f for f in listed if await may_see(ctx, f.label)]
    label = await label_of(ctx, space) if space else TRUSTED
    items = tuple(
        Item(f.id, f"{f.kind}, {size_of(f.size)}", None, f.label.join(label), at=f.at)
        for f in files
    )
    return ToolResult(items, note=f"{len(items)} files." if items else "No files.", label=label)


TOOLS = (save_resource, read_resource, list_resources)


def _space(ctx: ToolContext, space: str) -> str:
    return space_of(space, ctx.requester) if space else space_of_run(ctx.run)


def _absent(name: str) -> str:
    return f"No file {one_line(name)[:80]}. list_resources names those there are."


def _lines(found: Resource) -> list[str]:
    """Return the text in lines; a very long one as several."""
    text = redacted(printable(found.content.decode(errors="replace")))
    return [
        line[k : k + PIECE] for line in text.split("\n") for k in range(0, max(1, len(line)), PIECE)
    ]
