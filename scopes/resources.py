"""Files that a run or a team keeps, by name and version, each with the label of its author."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from scopes.clean import csv_cell, normalize_unicode, printable, redact
from scopes.effects import Access, Said
from scopes.label import TRUSTED_LABEL, Label
from scopes.spaces import Space, label_of, may_see, space_of
from scopes.tool import (
    Item,
    ToolContext,
    ToolError,
    ToolResult,
    fit_items,
    one_line,
    size_of,
    tool,
    under,
)

MAX_BYTES = 5_000_000
"""Maximum bytes of one file."""
MAX_RUN_BYTES = 20_000_000
"""Maximum bytes of all files of one run, versions included."""
MAX_NAME = 80
"""Characters of a name."""
CSV: Final = "text/csv"
PNG: Final = "image/png"
MEDIA_TYPES: Final = {
    "csv": CSV,
    "json": "application/json",
    "md": "text/markdown",
    "png": PNG,
    "txt": "text/plain",
}
"""Ending of a name -> media type."""

FILE_REFERENCE = re.compile(rf"(file/(\w[\w .()+-]*\.(?:{'|'.join(MEDIA_TYPES)}))@\d{{1,6}})")
"""A file's id within a text, and its name."""
_ID = re.compile(r"file/([^@]+)@(\d{1,6})")
_NAME = re.compile(r"\w[\w .()+-]*\.([a-z]+)")


