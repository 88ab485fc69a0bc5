"""Trees and commits of a repository as values: read, merged and made in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import pygit2
from pygit2.enums import FileMode, MergeFlag, SortMode

from scopes.tool import ToolError

AUTHOR = ("workspace-assistant", "workspace-assistant@localhost")
CALL, ASKED = "Assistant-Call", "Requested-by"
"""Trailers: the call that made a commit, once; and who asked for it."""
MAX_MESSAGE = 2_000
MAX_MERGED = 5_000_000
"""Bytes of a file that is merged with a change."""
LOOK_BACK = 1_000
"""Commits among which one is looked for."""
PLAIN = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)
_TRAILER = re.compile(rf"^(?:{CALL}|{ASKED}):.*$", re.MULTILINE)
_CALL = re.compile(rf"^{CALL}: (\S+)$", re.MULTILINE)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Change:
    """What a context did to one file."""

    base: str | None
    """Blob of the file as the context found it; None = there was none."""
    mine: bytes | None
    """None = it is gone."""


@dataclass(frozen=True, slots=True)
class TreeChange:
    """What the message of a commit says besides its text."""

    call: str
    asker: str | None


class Conflict(ToolError):
    """Two changed the same lines; `paths` are where."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        super().__init__(f"Others changed the same lines of {', '.join(paths)[:300]} meanwhile.")


def tip_of(repo: pygit2.Repository, ref: str) -> pygit2.Commit | None:
    """Return the last commit of a reference; None where it has none yet."""
    try:
        return repo.lookup_reference(ref).peel(pygit2.Commit)
    except KeyError:
        return None


def commit_at(repo: pygit2.Repository, id: pygit2.Oid | str) -> pygit2.Commit:
    """Raises ToolError where there is none."""
    found = repo.get(id)
    if not isinstance(found, pygit2.Commit):
        raise ToolError(f"There is no commit {str(id)[:12]} here any more.")
    return found


def tree_of(repo: pygit2.Repository, commit: pygit2.Commit | None) -> pygit2.Tree:
    if commit is not None:
        return commit.tree
    empty = repo[repo.TreeBuilder().write()]
    assert isinstance(empty, pygit2.Tree)
    return empty


def parent_of(commit: pygit2.Commit) -> pygit2.Commit | None:
    return commit.parents[0] if commit.parents else None


def recent(repo: pygit2.Repository, tip: pygit2.Commit) -> Iterator[pygit2.Commit]:
    walker = repo.walk(tip.id, SortMode.TOPOLOGICAL)
    for number, commit in enumerate(walker):
        if number >= LOOK_BACK:
            return
        yield commit


def call_of(commit: pygit2.Commit) -> str:
    """Return the call that made it; empty for what others committed."""
    found = _CALL.findall(commit.message)
    ours = (commit.author.name, commit.author.email) == AUTHOR
    return found[-1] if found and ours else ""


def entry_of(tree: pygit2.Tree, path: str) -> Any:
    """Return the file, link or submodule at a path; None where there is none of them."""
    try:
        found = tree[path]
    except KeyError:
        return None
    return None if isinstance(found, pygit2.Tree) else found


def changed(old: pygit2.Tree, new: pygit2.Tree) -> tuple[str, ...]:
    """Return paths that are not the same in two trees."""
    deltas = old.diff_to_tree(new).deltas
    found = {f.path for d in deltas for f in (d.old_file, d.new_file)}
    return tuple(sorted(found))


def message_of(message: str, told: TreeChange) -> str:
    """Return the text of a commit: what a model wrote of it, and under it what code knows."""
    text = _UNPRINTABLE.sub(" ", _TRAILER.sub("", message)).strip()[:MAX_MESSAGE]
    if not text:
        raise ToolError("A commit needs a message.")
    asked = f"{ASKED}: {told.asker}\n" if told.asker else ""
    return f"{text}\n\n{asked}{CALL}: {told.call}\n"


