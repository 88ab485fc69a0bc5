"""The tools of the scope files: what they show, and what they refuse for which reason."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unicodedata import normalize

import pygit2
import pytest
import sqlalchemy as sa
from engine_kit import settings_for, store_at
from files_kit import (
    ANA,
    BOOK,
    ProjectRun,
    branches,
    is_written,
    repository,
    result_text,
    tools,
    with_remote,
    write_files,
)
from pygit2.enums import CredentialType

import scopes
from bot.errors import SetupError
from bot.options import Options
from bot.privacy import tidy
from bot.storage.tables import runs
from bot.tooling.files import FileTools, place_of
from config.sections import ProjectSettings
from config.settings import Settings, SettingsError, load_settings
from scopes.effects import RUN_FOLDER, Handles
from scopes.folders.commands import Commands
from scopes.folders.folder import KB, Folder
from scopes.folders.folders import Folders
from scopes.folders.git import Git
from scopes.folders.git_push import Answers, GitPush, https_host
from scopes.intent import EMPTY_INTENT, Intent
from scopes.label import WORKSPACE, Label
from scopes.tool import Item, estimate_tokens, names_in
from subagents.evidence import SourceLog
from subagents.rules import MAX_FILED

__all__ = ["tools"]

PAYROLL = "files:payroll"
PYTHON = "def one():\n    if True:\n        return 1\n"


async def test_a_file_is_read_with_its_indentation_and_ids(tools: ProjectRun) -> None:
    write_files(tools.root, {"a.py": PYTHON})
    read = await tools.use("read_file", path="a.py", folder=BOOK)
    lines = "|def one():\n|    if True:\n|        return 1\n"
    assert result_text(read) == f"[book:a.py:1]\n{lines}3 lines.\n"
    (item,) = read.items
    assert item.label == Label(True, WORKSPACE, frozenset({BOOK}), outside=True)


async def test_a_long_file_with_a_long_line_is_read_page_by_page_to_its_end(
    tools: ProjectRun,
) -> None:
    head = "".join(f"line {n} of a long file\n" for n in range(1, 201))
    text = head + ",".join(map(str, range(2_000)))
    write_files(tools.root, {"long.txt": text})
    short = tools.context(max_output_tokens=1_000)
    items, at = list[Item](), "1"
    while at:
        page = await tools.use("read_file", by=short, path="long.txt", folder=BOOK, line=at)
        assert estimate_tokens(result_text(page)) <= 1_050
        items += page.items
        at = page.truncated.removeprefix("Go on with line=").rstrip(".")
    joined = "".join("\n" * ("~" not in item.id) + item.text for item in items)
    assert joined == "\n" + text
    assert len({item.id for item in items}) == len(items)
    for nowhere in (500, 0, "2~3", "x"):
        reason = await tools.fails("read_file", path="long.txt", folder=BOOK, line=nowhere)
        assert "has 201 lines" in reason


async def test_a_folder_is_listed_and_searched(tools: ProjectRun) -> None:
    write_files(tools.root, {".git/config": "secret = 1\n", "node_modules/x.js": "return"})
    (tools.root / "link").symlink_to("/etc")
    listed = await tools.use("list_files", folder=BOOK)
    assert result_text(listed) == (
        "[book:/] README.md 7 B, link (link), node_modules/ (not looked into), src/\n"
        "[book:src/] app.py 50 B\n\n"
    )
    hits = await tools.use("search_files", pattern="RETURN", folder=BOOK, glob="*.py")
    assert [i.id for i in hits.items] == ["book:src/app.py:2", "book:src/app.py:6"]
    assert result_text(hits).startswith(
        "[book:src/app.py:2]\n|    return 1\n[book:src/app.py:6]\n|    ret"
    )
    none = await tools.use("search_files", pattern="secret", folder=BOOK)
    assert (none.items, none.note) == ((), "0 lines in 2 files that were searched.")
    (tools.root / "old.py").write_bytes("return 'Zoë'".encode("latin-1"))
    other = await tools.use("search_files", pattern="Zoë", folder=BOOK, glob="*.py")
    assert other.note == (
        "0 lines in 1 files that were searched. "
        "1 files are no text in UTF-8, or too large, and were not searched."
    )


async def test_item_id_is_accepted_as_a_path(tools: ProjectRun) -> None:
    for path in ("book:src/app.py", "book:src/app.py:6~2@abc123"):
        read = await tools.use("read_file", path=path)
        assert read.items[0].id == "book:src/app.py:1"
    hidden = tools.context(handles=Handles({RUN_FOLDER: "run"}))
    assert await tools.fails("read_file", by=hidden, path="book:src/app.py") == (
        "No file book:src/app.py. Use an id that you were given or that a tool listed."
    )


async def test_search_matches_equivalent_unicode_forms(tools: ProjectRun) -> None:
    """macOS stores a letter and its mark as two characters, models write one."""
    name = "Überblick"
    apart = normalize("NFD", f"{name}.md")
    write_files(tools.root, {apart: normalize("NFD", "Köln\n")})
    for glob in ("", f"{name}.md"):
        found = await tools.use("search_files", pattern="KÖLN", folder=BOOK, glob=glob)
        assert [i.id for i in found.items] == [f"book:{apart}:1"]
    assert (await tools.use("read_file", path=f"book:{apart}:1")).items[0].id == f"book:{apart}:1"


async def test_omitted_folder_means_the_only_folder_or_project(tools: ProjectRun) -> None:
    assert (await tools.use("read_file", path="README.md")).items[0].id == "book:README.md:1"
    own = tools.context(handles=Handles({RUN_FOLDER: "run"}))
    await tools.use("write_file", by=own, path="a.md", text="One\n")
    assert (await tools.use("read_file", by=own, path="a.md")).items[0].id == "run:a.md:1"
    nothing = tools.context(handles=Handles())
    assert "No folder is open" in await tools.fails("list_files", by=nothing)
    outside = await tools.fails("list_files", folder="files:other")
    assert outside.startswith("No folder files:other.")


async def test_edit_requires_the_old_text_to_occur_exactly_once(tools: ProjectRun) -> None:
    where = {"path": "src/app.py", "folder": BOOK}
    assert "2 times" in await tools.fails("edit_file", old="return", new="yield", **where)
    assert "nowhere" in await tools.fails("edit_file", old="return 3", new="x", **where)
    assert "nowhere" in await tools.fails("edit_file", old="", new="x", **where)
    await tools.use("edit_file", old="    return 1\n", new="    return 10\n", **where)
    assert "    return 10\n" in (tools.root / "src/app.py").read_text()


async def test_edit_preserves_windows_and_mixed_line_endings(tools: ProjectRun) -> None:
    (tools.root / "w.txt").write_bytes(b"one\r\ntwo\r\n")
    read = await tools.use("read_file", path="w.txt", folder=BOOK)
    assert read.items[0].text == "one\ntwo"
    await tools.use("edit_file", path="w.txt", old="one\ntwo", new="one\nthree", folder=BOOK)
    assert (tools.root / "w.txt").read_bytes() == b"one\r\nthree\r\n"
    where = {"path": "m.txt", "folder": BOOK}
    (tools.root / "m.txt").write_bytes(b"a\r\nb\nc\r\na\nb\n")
    await tools.use("read_file", **where)
    await tools.use("edit_file", old="a\r\nb", new="A\r\nb", **where)
    assert (tools.root / "m.txt").read_bytes() == b"A\r\nb\nc\r\na\nb\n"


async def test_unread_or_changed_file_is_not_overwritten(tools: ProjectRun) -> None:
    where = {"path": "README.md", "folder": BOOK}
    assert "Read it first" in await tools.fails("write_file", text="mine", **where)
    await tools.use("read_file", **where)
    (tools.root / "README.md").write_text("changed by another\n")
    assert "not as you read it" in await tools.fails("write_file", text="mine", **where)
    await tools.use("read_file", **where)
    await tools.use("read_file", by="s2", **where)
    await tools.use("write_file", text="mine", **where)
    assert "Read it first" in await tools.fails("write_file", by="s2", text="theirs", **where)
    await tools.use("write_file", text="mine, again", **where)  # it knows what it wrote


async def test_reads_survive_a_crash_and_a_replayed_edit_writes_once(tools: ProjectRun) -> None:
    where = {"path": "README.md", "folder": BOOK}
    await tools.use("read_file", **where)
    tools.begin()
    again = tools.context(key="r1/s1/call9")
    change = {"old": "# Book", "new": "# Book\n# Book"}
    for _ in range(2):
        await tools.use("edit_file", by=again, **change, **where)
        with (tools.data / "work/r1/log.jsonl").open("a") as file:
            file.write('{"wrote": ["half a li')  # the process died here
        tools.begin()
    assert (tools.root / "README.md").read_text() == "# Book\n# Book\n"
    await tools.use("write_file", text="whole\n", **where)


async def test_versions_of_a_file_have_different_ids(tools: ProjectRun) -> None:
    reading = SourceLog()
    where = {"path": "README.md", "folder": BOOK}
    first = await tools.use("read_file", **where)
    await tools.use("edit_file", old="# Book", new="#", **where)
    second = await tools.use("read_file", **where)
    for each in (first, second):
        reading.add(each.items, {})
    assert [i.text for i in reading.items.values()] == ["# Book", "#"]
    found = await tools.use("search_files", pattern="#", glob="README.md", folder=BOOK)
    assert found.items[0].id == second.items[0].id


@pytest.mark.parametrize("raw", [b"a\0b", b"\x89PNG\r\n"])
async def test_binary_files_are_not_shown(tools: ProjectRun, raw: bytes) -> None:
    (tools.root / "b.bin").write_bytes(raw)
    assert "no text in UTF-8" in await tools.fails("read_file", path="b.bin", folder=BOOK)


async def test_writes_are_limited_per_file_and_per_request(tmp_path: Path) -> None:
    tools = ProjectRun(tmp_path, repo=False, max_bytes=1_000, max_total=2_000)
    more = {"path": "c", "folder": RUN_FOLDER}
    assert "Write less" in await tools.fails("write_file", text="x" * 1_001, **more)
    for name in ("a", "b"):
        await tools.use("write_file", path=name, text="x" * 900, folder=RUN_FOLDER)
    assert "which is all" in await tools.fails("write_file", text="x" * 900, **more)


async def test_restricted_text_is_not_written_to_a_folder_with_more_readers(tmp_path: Path) -> None:
    private = Label(True, frozenset({ANA}), frozenset({"notes:own"}))
    open_ = ProjectRun(tmp_path, repo=False)
    by = open_.context(label=private)
    reason = await open_.fails("write_file", by=by, path="a.md", text="private", folder=BOOK)
    assert "for fewer people" in reason
    assert list(open_.root.iterdir()) == []
    await open_.use("write_file", by=by, path="a.md", text="private", folder=RUN_FOLDER)
    read = await open_.use("read_file", by="s2", path="a.md", folder=RUN_FOLDER)
    assert read.items[0].label.readers == frozenset({ANA})
    assert read.items[0].label.sources == {"notes:own", RUN_FOLDER}
    own = ProjectRun(tmp_path / "own", repo=False, readers=frozenset({ANA}))
    await own.use("write_file", by=own.context(label=private), path="a.md", text="x", folder=BOOK)


async def test_commit_with_restricted_text_is_refused(tmp_path: Path) -> None:
    tools = ProjectRun(tmp_path)
    repository(tools.root)
    await tools.use("write_file", path="a.md", text="open", folder=BOOK)
    by = tools.context(label=Label(True, frozenset({ANA})))
    assert "fewer people" in await tools.fails("git_commit", by=by, message="x", folder=BOOK)
    assert branches(pygit2.Repository(str(tools.root))) == {"main", "assistant/r1-1"}


async def test_folder_is_hidden_from_people_who_may_not_read_it(tmp_path: Path) -> None:
    tools = ProjectRun(tmp_path, repo=False, readers=frozenset({"U0BEN"}))
    write_files(tools.root)
    only = tools.context(handles=Handles({BOOK: "book"}))
    for folder in (BOOK, "book", ""):
        found = await tools.fails("list_files", by=only, folder=folder)
        assert found.startswith("No folder")
    assert "No folder is open" in await tools.fails("read_file", by=only, path="book:README.md")
    assert (await tools.use("list_files")).note == "run is empty."  # as if there were no other


def settings_with(tmp_path: Path, **files: object) -> Settings:
    base = settings_for()
    section = base.files.model_copy(update=files)
    return base.model_copy(update={"files": section, "data_dir": tmp_path / "data"})


async def kit_of(tmp_path: Path, options: Options | None = None, **files: object) -> FileTools:
    async with store_at(tmp_path / "db") as store:
        return FileTools(settings_with(tmp_path, **files), store.database, options)


async def test_file_tools_are_offered_only_if_they_can_work(tmp_path: Path) -> None:
    repository(tmp_path / "book")
    plain = await kit_of(tmp_path)
    opened = await plain.open("r1", ANA)
    assert opened.handles == {RUN_FOLDER: "run"}
    offered = {t.name for t in scopes.offered_tools("files", opened.clients)}
    assert not {"git_commit", "git_push", "run_command"} & offered
    assert plain.find_missing().keys() == {"git_commit", "git_push", "run_command"}

    book = ProjectSettings(path=tmp_path / "book", push=True, readers=("members",))
    full = await kit_of(tmp_path, projects={"book": book}, sandbox=("sh", "-c", "{command}"))
    opened = await full.open("r1", ANA)
    assert opened.handles == {RUN_FOLDER: "run", BOOK: "book"}
    clients = {Folders, Git, GitPush, Commands}
    assert names_in(opened.clients) == names_in(dict.fromkeys(clients))
    assert full.find_missing() == {}


@pytest.mark.parametrize(
    ("folder", "name"),
    [("My Book 2", "my-book-2"), ("run", "run-folder")],
)
async def test_command_line_option_adds_a_folder(tmp_path: Path, folder: str, name: str) -> None:
    repository(tmp_path / folder)
    options = Options("offline", folder=tmp_path / folder)
    book = ProjectSettings(path=tmp_path / "nowhere", push=True)
    kit = await kit_of(tmp_path, options, projects={"book": book})
    opened = await kit.open("r1", None)
    assert opened.handles == {RUN_FOLDER: "run", f"files:{name}": name}
    assert GitPush not in opened.clients
    assert "Slack" in kit.find_missing()["git_push"]
    missing = await kit_of(tmp_path, Options("offline", folder=tmp_path / "nowhere"))
    with pytest.raises(SetupError, match="There is no folder"):
        await missing.open("r1", None)
    assert kit.readers() == {f"files:{name}": frozenset()}


@pytest.mark.parametrize("inner", ["bare.git", "book/.git"])
async def test_git_directories_are_rejected_as_project_folders(tmp_path: Path, inner: str) -> None:
    with_remote(repository(tmp_path / "book"), tmp_path / "bare.git")
    kit = await kit_of(tmp_path, projects={"book": ProjectSettings(path=tmp_path / inner)})
    assert (await kit.open("r1", ANA)).handles == {RUN_FOLDER: "run"}
    (why,) = kit.problems()
    assert "is what git keeps" in why


def test_project_may_not_be_named_run(tmp_path: Path) -> None:
    path = tmp_path / "assistant.yaml"
    path.write_text("files: {projects: {run: {path: /srv/run}}}\n")
    with pytest.raises(SettingsError, match="no project may be called run"):
        load_settings(path, env={})


def test_each_run_id_gets_a_unique_safe_folder_name() -> None:
    assert place_of("abc123") == "abc123"
    assert len({place_of(run) for run in ("a/b", "a_b", "..", "a/../b")}) == 4
    assert not any(set(place_of(run)) & set("/.") for run in ("a/b", ".."))


async def test_folders_of_old_and_of_forgotten_requests_are_deleted(tmp_path: Path) -> None:
    settings, now = settings_with(tmp_path), datetime.now(UTC)
    work = tmp_path / "data/work"
    async with store_at(tmp_path / "db") as store:
        ages = {"new": 0, "kept": 30, "old": 400, "forgotten": 30, "at-work": 0.5, "locks": 900}
        for run, days in ages.items():
            (work / run / "folder").mkdir(parents=True)
            (work / run / "log.jsonl").write_text("\n")
            if run not in ("forgotten", "at-work"):
                await store.start_run(run, "ask", "Write it", "claude", {})
            at = now - timedelta(days=days)
            await store.database.write(sa.update(runs).where(runs.c.id == run).values(started=at))
            for path in (work / run / "log.jsonl", work / run):
                os.utime(path, (at.timestamp(), at.timestamp()))
        await tidy(store.database, settings.retention, settings.data_dir)
    assert {path.name for path in work.iterdir()} == {"new", "kept", "at-work", "locks"}


async def test_context_changes_a_limited_number_of_files_and_only_if_asked(
    tools: ProjectRun,
) -> None:
    for number in range(MAX_FILED):
        await tools.use("write_file", path=f"{number}.md", text="x", folder=RUN_FOLDER)
    more = {"path": "more.md", "text": "x", "folder": RUN_FOLDER}
    assert "Hand in what you have" in await tools.fails("write_file", **more)
    await tools.use("write_file", by="s2", **more)
    unasked = tools.context("s3", intent=EMPTY_INTENT)
    assert "Nobody has asked" in await tools.fails("write_file", by=unasked, **more)


@pytest.mark.parametrize(
    ("url", "token", "is_sent"),
    [
        ("https://git.example/a.git", "t", True),
        ("https://git.example.evil/a.git", "t", False),
        ("http://git.example/a.git", "t", False),
        ("https://git.example:8443/a.git", "t", False),
        ("https://git.example/a.git", None, False),
    ],
)
def test_git_token_is_sent_only_to_the_host_of_the_remote(
    url: str, token: str | None, is_sent: bool
) -> None:
    answers = Answers(token, https_host("https://git.example/a.git"))
    if is_sent:
        login = answers.credentials(url, None, CredentialType.USERPASS_PLAINTEXT)
        assert login.credential_tuple == ("x-access-token", "t")
    with pytest.raises(pygit2.GitError):  # git asks again if it was wrong
        answers.credentials(url, None, CredentialType.USERPASS_PLAINTEXT)


async def test_write_path_cannot_reach_a_project_the_request_does_not_name(
    tools: ProjectRun,
) -> None:
    (place := tools.data.parent / "payroll").mkdir()
    folder = Folder(place, 64 * KB, tools.data / "locks/payroll")
    other = replace(tools.projects[BOOK], handle=PAYROLL, title="payroll", folder=folder)
    tools.projects[PAYROLL] = other
    tools.begin()
    handles = Handles({BOOK: "book", PAYROLL: "payroll", RUN_FOLDER: "run"})
    by = tools.context(handles=handles)
    for args in ({"path": "a.md", "folder": PAYROLL}, {"path": "payroll:a.md"}):
        reason = await tools.fails("write_file", by=by, text="x", **args)
        assert "does not name payroll" in reason
    assert not list(place.iterdir())
    await tools.use("write_file", by=by, path="book:a.md", text="x")
    assert (tools.root / "a.md").read_text() == "x"


async def test_project_is_written_only_if_the_request_names_it(tmp_path: Path) -> None:
    tools = ProjectRun(tmp_path)
    repository(tools.root)
    intent = Intent(text="Sum up what is new.", home="D0ANA")
    fooled = tools.context(intent=intent)
    write = {"path": "a.md", "text": "x"}
    for tool, args in (("write_file", write), ("git_commit", {"message": "x"})):
        for folder in ({"folder": BOOK}, {}):
            assert "does not name book" in await tools.fails(tool, by=fooled, **args, **folder)
    await tools.use("write_file", by=fooled, **write, folder=RUN_FOLDER)
    assert not is_written(tools.root, "a.md")
    named = tools.context(intent=Intent(text="Add it to the Book.", home="D0ANA"))
    await tools.use("write_file", by=named, path="a.md", text="x", folder=BOOK)
    assert is_written(tools.root, "a.md")
