"""Kit of the tests of the scope files: folders and repositories on disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pygit2
import pytest
import tool_kit

from scopes.effects import RUN_FOLDER, Handles
from scopes.folders.folder import KB, Folder
from scopes.folders.folders import MB, Folders, ProjectFolder
from scopes.folders.git import Git, Repository, apart
from scopes.folders.git_push import GitPush, Remote
from scopes.intent import Intent
from scopes.label import WORKSPACE, Label, Readers
from scopes.tool import ToolContext, ToolError, ToolResult
from subagents.directory import Obstacle
from subagents.gate import Action, Card, Decision, Deny, Gate

ANA = "U0ANA"
BOOK = "files:book"
BRANCH = "assistant/r1"
"""Of a `ProjectRun`; uncommitted work of a context is on one with its number appended."""
FILES = {
    "README.md": "# Book\n",
    "src/app.py": "def one():\n    return 1\n\n\ndef two():\n    return 2\n",
}
WHO = pygit2.Signature("Ana", "ana@example.com", 1_740_000_000, 0)


def write_files(root: Path, files: Mapping[str, str] = FILES) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def repository(root: Path, files: Mapping[str, str] = FILES) -> pygit2.Repository:
    """A folder with a repository and one commit of these files on `main`."""
    write_files(root, files)
    repo = pygit2.init_repository(str(root), initial_head="main")
    commit_paths(repo, "Begin", *files)
    return repo


def commit_paths(repo: pygit2.Repository, message: str, *paths: str) -> pygit2.Oid:
    """Commit these paths as a person would."""
    repo.index.read()
    for path in paths:
        repo.index.add(path)
    repo.index.write()
    parents = [] if repo.head_is_unborn else [repo.head.target]
    return repo.create_commit("HEAD", WHO, WHO, message, repo.index.write_tree(), parents)


def with_remote(repo: pygit2.Repository, bare: Path) -> pygit2.Repository:
    """Give the repository a bare remote on this disk with its commits; return the remote."""
    remote = pygit2.init_repository(str(bare), bare=True, initial_head="main")
    repo.remotes.create("origin", str(bare))
    repo.remotes["origin"].push(["refs/heads/main:refs/heads/main"])
    return remote


def text_at(repo: pygit2.Repository, path: str, branch: str = BRANCH) -> str:
    blob = repo.lookup_branch(branch).peel(pygit2.Tree)[path]
    assert isinstance(blob, pygit2.Blob)
    return blob.data.decode()


def subjects(repo: pygit2.Repository, branch: str = BRANCH) -> list[str]:
    """Return the subjects of a branch's commits, newest first; none if it does not exist."""
    tip = repo.lookup_branch(branch)
    return [c.message.partition("\n")[0] for c in repo.walk(tip.target)] if tip else []


def branches(repo: pygit2.Repository) -> set[str]:
    return set(repo.branches.local)


def is_written(root: Path, path: str) -> bool:
    """Return whether a file is in the folder of a project, or on any branch of it."""
    repo = pygit2.Repository(str(root))
    trees = [repo.branches[name].peel(pygit2.Tree) for name in branches(repo)]
    return (root / path).exists() or any(path in tree for tree in trees)


def object_contents(root: Path) -> Iterator[bytes]:
    """Return all that the repository of a folder holds: texts of files, names, and messages."""
    repo = pygit2.Repository(str(root))
    return (repo.read(id)[1] for id in repo)


def git(root: Path, *arguments: str) -> str:
    """Return the output of git itself, to check that it accepts our repository."""
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


@dataclass
class Settings:
    """A directory of the readers of folders, by the settings."""

    projects: Mapping[str, ProjectFolder]

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        readers = WORKSPACE if thing == RUN_FOLDER else self.projects[thing].readers
        return readers == WORKSPACE or user in readers

    async def obstacles(self, label: Label, destination: str) -> tuple[Obstacle, ...]:
        readers = self.projects[destination].readers
        why = () if label.within(Label(readers=readers)) else ("not everyone may read it",)
        return tuple(Obstacle(destination, destination, each) for each in why)


class ProjectRun:
    """One run over a project, with tools called through the gate."""

    def __init__(
        self,
        tmp_path: Path,
        *,
        readers: Readers = WORKSPACE,
        push: bool = False,
        repo: bool = True,
        max_bytes: int = 64 * KB,
        max_total: int = MB,
    ) -> None:
        apart()
        self.root, self.data = tmp_path / "book", tmp_path / "data"
        self.root.mkdir(parents=True, exist_ok=True)
        folder = Folder(self.root, max_bytes, self.data / "locks" / "book")
        found = Repository(folder, self.data / "locks" / "book.git") if repo else None
        remote = Remote(found, "origin", None) if found and push else None
        project = ProjectFolder(BOOK, "book", folder, readers, found, remote)
        self.limits = max_bytes, max_total
        self.projects = {BOOK: project}
        self.proposed: list[Action] = []
        self.decisions: list[Decision] = []
        self.begin()

    def begin(self) -> None:
        """Begin as a new process does."""
        self.folders = Folders(self.data / "work" / "r1", self.projects, *self.limits)
        self.gate = Gate(self.decisions.append, Settings(self.projects), self.proposed.append)
        self.calls = 0

    def context(self, name: str = "s1", **more: Any) -> ToolContext:
        clients: dict[type, object] = {Folders: self.folders, Git: Git(), GitPush: GitPush()}
        titles = {BOOK: "book", RUN_FOLDER: "run"}
        intent = Intent(text="Write it into the book", home="D0ANA")
        fields = {"intent": intent, "key": "", "context": name, **more}
        return tool_kit.context("files", clients, titles, **fields)

    async def use(
        self, tool: str, /, *, by: ToolContext | str = "s1", **arguments: Any
    ) -> ToolResult:
        found = await self.asks(tool, by=by, **arguments)
        assert isinstance(found, ToolResult), found
        return found

    async def asks(
        self, tool: str, /, *, by: ToolContext | str = "s1", **arguments: Any
    ) -> ToolResult | Deny | Card:
        ctx = self.context(by) if isinstance(by, str) else by
        self.calls += 1
        ctx = replace(ctx, key=ctx.key or f"r1/{ctx.context}/call{self.calls}")
        chosen = tool_kit.tool_named("files", tool)
        return await self.gate.call(ctx.context, ctx, chosen, arguments)

    async def fails(self, tool: str, /, *, by: ToolContext | str = "s1", **arguments: Any) -> str:
        """Return the error that the model gets."""
        try:
            found = await self.asks(tool, by=by, **arguments)
        except ToolError as error:
            return str(error)
        assert isinstance(found, Deny), found
        return found.reason

    async def approve(self, action: Action) -> ToolResult | Deny:
        chosen = tool_kit.tool_named("files", action.tool)
        bare = self.context("", handles=Handles(), key=f"action/{action.id}")
        return await self.gate.perform(action, bare, chosen)


@pytest.fixture
def tools(tmp_path: Path) -> ProjectRun:
    """A folder that is no repository."""
    tools = ProjectRun(tmp_path, repo=False)
    write_files(tools.root)
    return tools


def result_text(found: ToolResult) -> str:
    return "\n".join([*(item.line() for item in found.items), found.note, found.truncated])
