"""The material of a review: code reads it, and splits it into items, sections and files."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from config.settings import Settings
from scopes.clean import printable
from scopes.documents.text import DocumentRefused, read_document
from scopes.effects import Handles
from scopes.folders.search import SKIPPED_FOLDERS, lines_of, pieces
from scopes.intent import Intent
from scopes.label import Label
from scopes.tool import Item, SourceFailed, Tool, ToolContext, ToolError, ToolResult, tokens_of
from subagents.run import Run

MAX_FILE_MB = 20
MAX_READ = 1_000_000
"""Maximum tokens read from a thread or a page, before the check of its size."""
MEGABYTE = 1_000_000
_START = re.compile(
    r"#{1,6} |(?:async )?def |class |@\w|diff --git |@@ |\d{1,3}(?:\.\d{1,3})*[.)] "
    r"|(?:Article|Section|Clause|Artikel|Artículo|Articolo|§) ?\d"
)
"""The first line of a section: a heading, a definition, a file or a hunk of a change, a clause."""
_FILE_HEADER = re.compile(r"FILE: (.+?) \((.*)\)")
"""Name and facts of an attached file."""


class MaterialRefused(Exception):
    """Material that is not reviewed; the text is one sentence with the reason."""


@dataclass(frozen=True, slots=True)
class ReviewMaterial:
    """The text under review."""

    name: str
    scope: str
    """The scope whose prompt describes how to read its items: `files`, `slack` or `web`."""
    files: tuple[tuple[tuple[Item, ...], ...], ...]
    """The sections of each file; a section is a group of items that belong together."""
    missing: tuple[str, ...] = ()
    """Parts that could not be read, and why."""

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(item for file in self.files for section in file for item in section)

    @property
    def tokens(self) -> int:
        return sum(map(tokens_of, self.items))

    @property
    def version(self) -> str:
        """Return a hash of all material under review."""
        texts = "\0".join(f"{item.id}\0{item.text}" for item in self.items)
        return hashlib.sha256(texts.encode(errors="replace")).hexdigest()[:12]

    def parts(self, max_tokens: int) -> list[tuple[Item, ...]]:
        """Split it into parts of at most so many tokens: between files, else between sections,
        else between items."""
        parts: list[list[Item]] = [[]]
        available = max_tokens
        for block in _blocks(self.files, max_tokens):
            size = sum(map(tokens_of, block))
            if parts[-1] and size > available:
                parts.append([])
                available = max_tokens
            parts[-1] += block
            available -= size
        return [tuple(part) for part in parts if part]

    def around(self, ids: Iterable[str], tokens: int) -> tuple[Item, ...]:
        """Return the items with these ids, each with about so many tokens of its file before and
        after it."""
        targets, included = set(ids), set[str]()
        for file in self.files:
            items = [item for section in file for item in section]
            for place in (n for n, item in enumerate(items) if item.id in targets):
                included.add(items[place].id)
                for run in (reversed(items[:place]), iter(items[place + 1 :])):
                    included.update(item.id for item in _first(run, tokens))
        return tuple(item for item in self.items if item.id in included)


def _first(items: Iterable[Item], tokens: int) -> Iterator[Item]:
    for item in items:
        tokens -= tokens_of(item)
        if tokens < 0:
            return
        yield item


def _blocks(files: Sequence[Sequence[Sequence[Item]]], max_tokens: int) -> Iterator[Sequence[Item]]:
    """Yield units that stay together: files; sections of large files; items of large sections."""
    for file in files:
        whole = [item for section in file for item in section]
        if sum(map(tokens_of, whole)) <= max_tokens:
            yield whole
            continue
        for section in file:
            fits = sum(map(tokens_of, section)) <= max_tokens
            yield from [section] if fits else [[item] for item in section]


def check_size(material: ReviewMaterial, settings: Settings) -> ReviewMaterial:
    """Return the material. Raises MaterialRefused if it is empty or larger than allowed."""
    allowed = settings.limits.max_material_tokens > 0
    max_tokens = settings.panel.material_tokens if allowed else 0
    if not material.items:
        why = f" ({'; '.join(material.missing[:3])})" if material.missing else ""
        raise MaterialRefused(f"{material.name} holds nothing to review{why}.")
    if (size := material.tokens) > max_tokens:
        raise MaterialRefused(
            f"{material.name} holds about {size:,} tokens; at most {max_tokens:,} are reviewed "
            "(panel.material_tokens, limits.max_material_tokens). Name a part of it."
        )
    return material


async def material_of_path(path: Path) -> ReviewMaterial:
    """Read a file, or all text files below a folder. Raises MaterialRefused."""
    name, found = await asyncio.to_thread(_load, path)
    missing, files = [], []
    for inside, data in found:
        if (text := _decode(data)) is None and inside == name and len(found) == 1:
            try:
                document = await read_document(data, MAX_FILE_MB * MEGABYTE)
            except DocumentRefused as refusal:
                raise MaterialRefused(f"{name} {refusal}.") from None
            text = document.text
            missing += [f"{name}: {document.facts}; cut"] if document.cut else []
        if text is None:
            missing.append(f"{inside}: it is no text")
        elif text.strip():
            files.append(sections_of(inside, text))
    return ReviewMaterial(name, "files", tuple(files), tuple(missing))


def _load(path: Path) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the name of a file or folder, and path and content of each file."""
    name = path.resolve().name or str(path)
    try:
        if path.is_dir():
            return name, _files_below(path)
        if path.stat().st_size > MAX_FILE_MB * MEGABYTE:
            raise MaterialRefused(f"{name} is larger than {MAX_FILE_MB} MB.")
        data = path.read_bytes()
    except OSError as error:
        raise MaterialRefused(f"{name} cannot be read: {error.strerror}.") from None
    if not data.strip():
        raise MaterialRefused(f"{name} is empty.")
    return name, [(name, data)]


