"""Commits of a context's own changes, made from bytes in memory: no hook, no filter, no shell and
no setting of a user has a part in them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

import pygit2
from pygit2.enums import ConfigLevel, RepositoryOpenFlag

from scopes.folder import Folder
from scopes.git_trees import (
    AUTHOR,
    Change,
    Told,
    call_of,
    changed,
    commit_at,
    entry_of,
    files_of,
    merged,
    message_of,
    parent_of,
    recent,
    stage,
    tip_of,
    tree_of,
)
from scopes.locked import locked
from scopes.tool import ToolError

log = logging.getLogger(__name__)

TRIES = 5
TIMEOUT_MS = 15_000


def apart() -> None:
    """Let libgit2 read no settings of a user or of this machine, nor wait for a server for ever."""
    for level in (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG):
        pygit2.settings.search_path[level] = ""
    pygit2.settings.server_connect_timeout = TIMEOUT_MS
    pygit2.settings.server_timeout = TIMEOUT_MS


class Git:
    """Offered where a folder of the run is a git repository."""


@dataclass(frozen=True, slots=True)
class Made:
    """A commit, and what became of the working folder."""

    commit: str
    paths: tuple[str, ...]
    left: tuple[str, ...]
    """Paths that the working folder holds otherwise, changed by others and not committed."""


@dataclass(frozen=True)
class Repository:
    """The repository of a working folder. All methods block and raise ToolError."""

    folder: Folder
    branch: str | None
    """None = the one that is checked out."""
    lock: Path

    def open(self) -> pygit2.Repository:
        """Freshly opened: one is not for several threads."""
        try:
            return pygit2.Repository(str(self.folder.root), RepositoryOpenFlag.NO_SEARCH)
        except pygit2.GitError as error:
            log.warning("%s is not opened: %s", self.folder.root, error)
            raise ToolError(
                "Git does not open this folder: the log tells its owner why."
            ) from error

    def ref(self, repo: pygit2.Repository) -> str:
        """The branch that is worked on, which is checked out in the folder."""
        head = repo.lookup_reference("HEAD").raw_target
        name = head.decode() if isinstance(head, bytes) else ""
        if not name.startswith("refs/heads/"):
            raise ToolError("No branch is checked out in this folder; ask its owner to.")
        wanted = f"refs/heads/{self.branch}" if self.branch else name
        if name != wanted:
            raise ToolError(
                f"The folder is not on the branch {self.branch}, as the settings say; ask its "
                "owner to check that out."
            )
        return name

    def tip(self, repo: pygit2.Repository) -> pygit2.Commit | None:
        return tip_of(repo, self.ref(repo))

    def keep(self, data: bytes) -> str:
        """Store bytes, so that they can be merged with later; their blob."""
        return str(self.open().create_blob(data))

    def files(self) -> Iterator[tuple[str, bytes, bool]]:
        """Path, bytes and whether it is executable, of each file of the branch's last commit."""
        repo = self.open()
        tip = self.tip(repo)
        if tip:
            yield from files_of(tip.tree, "")

    def commit(self, changes: Mapping[str, Change], message: str, told: Told) -> Made:
        """Put these changes, and nothing else, on the branch; once for each call.

        Where others changed the same files meanwhile they are merged. The working folder follows
        where nobody has changes of their own in it.
        """
        with locked(self.lock):
            repo = self.open()
            found = self._made(repo, told.call)
            if found is None:
                found = self._commit(repo, changes, message, told)
            paths = changed(repo, parent_of(found), found)
            left = self.follow(repo, parent_of(found), found, paths)
            return Made(str(found.id), paths, left)

    def _commit(
        self, repo: pygit2.Repository, changes: Mapping[str, Change], message: str, told: Told
    ) -> pygit2.Commit:
        ref, text = self.ref(repo), message_of(message, told)
        for _ in range(TRIES):
            tip = tip_of(repo, ref)
            tree = merged(repo, tree_of(repo, tip), changes)
            if tree == tree_of(repo, tip).id:
                raise ToolError("You have changed nothing that is not committed.")
            who = pygit2.Signature(*AUTHOR, int(time()), 0)
            parents = [tip.id] if tip else []
            try:  # it is refused where the branch has moved meanwhile
                made = repo.create_commit(ref, who, who, text, tree, parents)
            except (pygit2.GitError, ValueError) as error:
                moved = tip_of(repo, ref)
                if (moved and moved.id) == (tip and tip.id):
                    raise ToolError("Git did not take the commit. Try again.") from error
            else:
                return commit_at(repo, made)
        raise ToolError("Others commit to this branch all the time. Try again.")

    def _made(self, repo: pygit2.Repository, call: str) -> pygit2.Commit | None:
        tip = self.tip(repo)
        return next((c for c in recent(repo, tip) if call_of(c) == call), None) if tip else None

    def follow(
        self,
        repo: pygit2.Repository,
        old: pygit2.Commit | None,
        new: pygit2.Commit,
        paths: Sequence[str],
    ) -> tuple[str, ...]:
        """Bring the working folder and the index from one commit to another, for these paths,
        where nobody has changes of their own; the paths where somebody has."""
        left = []
        index = repo.index
        index.read()
        for path in paths:
            was, now = entry_of(tree_of(repo, old), path), entry_of(new.tree, path)
            if not self._place(repo, path, was, now):
                left.append(path)
            staged = index[path].id if path in index else None
            if staged == (was.id if was else None):
                stage(index, path, now)
        try:
            self._write(repo, index)
        except pygit2.GitError as error:
            raise ToolError("Somebody else's git holds this folder. Try again.") from error
        return tuple(left)

    def _write(self, repo: pygit2.Repository, index: pygit2.Index) -> None:
        """Write the index. A mark tells that we are at it: where a kill left the mark, git's own
        lock of the index is ours too, and nobody else would ever take it away."""
        mark = self.lock.with_name(f"{self.lock.name}.index")
        if mark.exists():
            (Path(repo.path) / "index.lock").unlink(missing_ok=True)
        mark.touch()
        try:
            index.write()
        finally:
            mark.unlink()

    def _place(self, repo: pygit2.Repository, path: str, was: Any, now: Any) -> bool:
        """Put one file into the working folder; whether it is as committed."""
        try:
            found = self.folder.read(path)
        except ToolError:
            return False
        here = found.digest if found else None
        if here == (str(now.id) if now else None):
            return True
        if here != (str(was.id) if was else None):
            return False
        if now is None:
            return here is None or self.folder.remove(path, here)
        self.folder.replace(path, now.data, here)
        return True
