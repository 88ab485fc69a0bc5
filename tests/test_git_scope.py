"""Commits hold a context's own changes alone; pushes what a person saw, never by force."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pygit2
import pytest
from files_kit import (
    ANA,
    BOOK,
    FILES,
    WHO,
    Desk,
    committed,
    git,
    repository,
    subjects,
    text_at,
    with_remote,
    written,
)
from pygit2 import Repository
from pygit2.enums import FileMode

from scopes.folders.folders import MB
from scopes.folders.git_push import bare
from scopes.tool import ToolContext, ToolResult
from subagents.gate import Card


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path, push=True)
    repository(made.root)
    return made


@pytest.fixture
def repo(desk: Desk) -> Repository:
    return Repository(str(desk.root))


@pytest.fixture
def remote(repo: Repository, tmp_path: Path) -> Repository:
    return with_remote(repo, tmp_path / "bare.git")


def beside(desk: Desk, name: str) -> ToolContext:
    return desk.context(name, beside=True)


async def wrote(desk: Desk, by: Any, path: str, text: str, message: str = "") -> None:
    await desk.use("write_file", by=by, path=path, text=text, folder=BOOK)
    if message:
        await desk.use("git_commit", by=by, message=message, folder=BOOK)


async def edited(desk: Desk, by: Any, old: str, new: str) -> None:
    await desk.use("edit_file", by=by, path="src/app.py", old=old, new=new, folder=BOOK)


async def test_a_commit_holds_what_its_context_wrote_and_says_who_asked(
    desk: Desk, repo: Repository
) -> None:
    (desk.root / "draft.txt").write_text("of a person, not committed\n")
    (desk.root / "README.md").write_text("# Book, changed by a person\n")
    await wrote(desk, "s1", "notes/a.md", "One\n", "Add a\n\nRequested-by: U0BOSS")
    tip = repo.head.peel(pygit2.Commit)
    assert tip.message == f"Add a\n\nRequested-by: {ANA}\nAssistant-Call: r1/s1/call2\n"
    assert text_at(repo, "notes/a.md") == "One\n"
    assert text_at(repo, "README.md") == "# Book\n"
    assert git(desk.root, "status", "--porcelain").splitlines() == [" M README.md", "?? draft.txt"]
    assert "nothing" in await desk.fails("git_commit", message="Again", folder=BOOK)


async def test_what_stays_uncommitted_comes_when_its_writer_ends(desk: Desk) -> None:
    one, two = beside(desk, "s1"), beside(desk, "s2")
    await wrote(desk, one, "a.md", "One\n", "Add a")
    kept = await desk.use("write_file", by=one, path="new.md", text="New\n", folder=BOOK)
    assert "In your own copy: it comes into book when you end." in kept.note
    assert not (desk.root / "new.md").exists()
    await edited(desk, one, "return 1", "return 10")
    await edited(desk, two, "return 1", "return 100")
    (desk.root / "README.md").write_text("somebody is at work here\n")
    await desk.use("read_file", by=two, path="README.md", folder=BOOK)
    await wrote(desk, two, "README.md", "# Mine\n")
    assert await desk.ended("s1") == {"commit in files:book": ""}
    left = (await desk.ended("s2"))["commit in files:book"]
    copy = "a copy, work/r1/trees/s2-book in the data folder"
    assert left.endswith(f"own changes of them were left in {copy}: README.md, src/app.py")
    desk.begin()  # a process that goes on does it again
    assert await desk.ended("s1") == {"commit in files:book": ""}
    assert (desk.root / "new.md").read_text() == "New\n"
    assert "return 10\n" in (desk.root / "src/app.py").read_text()
    assert (desk.root / "README.md").read_text() == "somebody is at work here\n"
    told = git(desk.root, "status", "--porcelain").splitlines()
    assert told == [" M README.md", " M src/app.py", "?? new.md"]
    assert await desk.ended("s3") == {}


async def test_siblings_write_in_copies_of_their_own(desk: Desk, repo: Repository) -> None:
    one, two = beside(desk, "s1"), beside(desk, "s2")
    await edited(desk, one, "return 1", "return 10")
    await edited(desk, two, "return 2", "return 20")
    assert (desk.root / "src/app.py").read_text().count("0") == 0  # nobody sees half a work
    await desk.use("git_commit", by=one, message="Ten", folder=BOOK)
    await desk.use("git_commit", by=two, message="Twenty", folder=BOOK)
    text = "def one():\n    return 10\n\n\ndef two():\n    return 20\n"
    assert text_at(repo, "src/app.py") == (desk.root / "src/app.py").read_text() == text
    assert git(desk.root, "status", "--porcelain") == ""
    assert subjects(repo) == ["Twenty", "Ten", "Begin"]
    assert git(desk.root, "fsck", "--no-dangling") == ""


async def test_a_conflict_is_told_and_can_be_solved(desk: Desk, repo: Repository) -> None:
    one, two = beside(desk, "s1"), beside(desk, "s2")
    await edited(desk, one, "return 1", "return 10")
    await edited(desk, two, "return 1", "return 100")
    await desk.use("git_commit", by=one, message="Ten", folder=BOOK)
    said = await desk.fails("git_commit", by=two, message="Hundred", folder=BOOK)
    assert said.startswith("Others changed the same lines of src/app.py meanwhile.")
    assert "read it" in said
    desk.begin()
    given_up = (await desk.ended("s2"))["commit in files:book"]
    assert "src/app.py" in given_up
    read = await desk.use("read_file", by=two, path="src/app.py", folder=BOOK)
    assert "return 10\n" in read.items[0].text
    await edited(desk, two, "return 10\n", "return 100\n")
    await desk.use("git_commit", by=two, message="Hundred", folder=BOOK)
    assert "return 100\n" in text_at(repo, "src/app.py")
    assert subjects(repo) == ["Hundred", "Ten", "Begin"]
    assert await desk.ended("s2") == {"commit in files:book": ""}


@pytest.mark.parametrize("apart", [False, True], ids=["in the folder", "in a copy"])
async def test_changes_of_a_person_are_left(desk: Desk, repo: Repository, apart: bool) -> None:
    app = desk.root / "src/app.py"
    app.write_text(app.read_text().replace("return 2", "return 2  # mine"))
    by = desk.context("s1", beside=apart)
    await edited(desk, by, "return 1", "return 10")
    made = await desk.use("git_commit", by=by, message="Ten", folder=BOOK)
    assert "Others are at work on src/app.py" in made.note
    assert "mine" not in text_at(repo, "src/app.py")
    assert "return 10" in text_at(repo, "src/app.py")
    assert "# mine" in app.read_text()
    assert git(desk.root, "diff", "--stat").count("src/app.py") == 1


async def test_a_commit_is_made_once_despite_a_crash(desk: Desk, repo: Repository) -> None:
    await wrote(desk, "s1", "a.md", "One\n")
    desk.begin()  # what was written outlives the process
    again = desk.context("s1", key="r1/s1/commit")
    for _ in range(2):
        await desk.use("git_commit", by=again, message="Add a", folder=BOOK)
        (desk.data / "work/r1/log.jsonl").write_bytes(b"")  # as if it had not been noted
        desk.begin()
    assert subjects(repo) == ["Add a", "Begin"]
    assert text_at(repo, "a.md") == "One\n"


async def test_no_hook_and_no_filter_runs(desk: Desk, repo: Repository, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    written(desk.root, {".gitattributes": "*.md filter=evil\n", "a.md": "One\n"})
    committed(repo, "Add a filter", ".gitattributes", "a.md")
    script = f"#!/bin/sh\ntouch {mark}\ncat\n"
    hooks = "pre-commit post-commit reference-transaction pre-push post-index-change"
    for name in hooks.split():
        hook = desk.root / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(script)
        hook.chmod(0o755)
    for kind in ("clean", "smudge", "process"):
        repo.config[f"filter.evil.{kind}"] = f"touch {mark}"
    repo.config["core.fsmonitor"] = str(desk.root / ".git/hooks/pre-commit")
    await wrote(desk, beside(desk, "s1"), "b.md", "Two\n", "Add b")
    assert text_at(repo, "b.md") == (desk.root / "b.md").read_text() == "Two\n"
    assert not mark.exists()


async def proposed(desk: Desk, by: ToolContext | str = "s1") -> Card:
    card = await desk.asks("git_push", by=by, folder=BOOK)
    assert isinstance(card, Card), card
    return card


async def approved(desk: Desk, card: Card) -> ToolResult:
    done = await desk.approve(card.action)
    assert isinstance(done, ToolResult)
    return done


async def test_a_push_shows_its_commits_and_sends_exactly_these(
    desk: Desk, remote: Repository, tmp_path: Path
) -> None:
    await wrote(desk, "s1", "a.md", "One\nTwo\n", "Add a")
    card = await proposed(desk)
    told = dict(card.action.told)
    assert told.pop("commit 1").startswith("Add a (a.md +2 -0)\n")
    assert told == {"branch": "main", "remote": str(tmp_path / "bare.git")}
    await wrote(desk, "s1", "b.md", "After the card\n", "Add b")
    assert subjects(remote) == ["Begin"]
    done = await approved(desk, card)
    assert done.note == f"1 commit pushed to main of {tmp_path / 'bare.git'}."
    assert subjects(remote) == ["Add a", "Begin"]
    again = await approved(desk, card)
    assert again.note.startswith("0 commits pushed")
    assert subjects(remote) == ["Add a", "Begin"]


async def test_the_commits_of_another_are_not_carried_along(
    desk: Desk, repo: Repository, remote: Repository
) -> None:
    await wrote(desk, "s1", "private.md", "Not approved\n", "Private")
    await wrote(desk, "s2", "a.md", "One\n", "Add a")
    await approved(desk, await proposed(desk, "s2"))
    assert subjects(remote) == ["Add a", "Begin"]
    assert "private.md" not in remote.lookup_reference("refs/heads/main").peel(pygit2.Tree)
    await approved(desk, await proposed(desk, "s1"))
    assert subjects(remote) == ["Private", "Add a", "Begin"]
    assert repo.head.target == remote.head.target  # the folder has what the remote has
    assert git(desk.root, "status", "--porcelain") == ""


async def test_a_remote_that_moved_is_merged_with_and_never_forced(
    desk: Desk, remote: Repository
) -> None:
    await wrote(desk, "s1", "a.md", "One\n", "Add a")
    elsewhere(desk, FileMode.BLOB, "README.md", b"# Book, edited elsewhere\n")
    await approved(desk, await proposed(desk))
    assert subjects(remote) == ["Add a", "Else", "Begin"]
    assert (desk.root / "README.md").read_text() == "# Book, edited elsewhere\n"
    assert git(desk.root, "status", "--porcelain") == ""


async def test_a_conflict_with_the_remote_is_told(desk: Desk, remote: Repository) -> None:
    await edited(desk, "s1", "return 1", "return 10")
    await desk.use("git_commit", message="Ten", folder=BOOK)
    theirs = FILES["src/app.py"].replace("return 1", "return 11")
    elsewhere(desk, FileMode.BLOB, "src/app.py", theirs.encode())
    with pytest.raises(Exception, match=r"same lines of src/app\.py") as told:
        await approved(desk, await proposed(desk))
    assert "On the remote" in str(told.value)
    assert subjects(remote) == ["Else", "Begin"]


def elsewhere(desk: Desk, mode: FileMode, path: str, content: bytes) -> None:
    """Somebody else pushes one file, in place of what stood at its path."""
    place = desk.root.parent
    other = place / f"other-{mode}-{path.replace('/', '-')}"
    repo = pygit2.clone_repository(f"{place}/bare.git", str(other), bare=True)
    index = pygit2.Index()
    index.read_tree(repo.head.peel(pygit2.Tree))
    for each in [e.path for e in index if path.startswith(f"{e.path}/")]:
        index.remove(each)
    commit = mode is FileMode.COMMIT
    id = pygit2.Oid(hex="12" * 20) if commit else repo.create_blob(content)
    index.add(pygit2.IndexEntry(path, id, mode))
    repo.create_commit("HEAD", WHO, WHO, "Else", index.write_tree(repo), [repo.head.target])
    repo.remotes["origin"].push(["refs/heads/main:refs/heads/main"])


@pytest.mark.parametrize(
    ("path", "mode", "content"),
    [
        ("photo.bin", FileMode.BLOB, b"x" * 100_000),
        ("deep/sub", FileMode.COMMIT, b""),
        ("link", FileMode.LINK, b"README.md"),
        ("src/app.py/x", FileMode.BLOB, b"a file of a folder that was a file"),
    ],
    ids=["large", "submodule", "link", "folder"],
)
async def test_a_push_that_is_done_is_told_as_done_whatever_others_pushed(
    desk: Desk, remote: Repository, path: str, mode: FileMode, content: bytes
) -> None:
    await wrote(desk, "s1", "a.md", "One\n", "Add a")
    elsewhere(desk, mode, path, content)
    (desk.root / "src/app.py").write_text("somebody is at work here\n")
    done = await approved(desk, await proposed(desk))
    assert done.note.startswith("1 commit pushed to main of ")
    assert path in done.note.partition(" left as it is for ")[2]
    assert subjects(remote) == ["Add a", "Else", "Begin"]
    assert (desk.root / "src/app.py").read_text() == "somebody is at work here\n"
    staged = git(desk.root, "diff", "--cached", "--name-only", "HEAD")
    assert staged == ""
    await wrote(desk, "s1", "b.md", "Two\n", "Add b")
    await approved(desk, await proposed(desk))
    assert subjects(remote) == ["Add b", "Add a", "Else", "Begin"]


def peak_kb(*, anew: bool = False) -> int:
    """The most memory that this process has held; it is counted anew from here on."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def test_an_object_that_unpacks_huge_is_not_read(desk: Desk, repo: Repository) -> None:
    (desk.root / "zeros").touch()
    os.truncate(desk.root / "zeros", 100 * MB)
    committed(repo, "Zeros", "zeros")
    (desk.root / "zeros").unlink()
    before = peak_kb(anew=True)
    said = await desk.fails("write_file", by=beside(desk, "s1"), path="a", text="x", folder=BOOK)
    assert "too large to be copied" in said
    assert peak_kb() - before < 50_000


async def test_a_model_cannot_name_the_commits_of_another(
    desk: Desk, repo: Repository, remote: Repository
) -> None:
    await wrote(desk, "s1", "a.md", "One\n", "Add a")
    theirs = str(repo.head.target)
    await wrote(desk, "s2", "b.md", "Two\n", "Add b")
    card = await desk.asks("git_push", by="s2", folder=BOOK, commits=theirs)
    assert isinstance(card, Card)
    assert card.action.args["commits"] == str(repo.head.target)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://ana:secret@git.example/a.git?x=1", "https://git.example/a.git"),
        ("/srv/git/a.git", "/srv/git/a.git"),
        ("git@git.example:a.git", "git@git.example:a.git"),
    ],
)
def test_an_address_is_shown_without_its_login(address: str, shown: str) -> None:
    assert bare(address) == shown
