"""What stands in a folder: listed by folder, read in pieces with ids, searched line by line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from scopes.folders.folder import Entry, Folder, Found, parts_of
from scopes.tool import ToolError, not_found

SKIPPED = frozenset(
    {"node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".pytest_cache"}
)
"""Folders that are named and not looked into: what is in them was made by programs."""
MAX_LISTED = 400
"""Entries of one list; of more only the first level is listed, with counts."""
MAX_FILES = 20_000
SEARCH_S = 2.0
"""How long one search may take."""
MAX_HITS = 60
HIT = 300
"""Characters of a line that a search shows."""
PIECE_LINES, PIECE_CHARS = 20, 800
"""Of one item of a file."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some lines of a file."""

    at: str
    """Number of the first line; of a line that is cut into several pieces `12~2`."""
    text: str
    lines: int
    """Whole lines that end in it."""


@dataclass(frozen=True, slots=True)
class Hit:
    path: str
    line: int
    text: str
    digest: str
    """Of the file that it stands in."""


@dataclass
class Hits:
    """What a search found, and why it ended before all was looked at."""

    found: list[Hit] = field(default_factory=list)
    files: int = 0
    cut: str = ""


def text_of(found: Found, path: str) -> str:
    """The text of a file, its lines ended by line feeds. Raises ToolError where it is none."""
    try:
        text = found.data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ToolError(f"{path} is no text in UTF-8 and is not shown.")
    return text.replace("\r\n", "\n") if ends_in_crlf(text) else text


def ends_in_crlf(text: str) -> bool:
    """Whether all lines of a text end as on Windows."""
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def pieces(text: str, first: int) -> Iterator[Piece]:
    """The text from line `first` on, in pieces that are small enough to be cited."""
    held: list[str] = []
    start = first
    for number, line in enumerate(lines_of(text)[first - 1 :], first):
        if held and (len(held) >= PIECE_LINES or sum(map(len, held)) + len(line) > PIECE_CHARS):
            yield Piece(str(start), "\n".join(held), len(held))
            held, start = [], number
        if len(line) > PIECE_CHARS:
            yield from _parts(line, number)
            start = number + 1
        else:
            held.append(line)
    if held:
        yield Piece(str(start), "\n".join(held), len(held))


def lines_of(text: str) -> list[str]:
    """The lines of a text; one that ends with a line feed has no empty line behind it."""
    return text.removesuffix("\n").split("\n") if text else []


def _parts(line: str, number: int) -> Iterator[Piece]:
    starts = range(0, len(line), PIECE_CHARS)
    for part, start in enumerate(starts, 1):
        at = f"{number}~{part}" if part > 1 else str(number)
        yield Piece(at, line[start : start + PIECE_CHARS], int(part == len(starts)))


def walk(folder: Folder, path: str = "") -> Iterator[Entry]:
    """All that stands below a folder, each folder before what is in it; none that is skipped is
    entered. Raises ToolError where there is no such folder."""
    top = folder.listed(path)
    if top is None:
        raise ToolError(not_found("folder", path))
    waiting = top[::-1]
    seen = 0
    while waiting and seen < MAX_FILES:
        entry = waiting.pop()
        seen += 1
        yield entry
        if entry.kind == "folder" and not is_skipped(entry.path):
            waiting += (folder.listed(entry.path) or [])[::-1]


def is_skipped(path: str) -> bool:
    return path.rpartition("/")[2] in SKIPPED


def listing(folder: Folder, path: str) -> tuple[dict[str, list[str]], str]:
    """Path of each folder -> what is in it, in words; and what was left out."""
    path = "/".join(parts_of(path))
    entries = []
    for entry in walk(folder, path):
        entries.append(entry)
        if len(entries) > MAX_LISTED:
            top = folder.listed(path) or []
            more = f"; {len(top) - MAX_LISTED} more" if len(top) > MAX_LISTED else ""
            return {path: list(map(_word, top[:MAX_LISTED]))}, (
                f"There is more below: list a folder by its path{more}."
            )
    folders: dict[str, list[str]] = {path: []}
    for entry in entries:
        inside = entry.path.rpartition("/")[0]
        folders.setdefault(inside, []).append(_word(entry))
    return folders, ""


def _word(entry: Entry) -> str:
    name = entry.path.rpartition("/")[2]
    if entry.kind == "file":
        return f"{name} {_size(entry.size)}"
    if entry.kind == "folder":
        return f"{name}/ (not looked into)" if is_skipped(entry.path) else f"{name}/"
    return f"{name} ({entry.kind})"


def _size(size: int) -> str:
    return f"{size}" if size < 1_000 else f"{size / 1_000:.0f}k"


def searched(folder: Folder, words: str, glob: str) -> Hits:
    """Lines that hold these words, letter case aside, in files whose path or name fits `glob`.

    It ends after `SEARCH_S` seconds or `MAX_HITS` lines.
    """
    hits, wanted = Hits(), words.casefold()
    until = time.monotonic() + SEARCH_S
    for entry in walk(folder):
        if time.monotonic() > until:
            hits.cut = f"The search ended after {SEARCH_S:g} s: name fewer files with glob."
            break
        if entry.kind != "file" or not fits(entry.path, glob):
            continue
        if not _looked(folder, entry.path, lambda line: wanted in line.casefold(), hits):
            hits.cut = "There are more such lines: search for more of the line, or use glob."
            break
    return hits


def fits(path: str, glob: str) -> bool:
    """Whether a path fits a pattern, or its name does; `*` stands for slashes, too."""
    wanted, name = glob.removeprefix("**/"), path.rpartition("/")[2]
    return not glob or fnmatchcase(path, wanted) or fnmatchcase(name, wanted)


def _looked(folder: Folder, path: str, holds: Callable[[str], bool], hits: Hits) -> bool:
    """Look through one file; False when there is no room for what it holds."""
    try:
        found = folder.read(path)
        lines: Sequence[str] = lines_of(text_of(found, path)) if found else ()
    except ToolError:  # it is too large, or no text
        return True
    hits.files += 1
    digest = found.digest if found else ""
    for number, line in enumerate(lines, 1):
        if holds(line):
            if len(hits.found) >= MAX_HITS:
                return False
            hits.found.append(Hit(path, number, line[:HIT], digest))
    return True
