"""Tools of the scope files: a folder that is read and written, its repository, and a sandbox."""

from __future__ import annotations

import errno
import hashlib
import logging
import re
from collections.abc import Callable
from typing import Annotated, Final, ParamSpec, TypeVar

from pydantic import BeforeValidator
from pygit2 import GitError

from scopes.effects import FILES_PREFIX, Access, Effect, FolderId, PreparedCall
from scopes.folders.commands import MAX_OUTPUT_BYTES, Commands
from scopes.folders.folder import run_in_thread
from scopes.folders.folders import FolderPlace, Folders
from scopes.folders.git import Git
from scopes.folders.git_push import GitPush, Remote, format_commits
from scopes.folders.search import (
    lines_of,
    listing,
    may_not,
    pieces,
    read_from,
    replace_text,
    search_folder,
)
from scopes.label import Label
from scopes.notes import read_note, search_conversations, search_notes
from scopes.tool import (
    Item,
    SourceFailed,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    fit_items,
    one_line,
    tool,
    under,
)

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger(__name__)

LinePosition = Annotated[str, BeforeValidator(str)]
"""`12`, also as a number; `12~3` is a place within a long line."""
MAX_COMMAND: Final = 2_000
"""Characters."""
MAX_PUSHED: Final = 20
"""Commits of one push: a person has to see each."""
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_LINE_SUFFIX = re.compile(r":\d+(~\d+)?(@[0-9a-f]{6})?$")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@tool(client=Folders)
async def list_files(ctx: ToolContext, path: str = "", folder: FolderId = "") -> ToolResult:
    """List a folder with all below it."""
    place, path = await _where(ctx, folder, path)
    if not place.folder.exists:
        return ToolResult(note=f"{place.title} is empty.", label=place.label)
    (found, more, paths), label = await _do(ctx, place, listing, place.folder, path)
    items = [
        Item(f"{place.title}:{inside}/", ", ".join(names), None, label)
        for inside, names in found.items()
        if names
    ]
    kept = fit_items(items, ctx.max_output_tokens)
    if len(kept) < len(items):
        omitted = f"{len(items) - len(kept)} folders are left out: list one by its path."
        more = f"{omitted} {more}".strip()
    note = "" if items or more else f"{place.title} is empty."
    return ToolResult(
        kept,
        truncated=more,
        note=note,
        label=label,
        undone={_list_key(place): f"a list of {place.title} was cut" if more else ""},
        lists={f"files in {place.title}": tuple(f"{place.title}:{each}" for each in paths)},
        reads=(f"{place.title}:{path}/",),
    )


@tool(client=Folders)
async def read_file(
    ctx: ToolContext, path: str, folder: FolderId = "", line: LinePosition = "1"
) -> ToolResult:
    """Read a text file from a line on."""
    place, path = await _where(ctx, folder, path)
    folders = ctx.client(Folders)
    found, label = await _do(ctx, place, folders.read, ctx, place, path)
    with under(label):
        read, count = read_from(found, path, line)
    version = folders.version(ctx, place, path, found.digest)
    items = [
        Item(_id(place, path, p.at, version), p.text, None, label, verbatim=True) for p in read
    ]
    kept = fit_items(items, ctx.max_output_tokens)
    more = f"Go on with line={read[len(kept)].at}." if len(kept) < len(items) else ""
    name, undone = f"{place.title}:{path}", {_list_key(place): ""}
    if not more:
        undone[f"read {name}"] = ""
    elif line == "1":  # a read that begins elsewhere looks something up
        at = read[len(kept)].at.partition("~")[0]
        undone[f"read {name}"] = f"{name} was read to line {at} of {count}"
    note = f"{count} lines."
    return ToolResult(kept, truncated=more, note=note, undone=undone, reads=(name,), label=label)


@tool(Access.WRITE, Effect.FILE, client=Folders)
async def write_file(ctx: ToolContext, path: str, text: str, folder: FolderId = "") -> ToolResult:
    """Make a file, or replace one that you have read."""
    place, path = await _where(ctx, folder, path, writes=True)
    _, label = await _do(ctx, place, ctx.client(Folders).write, ctx, place, path, text.encode())
    note = f"Written: {place.title}:{path}, {len(lines_of(text))} lines.{place.aside}"
    name = f"{place.title}:{path}"
    return ToolResult(note=note, undone=place.undone, reads=(name,), label=label)


