"""Whose repository it is that lies in a folder: only its own is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from files_kit import BOOK, Desk, git, repository, shown, text_at

from scopes.folders.git_home import stray

SECRET = "Ana earns 100,000"


def private(tmp_path: Path) -> Path:
    """A repository that is nobody's business here."""
    (tmp_path / "private").mkdir()
    repository(tmp_path / "private", {"salaries.md": SECRET})
    return tmp_path / "private"


def by_file(root: Path, other: Path) -> None:
    (root / ".git").write_text(f"gitdir: {other}/.git\n")


def by_link(root: Path, other: Path) -> None:
    (root / ".git").symlink_to(other / ".git")


def by_worktree_of_its_own(root: Path, other: Path) -> None:
    inner = root / "x/worktrees/w"
    inner.mkdir(parents=True)
    (root / ".git").write_text("gitdir: x/worktrees/w\n")
    (inner / "gitdir").write_text(f"{root}/.git\n")
    (inner / "commondir").write_text(f"{other}/.git\n")
    (inner / "HEAD").write_text("ref: refs/heads/main\n")


def by_common_folder(root: Path, other: Path) -> None:
    repository(root)
    (root / ".git/commondir").write_text(f"{other}/.git\n")


def by_an_empty_folder(root: Path, other: Path) -> None:
    """Where `.git` is none, git looks for a repository in the folder itself."""
    (root / ".git").mkdir()
    (root / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "commondir").write_text(f"{other}/.git\n")


def by_a_file_of_settings(root: Path, other: Path) -> None:
    repository(root)
    git(root, "config", "core.worktree", str(other))


def by_borrowed_objects(root: Path, other: Path) -> None:
    repository(root)
    (root / ".git/objects/info").mkdir(exist_ok=True)
    (root / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
    tip = git(other, "rev-parse", "HEAD")
    (root / ".git/refs/heads/main").write_text(tip)


def by_linked_objects(root: Path, other: Path) -> None:
    repository(root)
    tip = git(other, "rev-parse", "HEAD")
    (root / ".git/refs/heads/main").write_text(tip)
    for each in (other / ".git/objects").iterdir():
        if not (root / ".git/objects" / each.name).exists():
            (root / ".git/objects" / each.name).symlink_to(each)


WAYS = (
    *(by_file, by_link, by_worktree_of_its_own, by_common_folder, by_borrowed_objects),
    *(by_linked_objects, by_an_empty_folder, by_a_file_of_settings),
)


@pytest.mark.parametrize("way", WAYS)
async def test_a_folder_shows_nothing_of_another_repository(
    tmp_path: Path, way: Callable[[Path, Path], None]
) -> None:
    desk = Desk(tmp_path)
    way(desk.root, private(tmp_path))
    writer = desk.context("s1", beside=True)
    said = await desk.fails("write_file", by=writer, path="a.md", text="x", folder=BOOK)
    assert "Git does not open this folder" in said
    assert "salaries" not in shown(await desk.use("list_files", folder=BOOK))
    assert "owner" in await desk.fails("git_commit", message="Add a", folder=BOOK)


async def test_a_checkout_that_its_repository_knows_of_is_worked_in(tmp_path: Path) -> None:
    main = tmp_path / "main"
    main.mkdir()
    repo = repository(main)
    desk = Desk(tmp_path)
    desk.root.rmdir()
    git(main, "worktree", "add", "-b", "draft", str(desk.root))
    assert stray(desk.root) == ""
    await desk.use("write_file", path="a.md", text="One\n", folder=BOOK)
    await desk.use("git_commit", message="Add a", folder=BOOK)
    assert text_at(repo, "a.md", "refs/heads/draft") == "One\n"
