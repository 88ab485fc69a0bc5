"""Commits of a context's own changes, made from bytes in memory: no hook, no filter, no shell and
no setting of a user has a part in them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep, time
from typing import Any

import pygit2
from pygit2.enums import ConfigLevel, RepositoryOpenFlag

from scopes.file_lock import lock_file
from scopes.folders.folder import Changed, Folder
from scopes.folders.git_index import IndexState, restage
from scopes.folders.git_ownership import ownership_problem
from scopes.folders.git_trees import (
    AUTHOR,
    Change,
    TreeChange,
    call_of,
    changed,
    commit_at,
    entry_of,
    files_of,
    is_executable,
    is_plain,
    merged,
    message_of,
    parent_of,
    recent,
    size_of,
    tip_of,
    tree_of,
    turns,
)
from scopes.tool import ToolError

log = logging.getLogger(__name__)

TRIES = 5
PAUSE_S = 0.2
"""Before an index that somebody else's git holds is tried again."""
TIMEOUT_MS = 15_000
BEHIND = (
    " Somebody else's git held the index, so git status there tells of files as they were: the "
    "next call here fixes that, or `git reset` where nothing else is staged."
)


def apart() -> None:
    """Let libgit2 read no settings of a user or of this machine, nor wait for a server for ever."""
    for level in (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG):
        pygit2.settings.search_path[level] = ""
    pygit2.settings.server_connect_timeout = TIMEOUT_MS
    pygit2.settings.server_timeout = TIMEOUT_MS


class Git:
    """Offered where a folder of the run is a git repository."""


@dataclass(frozen=True, slots=True)
class GitCommit:
    """A commit, and what became of the working folder."""

    commit: str
    paths: tuple[str, ...]
    left: tuple[str, ...]
    """Paths that the working folder holds otherwise, changed by others and not committed."""
    behind: bool
    """The index has not followed: see `Repository.catch_up`."""


