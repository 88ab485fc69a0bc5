"""The state of an index that has not followed its branch, stored beside the repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pygit2
from pygit2.enums import FileMode

from scopes.folders.git_trees import changed, entry_of


@dataclass(frozen=True, slots=True)
class IndexState:
    """The branch and tree that an index is at."""

    ref: str = ""
    """The branch that it is to follow; empty where nobody knows."""
    tree: str = ""
    """Id of the branch's tree that it is at."""
    left: tuple[str, ...] = ()
    """Paths that the folder was not brought to, by us."""

    @classmethod
    def read(cls, note: Path) -> IndexState:
        """Return what was noted; what is cut off, or of an earlier version, tells nothing."""
        try:
            told = json.loads(note.read_text())
            return cls(told["ref"], told["tree"], tuple(told["left"]))
        except (ValueError, KeyError, TypeError):
            return cls()

    def write(self, note: Path) -> None:
        beside = note.with_name(f"{note.name}.tmp")  # half a note would be none
        beside.write_text(json.dumps(asdict(self)))
        beside.replace(note)


def restage(
    index: pygit2.Index,
    was: pygit2.Tree,
    now: pygit2.Tree,
    taken_back: Callable[[str, Any, Any], bool],
) -> None:
    """Bring an index from one tree to another, but for what is staged otherwise, what was
    `taken_back` (path, before, after) in the folder, and what has no room beside what is staged:
    a file in the place of a folder, or below a file."""
    found = [(path, entry_of(was, path), entry_of(now, path)) for path in changed(was, now)]
    ours = {
        path: after
        for path, before, after in found
        if _staged(index, path) == _kept(before) and not taken_back(path, before, after)
    }
    for path, after in ours.items():
        if after is None and path in index:
            index.remove(path)
    folders = {above for entry in index for above in _above(entry.path)}
    for path, after in ours.items():
        if after is None or path in folders or any(above in index for above in _above(path)):
            continue
        index.add(pygit2.IndexEntry(path, after.id, FileMode(after.filemode)))


def _above(path: str) -> list[str]:
    """Return the folders that a path lies in."""
    return [str(each) for each in PurePosixPath(path).parents][:-1]


def _staged(index: pygit2.Index, path: str) -> tuple[str, int] | None:
    return (str(index[path].id), index[path].mode) if path in index else None


def _kept(entry: Any) -> tuple[str, int] | None:
    return (str(entry.id), entry.filemode) if entry else None
