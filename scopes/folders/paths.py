"""Paths that a model writes: which names may stand in one, and which paths lead anywhere."""

from __future__ import annotations

import re
import unicodedata

from scopes.clean import unified
from scopes.tool import ToolError, not_found

MAX_PATH, MAX_NAME, MAX_DEPTH = 240, 200, 40
"""Characters of a path, bytes of a name, names of a path: an id holds a path, and ids are short."""
_GIT = re.compile(r"\.git|git~\d+", re.IGNORECASE)
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Categories of characters that no name may hold: they hide what it is."""


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names of a path below the folder; () is the folder itself.

    Raises ToolError for what could lead out of it, into the repository, or hides what it is.
    """
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if path.startswith("/") or len(path) > MAX_PATH or len(names) > MAX_DEPTH:
        raise ToolError(not_found("file", path))
    if not all(map(is_name, names)):
        raise ToolError(not_found("file", path))
    return names


def is_name(name: str) -> bool:
    """Return whether a file may be called so here.

    `.git`, however it is spelled, is no such name.
    """
    if not name or name in (".", "..") or "\\" in name or "/" in name:
        return False
    if any(unicodedata.category(c) in _INVISIBLE for c in name):
        return False
    if len(name.encode(errors="replace")) > MAX_NAME:
        return False
    folded = unified(name, "NFKC").partition(":")[0].rstrip(". ")
    return _GIT.fullmatch(folded) is None
