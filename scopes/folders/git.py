"""The branch that the files of a run are written to. All reads and writes are in the repository: no
checkout, no hook, no filter, no shell and no user setting takes part.

The `.git` of a folder must be its own: a packed folder may name another repository, whose files
would then be shown as this one's.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, takewhile
from pathlib import Path
from time import time
from typing import Any, Final, TypeGuard

import pygit2
from pygit2.enums import ConfigLevel, FileMode, MergeFlag, RepositoryOpenFlag, SortMode

from scopes.folders.folder import (
    KB,
    FileFound,
    FileWriter,
    Folder,
    FolderEntry,
    Look,
    file_parts,
    is_entry,
    lock_file,
    not_a_file,
    parts_of,
)
from scopes.tool import ToolError

OPENED_FOLDERS: Final = ("refs", "logs", "objects", "info")
"""Folders of a repository in which git reads and writes for us."""
UNOPENED_ENTRIES: Final = ("hooks", "fsmonitor--daemon.ipc")
"""Entries that may be a link or a socket: nothing here opens them."""


def ownership_problem(root: Path) -> str:
    """Return why the repository of a folder is not its own; empty if it is, or if there is none."""
    git = root / ".git"
    try:
        if not os.path.lexists(git):
            return ""
        if git.is_symlink() or not git.is_dir():
            return "its .git is no folder: name the checkout that holds the repository"
        if not (git / "HEAD").is_file():
            return "its .git holds no repository"  # git would look for one in the folder itself
        if (git / "commondir").exists() or (git / "objects/info/alternates").exists():
            return "its .git leads to another repository"
        return _odd(git)
    except OSError:
        return "its .git may not be read by this user"


def _odd(home: Path) -> str:
    """Return an entry of a repository that is no file or folder of its own.

    Git follows links, also when it writes a log or an index; an object that is a link shows that of
    another repository, whose name the creator of the link has to know; and opening a pipe never
    ends.
    """
    folders = [str(home), *(str(home / name) for name in OPENED_FOLDERS)]
    while folders:
        folder = folders.pop()
        top = folder == str(home)
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for each in entries:
                if each.is_dir(follow_symlinks=False):
                    folders += [] if top else [each.path]
                elif not each.is_file(follow_symlinks=False) and not (
                    top and each.name in UNOPENED_ENTRIES
                ):
                    return "parts of it are links, pipes or devices"
    return ""


log = logging.getLogger(__name__)

TIMEOUT_MS = 15_000
BRANCH_PREFIX = "refs/heads/"
MAX_SUBJECT = 200
"""Maximum characters of paths in the subject of a draft."""


def apart() -> None:
    """Make libgit2 read no settings, never wait forever, and sync its writes to disk."""
    pygit2.settings.enable_fsync_gitdir(True)
    for level in (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG):
        pygit2.settings.search_path[level] = ""
    pygit2.settings.server_connect_timeout = TIMEOUT_MS
    pygit2.settings.server_timeout = TIMEOUT_MS


AUTHOR = ("workspace-assistant", "workspace-assistant@localhost")
CALL, ASKED = "Assistant-Call", "Requested-by"
"""Trailers: the call that made a commit, once; and the requester."""
MAX_MESSAGE = 2_000
LOOK_BACK = 1_000
"""Maximum commits in which to search for one."""
PLAIN = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)
_TRAILER = re.compile(rf"^(?:{CALL}|{ASKED}):.*$", re.MULTILINE)
_CALL = re.compile(rf"^{CALL}: (\S+)$", re.MULTILINE)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Git:
    """Offered if a folder of the run is a git repository."""


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches that a context writes on, by name."""

    run: str
    """Branch with the commits of the contexts of the run."""
    draft: str
    """Branch with one commit: what this context has written and not committed."""

    @classmethod
    def of(cls, run: str, context: str) -> Branches:
        name = f"assistant/{_plain(run)}"
        return cls(name, f"{name}-{_plain(context.removeprefix('s'))}")


