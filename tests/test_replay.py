"""The command `replay`: what it compares, what it finds, and what it refuses."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, closing
from importlib.resources import files
from pathlib import Path

import pytest
import schedule_kit
import sqlalchemy as sa
from bot_kit import Json, Shell, model_at, refusal_text
from engine_kit import call, is_child, say, scripted_parent, since, submission, turns
from schedule_kit import scheduled_bot
from serve_kit import Served, serve

import config.prompts
import subagents.brief
from bot.local.offline.model import answer as offline
from bot.runs.store import Store
from bot.storage.encryption import cipher_of
from bot.storage.tables import steps
from bot.tasks.replay import Departure, Replay, read_record
from config.settings import load_settings

SAMPLE = ("--sample", "--model", "offline")
RECORDED = {
    "a question": ("ask", "how many orders are there?", *SAMPLE),
    "a sweep that a parent starts": ("ask", "sweep csm-*", *SAMPLE),
    "a triage that a parent starts": ("ask", "triage my inbox", *SAMPLE),
    "a sweep with a tracker": ("sweep", "--channels", "csm-*", "--tracker", "F0BUGTRACK", *SAMPLE),
    "a triage": ("triage", "--limit", "12", *SAMPLE),
    "a review of code": ("review", "app.py", "--model", "offline"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file to review."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("def pay(amount):\n    return amount * 2\n")
    return tmp_path


def record(shell: Shell, *command: str) -> str:
    """Run a command; return the id of its run."""
    done = shell(*command, "--json")
    assert done.code in (0, 1), done.err
    return str(done.json["run_id"])


def database() -> Path:
    return load_settings().data_dir / "assistant.sqlite"


def contents() -> list[str]:
    with closing(sqlite3.connect(database())) as connection:
        return list(connection.iterdump())


def change(statement: str) -> None:
    with closing(sqlite3.connect(database())) as connection, connection:
        assert connection.execute(statement).rowcount


@pytest.mark.parametrize("command", RECORDED.values(), ids=list(RECORDED))
def test_replay_of_a_recorded_run_matches_and_stores_nothing(
    shell: Shell, folder: Path, command: tuple[str, ...]
) -> None:
    run = record(shell, *command)
    before = contents()
    done = shell("replay", run, "--json")
    assert done.code == 0, done.out
    found = done.json
    assert found["departures"] == []
    assert found["same"] == found["requests"] > 1
    assert found["asked"] == 0
    assert contents() == before
    line = shell("replay", run[:9]).out
    assert line.endswith(f": {found['same']} of {found['requests']} requests are the same.\n")


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the prompts, which is used from the next call of `clear_prompt_caches` on."""
    copy = tmp_path / "package"
    shutil.copytree(str(files("config")), copy)
    monkeypatch.setattr(config.prompts, "files", lambda package: copy)
    clear_prompt_caches()
    yield copy / "prompts"
    monkeypatch.undo()
    clear_prompt_caches()


def clear_prompt_caches() -> None:
    config.prompts._read.cache_clear()
    subagents.brief._template.cache_clear()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    clear_prompt_caches()


def test_replay_with_a_changed_prompt_reports_the_first_differing_request(
    shell: Shell, prompts: Path
) -> None:
    run = record(shell, "sweep", "--channels", "csm-*", *SAMPLE)
    edit(prompts / "subagent.md", "You are a subagent.", "You are a careful reader.")
    done = shell("replay", run)
    assert done.code == 1
    head, _, first, *diff = done.out.splitlines()
    assert head.endswith(" (sweep): 1 of 7 requests are the same.")
    assert first == "Request 1 of s1 departs (prompt): it has another prompt."
    changed = [each for each in diff if each.startswith(("-", "+"))]
    assert changed[2:] == ["-You are a subagent.", "+You are a careful reader."]
    assert (
        "Then: s2/1 (prompt), s3/1 (prompt), s4/1 (prompt), s5/1 (prompt), s5/2 (prompt)."
        in done.out
    )


def test_changed_parent_prompt_or_schema_departs_in_its_first_request(
    shell: Shell, prompts: Path
) -> None:
    run = record(shell, "ask", "how many orders are there?", *SAMPLE)
    edit(prompts / "run_subagent.md", "side by side.", "in parallel.")
    (found, *_) = shell("replay", run, "--json").json["departures"]
    assert (found["context"], found["number"], found["kind"]) == ("p1", 1, "schema")
    assert "\n+Start several in one turn to run them in parallel." in found["diff"]
    edit(prompts / "parent.md", "\n", "\nBe brief.\n")
    (found, *_) = shell("replay", run, "--json").json["departures"]
    assert (found["context"], found["number"], found["kind"]) == ("p1", 1, "prompt")


# ---- changed records, as if the code had changed

QUESTION = ("ask", "What is still open in #csm-spain?", *SAMPLE)


async def open_store() -> Store:
    settings = load_settings()
    return await Store.open(settings.data_dir, None, cipher_of(settings))


