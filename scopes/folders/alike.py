"""Texts that look the same: a letter with its mark is one character, or two, as on macOS."""

from __future__ import annotations

from contextlib import suppress

from scopes.clean import unified
from scopes.folders.folder import FileTree
from scopes.folders.paths import parts_of
from scopes.tool import ToolError


def nfc(text: str) -> str:
    """Return the text with one character for each letter with its marks."""
    return unified(text)


def called(folder: FileTree, path: str) -> str:
    """Return a path by the names that stand there, where those that were given only
    look like them.
    """
    if path.isascii() or not folder.exists:
        return path
    names: list[str] = []
    for name in parts_of(path):
        with suppress(ToolError):
            there = [e.path.rpartition("/")[2] for e in folder.listed("/".join(names)) or ()]
            alike = [each for each in there if nfc(each) == nfc(name)]
            name = name if name in alike else next(iter(alike), name)
        names.append(name)
    return "/".join(names) + "/" * path.endswith("/")