def _plain(name: str) -> str:
    """Return a name in a form that is allowed in the name of a branch."""
    return re.sub(r"[^\w-]", "-", name, flags=re.ASCII) or "0"


@dataclass(frozen=True)
class Repository:
    """The repository of a project's folder. The folder itself is not changed: all changes are on
    branches. All methods block and raise ToolError.
    """

    folder: Folder
    lock: Path

    def open(self) -> pygit2.Repository:
        """Open the repository: each thread needs one of its own. Raises ToolError."""
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
        """Return the branch that is checked out: work starts from it, and is pushed to it."""
        head = repo.lookup_reference("HEAD").raw_target
        name = head.decode() if isinstance(head, bytes) else ""
        if not name.startswith(BRANCH_PREFIX):
            raise ToolError("No branch is checked out in this folder; ask its owner to.")
        return name

    def commits_of(self, run: str, calls: str) -> list[str]:
        """Return the ids of the commits on the branch of a run whose calls have keys with this
        prefix, oldest first."""
        repo = self.open()
        found = recent(repo, tip_of(repo, f"{BRANCH_PREFIX}{Branches.of(run, '').run}"))
        return [str(each.id) for each in found if call_of(each).startswith(calls)][::-1]

    def commit(self, branches: Branches, message: str, call: str, asker: str | None) -> GitCommit:
        """Put the draft of a context on the branch of its run; once for each call.

        It is merged with the commits of other contexts there; the draft remains if both changed the
        same lines.
        """
        with lock_file(self.lock):
            repo, ref = self.open(), f"{BRANCH_PREFIX}{branches.run}"
            for each in (branches.run, branches.draft):
                _unlock(repo, f"{BRANCH_PREFIX}{each}")
            tip = tip_of(repo, ref)
            commit = next((c for c in recent(repo, tip) if call_of(c) == call), None)
            text = message_of(message, call, asker)
            found = commit or _land(repo, ref, draft_of(repo, branches), text)
            draft = draft_of(repo, branches)
            base = parent_of(draft)
            if draft and (base is None or base.id != found.id):  # otherwise it has later changes
                drop(repo, f"{BRANCH_PREFIX}{branches.draft}")
            paths = changed_paths(tree_of(repo, parent_of(found)), found.tree)
            return GitCommit(str(found.id), branches.run, paths)


@dataclass(frozen=True, slots=True)
class GitCommit:
    """A commit on the branch of a run."""

    commit: str
    branch: str
    paths: tuple[str, ...]


def draft_of(repo: pygit2.Repository, branches: Branches) -> pygit2.Commit | None:
    """Return what a context has written and not committed; None if there is nothing."""
    draft = tip_of(repo, f"{BRANCH_PREFIX}{branches.draft}")
    if draft and not is_ours(draft):
        raise ToolError(f"Others have committed to {branches.draft}: say so in your result.")
    return draft


def _land(
    repo: pygit2.Repository, ref: str, draft: pygit2.Commit | None, text: str
) -> pygit2.Commit:
    """Return a new commit of a draft's change, on top of the branch `ref`."""
    base = parent_of(draft)
    top = tip_of(repo, ref) or base
    tree = draft and merge_trees(repo, tree_of(repo, base), draft.tree, tree_of(repo, top))
    if tree is None or tree == tree_of(repo, top).id:
        raise ToolError("You have changed nothing that is not committed.")
    return commit_at(repo, _commit(repo, ref, text, tree, top))  # refused if it has moved


def drop(repo: pygit2.Repository, ref: str) -> None:
    """Delete a reference, if it exists, that only the holder of the repository's lock changes."""
    _unlock(repo, ref)
    if ref in repo.references:
        repo.references.delete(ref)


