"""What the contexts of one run have read and written in folders: lines of a file that outlives the
process, so that a replay knows what was done and a commit whose changes are whose.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any


@dataclass(frozen=True, slots=True)
class Wrote:
    """One change of a file."""

    key: str
    """Of the call that made it."""
    context: str
    handle: str
    path: str
    before: str | None
    """Digest of what was there; None = nothing."""
    after: str
    size: int


@dataclass(frozen=True, slots=True)
class Landed:
    """Changes of a context that are its own no more: of a commit, else given up for what others
    wrote."""

    context: str
    handle: str
    commit: str
    paths: tuple[str, ...]


@dataclass
class FolderLog:
    """The log of one run; several processes may write it at once."""

    path: Path
    seen: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(context, handle, path) -> digest of what it was shown, or wrote, last."""
    first: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(context, handle, path) -> digest of what it was shown or wrote first."""
    done: dict[str, Wrote] = field(default_factory=dict)
    """Key of a call -> what it wrote."""
    landed: list[Landed] = field(default_factory=list)
    size: int = 0
    """Bytes that were written."""
    _own: dict[tuple[str, str], dict[str, str | None]] = field(default_factory=dict)
    _given_up: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _read: int = 0
    """Bytes of the file that were read."""
    _lock: Lock = field(default_factory=Lock)

    def own(self, context: str, handle: str) -> dict[str, str | None]:
        """Return path -> digest of what was there before, of all that a context changed in a folder
        and has not committed.
        """
        self._load()
        return dict(self._own.get((context, handle), {}))

    def given_up(self, context: str, handle: str) -> set[str]:
        """Return the paths whose changes a context gave up for those of others."""
        self._load()
        return set(self._given_up.get((context, handle), ()))

    def last_seen(self, context: str, handle: str, path: str) -> str | None:
        self._load()
        return self.seen.get((context, handle, path))

    def first_seen(self, context: str, handle: str, path: str) -> str | None:
        self._load()
        return self.first.get((context, handle, path))

    def written(self, key: str) -> Wrote | None:
        """Return what this call wrote in an earlier life."""
        self._load()
        return self.done.get(key)

    def commits(self, context: str, handle: str) -> list[str]:
        """Return the ids of the commits of a context in a folder, oldest first."""
        self._load()
        mine = [c.commit for c in self.landed if (c.context, c.handle) == (context, handle)]
        return [commit for commit in dict.fromkeys(mine) if commit]

    def total(self) -> int:
        self._load()
        return self.size

    def saw(self, context: str, handle: str, path: str, digest: str) -> None:
        if self.last_seen(context, handle, path) != digest:
            self._append({"seen": [context, handle, path, digest]})

    def wrote(self, made: Wrote) -> None:
        """A change that is about to be made; it is on disk when this returns."""
        told = [getattr(made, name) for name in Wrote.__slots__]
        self._append({"wrote": told}, sync=True)

    def land(self, made: Landed) -> None:
        self._append({"landed": [made.context, made.handle, made.commit, list(made.paths)]})

    def brought(self, context: str, handle: str, path: str) -> None:
        """A change that came into the folder without a commit."""
        self._append({"brought": [context, handle, path]})

    def _append(self, line: Mapping[str, Any], *, sync: bool = False) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        opened = os.open(self.path, flags, 0o600)
        try:
            told = b"\n" + json.dumps(line).encode() + b"\n"  # after half a line, too
            if os.write(opened, told) < len(told):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(opened)
        finally:
            os.close(opened)

    def _load(self) -> None:
        """Read what was added since; half a line, of a process that died, counts for nothing."""
        with self._lock:
            try:
                with self.path.open("rb") as file:
                    file.seek(self._read)
                    added = file.read()
            except FileNotFoundError:
                return
            whole = added[: added.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                try:
                    told = json.loads(line)
                except ValueError:
                    continue
                self._take(told)

    def _take(self, told: Mapping[str, Any]) -> None:
        if "seen" in told:
            context, handle, path, digest = told["seen"]
            self._note((context, handle, path), digest)
        elif "wrote" in told:
            made = Wrote(*told["wrote"])
            self._note((made.context, made.handle, made.path), made.after)
            of = (made.context, made.handle)
            self._own.setdefault(of, {}).setdefault(made.path, made.before)
            self._given_up.get(of, set()).discard(made.path)
            if self.done.get(made.key) != made:  # else a replay makes what a crash cut off
                self.size += made.size
            self.done[made.key] = made
        elif "brought" in told:
            context, handle, path = told["brought"]
            self._own.get((context, handle), {}).pop(path, None)
        else:
            context, handle, commit, paths = told["landed"]
            self.landed.append(Landed(context, handle, commit, tuple(paths)))
            if not commit:
                self._given_up.setdefault((context, handle), set()).update(paths)
            for path in paths:
                self._own.get((context, handle), {}).pop(path, None)

    def _note(self, of: tuple[str, str, str], digest: str) -> None:
        self.first.setdefault(of, digest)
        self.seen[of] = digest