@dataclass(frozen=True)
class Repository:
    """The repository of a working folder. All methods block and raise ToolError."""

    folder: Folder
    branch: str | None
    """None = the one that is checked out."""
    lock: Path

    def open(self) -> pygit2.Repository:
        """Freshly opened: one is not for several threads."""
        if why := ownership_problem(self.folder.root):
            log.warning("the repository of %s is not opened: %s", self.folder.root, why)
            raise ToolError(f"Git does not open this folder: {why}. Tell its owner.")
        try:
            repo = pygit2.Repository(str(self.folder.root), RepositoryOpenFlag.NO_SEARCH)
            if repo.is_bare or Path(repo.workdir).resolve() != self.folder.root.resolve():
                raise pygit2.GitError("it is of another folder")
        except pygit2.GitError as error:
            log.warning("%s is not opened: %s", self.folder.root, error)
            raise ToolError(
                "Git does not open this folder: the log tells its owner why."
            ) from error
        return repo

    def ref(self, repo: pygit2.Repository) -> str:
        """Return the branch that is worked on, which is checked out in the folder."""
        name = _checked_out(repo)
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

    def files(self) -> Iterator[tuple[str, int, pygit2.Blob]]:
        """Path, size in bytes and content, not read yet, of each file of the last commit."""
        repo = self.open()
        tip = self.tip(repo)
        for path, file in files_of(tip.tree, "") if tip else ():
            yield path, size_of(repo, file), file

    def commit(self, changes: Mapping[str, Change], message: str, told: TreeChange) -> GitCommit:
        """Put these changes, and nothing else, on the branch; once for each call.

        Where others changed the same files meanwhile they are merged. The working folder follows
        where nobody has changes of their own in it, and the index where nobody else's git holds it.
        """
        with lock_file(self.lock):
            repo = self.open()
            found = self._made(repo, told.call)
            if found is None:
                found = self._commit(repo, changes, message, told)
            was = tree_of(repo, parent_of(found))
            left = self.follow(repo, was, found.tree)
            return GitCommit(str(found.id), changed(was, found.tree), left, self.behind)

    def _commit(
        self, repo: pygit2.Repository, changes: Mapping[str, Change], message: str, told: TreeChange
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
        was: pygit2.Tree,
        now: pygit2.Tree,
        move: Callable[[], object] | None = None,
    ) -> tuple[str, ...]:
        """Bring the working folder from one commit's tree to that of the branch, and the index,
        where nobody has changes of their own; the paths where somebody has them in the folder.

        `move` brings the branch there, between the two: who was killed before it starts again.
        """
        paths = changed(was, now)
        left = [p for p in paths if not self._place(repo, p, entry_of(was, p), entry_of(now, p))]
        ref = self.ref(repo)
        known = IndexState.read(self._behind) if self.behind else None
        state = known if known and known.ref == ref else IndexState(ref, str(was.id))
        replace(state, left=(*state.left, *left)).write(self._behind)
        if move:
            move()
        for _ in range(TRIES):
            if self._settled(repo):
                break
            sleep(PAUSE_S)
        return tuple(left)

    @property
    def behind(self) -> bool:
        """Return whether the index is not yet where the branch is: somebody else's git held it, or
        a kill kept us from it.
        """
        return self._behind.exists()

    @property
    def _behind(self) -> Path:
        """Holds the state of the index until it follows its branch."""
        return self.lock.with_name(f"{self.lock.name}.behind")

    def catch_up(self) -> None:
        """Bring the index to where the branch is, if it is behind and can be had now."""
        if self.behind:
            with lock_file(self.lock):
                self._settled(self.open())

    def _settled(self, repo: pygit2.Repository) -> bool:
        """Return whether the index is done with.

        It is left as it is for a file that was staged otherwise, or that is (again) as it was, and
        was not `left` so by us: that may be somebody's own doing.
        """
        if not self.behind:
            return True
        state = IndexState.read(self._behind)
        ref, tree = state.ref, state.tree
        if ref and ref != _checked_out(repo):
            return False
        was, tip = repo.get(tree) if tree else None, tip_of(repo, ref) if ref else None
        if isinstance(was, pygit2.Tree) and tip is not None:
            index = repo.index
            index.read()

            def taken_back(path: str, before: Any, after: Any) -> bool:
                if path in state.left or not self._takes(repo, after):
                    return False
                return self._here(path) == _name(before) != _name(after)

            restage(index, was, tip.tree, taken_back)
            if not self._write(repo, index):
                return False
        self._behind.unlink()
        return True

    def _write(self, repo: pygit2.Repository, index: pygit2.Index) -> bool:
        """Return whether the index could be written.

        A mark tells that we are at it: where a kill left the mark, git's own lock of the index is
        ours too, and nobody else would take it away.
        """
        mark = self.lock.with_name(f"{self.lock.name}.index")
        if mark.exists():
            (Path(repo.path) / "index.lock").unlink(missing_ok=True)
        mark.touch()
        try:
            index.write()
        except pygit2.GitError as error:
            log.warning("the index of %s is not written: %s", self.folder.root, error)
            return False
        finally:
            mark.unlink()
        return True

    def _place(self, repo: pygit2.Repository, path: str, was: Any, now: Any) -> bool:
        """Put one file into the working folder; whether it is as committed. What tools do not
        open, such as a link, a submodule or a large file, is for its owner to check out."""
        here, turned = self._here(path), turns(was, now)
        if here == _name(now) and not turned:
            return True
        if here != _name(was) and not (turned and here == _name(now)):
            return False
        if now is None:
            return here is None or self.folder.remove(path, here)
        if not self._takes(repo, now):
            return False
        executable = is_executable(now) or (False if turned else None)
        try:
            self.folder.replace(path, now.data, here, executable=executable)
        except (ToolError, Changed):
            return False
        return True

    def _takes(self, repo: pygit2.Repository, entry: Any) -> bool:
        """Return whether a file may be written here, or is to go."""
        return entry is None or (is_plain(entry) and size_of(repo, entry) <= self.folder.max_bytes)

    def _here(self, path: str) -> str | None:
        """Return the digest of a file of the working folder.

        None where there is none, and a word for what is not opened here: a link, a folder, a file
        that is too large.
        """
        try:
            found = self.folder.read(path)
        except ToolError:
            return "closed"
        return found.digest if found else None


def _checked_out(repo: pygit2.Repository) -> str:
    """Return the branch that is checked out; empty where none is."""
    head = repo.lookup_reference("HEAD").raw_target
    return head.decode() if isinstance(head, bytes) else ""


def _name(entry: Any) -> str | None:
    return str(entry.id) if entry else None