def _unlock(repo: pygit2.Repository, ref: str) -> None:
    """Delete git's lock file of a reference, which a killed process of ours left: only the holder
    of the repository's lock changes it.
    """
    Path(repo.path, f"{ref}.lock").unlink(missing_ok=True)


def _commit(
    repo: pygit2.Repository, ref: str | None, text: str, tree: pygit2.Oid, on: pygit2.Commit | None
) -> pygit2.Oid:
    who = pygit2.Signature(*AUTHOR, int(time()), 0)
    return repo.create_commit(ref, who, who, text, tree, [on.id] if on else [])


@dataclass(frozen=True)
class BranchFolder:
    """The files of a context in a repository: those of a commit, with its own changes in a draft.
    See `scopes.folders.folder.FileTree`.
    """

    repository: Repository
    branches: Branches
    max_bytes: int
    exists: bool = True

    @cached_property
    def _repo(self) -> pygit2.Repository:
        return self.repository.open()

    @cached_property
    def _tree(self) -> pygit2.Tree:
        """Return the tree at the time when this folder was first read."""
        return tree_of(self._repo, draft_of(self._repo, self.branches) or self.base)

    @cached_property
    def base(self) -> pygit2.Commit | None:
        """Return the commit on which its next draft is based; None = none yet. Raises ToolError."""
        run = tip_of(self._repo, f"{BRANCH_PREFIX}{self.branches.run}")
        return run or tip_of(self._repo, self.repository.ref(self._repo))

    def read(self, path: str) -> FileFound | None:
        return self._find(self._tree, parts_of(path), path)

    def _find(self, tree: pygit2.Tree, names: tuple[str, ...], path: str) -> FileFound | None:
        found = entry_at(tree, names)
        if found is None:
            return None
        if not is_plain(found):
            raise not_a_file(path, kind_of(found))
        if size_of(self._repo, found) > self.max_bytes:
            raise ToolError(f"{path} is larger than {self.max_bytes // KB} kB and is not opened.")
        runs = found.filemode == FileMode.BLOB_EXECUTABLE
        return FileFound(found.data, 0o755 if runs else 0o644)

    def list_folder(self, path: str = "", look: Look | None = None) -> list[FolderEntry] | None:
        names = parts_of(path)
        tree = entry_at(self._tree, names)
        if not isinstance(tree, pygit2.Tree):
            return None
        takes = (look or Look()).takes
        found = [self._entry(names, each) for each in takewhile(takes, tree)]
        return sorted(filter(None, found), key=lambda e: e.path)

    def _entry(self, names: tuple[str, ...], found: Any) -> FolderEntry | None:
        if not is_entry(names, found.name):
            return None
        size = size_of(self._repo, found) if is_plain(found) else 0
        return FolderEntry("/".join((*names, found.name)), kind_of(found), size)

    @contextmanager
    def change_file(self, path: str, data: bytes) -> Iterator[tuple[FileFound | None, FileWriter]]:
        names = file_parts(path, data, self.max_bytes)
        with lock_file(self.repository.lock):
            _unlock(self._repo, f"{BRANCH_PREFIX}{self.branches.draft}")
            draft = draft_of(self._repo, self.branches)
            tree = tree_of(self._repo, draft or self.base)
            found = self._find(tree, names, path)

            def put() -> None:
                new_tree = with_file(self._repo, tree, names, self._repo.create_blob(data))
                self._draft(parent_of(draft) if draft else self.base, new_tree)

            yield found, put

    def _draft(self, base: pygit2.Commit | None, tree: pygit2.Oid) -> None:
        """Replace the draft by one with this tree."""
        now = self._repo[tree]
        assert isinstance(now, pygit2.Tree)
        paths = ", ".join(changed_paths(tree_of(self._repo, base), now))
        commit_id = _commit(self._repo, None, f"Change {paths[:MAX_SUBJECT]}\n", tree, base)
        self._repo.references.create(f"{BRANCH_PREFIX}{self.branches.draft}", commit_id, force=True)


