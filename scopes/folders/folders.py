"""The folders of one run, and which of them a context reads and writes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any

import pygit2

from scopes.effects import RUN_FOLDER
from scopes.folders.folder import FileFound, FileTree, Folder, Look, digest_of, parts_of
from scopes.folders.git import (
    Branches,
    BranchFolder,
    Conflict,
    GitCommit,
    Repository,
)
from scopes.folders.git_push import Remote
from scopes.label import TRUSTED_LABEL, Label, Readers
from scopes.tool import ToolContext, ToolError, not_found, only, open_to

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A folder from the settings or the command line."""

    handle: str
    title: str
    folder: Folder
    readers: Readers
    repository: Repository | None
    """None = no git repository."""
    remote: Remote | None = None
    """None = nothing is pushed from it."""


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """The folder that one context works in."""

    handle: str
    title: str
    folder: FileTree
    label: Label
    """Label of everything read there."""
    project: ProjectFolder | None
    branches: Branches | None = None
    """None = changes are in the folder itself."""

    @property
    def aside(self) -> str:
        """Return the note for the writer of a change that is not in the folder itself."""
        if self.branches is None:
            return ""
        return f" Not committed yet: until then it is on the branch {self.branches.draft}."

    @property
    def undone(self) -> dict[str, str]:
        """Return the note on such a change, unless it is committed."""
        if self.branches is None:
            return {}
        draft = self.branches.draft
        note = f"changes of {self.title} were not committed: they are on its branch {draft}"
        return {f"commit in {self.handle}": note}


@dataclass(frozen=True)
class Folders:
    """The folders of one run. Methods except `find_handle` block; they raise ToolError."""

    home: Path
    """Folder for the files of the run; created with the first one."""
    projects: Mapping[str, ProjectFolder]
    max_bytes: int
    """Maximum bytes of one file."""
    max_total: int
    """Maximum bytes of all files of the run."""

    @cached_property
    def log(self) -> FolderLog:
        return FolderLog(self.home / "log.jsonl")

    async def find_handle(self, ctx: ToolContext, folder: str) -> str:
        """Return the handle of the folder: by name, else the only project, else the request's own.
        For a folder that the call does not name, this checks the right to read it.
        """
        if folder:
            return folder
        found = await open_to(ctx, {RUN_FOLDER, *self.projects})
        return only("folder", [h for h in found if h != RUN_FOLDER] or found)

    def place(self, ctx: ToolContext, handle: str, *, writes: bool = False) -> FolderPlace:
        """Return the place of a context: branches of a git project, once its run writes there."""
        project = self.projects.get(handle)
        if project is None:
            return self._run_place(handle, writes)
        if not project.folder.exists:
            raise ToolError(
                f"The folder of {project.title} is not there any more. Say so in your result."
            )
        label = Label(True, project.readers, frozenset({handle}), outside=True)
        make_place = partial(FolderPlace, handle, project.title, label=label, project=project)
        if project.repository is None:
            return make_place(folder=project.folder)
        branches = Branches.of(self.home.name, ctx.context)
        found = BranchFolder(project.repository, branches, self.max_bytes)
        if not self.log.is_branched(ctx.context, handle):
            if not writes:
                return make_place(folder=project.folder)
            _ = found.base  # raises now if there can be none
            self.log.branch(ctx.context, handle)
        return make_place(folder=found, branches=branches)

    def _run_place(self, handle: str, writes: bool) -> FolderPlace:
        if handle != RUN_FOLDER:
            raise ToolError(not_found("folder", handle))
        root = self.home / "folder"
        if writes:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = Folder(root, self.max_bytes, self.home / "locks/folder")
        return FolderPlace(handle, "run", folder, self._run_label(), None)

    def read(self, ctx: ToolContext, place: FolderPlace, path: str) -> FileFound:
        """Return a file, and record that this context has read it."""
        names = parts_of(path)
        found = place.folder.read(path) if place.folder.exists else None
        if found is None:
            if place.folder.exists and place.folder.list_folder(path, Look(room=0)) is not None:
                raise ToolError(f"{path} is a folder: list_files shows what is in it.")
            raise ToolError(not_found("file", path))
        self.log.saw(ctx.context, place.handle, "/".join(names), found.digest)
        return found

    def version(self, ctx: ToolContext, place: FolderPlace, path: str, digest: str) -> str:
        """Return a suffix for a version of a file that differs from the first one a context saw."""
        first = self.log.load().first.get((ctx.context, place.handle, path))
        return "" if first in (None, digest) else f"@{digest[:6]}"

    def write(self, ctx: ToolContext, place: FolderPlace, path: str, data: bytes) -> None:
        """Replace a file that this context has seen, or create it; once for each call."""
        path = "/".join(parts_of(path))
        self._may_write(ctx, place, len(data))
        with place.folder.change_file(path, data) as (found, put):
            here, after = found.digest if found else None, digest_of(data)
            log = self.log.load()
            done = log.done.get(ctx.key)
            if here == after and (done or found):
                self.log.saw(ctx.context, place.handle, path, after)
                return
            # The process died before the file was written.
            was_cut_off = done is not None and here == done.before
            is_known = was_cut_off or here == log.seen.get((ctx.context, place.handle, path))
            if found and not is_known:
                raise ToolError(f"{path} is there, and not as you read it. Read it first.")
            if place.project is None:
                self.log.join(ctx.label)
            names = (ctx.key, ctx.context, place.handle, path, here, after, len(data))
            self.log.wrote(Wrote(*names))
            try:
                put()
            except (OSError, pygit2.GitError):
                with suppress(OSError):
                    self.log.saw(ctx.context, place.handle, path, here or "")
                raise

    def _may_write(self, ctx: ToolContext, place: FolderPlace, size: int) -> None:
        if self.log.load().size + size > self.max_total:
            raise ToolError(f"This request has written {self.max_total // MB} MB, which is all.")
        if place.project is None or ctx.requester is None or ctx.label.within(place.label):
            return
        raise ToolError(
            f"What you read is for fewer people than those who read {place.title}, so nothing is "
            f"written there. Use {RUN_FOLDER} if you hold it, else your result."
        )

    def commit(self, ctx: ToolContext, place: FolderPlace, message: str) -> GitCommit:
        """Commit what this context changed in a project; once for each call."""
        assert place.project
        assert place.project.repository
        self._may_write(ctx, place, 0)
        branches = Branches.of(self.home.name, ctx.context)
        try:
            commit = place.project.repository.commit(branches, message, ctx.key, ctx.requester)
        except Conflict as error:
            raise ToolError(
                f"{error} Your own changes stay on the branch {branches.draft}: say in your result "
                f"that the owner of {place.title} has to merge it."
            ) from error
        self.log.branch("", place.handle)
        return commit

    def label(self, place: FolderPlace) -> Label:
        """Return the label of all content there now: call it after reading."""
        return place.label if place.project else self._run_label()

    def _run_label(self) -> Label:
        """Return the label of the request's own folder: of everything written there."""
        return Label(True, sources=frozenset({RUN_FOLDER})).join(self.log.load().label)


