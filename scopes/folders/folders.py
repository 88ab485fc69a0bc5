"""The folders of one run, and which of them a context reads and writes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pygit2

from scopes.choice import only, open_to
from scopes.effects import RUN_FOLDER
from scopes.file_lock import lock_file
from scopes.folders.folder import FileFound, FileTree, Folder, Look, digest_of
from scopes.folders.git import Branches, BranchFolder, GitCommit, Repository
from scopes.folders.git_push import Remote
from scopes.folders.git_trees import Conflict, TreeChange
from scopes.folders.log import FolderLog, Landed, Wrote
from scopes.folders.paths import parts_of
from scopes.label import Label, Readers
from scopes.tool import ToolContext, ToolError, not_found

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A folder that the settings name, or the command line."""

    handle: str
    title: str
    folder: Folder
    readers: Readers
    repository: Repository | None
    """None = it is no git repository."""
    remote: Remote | None = None
    """None = nothing is pushed from it."""


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """Where one context works."""

    handle: str
    title: str
    folder: FileTree
    label: Label
    """Of all that is read there."""
    project: ProjectFolder | None
    branches: Branches | None = None
    """None = what is written stands in the folder itself."""

    @property
    def aside(self) -> str:
        """Return what its writer is told of a change that is not in the folder itself."""
        if self.branches is None:
            return ""
        return f" Not committed yet: until then it is on the branch {self.branches.draft}."

    @property
    def undone(self) -> dict[str, str]:
        """Return what is told of such a change, unless it is committed."""
        if self.branches is None:
            return {}
        draft = self.branches.draft
        told = f"changes of {self.title} were not committed: they are on its branch {draft}"
        return {f"commit in {self.handle}": told}


@dataclass(frozen=True)
class Folders:
    """What one run works with. Methods block, but `held`; they raise ToolError."""

    home: Path
    """Where the run keeps what it writes; made when it first writes."""
    projects: Mapping[str, ProjectFolder]
    max_bytes: int
    """Of one file."""
    max_total: int
    """Of all that the run writes."""
    log: FolderLog = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "log", FolderLog(self.home / "log.jsonl"))

    async def held(self, ctx: ToolContext, folder: str) -> str:
        """Return the handle of the folder that is meant: by name, else the only project, else the
        request's own. What is not named in the call is asked about here.
        """
        if folder:
            return folder
        found = await open_to(ctx, {RUN_FOLDER, *self.projects})
        return only("folder", [h for h in found if h != RUN_FOLDER] or found)

    def place(self, ctx: ToolContext, handle: str, *, writes: bool = False) -> FolderPlace:
        """Return where a context works: in the folder itself; in a git project on branches, once
        it writes, or others of its run have committed.
        """
        project = self.projects.get(handle)
        if project is None:
            return self._run_place(handle, writes)
        if not project.folder.exists:
            raise ToolError(
                f"The folder of {project.title} is not there any more. Say so in your result."
            )
        label = Label(True, project.readers, frozenset({handle}), outside=True)
        made = partial(FolderPlace, handle, project.title, label=label, project=project)
        if project.repository is None:
            return made(folder=project.folder)
        branches = Branches.of(self.home.name, ctx.context)
        base = self.log.base(ctx.context, handle)
        if base is None and (writes or self.log.has_commits(handle)):
            base = project.repository.begin(branches)
            if writes:
                self.log.begin(ctx.context, handle, base)
        if base is None:
            return made(folder=project.folder)
        found = BranchFolder(project.repository, branches, base, self.max_bytes)
        return made(folder=found, branches=branches)

    def _run_place(self, handle: str, writes: bool) -> FolderPlace:
        if handle != RUN_FOLDER:
            raise ToolError(not_found("folder", handle))
        root = self.home / "folder"
        if writes:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = Folder(root, self.max_bytes, self._lock("folder"))
        return FolderPlace(handle, "run", folder, self._run_label(), None)

    def read(self, ctx: ToolContext, place: FolderPlace, path: str) -> FileFound:
        """Return a file, noted as read by this context."""
        names = parts_of(path)
        found = place.folder.read(path) if place.folder.exists else None
        if found is None:
            if place.folder.exists and place.folder.listed(path, Look(room=0)) is not None:
                raise ToolError(f"{path} is a folder: list_files shows what is in it.")
            raise ToolError(not_found("file", path))
        self.log.saw(ctx.context, place.handle, "/".join(names), found.digest)
        return found

    def version(self, ctx: ToolContext, place: FolderPlace, path: str, digest: str) -> str:
        """Return what tells this version of a file from the one that a context was shown first."""
        first = self.log.first_seen(ctx.context, place.handle, path)
        return "" if first in (None, digest) else f"@{digest[:6]}"

    def write(self, ctx: ToolContext, place: FolderPlace, path: str, data: bytes) -> None:
        """Replace a file, or make it; once for each call.

        Raises ToolError where this context has not seen what it would replace.
        """
        path = "/".join(parts_of(path))
        self._may_write(ctx, place, len(data))
        with place.folder.changing(path, data) as (found, put):
            here, after = found.digest if found else None, digest_of(data)
            done = self.log.written(ctx.key)
            if here == after and (done or found):
                self.log.saw(ctx.context, place.handle, path, after)
                return
            begun = done is not None and here == done.before  # the process died before it was put
            known = begun or here == self.log.last_seen(ctx.context, place.handle, path)
            if found and not known:
                raise ToolError(f"{path} is there, and not as you read it. Read it first.")
            self._join(ctx, place)
            names = (ctx.key, ctx.context, place.handle, path, here, after, len(data))
            self.log.wrote(Wrote(*names))
            try:
                put()
            except (OSError, pygit2.GitError):
                with suppress(OSError):
                    self.log.saw(ctx.context, place.handle, path, here or "")
                raise

    def _may_write(self, ctx: ToolContext, place: FolderPlace, size: int) -> None:
        if self.log.total() + size > self.max_total:
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
        repository = place.project.repository
        self._may_write(ctx, place, 0)
        if repository is None:
            raise ToolError(f"{place.title} is no git repository. Your files are written as is.")
        branches = Branches.of(self.home.name, ctx.context)
        try:
            made = repository.commit(branches, message, TreeChange(ctx.key, ctx.requester))
        except Conflict as error:
            raise ToolError(
                f"{error} Your own changes stay on the branch {branches.draft}: say in your result "
                f"that the owner of {place.title} has to merge it."
            ) from error
        self.log.land(Landed(ctx.context, place.handle, made.commit))
        return made

    def label(self, place: FolderPlace) -> Label:
        """Of all that stands there now; asked after reading, it holds of what was read."""
        return place.label if place.project else self._run_label()

    def _run_label(self) -> Label:
        """Of the request's own folder: of all that was written there."""
        own = Label(True, sources=frozenset({RUN_FOLDER}))
        try:
            return own.join(Label.of(json.loads(self._label_file.read_bytes())))
        except FileNotFoundError:
            return own

    @property
    def _label_file(self) -> Path:
        return self.home / "label.json"

    def _join(self, ctx: ToolContext, place: FolderPlace) -> None:
        """Let what is written in the request's own folder be for no more people than what its
        writer read."""
        if place.project is not None:
            return
        with lock_file(self._lock("label")):
            label = self._run_label().join(ctx.label)
            beside = self._label_file.with_suffix(f".{os.getpid()}.tmp")
            beside.write_text(json.dumps(label.to_json()))
            beside.replace(self._label_file)

    def _lock(self, name: str) -> Path:
        return self.home / "locks" / name