class Conflict(ToolError):
    """Two changes touch the same lines of these paths."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"Others changed the same lines of {', '.join(paths)[:300]} meanwhile.")


def tip_of(repo: pygit2.Repository, ref: str) -> pygit2.Commit | None:
    """Return the last commit of a reference; None if it has none yet."""
    try:
        return repo.lookup_reference(ref).peel(pygit2.Commit)
    except KeyError:
        return None


def commit_at(repo: pygit2.Repository, id: pygit2.Oid | str) -> pygit2.Commit:
    """Return the commit with this id. Raises ToolError if there is none."""
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


def parent_of(commit: pygit2.Commit | None) -> pygit2.Commit | None:
    return commit.parents[0] if commit and commit.parents else None


def recent(repo: pygit2.Repository, tip: pygit2.Commit | None) -> Iterator[pygit2.Commit]:
    """Yield a commit and those before it, newest first."""
    walker = repo.walk(tip.id, SortMode.TOPOLOGICAL) if tip else ()
    yield from islice(walker, LOOK_BACK)


def is_ours(commit: pygit2.Commit) -> bool:
    return (commit.author.name, commit.author.email) == AUTHOR


def call_of(commit: pygit2.Commit) -> str:
    """Return the call that made it; empty for commits of others."""
    found = _CALL.findall(commit.message)
    return found[-1] if found and is_ours(commit) else ""


def entry_at(tree: pygit2.Tree, names: Sequence[str]) -> Any:
    """Return the file, link, folder or submodule at a path; None if there is nothing."""
    try:
        return tree["/".join(names)] if names else tree
    except KeyError:
        return None


def kind_of(entry: Any) -> str:
    """Return `file`, `folder`, `link` or `special`, see `FolderEntry.kind`."""
    if isinstance(entry, pygit2.Tree):
        return "folder"
    if is_plain(entry):
        return "file"
    return "link" if entry.filemode == FileMode.LINK else "special"


def with_file(
    repo: pygit2.Repository, tree: pygit2.Tree | None, names: Sequence[str], blob: pygit2.Oid
) -> pygit2.Oid:
    """Return the tree with this file in it, still executable if it was. Raises ToolError."""
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


def changed_paths(old: pygit2.Tree, new: pygit2.Tree) -> tuple[str, ...]:
    """Return the paths that differ in two trees."""
    deltas = old.diff_to_tree(new).deltas
    found = {f.path for d in deltas for f in (d.old_file, d.new_file)}
    return tuple(sorted(found))


def message_of(message: str, call: str, asker: str | None) -> str:
    """Return the text of a commit: the model's message, and below it the trailers of code."""
    text = _UNPRINTABLE.sub(" ", _TRAILER.sub("", message)).strip()[:MAX_MESSAGE]
    if not text:
        raise ToolError("A commit needs a message.")
    trailer = f"{ASKED}: {asker}\n" if asker else ""
    return f"{text}\n\n{trailer}{CALL}: {call}\n"


def merge_trees(
    repo: pygit2.Repository, base: pygit2.Tree, mine: pygit2.Tree, theirs: pygit2.Tree
) -> pygit2.Oid:
    """Return the tree with both changes. Raises ToolError with the paths that both changed."""
    index = repo.merge_trees(base, mine, theirs, flags=MergeFlag(0))
    if index.conflicts is not None:
        raise Conflict(sorted({e.path for three in index.conflicts for e in three if e}))
    return index.write_tree(repo)


def is_plain(entry: Any) -> TypeGuard[pygit2.Blob]:
    """Return whether it is a file: no link, no submodule, no folder."""
    return isinstance(entry, pygit2.Blob) and entry.filemode in PLAIN


def size_of(repo: pygit2.Repository, file: pygit2.Object) -> int:
    """Return the bytes of a file without reading it: a small object may unpack to very many."""
    size: int = repo.odb.read_header(file.id)[1]
    return size