def alter(key: str, change: Callable[[Json], Json]) -> None:
    """Change what a step of the only run returned."""

    async def go() -> None:
        async with aclosing(await open_store()) as store:
            (run,) = await store.runs()
            stored, name = await store.steps(run.id), f"{run.id}/{key}"
            update = sa.update(steps).where(steps.c.key == name)
            assert await store.database.write(update.values(body=change(stored[name])))

    asyncio.run(go())


def other_text(body: Json) -> Json:
    body["value"]["outcomes"][0]["text"] += "\nmore"
    return body


def at_once(body: Json) -> Json:
    body["value"]["reply"]["content"] = [{"type": "text", "text": "Nothing is open."}]
    return body


def another_form(body: Json) -> Json:
    return {"value": {"outcomes": "many"}}


@pytest.mark.parametrize(
    ("key", "altered", "line"),
    [
        ("s1/1/tools", other_text, "2 of s1 departs (tool result): "),
        ("p1/0/model", at_once, "1 of s1 departs (order): "),
        ("s1/1/tools", another_form, "2 of s1 departs (record): another version recorded a step"),
    ],
)
def test_replay_of_an_altered_record_reports_the_first_differing_request(
    shell: Shell, key: str, altered: Callable[[Json], Json], line: str
) -> None:
    run = record(shell, *QUESTION)
    alter(key, altered)
    done = shell("replay", run)
    assert done.code == 1
    assert f"\n\nRequest {line}" in done.out


def test_a_step_that_is_not_recorded_ends_the_replay(shell: Shell) -> None:
    run = record(shell, *QUESTION)
    change("DELETE FROM steps WHERE key LIKE '%/s1/1/tools'")
    (found,) = shell("replay", run, "--json").json["departures"]
    assert (found["context"], found["number"], found["kind"]) == ("s1", 2, "record")
    assert found["detail"] == "it takes a step that is not in the record (s1/1/tools)."


# ---- new calls of a model


def test_replay_calls_the_model_from_the_given_context_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(shell, "sweep", "--channels", "csm-*", *SAMPLE)
    before = contents()
    with model_at(monkeypatch) as server:
        done = shell("replay", run, "--model", "claude", "--from", "s3", "--json")
    assert done.code == 0
    assert (done.json["same"], done.json["asked"], done.json["departures"]) == (2, 5, [])
    assert len(server.recorded) == 5
    assert len([body for body in server.recorded if is_child(body)]) == 4
    assert done.json["result"]["kind"] == "sweep"
    assert contents() == before


def test_unrecorded_tool_call_is_reported_as_a_departure(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = call("read_channel_history", channel="C0CSMITALY")
    reader = turns(other, lambda body: submission(since(body)))
    model = scripted_parent(say("Nothing is open."), children=reader)
    run = record(shell, *QUESTION)
    with model_at(monkeypatch, model):
        done = shell("replay", run, "--model", "claude", "--from", "s1", "--json")
    assert done.code == 1
    (found,) = done.json["departures"]
    assert (found["context"], found["kind"]) == ("s1", "tool call")
    assert "the record holds no answer to this call" in str(done.json["result"]["subagents"])


# ---- runs of the served bot


async def departures(bot: Served, run: str) -> Sequence[Departure]:
    stored = await bot.store.run(run)
    replay = Replay(await read_record(bot.store, stored, 30), bot.settings, bot.store.database)
    await replay.run()
    assert len(replay.repeated_calls) > 1
    return replay.departures


async def test_a_mention_is_replayed(tmp_path: Path) -> None:
    async with serve(tmp_path) as bot:
        await bot.answer(bot.ask("What is open in #support-2?"))
        (run,) = await bot.store.runs()
        assert await departures(bot, run.id) == []


async def test_an_occurrence_of_a_schedule_is_replayed(tmp_path: Path) -> None:
    async with scheduled_bot(tmp_path, {"markets": schedule_kit.sweep()}, offline) as s:
        occurrence = await s.fire("markets")
        assert await departures(s.bot, occurrence.run or "") == []


# ---- what cannot be replayed


def test_impossible_replay_is_refused_with_the_reason(shell: Shell) -> None:
    run = record(shell, "ask", "how many orders are there?", *SAMPLE)
    assert "There is no run 'nope'" in refusal_text(shell("replay", "nope"), "unknown_run")
    wrong = shell("replay", run, "--model", "gpt")
    assert "No model 'gpt'" in refusal_text(wrong, "bad_model")
    alone = shell("replay", run, "--from", "s1")
    assert "Add --model claude." in refusal_text(alone, "from_alone")
    unknown = shell("replay", run, "--from", "s7", "--model", "offline", "--json")
    assert "has no context 's7'. Its contexts: p1, s1" in refusal_text(unknown, "no_context")

    change("DELETE FROM steps WHERE key LIKE '%/task'")
    assert "was recorded by another version" in refusal_text(shell("replay", run), "old_record")
    change("DELETE FROM contexts")
    gone = refusal_text(shell("replay", run), "no_record")
    deleted = "deleted after 30 days (`retention.trajectories_days`) and by `assistant forget`"
    assert deleted in gone
    change("UPDATE runs SET finished = NULL")
    assert "has not ended" in refusal_text(shell("replay", run), "not_ended")