@tool(Access.WRITE, Effect.FILE, client=Folders)
async def edit_file(
    ctx: ToolContext, path: str, old: str, new: str, folder: FolderId = ""
) -> ToolResult:
    """Replace text that occurs once; spaces count."""
    place, path = await _where(ctx, folder, path, writes=True)
    _, label = await _do(ctx, place, _edit, ctx, place, path, old, new)
    note = f"Changed: {place.title}:{path}.{place.aside}"
    return ToolResult(note=note, undone=place.undone, label=label)


@tool(client=Folders)
async def search_files(
    ctx: ToolContext, pattern: str, folder: FolderId = "", glob: str = ""
) -> ToolResult:
    """Find lines that hold these words."""
    place, _ = await _where(ctx, folder, "")
    if not pattern.strip():
        raise ToolError("Say what to search for.")
    if not place.folder.exists:
        return ToolResult(note=f"{place.title} is empty.", label=place.label)
    hits, label = await _do(ctx, place, search_folder, place.folder, pattern, glob)
    folders = ctx.client(Folders)
    items = []
    for hit in hits.found:
        version = folders.version(ctx, place, hit.path, hit.digest)
        name = _id(place, hit.path, str(hit.line), version)
        items.append(Item(name, hit.text, None, label, verbatim=True))
    kept = fit_items(items, ctx.max_output_tokens)
    more = hits.cut or ("Not all is shown: search for more." if len(kept) < len(items) else "")
    note = f"{len(items)} lines in {len(hits.searched)} files that were searched."
    if hits.unsearched:
        note += (
            f" {hits.unsearched} files are no text in UTF-8, or too large, and were not searched."
        )
    cut = f"a search in {place.title} was cut: more lines hold {pattern[:60]!r}" if more else ""
    undone = {_list_key(place): "", f"search {place.handle}": cut}
    undone |= {f"read {place.handle}": may_not(hits.closed)} if hits.closed else {}
    reads = () if more else tuple(f"{place.title}:{each}" for each in hits.searched)
    return ToolResult(kept, truncated=more, note=note, undone=undone, reads=reads, label=label)


@tool(Access.WRITE, Effect.FILE, client=Git)
async def git_commit(ctx: ToolContext, message: str, folder: FolderId = "") -> ToolResult:
    """Commit your own changes."""
    place, _ = await _where(ctx, folder, "")
    if place.project is None or place.project.repository is None:
        raise ToolError(f"{place.title} is no git repository. Your files are written as they are.")
    result, label = await _do(ctx, place, ctx.client(Folders).commit, ctx, place, message)
    note = f"Committed as {result.commit[:12]} to the branch {result.branch} of {place.title}: "
    note += (
        f"{', '.join(result.paths)}. Name the branch in your result: the folder's owner merges it."
    )
    return ToolResult(note=note, undone=dict.fromkeys(place.undone, ""), label=label)


async def _prepare_push(ctx: ToolContext, folder: str = "", commits: str = "") -> PreparedCall:
    """Return the commits of this context that would leave, and where to; the call cannot choose."""
    place, _ = await _where(ctx, folder, "")
    (ids, told_of), _ = await _do(ctx, place, _unsent, ctx, place)
    if not ids:
        raise ToolError("You have committed nothing here that is not pushed.")
    if len(ids) > MAX_PUSHED:
        raise ToolError(f"{MAX_PUSHED} commits may be pushed at once.")
    return PreparedCall({"folder": place.handle, "commits": " ".join(ids)}, told_of)


@tool(Access.EGRESS, Effect.CHANGE, client=GitPush, prepare=_prepare_push)
async def git_push(ctx: ToolContext, folder: FolderId = "", commits: str = "") -> ToolResult:
    """Ask to push your commits; leave `commits` out."""
    place, _ = await _where(ctx, folder, "")
    wanted = commits.split()
    if not wanted or not all(map(_COMMIT.fullmatch, wanted)):
        raise ToolError("No commit was named.")
    note, label = await _do(ctx, place, _remote(place).push, wanted)
    return ToolResult(note=note, label=label)


