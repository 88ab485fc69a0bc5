"""Whether what lies at `.git` is the folder's own: a folder that somebody packed may name another
repository, whose files would then be shown as this one's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

MAX_POINTER: Final = 4_096
"""Bytes of a file that names a folder."""


def stray(root: Path) -> str:
    """Why the repository of a folder is not its own, for its owner; empty where it is, or where
    there is none. A checkout of `git worktree` is one that its repository knows of."""
    try:
        return _stray(root, root / ".git")
    except OSError:
        return "its .git may not be read by this user"


def _stray(root: Path, git: Path) -> str:
    if git.is_symlink():
        return "its .git is a link"
    home = git
    if git.is_file():
        inner = root / _named(git).removeprefix("gitdir:").strip()
        home = inner.parent.parent
        knows = inner.parent.name == "worktrees" and _leads(inner / "commondir", home)
        if not knows or not _leads(inner / "gitdir", git):
            return "its .git names another repository, which does not know of this folder"
    elif git.is_dir() and not (git / "HEAD").is_file():
        return "its .git holds no repository"  # git would look for one in the folder itself
    elif (git / "commondir").exists():
        return "its .git leads to another repository"
    if (home / "objects/info/alternates").exists():
        return "it borrows the objects of another repository"
    parts = (home / "refs", home / "objects", *home.glob("objects/*"), *home.glob("objects/pack/*"))
    return "parts of it are links" if any(part.is_symlink() for part in parts) else ""


def _leads(pointer: Path, target: Path) -> bool:
    """Whether a file names this path."""
    named = _named(pointer)
    return bool(named) and (pointer.parent / named).resolve() == target.resolve()


def _named(pointer: Path) -> str:
    """The path that a file of git's names; empty where it cannot be read."""
    try:
        with pointer.open("rb") as file:
            return file.read(MAX_POINTER).decode().strip()
    except (OSError, ValueError):
        return ""
