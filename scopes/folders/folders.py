"""The folders of one run, and which of them a context reads and writes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scopes.choice import only, open_to
from scopes.effects import RUN_FOLDER
from scopes.file_lock import lock_file
from scopes.folders.copies import Copies
from scopes.folders.folder import Changed, FileFound, Folder, Look, digest_of
from scopes.folders.git import GitCommit, Repository
from scopes.folders.git_push import Remote
from scopes.folders.git_trees import (
    Change,
    Conflict,
    TreeChange,
    entry_of,
    is_plain,
    size_of,
    tree_of,
)
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


def in_copy(handle: str) -> str:
    """Return what stands for changes in a copy of this folder among what is undone."""
    return f"commit in {handle}"


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """Where one context works."""

    handle: str
    title: str
    folder: Folder
    label: Label
    """Of all that is read there."""
    project: ProjectFolder | None
    copy: str = ""
    """Where the copy of its own lies, which its commits are taken from; empty where it has none."""

    @property
    def own(self) -> bool:
        return bool(self.copy)

    @property
    def aside(self) -> str:
        """Return what its writer is told of a change that is not in the folder itself."""
        return f" In your own copy: it comes into {self.title} when you end." * self.own

    @property
    def undone(self) -> dict[str, str]:
        """Return what is told of such a change where its writer comes to no good end."""
        text = f"{self.title} is as it was: changes were left in {self.copy}"
        return {in_copy(self.handle): text} if self.own else {}


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
    copies: Copies = field(init=False)

    def __post_init__(self) -> None:
        own = FolderLog(self.home / "log.jsonl")
        sizes = (self.max_bytes, self.max_total)
        object.__setattr__(self, "log", own)
        object.__setattr__(self, "copies", Copies(self.home / "trees", *sizes, own, self._lock))

    async def held(self, ctx: ToolContext, folder: str) -> str:
        """Return the handle of the folder that is meant: by name, else the only project, else the
        request's own. What is not named in the call is asked about here.
        """
        if folder:
            return folder
        found = await open_to(ctx, {RUN_FOLDER, *self.projects})
        return only("folder", [h for h in found if h != RUN_FOLDER] or found)

    def place(self, ctx: ToolContext, handle: str, *, writes: bool = False) -> FolderPlace:
        """Return where a context works in this folder: in the folder itself, or, once it has
        written beside others in a git project, in a copy of its own.
        """
        project = self.projects.get(handle)
        if project is None:
            return self._run_place(handle, writes)
        if not project.folder.root.is_dir():
            raise ToolError(
                f"The folder of {project.title} is not there any more. Say so in your result."
            )
        if project.repository:
            project.repository.catch_up()
        label = Label(True, project.readers, frozenset({handle}), outside=True)
        copy = self.copies.get(ctx.context, project.title)
        if writes and ctx.beside and project.repository and copy is None:
            copy = self.copies.make(ctx.context, project.title, project.repository)
        where = self.copies.told(ctx.context, project.title) if copy else ""
        return FolderPlace(handle, project.title, copy or project.folder, label, project, where)

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
        found = place.folder.read(path) if self._is_there(place) else None
        if found is None:
            if self._is_there(place) and place.folder.listed(path, Look(room=0)) is not None:
                raise ToolError(f"{path} is a folder: list_files shows what is in it.")
            raise ToolError(not_found("file", path))
        self.log.saw(ctx.context, place.handle, "/".join(names), found.digest)
        return found

    def version(self, ctx: ToolContext, place: FolderPlace, path: str, digest: str) -> str:
        """Return what tells this version of a file from the one that a context was shown first."""
        first = self.log.first_seen(ctx.context, place.handle, path)
        return "" if first in (None, digest) else f"@{digest[:6]}"

    @staticmethod
    def _is_there(place: FolderPlace) -> bool:
        return place.folder.root.is_dir()

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
            repository = place.project.repository if place.project else None
            if repository and found:
                repository.keep(found.data)
            self._join(ctx, place)
            names = (ctx.key, ctx.context, place.handle, path, here, after, len(data))
            self.log.wrote(Wrote(*names))
            try:
                put()
            except OSError:
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
        changes = {}
        for path, base in self.log.own(ctx.context, place.handle).items():
            found = place.folder.read(path)
            changes[path] = Change(base, found.data if found else None)
        try:
            made = repository.commit(changes, message, TreeChange(ctx.key, ctx.requester))
        except Conflict as error:
            raise self._told(ctx, place, repository, error) from error
        self.log.land(Landed(ctx.context, place.handle, made.commit, made.paths))
        return made

    def _told(
        self, ctx: ToolContext, place: FolderPlace, repository: Repository, error: Conflict
    ) -> ToolError:
        """Return what is to be done about a conflict.

        A copy of one's own gets what the others wrote.
        """
        if not place.own:
            return ToolError(
                f"{error} They are not yours to commit: say in your result that the owner of "
                f"{place.title} has to commit or take back the other changes first."
            )
        repo = repository.open()
        tree = tree_of(repo, repository.tip(repo))
        for path in error.paths:
            theirs, mine = entry_of(tree, path), place.folder.read(path)
            if is_plain(theirs) and size_of(repo, theirs) <= self.max_bytes:
                with suppress(Changed):
                    place.folder.replace(path, theirs.data, mine.digest if mine else None)
            elif mine:
                place.folder.remove(path, mine.digest)
        self.log.land(Landed(ctx.context, place.handle, "", error.paths))
        return ToolError(
            f"{error} Your copy of it holds their text now, without your change: read it, change "
            "it again, and commit. What you cannot read there is for its owner to change."
        )

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
