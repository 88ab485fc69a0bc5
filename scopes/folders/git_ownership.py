"""Check that the `.git` of a folder is its own.

A packed folder may name another repository, whose files would then be shown as this one's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_POINTER: Final = 4_096
"""Bytes of a file that names a folder."""
MAX_PART: Final = 256 << 20
"""Bytes of a file that git reads as a whole, such as the index."""
OPENED: Final = ("refs", "logs", "objects", "info")
"""Folders of a repository in which git reads and writes for us."""
CLOSED: Final = ("hooks", "fsmonitor--daemon.ipc")
"""What may be a link, or a socket: nothing here opens it."""


def ownership_problem(root: Path) -> str:
    """Return why the repository of a folder is not its own; empty if it is, or if there is none.

    A checkout of `git worktree` is one that its repository knows of."""
    try:
        return _stray(root, root / ".git")
    except OSError:
        return "its .git may not be read by this user"


def _stray(root: Path, git: Path) -> str:
    if git.is_symlink():
        return "its .git is a link"
    if not git.exists():
        return ""
    homes = [git]
    if git.is_file():
        inner = root / _named(git).removeprefix("gitdir:").strip()
        homes = [inner, inner.parent.parent]
        knows = inner.parent.name == "worktrees" and _leads(inner / "commondir", homes[1])
        if not knows or not _leads(inner / "gitdir", git):
            return "its .git names another repository, which does not know of this folder"
    elif not (git / "HEAD").is_file():
        return "its .git holds no repository"  # git would look for one in the folder itself
    elif (git / "commondir").exists():
        return "its .git leads to another repository"
    if (homes[-1] / "objects/info/alternates").exists():
        return "it borrows the objects of another repository"
    return next(filter(None, map(_odd, homes)), "")


def _odd(home: Path) -> str:
    """Return what of a repository is no file or folder of its own.

    Git follows links, when it writes a log or an index, too; an object that is one shows that of
    another repository, whose name whoever made the link has to know; and who opens a pipe waits for
    ever.
    """
    folders = [str(home), *(str(home / name) for name in OPENED)]
    while folders:
        folder = folders.pop()
        top = folder == str(home)
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for each in entries:
                if each.is_dir(follow_symlinks=False):
                    folders += [] if top else [each.path]
                elif top and each.name in CLOSED:
                    continue
                elif not each.is_file(follow_symlinks=False):
                    return "parts of it are links, pipes or devices"
                elif top and each.stat(follow_symlinks=False).st_size > MAX_PART:
                    return f"{each.name} in it is too large"
    return ""


def _leads(pointer: Path, target: Path) -> bool:
    """Return whether a file names this path."""
    named = _named(pointer) if pointer.is_file() else ""
    return bool(named) and (pointer.parent / named).resolve() == target.resolve()


def _named(pointer: Path) -> str:
    """Return the path that a file of git's names; empty where it cannot be read."""
    try:
        with pointer.open("rb") as file:
            return file.read(MAX_POINTER).decode().strip()
    except (OSError, ValueError):
        return ""
