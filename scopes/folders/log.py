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
    """A commit of a context."""

    context: str
    handle: str
    commit: str


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
    began: dict[tuple[str, str], str] = field(default_factory=dict)
    """(context, handle) -> commit that its own changes are made on; empty = there was none."""
    _read: int = 0
    """Bytes of the file that were read."""
    _lock: Lock = field(default_factory=Lock)

    def base(self, context: str, handle: str) -> str | None:
        """Return the commit that a context's own changes are made on; None = it makes none."""
        self._load()
        return self.began.get((context, handle))

    def has_commits(self, handle: str) -> bool:
        """Return whether any context has committed in a folder."""
        self._load()
        return any(each.handle == handle for each in self.landed)

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
        return list(dict.fromkeys(mine))

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

    def begin(self, context: str, handle: str, base: str) -> None:
        self._append({"began": [context, handle, base]})

    def land(self, made: Landed) -> None:
        """A commit, on which the context's further changes are made."""
        self._append({"landed": [made.context, made.handle, made.commit]})

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
            if self.done.get(made.key) != made:  # else a replay makes what a crash cut off
                self.size += made.size
            self.done[made.key] = made
        elif "began" in told:
            context, handle, base = told["began"]
            self.began[context, handle] = base
        else:
            made_commit = Landed(*told["landed"])
            self.landed.append(made_commit)
            self.began[made_commit.context, made_commit.handle] = made_commit.commit

    def _note(self, of: tuple[str, str, str], digest: str) -> None:
        self.first.setdefault(of, digest)
        self.seen[of] = digest
