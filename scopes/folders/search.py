"""Files of a folder: listed by folder, read in pieces with ids, searched line by line."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import dropwhile, islice

from scopes.clean import normalize_unicode
from scopes.folders.folder import (
    MAX_ENTRIES,
    FileFound,
    FileTree,
    FolderEntry,
    Look,
    UnreadableFile,
    parts_of,
)
from scopes.tool import ToolError, not_found, size_of

SKIPPED_FOLDERS = frozenset(
    {"node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".pytest_cache"}
)
"""Folders that are listed but not entered: programs made their content."""
MAX_LISTED = 400
"""Maximum entries of one list; with more, only the first level is listed, with counts."""
SEARCH_S = 2.0
"""Maximum seconds of one search or one list."""
CUT_SEARCH_MESSAGE = (
    f"The rest was not looked at: a look ends after {MAX_ENTRIES} entries or {SEARCH_S:g} s."
)
MAX_HITS = 60
MAX_CLOSED = 5
"""Maximum unreadable paths that are named."""
MAX_HIT_CHARS = 300
"""Characters of a line that a search shows."""
PIECE_LINES, PIECE_CHARS = 20, 800
"""Maximum lines and characters of one item of a file."""
_LINE_POSITION = re.compile(r"[1-9]\d{0,8}(~[1-9]\d{0,8})?", re.ASCII)
"""The position of a piece: see `FilePiece.at`."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Some lines of a file."""

    at: str
    """Number of the first line; `12~2` for the second piece of a long line."""
    text: str


@dataclass(frozen=True, slots=True)
class FileHit:
    path: str
    line: int
    text: str
    digest: str
    """Digest of its file."""


@dataclass
class Hits:
    """The hits of a search, and why it ended early."""

    found: list[FileHit] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    """Paths of the files that were searched."""
    unsearched: int = 0
    """Files that are no text in UTF-8, or too large."""
    closed: list[str] = field(default_factory=list)
    """Paths that may not be read here."""
    cut: str = ""


def text_of(found: FileFound, path: str) -> str:
    """Return the text of a file, with line feeds. Raises ToolError if it is no text."""
    try:
        text = found.data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ToolError(f"{path} is no text in UTF-8 and is not shown.")
    return text.replace("\r\n", "\n") if ends_in_crlf(text) else text


def ends_in_crlf(text: str) -> bool:
    """Return whether all lines of a text have Windows line ends."""
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def replace_text(found: FileFound, path: str, old: str, new: str) -> bytes:
    """Return a file after replacing a text that occurs once. Raises ToolError if it does not."""
    text = text_of(found, path)
    if "\r\n" not in text:  # otherwise its line ends are mixed, and the old text has to be exact
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    times = text.count(old) if old else 0
    if times != 1:
        how = f"{times} times: add lines around it" if times else "nowhere: read the file again"
        raise ToolError(f"The old text stands in {path} {how}.")
    text = text.replace(old, new)
    return (text.replace("\n", "\r\n") if ends_in_crlf(found.data.decode()) else text).encode()


def pieces(text: str, first: int) -> Iterator[FilePiece]:
    """Yield the text from line `first` on, in pieces that are small enough to be cited."""
    held: list[str] = []
    start = first
    for number, line in enumerate(lines_of(text)[first - 1 :], first):
        if held and (len(held) >= PIECE_LINES or sum(map(len, held)) + len(line) > PIECE_CHARS):
            yield FilePiece(str(start), "\n".join(held))
            held, start = [], number
        if len(line) > PIECE_CHARS:
            yield from _parts(line, number)
            start = number + 1
        else:
            held.append(line)
    if held:
        yield FilePiece(str(start), "\n".join(held))


def read_from(found: FileFound, path: str, line: str) -> tuple[list[FilePiece], int]:
    """Return the pieces of a file from a line on (`12`), or from a piece of one (`12~3`), and how
    many lines it has. Raises ToolError if there is no such place, or if it is no text.
    """
    text = text_of(found, path)
    count = len(lines_of(text))
    if not text and line == "1":
        return [], count
    first = int(line.partition("~")[0]) if _LINE_POSITION.fullmatch(line) else count + 1
    read = list(dropwhile(lambda p: p.at != line, pieces(text, first)))
    if not read:
        raise ToolError(f"{path} has {count} lines: line=2, or line=2~3 within a long one.")
    return read, count


def lines_of(text: str) -> list[str]:
    """Return the lines of a text; a line feed at the end adds no empty line."""
    return text.removesuffix("\n").split("\n") if text else []


def _parts(line: str, number: int) -> Iterator[FilePiece]:
    for part, start in enumerate(range(0, len(line), PIECE_CHARS), 1):
        at = f"{number}~{part}" if part > 1 else str(number)
        yield FilePiece(at, line[start : start + PIECE_CHARS])


