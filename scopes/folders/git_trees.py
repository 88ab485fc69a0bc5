"""Trees and commits of a repository as values: read, merged and made in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeGuard

import pygit2
from pygit2.enums import FileMode, MergeFlag, SortMode

from scopes.tool import ToolError

AUTHOR = ("workspace-assistant", "workspace-assistant@localhost")
CALL, ASKED = "Assistant-Call", "Requested-by"
"""Trailers: the call that made a commit, once; and who asked for it."""
MAX_MESSAGE = 2_000
LOOK_BACK = 1_000
"""Commits among which one is looked for."""
PLAIN = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)
_TRAILER = re.compile(rf"^(?:{CALL}|{ASKED}):.*$", re.MULTILINE)
_CALL = re.compile(rf"^{CALL}: (\S+)$", re.MULTILINE)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class TreeChange:
    """What the message of a commit says besides its text."""

    call: str
    asker: str | None


class Conflict(ToolError):
    """Two changed the same lines of these paths."""

    def __init__(self, paths: Sequence[str]) -> None:
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


def recent(repo: pygit2.Repository, tip: pygit2.Commit | None) -> Iterator[pygit2.Commit]:
    """Yield a commit and those before it, newest first."""
    walker = repo.walk(tip.id, SortMode.TOPOLOGICAL) if tip else ()
    yield from islice(walker, LOOK_BACK)


def is_ours(commit: pygit2.Commit) -> bool:
    return (commit.author.name, commit.author.email) == AUTHOR


def call_of(commit: pygit2.Commit) -> str:
    """Return the call that made it; empty for what others committed."""
    found = _CALL.findall(commit.message)
    return found[-1] if found and is_ours(commit) else ""


def entry_at(tree: pygit2.Tree, names: Sequence[str]) -> Any:
    """Return the file, link, folder or submodule at a path; None where there is none of them."""
    here: Any = tree
    for name in names:
        if not isinstance(here, pygit2.Tree) or name not in here:
            return None
        here = here[name]
    return here


def kind_of(entry: Any) -> str:
    """Return `file`, `folder`, `link` or `special`, as `FolderEntry.kind` says."""
    if isinstance(entry, pygit2.Tree):
        return "folder"
    if is_plain(entry):
        return "file"
    return "link" if entry.filemode == FileMode.LINK else "special"


def with_file(
    repo: pygit2.Repository, tree: pygit2.Tree | None, names: Sequence[str], blob: pygit2.Oid
) -> pygit2.Oid:
    """Return the tree with this file in it, which stays a program if it was one.

    Raises ToolError where a part of the path is no folder.
    """
    builder = repo.TreeBuilder(tree) if tree else repo.TreeBuilder()
    name, *below = names
    there = tree[name] if tree and name in tree else None
    if not below:
        mode = there.filemode if is_plain(there) else FileMode.BLOB
        builder.insert(name, blob, mode)
    elif there is None or isinstance(there, pygit2.Tree):
        builder.insert(name, with_file(repo, there, below, blob), FileMode.TREE)
    else:
        raise ToolError(f"{name} is no folder. Choose another path.")
    return builder.write()


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
    index = repo.merge_trees(base, mine, theirs, flags=MergeFlag(0))
    if index.conflicts is not None:
        raise Conflict(sorted({e.path for three in index.conflicts for e in three if e}))
    return index.write_tree(repo)


def is_plain(entry: Any) -> TypeGuard[pygit2.Blob]:
    """Return whether it is a file: no link, no submodule, no folder."""
    return isinstance(entry, pygit2.Blob) and entry.filemode in PLAIN


def is_executable(file: pygit2.Blob) -> bool:
    return file.filemode == FileMode.BLOB_EXECUTABLE


def size_of(repo: pygit2.Repository, file: pygit2.Object) -> int:
    """Return the bytes of a file, told without reading it: a small object may hold very much."""
    size: int = repo.odb.read_header(file.id)[1]
    return size