@dataclass(frozen=True, slots=True)
class Resource:
    """One version of a file."""

    space: str
    """`run:<id>` for the files of one request, which go with its answer; else a space of notes."""
    name: str
    """`sales.csv`."""
    version: int
    """From 1."""
    kind: str
    """Media type: `text/csv`, `image/png`, `text/markdown`."""
    content: bytes
    """Empty in a list."""
    label: Label
    at: datetime
    size: int
    """Bytes of the content."""

    @property
    def id(self) -> str:
        """Return the id by which its items are cited: `file/sales.csv@2`."""
        return f"file/{self.name}@{self.version}"

    @property
    def shown(self) -> bytes:
        """Return the content for people: a text without invisible characters and without likely
        secrets, a table also without formulas that a spreadsheet would run.
        """
        if self.kind == PNG:
            return self.content
        text = redact(printable(self.content.decode(errors="replace")))
        return (_inert(text) if self.kind == CSV else text).encode()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A version of a file to store."""

    space: str
    key: str
    name: str
    kind: str
    """Media type."""
    content: bytes
    label: Label
    run: str


class Resources(Protocol):
    """The files of this workspace. Its methods raise ToolError for what the model can fix."""

    async def save(self, file: NewFile) -> Resource:
        """Store a version, once for each key."""

    async def get(self, space: str, name: str, version: int | None = None) -> Resource | None:
        """Return this version, or the newest for None; None if it does not exist."""

    async def list_files(self, space: str) -> Sequence[Resource]:
        """Return the newest version of each file, without its content, by name."""


def _inert(table: str) -> str:
    """Return a table in text without formulas; one without any is unchanged."""
    mark = max(",;\t", key=table.partition("\n")[0].count)
    try:
        rows = list(csv.reader(io.StringIO(table, newline=""), delimiter=mark))
    except csv.Error:  # a cell is too long
        return csv_cell(table)
    safe = [[csv_cell(cell) for cell in row] for row in rows]
    if safe == rows:
        return table
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=mark).writerows(safe)
    return out.getvalue()


def space_of_run(run: str) -> str:
    """Return the space for the files of a request, which are uploaded with its answer."""
    return f"run:{run}"


def resources_of(ctx: ToolContext) -> Resources:
    """Return the files that a tool works with. Raises ToolError if there is no store."""
    try:
        return ctx.client(Resources)  # type: ignore[type-abstract]
    except KeyError:
        raise ToolError("No files are kept here. Say so in your result.") from None


def parse_name(name: str) -> tuple[str, int]:
    """Return the name and version of a file, given `file/sales.csv@2` or a name; 0 = the newest."""
    plain = normalize_unicode(name.strip())  # as `file_name` keeps it
    found = _ID.fullmatch(plain)
    return (found[1], int(found[2])) if found else (plain, 0)


def file_name(name: str, *endings: str) -> str:
    """Return a name that is safe in any folder and has one of these endings. Raises ToolError."""
    plain = normalize_unicode(name.strip())
    found = _NAME.fullmatch(plain)
    if not found or found[1] not in endings or ".." in plain or len(plain) > MAX_NAME:
        allowed = " or ".join(f".{ending}" for ending in endings)
        raise ToolError(
            f"A file needs a plain name that ends with {allowed}, without a folder, such as "
            f"report.{endings[0]}."
        )
    return plain


def kind_of(name: str) -> str:
    """Return the media type for a name from `file_name`."""
    return MEDIA_TYPES[name.rpartition(".")[2]]


WRITABLE_SUFFIXES = ("md", "txt", "csv", "json")
"""Endings of files that a model may write."""
MAX_LINE_CHARS = 1_000
"""Maximum characters of a line; a longer one counts as several."""


@tool(Access.WRITE, client=Resources)
async def save_resource(ctx: ToolContext, name: str, text: Said, space: Space = "") -> ToolResult:
    """Keep a text file: without a space it goes with the answer."""
    name = file_name(name, *WRITABLE_SUFFIXES)
    if not text.strip():
        raise ToolError("A file needs a text.")
    where = _space(ctx, space)
    content = text.encode(errors="replace")
    files = resources_of(ctx)
    file = NewFile(where, ctx.key, name, kind_of(name), content, ctx.label, ctx.run)
    kept = await files.save(file)
    return ToolResult(note=f"Kept as {kept.id}.")


@tool(client=Resources)
async def read_resource(
    ctx: ToolContext, name: str, version: int = 0, line: int = 1, space: Space = ""
) -> ToolResult:
    """Read a kept file from a line on; version 0 is the newest."""
    name, named_version = parse_name(name)
    found = await resources_of(ctx).get(_space(ctx, space), name, version or named_version or None)
    if found is None:
        raise ToolError(_absent(name))
    label = found.label.join(await label_of(ctx, space) if space else TRUSTED_LABEL)
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
    items = (Item(f"{found.id}:{n}", text, None, label) for n, text in numbered if text.strip())
    shown = fit_items(items, ctx.max_output_tokens)
    last = int(shown[-1].id.rpartition(":")[2]) if shown else len(lines)
    rest = any(each.strip() for each in lines[last:])
    more = f"read_resource(line={last + 1}) reads on." if rest else ""
    undone = {} if rest else {f"read {found.id}": ""}
    if rest and line == 1:  # a read that begins elsewhere looks something up
        undone = {f"read {found.id}": f"{found.id} was read to line {last} of {len(lines)}"}
    note = f"Lines: {len(lines)}."
    return ToolResult(shown, truncated=more, note=note, undone=undone, label=label)


@tool(client=Resources)
async def list_resources(ctx: ToolContext, space: Space = "") -> ToolResult:
    """List kept files: those of this request, or of a space."""
    listed = await resources_of(ctx).list_files(_space(ctx, space))
    files = [f for f in listed if await may_see(ctx, f.label)]
    label = await label_of(ctx, space) if space else TRUSTED_LABEL
    items = tuple(
        Item(f.id, f"{f.kind}, {size_of(f.size)}", None, f.label.join(label), at=f.at)
        for f in files
    )
    return ToolResult(items, note=f"{len(items)} files." if items else "No files.", label=label)


def _space(ctx: ToolContext, space: str) -> str:
    return space_of(space, ctx.requester) if space else space_of_run(ctx.run)


def _absent(name: str) -> str:
    return f"No file {one_line(name)[:80]}. list_resources names those there are."


def _lines(found: Resource) -> list[str]:
    """Return the lines of the text; a very long one as several."""
    text = redact(printable(found.content.decode(errors="replace")))
    return [
        line[k : k + MAX_LINE_CHARS]
        for line in text.split("\n")
        for k in range(0, max(1, len(line)), MAX_LINE_CHARS)
    ]