def walk(folder: FileTree, look: Look, path: str = "") -> Iterator[FolderEntry]:
    """Yield everything below a folder, within the limits of the look, each folder before its
    content; skipped folders are not entered. Raises ToolError if there is no such folder.
    """
    top = folder.list_folder(path, look)
    if top is None:
        raise ToolError(not_found("folder", path))
    waiting = top[::-1]
    while waiting:
        entry = waiting.pop()
        yield entry
        if entry.kind == "folder" and not is_skipped(entry.path) and not look.cut:
            inner = folder.list_folder(entry.path, look)
            if inner is None:
                look.closed.append(f"{entry.path}/")
            waiting += (inner or [])[::-1]


def is_skipped(path: str) -> bool:
    return path.rpartition("/")[2] in SKIPPED_FOLDERS


def listing(folder: FileTree, path: str) -> tuple[dict[str, list[str]], str, list[str]]:
    """Return the path of each folder -> its content, in words; a sentence on what was left out; and
    the paths of all files, and of folders that may be entered but were not.

    It reads at most `MAX_ENTRIES` entries in `SEARCH_S` seconds.
    """
    path = "/".join(parts_of(path))
    look = Look(until=time.monotonic() + SEARCH_S)
    entries = list(islice(walk(folder, look, path), MAX_LISTED + 1))
    if len(entries) > MAX_LISTED:
        top = folder.list_folder(path) or []
        more = f"; {len(top) - MAX_LISTED} more" if len(top) > MAX_LISTED else ""
        return (
            {path: list(map(_word, top[:MAX_LISTED]))},
            f"There is more below: list a folder by its path{more}.{_unseen(look)}",
            _readable(top, "folder"),
        )
    folders: dict[str, list[str]] = {path: []}
    for entry in entries:
        inside = entry.path.rpartition("/")[0]
        folders.setdefault(inside, []).append(_word(entry))
    return folders, _unseen(look).strip(), _readable(entries)


def _readable(entries: Iterable[FolderEntry], *more: str) -> list[str]:
    """Return the paths of files among entries, and of entries of the kinds `more` with a slash."""
    kept = [e for e in entries if e.kind in ("file", *more) and not is_skipped(e.path)]
    return [f"{e.path}/" if e.kind == "folder" else e.path for e in kept]


def _unseen(look: Look) -> str:
    """Return sentences on what a list does not show."""
    closed = f" {may_not(look.closed)}." if look.closed else ""
    return f" {CUT_SEARCH_MESSAGE}" * look.cut + closed


def may_not(closed: Sequence[str]) -> str:
    """Return a sentence, without its end, on paths that may not be read here."""
    more = f" and {len(closed) - MAX_CLOSED} more" if len(closed) > MAX_CLOSED else ""
    return f"These may not be read: {', '.join(closed[:MAX_CLOSED])}{more}"


def _word(entry: FolderEntry) -> str:
    name = entry.path.rpartition("/")[2]
    if entry.kind == "file":
        return f"{name} {size_of(entry.size)}"
    if entry.kind == "folder":
        return f"{name}/ (not looked into)" if is_skipped(entry.path) else f"{name}/"
    return f"{name} ({entry.kind})"


def search_folder(folder: FileTree, words: str, glob: str) -> Hits:
    """Return the lines that hold these words in any case, in files whose path or name fits `glob`.

    It ends after `SEARCH_S` seconds, `MAX_ENTRIES` entries or `MAX_HITS` lines.
    """
    hits, wanted = Hits(), normalize_unicode(words).casefold()
    look = Look(until=time.monotonic() + SEARCH_S, closed=hits.closed)
    for entry in walk(folder, look, _above(glob)):
        if time.monotonic() > look.until:
            hits.cut = f"The search ended after {SEARCH_S:g} s: name fewer files with glob."
            break
        if entry.kind != "file" or not fits(entry.path, glob):
            continue
        if not _search_file(folder, entry.path, wanted, hits):
            hits.cut = "There are more such lines: search for more of the line, or use glob."
            break
    if look.cut and not hits.cut:
        hits.cut = f"{CUT_SEARCH_MESSAGE} Name a folder in glob, such as src/*.py."
    return hits


def _above(glob: str) -> str:
    """Return the folder that contains everything that fits a pattern."""
    return re.split(r"[*?[]", glob)[0].rpartition("/")[0]


def fits(path: str, glob: str) -> bool:
    """Return whether a path or its name fits a pattern; `*` also matches slashes."""
    path, wanted = normalize_unicode(path), normalize_unicode(glob).removeprefix("**/")
    name = path.rpartition("/")[2]
    return not glob or fnmatchcase(path, wanted) or fnmatchcase(name, wanted)


def _search_file(folder: FileTree, path: str, wanted: str, hits: Hits) -> bool:
    """Search one file; return False when there is no room for its hits."""
    try:
        found = folder.read(path)
        lines: Sequence[str] = lines_of(text_of(found, path)) if found else ()
    except UnreadableFile:
        hits.closed.append(path)
        return True
    except ToolError:  # it is too large, or no text
        hits.unsearched += 1
        return True
    hits.searched.append(path)
    digest = found.digest if found else ""
    for number, line in enumerate(lines, 1):
        if wanted in normalize_unicode(line).casefold():
            if len(hits.found) >= MAX_HITS:
                return False
            hits.found.append(FileHit(path, number, line[:MAX_HIT_CHARS], digest))
    return True