def _decode(data: bytes) -> str | None:
    """Return the text of a file; None if it is not UTF-8 text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _files_below(folder: Path) -> list[tuple[str, bytes]]:
    """Return path and content of the files, in the order of their paths; links are not followed."""
    found, available = [], MAX_FILE_MB * MEGABYTE
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(
            f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith(".")
        )
        for name in sorted(names):
            path = Path(root) / name
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            available -= path.stat().st_size
            if available < 0:
                raise MaterialRefused(f"{folder.name} holds more than {MAX_FILE_MB} MB of files.")
            found.append((path.relative_to(folder).as_posix(), path.read_bytes()))
    return found


UNTRUSTED_LABEL = Label(untrusted=True)
"""The label of a file that the operator names."""


def sections_of(
    name: str, text: str, label: Label = UNTRUSTED_LABEL
) -> tuple[tuple[Item, ...], ...]:
    """Return a text as sections of items with the ids `name:line`."""
    path = re.sub(r"[\[\]\s]", "_", printable(name))
    lines = lines_of(printable(text.replace("\r\n", "\n")))
    starts = [n for n, line in enumerate(lines) if n and _START.match(line)]
    sections = []
    for begin, end in zip([0, *starts], [*starts, len(lines)], strict=True):
        items = []
        for piece in pieces("\n".join(lines[begin:end]), 1):
            line, _, rest = piece.at.partition("~")
            at = f"{int(line) + begin}{'~' if rest else ''}{rest}"
            items.append(Item(f"{path}:{at}", piece.text, None, label, verbatim=True))
        if any(item.text.strip() for item in items):
            sections.append(tuple(items))
    return tuple(sections)


async def material_of_page(run: Run, address: str) -> ReviewMaterial:
    """Read a page through the gate. Raises MaterialRefused."""
    from scopes.pages.pages import Pages
    from scopes.web import read_url

    if Pages not in run.clients:
        raise MaterialRefused(f"{address} cannot be read here.")
    ctx = reading_context(run, Intent(address), "p1")
    return await read_through_gate(run, ctx, read_url, url=address)


def reading_context(run: Run, intent: Intent, context: str) -> ToolContext:
    """Return the context in which code reads a source for a panel."""
    handles = Handles(dict(run.handles))
    return run.context(handles=handles, intent=intent, scope="parent", context=context)


async def read_through_gate(
    run: Run, ctx: ToolContext, tool: Tool, **arguments: str
) -> ReviewMaterial:
    """Read one source completely with its own tool, as far as the requester may read it: each of
    its items is a section. Raises MaterialRefused.
    """
    (name,) = arguments.values()
    ctx = replace(ctx, max_output_tokens=MAX_READ, key=f"{ctx.key or run.id}/material")
    try:
        async with asyncio.timeout(run.limits.tool_timeout_s):
            found = await run.gate.call(ctx.context, ctx, tool, arguments)
    except TimeoutError:
        raise MaterialRefused(f"{name} gave no answer in time.") from None
    except (ToolError, SourceFailed) as error:
        raise MaterialRefused(str(error)) from None
    if not isinstance(found, ToolResult):
        raise MaterialRefused(found.reason)
    scope = "web" if tool.name == "read_url" else "slack"
    sections = tuple((item,) for item in found.items if item.text.strip())
    missing = (found.truncated,) if found.truncated else ()
    return ReviewMaterial(name, scope, (sections,) if sections else (), missing)


def material_of_attachment(
    name: str, blocks: Sequence[Mapping[str, Any]], label: Label
) -> ReviewMaterial | None:
    """Return an attached file by its name; None if there is none."""
    for block in blocks:
        head, _, body = str(block.get("text", "")).partition("\n")
        found = _FILE_HEADER.fullmatch(head)
        attached, facts = found.groups() if found else ("", "")
        if found and attached.casefold() == name.strip().casefold():
            text = re.sub(r"\A<(items-[0-9a-f]{32})>\n(.*)\n</\1>\Z", r"\2", body, flags=re.DOTALL)
            missing = (f"{attached}: {facts}",) if "cut" in facts else ()
            sections = sections_of(attached, text, label.join(UNTRUSTED_LABEL))
            return ReviewMaterial(attached, "files", (sections,), missing)
    return None
