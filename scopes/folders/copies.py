"""Copies of a project in which contexts write side by side, each in one of its own."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scopes.file_lock import Busy, lock_file
from scopes.folders.alike import called
from scopes.folders.folder import MAKE, Changed, Folder
from scopes.folders.git import Repository
from scopes.folders.git_trees import is_executable
from scopes.folders.log import FolderLog
from scopes.folders.paths import parts_of
from scopes.tool import ToolError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CopyLeft:
    """Paths of changes that did not come into a folder."""

    others: tuple[str, ...]
    """Others have changed them there; or the context gave its change up for theirs."""
    shut: tuple[str, ...]
    """They could not be written."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Those of one run. Its methods block and raise ToolError."""

    trees: Path
    max_bytes: int
    """Of one file."""
    max_total: int
    """Of all files of a copy."""
    log: FolderLog
    lock: Callable[[str], Path]

    def get(self, context: str, title: str) -> Folder | None:
        """Return the copy that a context writes in; None where it has none of this project."""
        tree = self._tree(context, title)
        return self._folder(tree) if tree.is_dir() else None

    def make(self, context: str, title: str, repository: Repository) -> Folder:
        """Return the files of the branch's last commit, as a folder of a context's own."""
        tree = self._tree(context, title)
        with lock_file(self.lock(f"{tree.name}.copy")):
            if not tree.is_dir():  # else another call of the same turn made it
                beside = tree.with_name(f"{tree.name}.tmp")
                shutil.rmtree(beside, ignore_errors=True)
                beside.mkdir(parents=True, mode=0o700)
                try:
                    self._fill(beside, title, repository)
                except BaseException:  # what it took of a full disk, too
                    shutil.rmtree(beside, ignore_errors=True)
                    raise
                beside.rename(tree)
        return self._folder(tree)

    def _fill(self, root: Path, title: str, repository: Repository) -> None:
        room, folders = self.max_total, set[Path]()
        for path, size, file in repository.files():
            room -= size
            if room < 0:
                raise ToolError(
                    f"{title} is too large to be copied for writers side by side. Let one "
                    "subagent write at a time."
                )
            with suppress(ToolError):  # a name that nobody may use here
                target = root.joinpath(*parts_of(path))
                if target.parent not in folders:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    folders.add(target.parent)
                opened = os.open(target, MAKE, 0o755 if is_executable(file) else 0o644)
                with os.fdopen(opened, "wb") as out:
                    out.write(file.data)

    def empty(self, context: str, handle: str, title: str, folder: Folder) -> CopyLeft:
        """Bring what a context changed in its copy, and has not committed, into the project's
        folder, file by file."""
        copy = self.get(context, title)
        others, shut = self.log.given_up(context, handle), set[str]()
        for path, was in self.log.own(context, handle).items():
            try:
                moved = copy and _moved(path, copy, folder, was)
            except OSError as error:
                log.warning("%s of %s stays in the copy of %s: %s", path, title, context, error)
                shut.add(path)
            else:
                if moved:
                    self.log.brought(context, handle, path)
                else:
                    others.add(path)
        return CopyLeft(tuple(sorted(others)), tuple(sorted(shut)))

    def told(self, context: str, title: str) -> str:
        """Return where the copy of a context lies, in words for who is told of what was
        left in it.
        """
        inside = self._tree(context, title).relative_to(self.trees.parents[2])
        return f"a copy, {inside} in the data folder"

    def _tree(self, context: str, title: str) -> Path:
        return self.trees / f"{context}-{title}"

    def _folder(self, tree: Path) -> Folder:
        return Folder(tree, self.max_bytes, self.lock(tree.name))


def _moved(path: str, copy: Folder, folder: Folder, was: str | None) -> bool:
    """Return whether the folder has a file as the copy has it, put there over what `was` there.

    Raises ToolError where somebody holds the folder's lock, and OSError.
    """
    try:
        mine = copy.read(path)
    except ToolError:  # no file any more
        return False
    if mine is None:
        return False
    if mine.digest == was:  # changed, and changed back
        return True
    try:
        folder.replace(called(folder, path), mine.data, was)
    except Changed as error:
        return error.found is not None and error.found.digest == mine.digest
    except Busy:
        raise
    except ToolError:
        return False
    return True