@tool(Access.READ, Effect.CODE, sandboxed=True, client=Commands)
async def run_command(ctx: ToolContext, command: str, folder: FolderId = "") -> ToolResult:
    """Run a shell command on a copy, thrown away afterwards."""
    place, _ = await _where(ctx, folder, "")
    if not command.strip() or "\0" in command or len(command) > MAX_COMMAND:
        raise ToolError(f"Give a command of at most {MAX_COMMAND} characters.")
    if not place.folder.exists:
        raise ToolError(f"{place.title} is empty: write a file first.")
    with under(place.label):
        ended = await ctx.client(Commands).run(place.folder, command)
    label = await run_in_thread(ctx.client(Folders).label, place)
    name = hashlib.sha256(ctx.key.encode()).hexdigest()[:8]
    text = ended.output.replace("\r\n", "\n")
    items = [
        Item(f"command/{name}:{p.at}", p.text, None, label, verbatim=True) for p in pieces(text, 1)
    ]
    kept = fit_items(items, ctx.max_output_tokens)
    cut = ended.cut or len(kept) < len(items)
    more = (
        f"The output is cut: have it say less, at most {MAX_OUTPUT_BYTES // 1000} kB."
        if cut
        else ""
    )
    how = "It was killed: its time was up." if ended.code is None else f"Exit code {ended.code}."
    return ToolResult(kept, truncated=more, note=how, label=label)


TOOLS: tuple[Tool, ...] = (
    *(list_files, read_file, search_files, write_file, edit_file),
    *(git_commit, git_push, run_command),
    *(search_notes, read_note, search_conversations),
)


async def _do(
    ctx: ToolContext, place: FolderPlace, work: Callable[P, T], *args: P.args, **named: P.kwargs
) -> tuple[T, Label]:
    """Return the result of work in a folder, and the folder's label after it: others may have
    written meanwhile. Its errors have this label, too. Raises SourceFailed for disk and git.
    """
    folders = ctx.client(Folders)

    def do_work() -> tuple[T, Label]:
        try:
            return work(*args, **named), folders.label(place)
        except ToolError as error:
            error.label = folders.label(place)
            raise
        except (OSError, GitError) as error:
            raise _fault(place.title, error) from error

    return await run_in_thread(do_work)


def _fault(title: str, error: OSError | GitError) -> SourceFailed:
    log.warning("%s: %s", title, error)
    if isinstance(error, GitError) or error.errno is None:  # libgit2 does not say which
        return SourceFailed(f"git fails in {title}: it is damaged, or there is no room left")
    full = error.errno in _FULL
    return SourceFailed(f"no room is left for {title}" if full else f"the disk fails in {title}")


async def _where(
    ctx: ToolContext, folder: str, path: str, *, writes: bool = False
) -> tuple[FolderPlace, str]:
    """Return the folder and the path of a call; the id of an item is a path, too."""
    folders = ctx.client(Folders)
    if not folder:
        named, rest = ctx.handles.in_front(path, FILES_PREFIX)
        if named and await ctx.may_read(named):
            folder, path = named, _LINE_SUFFIX.sub("", rest)
    handle = await folders.find_handle(ctx, folder)
    try:
        place = await run_in_thread(folders.place, ctx, handle, writes=writes)
    except (OSError, GitError) as error:
        raise _fault(handle, error) from error
    if folder and path.startswith(f"{place.title}:"):
        path = _LINE_SUFFIX.sub("", path.removeprefix(f"{place.title}:"))
    return place, "/".join(each for each in path.split("/") if each != ".") or path


def _list_key(place: FolderPlace) -> str:
    """Return the key of `undone` for a list that was cut; a search or a read continues it."""
    return f"list {place.handle}"


def _id(place: FolderPlace, path: str, at: str, version: str) -> str:
    return f"{place.title}:{one_line(path)}:{at}{version}"


def _edit(ctx: ToolContext, place: FolderPlace, path: str, old: str, new: str) -> None:
    folders = ctx.client(Folders)
    found = folders.read(ctx, place, path)
    done = folders.log.load().done.get(ctx.key)
    if done and done.after == found.digest:  # before a restart
        return
    folders.write(ctx, place, path, replace_text(found, path, old, new))


def _remote(place: FolderPlace) -> Remote:
    remote = place.project.remote if place.project else None
    if remote is None:
        raise ToolError(f"Nothing is pushed from {place.title}: an administrator may allow it.")
    return remote


def _unsent(ctx: ToolContext, place: FolderPlace) -> tuple[list[str], dict[str, str]]:
    """Return the ids of the commits that would leave, and their texts for a card."""
    remote, home = _remote(place), ctx.client(Folders).home
    commits = remote.repository.commits_of(home.name, f"{ctx.run}/{ctx.context}/")
    found = remote.unsent(commits)
    repo = remote.repository.open()
    card = {"branch": remote.branch(repo), "remote": remote.address(repo)}
    texts = format_commits(repo, found[:MAX_PUSHED], place.title)
    card |= {f"commit {n}": text for n, text in enumerate(texts, 1)}
    return [str(commit.id) for commit in found], card
