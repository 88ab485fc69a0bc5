"""One folder that tools read and write, and nothing outside it: each part of a path is opened
below the previous one, and no part may be a link.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import math
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final, ParamSpec, Protocol, TypeVar

from scopes.clean import normalize_unicode
from scopes.tool import ToolError, not_found

T = TypeVar("T")
P = ParamSpec("P")
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_ENTRIES: Final = 20_000
"""Maximum entries that one look at a folder, or at everything below it, reads."""
MAX_PATH, MAX_NAME, MAX_DEPTH = 240, 200, 40
"""Characters of a path, bytes of a name, names of a path: ids contain a path and are short."""
_GIT = re.compile(r"\.git|git~\d+", re.IGNORECASE)
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Categories of characters that no name may hold: they disguise it."""
KB = 1024
FileWriter = Callable[[], None]


@dataclass(frozen=True, slots=True)
class FileFound:
    """The state of a file at one moment."""

    data: bytes
    mode: int
    """Permission bits."""

    @property
    def digest(self) -> str:
        return digest_of(self.data)


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file, folder or link in a folder, by its path."""

    path: str
    kind: str
    """`file`, `folder`, `link` or `special`."""
    size: int
    """Bytes of a file; else 0."""


@dataclass
class Look:
    """The limits of a look at folders: entries after that are left out."""

    room: int = MAX_ENTRIES
    """Remaining entries."""
    until: float = math.inf
    """End, by `time.monotonic`."""
    cut: bool = False
    """True if something was left out."""
    closed: list[str] = field(default_factory=list)
    """Paths that this process may not open."""

    def takes(self, _: object) -> bool:
        """Count one more entry; return whether it is within the limits."""
        self.cut = self.cut or self.room <= 0 or time.monotonic() > self.until
        self.room -= 1
        return not self.cut


def digest_of(data: bytes) -> str:
    """Return git's hash of these bytes, which is the same for the same bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names of a path below the folder; () is the folder itself.

    Raises ToolError for a path that could lead out of it or into the repository, or is disguised.
    """
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if path.startswith("/") or len(path) > MAX_PATH or len(names) > MAX_DEPTH:
        raise ToolError(not_found("file", path))
    if not all(map(is_name, names)):
        raise ToolError(not_found("file", path))
    return names


def is_name(name: str) -> bool:
    """Return whether a file may have this name: not `.git` in any spelling."""
    if not name or name in (".", "..") or "\\" in name or "/" in name:
        return False
    if any(unicodedata.category(c) in _INVISIBLE for c in name):
        return False
    if len(name.encode(errors="replace")) > MAX_NAME:
        return False
    folded = normalize_unicode(name, "NFKC").partition(":")[0].rstrip(". ")
    return _GIT.fullmatch(folded) is None


def file_parts(path: str, data: bytes, max_bytes: int) -> tuple[str, ...]:
    """Return the names of the path for a file with these bytes. Raises ToolError."""
    names = parts_of(path)
    if not names or path.endswith("/"):
        raise ToolError(not_found("file", path))
    if len(data) > max_bytes:
        raise ToolError(f"A file may have {max_bytes // KB} kB here. Write less.")
    return names


class FileTree(Protocol):
    """Files by their paths, on disk or on a branch; see `Folder`."""

    @property
    def max_bytes(self) -> int: ...

    @property
    def exists(self) -> bool: ...

    def read(self, path: str) -> FileFound | None: ...

    def list_folder(self, path: str = "", look: Look | None = None) -> list[FolderEntry] | None: ...

    def change_file(
        self, path: str, data: bytes
    ) -> AbstractContextManager[tuple[FileFound | None, FileWriter]]: ...


@dataclass(frozen=True)
class Folder:
    """The folder `root`, which exists; all methods block, and raise ToolError for what a model can
    fix."""

    root: Path
    max_bytes: int
    """Maximum bytes of one file to read or write."""
    lock: Path
    """File that is locked while a file is replaced; all writers share it."""

    @property
    def exists(self) -> bool:
        return self.root.is_dir()

    def read(self, path: str) -> FileFound | None:
        """Return the file at this path; None if there is nothing."""
        names = parts_of(path)
        with self._at(names[:-1]) as parent:
            if parent is None:
                return None
            return self._find(parent, names[-1], path) if names else None

    @contextmanager
    def change_file(self, path: str, data: bytes) -> Iterator[tuple[FileFound | None, FileWriter]]:
        """Yield the file and a function that replaces it; no writer of ours comes in between."""
        names = file_parts(path, data, self.max_bytes)
        with lock_file(self.lock), self._at(names[:-1], make=True) as parent:
            assert parent is not None
            found = self._find(parent, names[-1], path)
            mode = found.mode if found else None
            yield found, lambda: _put(parent, names[-1], data, mode, self._beside)

    @property
    def _beside(self) -> str:
        """Return the temporary name of a file, in its folder, until it is whole: one per lock."""
        return f".assistant-{hashlib.sha256(str(self.lock).encode()).hexdigest()[:12]}.tmp"

    def list_folder(self, path: str = "", look: Look | None = None) -> list[FolderEntry] | None:
        """Return the entries of one folder, by name; None if it is no folder.

        `.git` is left out, and so are entries that no path may name.
        """
        names = parts_of(path)
        takes = (look or Look()).takes
        with self._at(names) as here:
            if here is None:
                return None
            with os.scandir(here) as listing:
                found = [_entry(here, names, each.name) for each in takewhile(takes, listing)]
            return sorted(filter(None, found), key=lambda e: e.path)

    @contextmanager
    def _at(self, names: tuple[str, ...], *, make: bool = False) -> Iterator[int | None]:
        """Open the folder with this path for a while; None if there is none."""
        here = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                inner = _step(here, name, make)
                os.close(here)
                here = -1
                if inner is None:
                    break
                here = inner
            yield None if here < 0 else here
        finally:
            if here >= 0:
                os.close(here)

    def _find(self, parent: int, name: str, path: str) -> FileFound | None:
        try:
            opened = os.open(name, READ_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            return None
        except OSError as error:  # a link, a socket, or unreadable for us
            raise _why(parent, name, path) from error
        try:
            seen = os.fstat(opened)
            if not stat.S_ISREG(seen.st_mode):
                raise _why(parent, name, path)
            with os.fdopen(opened, "rb", closefd=False) as file:
                data = file.read(self.max_bytes + 1)
        except OSError as error:
            raise UnreadableFile(f"{path} cannot be read.") from error
        finally:
            os.close(opened)
        if len(data) > self.max_bytes:
            raise ToolError(f"{path} is larger than {self.max_bytes // KB} kB and is not opened.")
        return FileFound(data, seen.st_mode & 0o777)


class UnreadableFile(ToolError):
    """A file that this process may not read, or that the disk does not return."""


def _step(here: int, name: str, make: bool) -> int | None:
    """Return the folder with this name in the open one, created if `make`."""
    for _ in range(2):
        try:
            return os.open(name, DIRECTORY, dir_fd=here)
        except FileNotFoundError:
            if not make:
                return None
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
        except OSError as error:
            if not make:
                return None
            raise ToolError(f"{name} is no folder. Choose another path.") from error
    raise ToolError(f"{name} is no folder. Choose another path.")


def _put(parent: int, name: str, data: bytes, mode: int | None, beside: str) -> None:
    """Write to the name `beside`, then rename: a reader sees the old file or the new one.

    Only the holder of the lock uses that name, so the next one overwrites what a kill left there.
    """
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=parent)
    opened = os.open(beside, CREATE_FLAGS, 0o666, dir_fd=parent)
    try:
        try:
            with os.fdopen(opened, "wb", closefd=False) as file:
                file.write(data)
            if mode is not None:
                os.fchmod(opened, mode)
            os.fsync(opened)
        finally:
            os.close(opened)
        os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=parent)
        raise
    os.fsync(parent)


def is_entry(names: Sequence[str], name: str) -> bool:
    """Return whether a path may lead to this name in a folder, see `parts_of`."""
    path = "/".join((*names, name))
    return is_name(name) and len(path) <= MAX_PATH and len(names) < MAX_DEPTH


def _entry(here: int, names: tuple[str, ...], name: str) -> FolderEntry | None:
    if not is_entry(names, name):
        return None
    path = "/".join((*names, name))
    try:
        seen = os.stat(name, dir_fd=here, follow_symlinks=False)
    except OSError:
        return None  # it was deleted meanwhile
    mode = seen.st_mode
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    kind = next((word for test, word in kinds if test(mode)), "special")
    return FolderEntry(path, kind, seen.st_size if kind == "file" else 0)


def _why(parent: int, name: str, path: str) -> ToolError:
    """Return why an existing entry is not opened."""
    entry = _entry(parent, (), name)
    return not_a_file(path, entry.kind if entry else "")


def not_a_file(path: str, kind: str) -> ToolError:
    """Return why something of this kind (see `FolderEntry.kind`) is not opened."""
    if kind == "link":
        return ToolError(f"{path} is a link, and links are not followed.")
    if kind == "folder":
        return ToolError(f"{path} is a folder: list_files shows what is in it.")
    if kind == "file":
        return UnreadableFile(f"{path} may not be read here.")
    return ToolError(f"{path} is no file that can be opened here.")


PATIENCE_S = 20.0
"""Seconds to wait for a lock."""
LOOK_EVERY_S = 0.01


class Busy(ToolError):
    """A lock that others held all the time."""


THREADS: Final = ThreadPoolExecutor(8, "folders")
"""Separate threads: waiting for a lock in one must not delay anything else in the bot."""


async def run_in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run work that blocks and may wait for a lock; return its result."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(THREADS, partial(work, *args, **named))


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock of this file, which is created if missing. It blocks: not for the event loop.

    Raises Busy if others hold it all the time.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    until = time.monotonic() + PATIENCE_S
    try:
        while not _try_lock(opened):
            if time.monotonic() > until:
                raise Busy("Others are writing in this folder. Try again.")
            time.sleep(LOOK_EVERY_S)
        yield
    finally:
        os.close(opened)


def _try_lock(opened: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