def merged_trees(
    repo: pygit2.Repository, base: pygit2.Tree, mine: pygit2.Tree, theirs: pygit2.Tree
) -> pygit2.Oid:
    """Return the tree that has both changes. Raises ToolError that names what both changed."""
    large = [
        p for p in {*changed(base, mine)} & {*changed(base, theirs)} if _is_large(repo, theirs, p)
    ]
    if large:
        raise Conflict(sorted(large))
    index = repo.merge_trees(base, mine, theirs, flags=MergeFlag(0))
    if index.conflicts is not None:
        raise Conflict(sorted({e.path for three in index.conflicts for e in three if e}))
    return index.write_tree(repo)


def _is_large(repo: pygit2.Repository, tree: pygit2.Tree, path: str) -> bool:
    entry = entry_of(tree, path)
    return is_plain(entry) and size_of(repo, entry) > MAX_MERGED


def merged(
    repo: pygit2.Repository, theirs: pygit2.Tree, changes: Mapping[str, Change]
) -> pygit2.Oid:
    base: dict[str, pygit2.Oid | None] = {}
    mine: dict[str, pygit2.Oid | None] = {}
    for path, change in changes.items():
        change = _ended(repo, entry_of(theirs, path), change)
        base[path] = pygit2.Oid(hex=change.base) if change.base else None
        mine[path] = None if change.mine is None else repo.create_blob(change.mine)
    return merged_trees(repo, _with(repo, theirs, base), _with(repo, theirs, mine), theirs)


def _ended(repo: pygit2.Repository, theirs: Any, change: Change) -> Change:
    """Return the change with line feeds alone, where the branch has the file so and the folder had
    it otherwise: by `.gitattributes`, or by somebody's editor.
    """
    if not (change.base and is_plain(theirs)) or size_of(repo, theirs) > MAX_MERGED:
        return change
    base = repo[change.base]
    assert isinstance(base, pygit2.Blob)
    if b"\r\n" not in base.data or b"\r\n" in theirs.data:
        return change
    mine = None if change.mine is None else change.mine.replace(b"\r\n", b"\n")
    return Change(str(repo.create_blob(base.data.replace(b"\r\n", b"\n"))), mine)


def _with(
    repo: pygit2.Repository, tree: pygit2.Tree, blobs: Mapping[str, pygit2.Oid | None]
) -> pygit2.Tree:
    """Return a tree with these files in it, and without those that are None."""
    index = pygit2.Index()
    index.read_tree(tree)
    for path, blob in blobs.items():
        if blob is None:
            if path in index:
                index.remove(path)
            continue
        mode = index[path].mode if path in index else FileMode.BLOB
        index.add(pygit2.IndexEntry(path, blob, mode))
    made = repo[index.write_tree(repo)]
    assert isinstance(made, pygit2.Tree)
    return made


def files_of(tree: pygit2.Tree, above: str) -> Iterator[tuple[str, pygit2.Blob]]:
    """Yield the plain files of a tree by path, none of them read yet."""
    for each in tree:
        path = f"{above}{each.name}"
        if isinstance(each, pygit2.Tree):
            yield from files_of(each, f"{path}/")
        elif is_plain(each):
            yield path, each


def is_plain(entry: Any) -> TypeGuard[pygit2.Blob]:
    """Return whether it is a file: no link, no submodule, no folder."""
    return isinstance(entry, pygit2.Blob) and entry.filemode in PLAIN


def is_executable(file: pygit2.Blob) -> bool:
    return file.filemode == FileMode.BLOB_EXECUTABLE


def turns(was: Any, now: Any) -> bool:
    """Return whether a file becomes a program, or is one no more."""
    return is_plain(was) and is_plain(now) and is_executable(was) != is_executable(now)


def size_of(repo: pygit2.Repository, file: pygit2.Object) -> int:
    """Return the bytes of a file, told without reading it: a small object may hold very much."""
    size: int = repo.odb.read_header(file.id)[1]
    return size