@dataclass(frozen=True, slots=True)
class Wrote:
    """One change of a file."""

    key: str
    """Key of the call that made it."""
    context: str
    handle: str
    path: str
    before: str | None
    """Digest of the file before; None = there was none."""
    after: str
    size: int


@dataclass
class FolderLog:
    """The log of one run; several processes may write it at once."""

    path: Path
    seen: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(context, handle, path) -> digest of the version that it saw or wrote last."""
    first: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(context, handle, path) -> digest of the version that it saw or wrote first."""
    done: dict[str, Wrote] = field(default_factory=dict)
    """Key of a call -> its change, including those before a restart."""
    size: int = 0
    """Bytes written."""
    label: Label = TRUSTED_LABEL
    """Label of everything written in the request's own folder."""
    branched: set[tuple[str, str]] = field(default_factory=set)
    """(context, handle) of contexts that write there, and ("", handle) of folders with commits."""
    _read: int = 0
    """Bytes of the log file read so far."""
    _lock: Lock = field(default_factory=Lock)

    def is_branched(self, context: str, handle: str) -> bool:
        """Return whether a context writes in a folder, or any has committed there."""
        return not self.load().branched.isdisjoint({(context, handle), ("", handle)})

    def saw(self, context: str, handle: str, path: str, digest: str) -> None:
        if self.load().seen.get((context, handle, path)) != digest:
            self._append({"seen": [context, handle, path, digest]})

    def wrote(self, change: Wrote) -> None:
        """Record a change that is about to be made; it is on disk when this returns."""
        values = [getattr(change, name) for name in Wrote.__slots__]
        self._append({"wrote": values}, sync=True)

    def join(self, label: Label) -> None:
        """Restrict the request's own folder to the readers of what a writer has read."""
        if self.load().label.join(label) != self.label:
            self._append({"label": label.to_json()})

    def branch(self, context: str, handle: str) -> None:
        self._append({"branch": [context, handle]})

    def _append(self, line: Mapping[str, Any], *, sync: bool = False) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        opened = os.open(self.path, flags, 0o600)
        try:
            data = b"\n" + json.dumps(line).encode() + b"\n"  # also valid after half a line
            if os.write(opened, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(opened)
        finally:
            os.close(opened)

    def load(self) -> FolderLog:
        """Read the new lines; ignore half a line of a process that died."""
        with self._lock:
            try:
                with self.path.open("rb") as file:
                    file.seek(self._read)
                    added = file.read()
            except FileNotFoundError:
                return self
            whole = added[: added.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                self._take(entry)
        return self

    def _take(self, entry: Mapping[str, Any]) -> None:
        match entry:
            case {"seen": [context, handle, path, digest]}:
                self._note((context, handle, path), digest)
            case {"wrote": fields}:
                change = Wrote(*fields)
                self._note((change.context, change.handle, change.path), change.after)
                if self.done.get(change.key) != change:  # else a replay completes it after a crash
                    self.size += change.size
                self.done[change.key] = change
            case {"label": stored}:
                self.label = self.label.join(Label.of(stored))
            case {"branch": [context, handle]}:
                self.branched.add((context, handle))
            case _:
                raise ValueError(f"{self.path} has a line that this version does not know")

    def _note(self, of: tuple[str, str, str], digest: str) -> None:
        self.first.setdefault(of, digest)
        self.seen[of] = digest
