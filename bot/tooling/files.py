"""The folders of the scope files: folders of the settings, and one for each request."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import SetupError
from bot.tooling.provider import OpenedTools, ToolProvider, readers_of
from config.sections import ProjectSettings
from scopes.effects import FILES_PREFIX, RUN_FOLDER
from scopes.folders.folder import KB, Folder, digest_of
from scopes.label import Readers
from scopes.tool import Clients, Opener

if TYPE_CHECKING:
    from scopes.folders.commands import Commands
    from scopes.folders.folders import Folders, ProjectFolder

log = logging.getLogger(__name__)

MB = 1 << 20
LOCKS = "locks"
SPARE_S = 5.0
"""Seconds of a tool call's time that a command leaves unused."""
REPOSITORY_ENTRIES = ("HEAD", "objects", "refs")
"""Names in a bare repository or a folder `.git`: writing there would change settings and hooks."""
NO_GIT = "No folder here is a git repository: name one under files.projects in the settings."
NO_PUSH = "No project may be pushed: set push: true at one under files.projects."
NO_CARD = "A push needs a click in Slack, and there is none at the command line."
NO_SANDBOX = "No sandbox is configured: set files.sandbox to a command such as bwrap."


@dataclass
class FileTools(ToolProvider):
    """Folders of the settings or of the command line, and one for each request."""

    _projects: dict[str, ProjectFolder] | None = None
    _faults: dict[str, str] = field(default_factory=dict)
    """Project of the settings that cannot be opened -> why."""

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        projects = await asyncio.to_thread(self._find)
        handles = {RUN_FOLDER: "run"} | {p.handle: p.title for p in projects.values()}
        home = self._work / place_of(run)
        unopened: dict[str, Opener] = {}
        if self.settings.files.sandbox:
            unopened = {"scopes.folders.commands:Commands": cache(lambda: self._commands(home))}
        if not projects:
            folders = cache(lambda: self._folders(home, {}))
            unopened |= {"scopes.folders.folders:Folders": folders}
            return OpenedTools(Clients({}, unopened), handles)
        from scopes.folders.folders import Folders
        from scopes.folders.git import Git
        from scopes.folders.git_push import GitPush

        found = self._folders(home, projects)
        clients: dict[type, object] = {Folders: found}
        if any(p.repository for p in projects.values()):
            clients[Git] = Git()
        if any(p.remote for p in projects.values()):
            clients[GitPush] = GitPush()
        return OpenedTools(Clients(clients, unopened), handles)

    def _folders(self, home: Path, projects: Mapping[str, ProjectFolder]) -> Folders:
        from scopes.folders.folders import Folders

        files = self.settings.files
        return Folders(home, projects, files.max_file_kb * KB, files.max_folder_mb * MB)

    def _commands(self, home: Path) -> Commands:
        from scopes.folders.commands import Commands

        files = self.settings.files
        assert files.sandbox
        seconds = min(files.sandbox_s, self.settings.limits.tool_timeout_s - SPARE_S)
        size = files.max_folder_mb * MB
        return Commands(files.sandbox, seconds, size, home / "commands")

    def readers(self) -> Mapping[str, Readers]:
        return {handle: project.readers for handle, project in self._find().items()}

    def find_missing(self) -> Mapping[str, str]:
        projects = self._find().values()
        missing: dict[str, str] = {}
        if not any(p.repository for p in projects):
            missing |= {"git_commit": NO_GIT, "git_push": NO_GIT}
        elif not any(p.remote for p in projects):
            missing |= {"git_push": NO_CARD if self.options else NO_PUSH}
        missing |= {f"files/{FILES_PREFIX}{name}": why for name, why in self._faults.items()}
        return missing | ({} if self.settings.files.sandbox else {"run_command": NO_SANDBOX})

    def problems(self) -> Sequence[str]:
        self._find()
        return [*self._faults.values()]

    @property
    def _work(self) -> Path:
        return work_of(self.settings.data_dir)

    def _find(self) -> dict[str, ProjectFolder]:
        """Return handle -> project, checked once; leave out missing ones of the settings.

        Raises SetupError for a missing one of the command line.
        """
        if self._projects is None and not (chosen := self._choose_projects()):
            self._projects = {}
        elif self._projects is None:
            from scopes.folders.git import apart

            apart()
            opened = [self._open(name, each) for name, each in chosen.items()]
            self._projects = {project.handle: project for project in opened if project}
        return self._projects

    def _open(self, name: str, each: ProjectSettings) -> ProjectFolder | None:
        try:
            return self._project(name, each)
        except SetupError as error:
            if self.options and self.options.folder:
                raise
            self._faults[name] = f"files.projects.{name}.path: {error.message}"
            log.warning("%s", self._faults[name])
            return None

    def _choose_projects(self) -> Mapping[str, ProjectSettings]:
        if self.options and self.options.folder:
            path = self.options.folder.resolve()
            return {name_of(path): ProjectSettings(path=path)}
        return {} if self.options and self.options.sample else self.settings.files.projects

    def _project(self, name: str, each: ProjectSettings) -> ProjectFolder:
        from scopes.folders.folders import ProjectFolder
        from scopes.folders.git import Repository
        from scopes.folders.git_push import Remote

        root = each.path.expanduser().resolve()
        if not root.is_dir():
            raise SetupError("files", f"There is no folder {each.path}.", "Name one that exists.")
        if all((root / inner).exists() for inner in REPOSITORY_ENTRIES):
            text = f"{each.path} is what git keeps, not a folder of files."
            raise SetupError("files", text, "Name a checkout of it.")
        locks = self._work / LOCKS
        folder = Folder(root, self.settings.files.max_file_kb * KB, locks / name)
        repository = remote = None
        if (root / ".git").exists():
            repository = Repository(folder, locks / f"{name}.git")
        if repository and each.push and self.options is None:
            token = self.settings.secrets.git_token
            remote = Remote(repository, each.remote, token.get_secret_value() if token else None)
        readers = readers_of(each.readers)
        return ProjectFolder(f"{FILES_PREFIX}{name}", name, folder, readers, repository, remote)


def work_of(data_dir: Path) -> Path:
    """Return the folder that contains the folders of requests."""
    return data_dir / "work"


def idle_folders(work: Path, before: float) -> list[Path]:
    """Return the folders of requests without a write since a time in seconds since 1970."""
    folders = [each for each in work.iterdir() if each.name != LOCKS] if work.is_dir() else []
    marks = {
        each: [path for path in (each, each / "log.jsonl") if path.exists()] for each in folders
    }
    return [each for each in folders if all(path.stat().st_mtime < before for path in marks[each])]


def place_of(run: str) -> str:
    """Return the name of a request's folder."""
    return run if re.fullmatch(r"\w[\w.-]{0,99}", run) else digest_of(run.encode())


def name_of(path: Path) -> str:
    """Return the name of a project for a folder of the command line."""
    name = re.sub(r"[^a-z0-9_-]+", "-", path.name.lower()).lstrip("-_0123456789")[:40].rstrip("-")
    return name if name and f"{FILES_PREFIX}{name}" != RUN_FOLDER else f"{name or 'the'}-folder"
