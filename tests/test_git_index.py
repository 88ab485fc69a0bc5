"""The index of a folder follows the branch, whoever holds it at the moment that we commit."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pygit2
import pytest
from files_kit import BOOK, Desk, git, repository, subjects, with_remote
from pygit2.enums import FileMode
from test_git_scope import elsewhere

from scopes.folders.git import Repository
from scopes.folders.git_push import Remote
from scopes.tool import ToolResult
from subagents.gate import Action, Card

CLEAN = ""


async def wrote(desk: Desk, path: str, text: str, message: str = "") -> ToolResult:
    ctx = desk.context("s1")
    await desk.use("read_file", by=ctx, path="README.md", folder=BOOK)
    made = await desk.use("write_file", by=ctx, path=path, text=text, folder=BOOK)
    if message:
        made = await desk.use("git_commit", by=ctx, message=message, folder=BOOK)
    return made


def status(desk: Desk) -> str:
    return git(desk.root, "status", "--porcelain")


def desk_at(tmp_path: Path) -> tuple[Desk, Path]:
    """A project with a remote, and where the lock of its index is."""
    desk = Desk(tmp_path, push=True)
    with_remote(repository(desk.root), tmp_path / "bare.git")
    return desk, desk.root / ".git/index.lock"


async def held(tmp_path: Path) -> tuple[Desk, Path, ToolResult]:
    """A commit that was made while somebody else's git held the index; the lock; what was said."""
    desk, lock = desk_at(tmp_path)
    lock.touch()
    made = await wrote(desk, "README.md", "# Book, anew\n", "Anew")
    assert lock.exists()  # it is not ours to take away
    return desk, lock, made


async def test_a_commit_beside_a_locked_index_is_made_and_says_so(tmp_path: Path) -> None:
    desk, _, made = await held(tmp_path)
    assert made.note.startswith("Committed as ")
    assert "Somebody else's git held the index" in made.note
    assert subjects(pygit2.Repository(str(desk.root))) == ["Anew", "Begin"]
    assert "changed nothing" in await desk.fails("git_commit", message="Anew", folder=BOOK)


async def test_what_a_person_staged_or_took_back_meanwhile_stays_so(tmp_path: Path) -> None:
    desk, lock, _ = await held(tmp_path)
    await wrote(desk, "src/app.py.txt", "One\n", "One")
    lock.unlink()
    (desk.root / "README.md").write_text("# Book\n")  # the commit taken back, not yet committed
    (desk.root / "src/app.py.txt").write_text("Mine\n")
    git(desk.root, "add", "src/app.py.txt")
    await desk.use("list_files", folder=BOOK)
    assert status(desk) == "M  README.md\nM  src/app.py.txt\n"
    assert (desk.root / "README.md").read_text() == "# Book\n"


async def test_a_branch_that_a_person_went_to_meanwhile_is_left_alone(tmp_path: Path) -> None:
    desk, lock, _ = await held(tmp_path)
    lock.unlink()
    git(desk.root, "stash")
    git(desk.root, "checkout", "-q", "-b", "other", "HEAD~1")
    await desk.use("list_files", folder=BOOK)
    assert status(desk) == CLEAN
    await wrote(desk, "b.md", "Two\n", "Two")
    assert status(desk) == CLEAN
    git(desk.root, "checkout", "-q", "--detach")
    assert (await desk.use("read_file", path="README.md", folder=BOOK)).items


async def pushing(desk: Desk) -> Action:
    card = await desk.asks("git_push", folder=BOOK)
    assert isinstance(card, Card)
    return card.action


async def over_a_moved_remote(desk: Desk) -> Action:
    """Our push, proposed after somebody else's."""
    await wrote(desk, "a.md", "One\n", "Add a")
    elsewhere(desk, FileMode.BLOB, "README.md", b"# Book, edited elsewhere\n")
    return await pushing(desk)


class Killed(BaseException):
    """Not to be caught by anything."""


@dataclass(frozen=True)
class Dying(Repository):
    """A repository whose process dies as it brings one of these up to date."""

    at: str = ""

    def _place(self, *given: Any) -> bool:
        if self.at == "folder":
            raise Killed
        return super()._place(*given)

    def _settled(self, *given: Any) -> bool:
        if self.at == "index":
            raise Killed
        return super()._settled(*given)


@pytest.mark.parametrize("at", ["folder", "index"])
async def test_a_push_that_was_killed_is_finished_later(tmp_path: Path, at: str) -> None:
    desk, _ = desk_at(tmp_path)
    action = await over_a_moved_remote(desk)
    found = desk.projects[BOOK].repository
    assert found
    dying = Dying(found.folder, found.branch, found.lock, at)
    with pytest.raises(Killed):
        Remote(dying, "origin", None).push([git(desk.root, "rev-parse", "HEAD").strip()])
    await desk.approve(action)
    await desk.use("list_files", folder=BOOK)
    assert (desk.root / "README.md").read_text() == "# Book, edited elsewhere\n"
    assert status(desk) == CLEAN


async def test_a_lock_of_a_moment_is_waited_for(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    repository(desk.root)
    lock = desk.root / ".git/index.lock"
    lock.touch()
    await wrote(desk, "README.md", "# Book, anew\n")

    class Released(logging.Handler):
        """Takes the lock away when the first try is told of."""

        def emit(self, record: logging.LogRecord) -> None:
            lock.unlink()

    tried = Released()
    logging.getLogger("scopes.folders.git").addHandler(tried)
    try:
        made = await desk.use("git_commit", message="Anew", folder=BOOK)
    finally:
        logging.getLogger("scopes.folders.git").removeHandler(tried)
    assert not lock.exists()
    assert "index" not in made.note
    assert status(desk) == CLEAN
