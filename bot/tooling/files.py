"""What the tools of the scope files work with: folders of the settings, and each request's own."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from bot.cli.options import Options
from bot.errors import SetupError
from bot.storage.database import Database
from bot.storage.tables import runs
from bot.tooling.kit import Kit, Opened, readers_of
from config.settings import Settings
from config.tools import Project as Configured
from scopes.folders.bringing import Bringing
from scopes.folders.commands import Commands
from scopes.folders.folder import KB, Folder, digest_of
from scopes.folders.folders import KIND, MB, RUN, Folders, Project
from scopes.folders.git import Git, Repository, apart
from scopes.folders.git_push import Pushing, Remote
from scopes.label import Readers

log = logging.getLogger(__name__)

TIDY_EVERY_S = 3_600.0
DAY_S = 86_400.0
"""A folder is left alone so long after it was last written: something may wait for approval."""
LOCKS = "locks"
SPARE_S = 5.0
"""What a command leaves of the time of a tool call."""
INSIDE = ("HEAD", "objects", "refs")
"""What a bare repository or a folder `.git` holds: what is written there is settings and hooks."""
NO_GIT = "No folder here is a git repository: name one under files.projects in the settings."
NO_PUSH = "No project may be pushed: set push: true at one under files.projects."
NO_CARD = "A push needs a click in Slack, and there is none at the command line."
NO_SANDBOX = "No sandbox is configured: set files.sandbox to a command such as bwrap."


@dataclass
class FilesKit(Kit):
    """Folders of the settings or of the command line, and one of its own for each request."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command; None = it serves Slack."""
    _projects: dict[str, Project] | None = None
    _gone: dict[str, str] = field(default_factory=dict)
    """Project of the settings that cannot be opened -> why."""
    _tidied: float = field(default=float("-inf"))

    async def open(self, run: str, requester: str | None) -> Opened:
        await self._tidy()
        projects = await asyncio.to_thread(self._found)
        files = self.settings.files
        sizes = files.max_file_kb * KB, files.max_folder_mb * MB
        home = self._work / place_of(run)
        folders = Folders(home, projects, *sizes)
        clients: dict[type, object] = {Folders: folders, Bringing: Bringing(folders)}
        if any(p.repository for p in projects.values()):
            clients[Git] = Git()
        if any(p.remote for p in projects.values()):
            clients[Pushing] = Pushing()
        if files.sandbox:
            seconds = min(files.sandbox_s, self.settings.limits.tool_timeout_s - SPARE_S)
            clients[Commands] = Commands(files.sandbox, seconds, sizes[1], home / "commands")
        return Opened(clients, {RUN: "run"} | {p.handle: p.title for p in projects.values()})

    def readers(self) -> Mapping[str, Readers]:
        return {handle: project.readers for handle, project in self._found().items()}

    def missing(self) -> Mapping[str, str]:
        projects = self._found().values()
        missing: dict[str, str] = {}
        if not any(p.repository for p in projects):
            missing |= {"git_commit": NO_GIT, "git_push": NO_GIT}
        elif not any(p.remote for p in projects):
            missing |= {"git_push": NO_CARD if self.given else NO_PUSH}
        missing |= {f"files/{KIND}{name}": why for name, why in self._gone.items()}
        return missing | ({} if self.settings.files.sandbox else {"run_command": NO_SANDBOX})

    def problems(self) -> Sequence[str]:
        self._found()
        return [*self._gone.values()]

    @property
    def _work(self) -> Path:
        return work_of(self.settings.data_dir)

    def _found(self) -> dict[str, Project]:
        """Handle -> project, looked at once. One of the settings that is not there is left out.
        Raises SetupError for one of the command line."""
        if self._projects is None:
            apart()
            named = self._named()
            made = [self._opened(name, each) for name, each in named.items()]
            self._projects = {project.handle: project for project in made if project}
        return self._projects

    def _opened(self, name: str, each: Configured) -> Project | None:
        try:
            return self._project(name, each)
        except SetupError as error:
            if self.given and self.given.folder:
                raise
            self._gone[name] = f"files.projects.{name}.path: {error.message}"
            log.warning("%s", self._gone[name])
            return None

    def _named(self) -> Mapping[str, Configured]:
        if self.given and self.given.folder:
            path = self.given.folder.resolve()
            return {name_of(path): Configured(path=path)}
        return {} if self.given and self.given.sample else self.settings.files.projects

    def _project(self, name: str, each: Configured) -> Project:
        root = each.path.expanduser().resolve()
        if not root.is_dir():
            raise SetupError("files", f"There is no folder {each.path}.", "Name one that exists.")
        if all((root / inner).exists() for inner in INSIDE):
            text = f"{each.path} is what git keeps, not a folder of files."
            raise SetupError("files", text, "Name a checkout of it.")
        locks = self._work / LOCKS
        folder = Folder(root, self.settings.files.max_file_kb * KB, locks / name)
        repository = remote = None
        if (root / ".git").exists():
            repository = Repository(folder, each.branch, locks / f"{name}.git")
        if repository and each.push and self.given is None:
            token = self.settings.secrets.git_token
            remote = Remote(repository, each.remote, token.get_secret_value() if token else None)
        readers = readers_of(each.readers)
        return Project(f"{KIND}{name}", name, folder, readers, repository, remote)

    async def _tidy(self) -> None:
        """Delete the folders of requests whose results are not kept any more, and of those that
        were forgotten, now and then. Raises StoreError."""
        now = time.monotonic()
        if now - self._tidied < TIDY_EVERY_S:
            return
        self._tidied = now
        days = self.settings.retention.results_days
        idle = await asyncio.to_thread(idle_folders, self._work, time.time() - DAY_S)
        kept = await self._remembered([each.name for each in idle])
        before = time.time() - days * DAY_S if days else float("-inf")
        gone = [each for each, last in idle.items() if each.name not in kept or last < before]
        await asyncio.to_thread(_delete, gone)

    async def _remembered(self, ids: Sequence[str]) -> set[str]:
        """The runs among these of which it is still stored what they were asked."""
        asked = sa.type_coerce(runs.c.question, sa.Text)  # emptied, it is not sealed
        query = sa.select(runs.c.id).where(runs.c.id.in_(ids), asked != "")
        return {row["id"] for row in await self.database.read(query)} if ids else set()


def idle_folders(work: Path, before: float) -> dict[Path, float]:
    """Folders of requests in which nothing was written since then -> when it was last; in seconds
    since 1970."""
    found = {}
    for each in work.iterdir() if work.is_dir() else ():
        marks = [path for path in (each, each / "log.jsonl") if path.exists()]
        if each.name != LOCKS and marks:
            found[each] = max(path.stat().st_mtime for path in marks)
    return {each: last for each, last in found.items() if last < before}


def _delete(folders: Iterable[Path]) -> None:
    for each in folders:
        try:
            shutil.rmtree(each)
        except OSError as error:  # it is tried again
            log.warning("the folder of the request %s stays: %s", each.name, error)


def work_of(data_dir: Path) -> Path:
    """Where the folders of requests lie."""
    return data_dir / "work"


def place_of(run: str) -> str:
    """The name of a request's folder."""
    return run if re.fullmatch(r"\w[\w.-]{0,99}", run) else digest_of(run.encode())


def name_of(path: Path) -> str:
    """The name of a project for a folder of the command line."""
    name = re.sub(r"[^a-z0-9_-]+", "-", path.name.lower()).lstrip("-_0123456789")[:40].rstrip("-")
    return name if name and f"{KIND}{name}" != RUN else f"{name or 'the'}-folder"
