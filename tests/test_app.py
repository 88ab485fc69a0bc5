"""The composition root: what a run needs, made once, recorded from its start, closed at its end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bot_kit import export, said, small_export

from bot.context import App, open_app
from bot.errors import SetupError
from bot.local.samples import SAMPLE_AS_OF, SAMPLE_DAYS
from bot.local.workspace import SLACKBOT
from bot.runs.store import Store
from bot.tasks.ask import Ask
from bot.tasks.base import Request
from bot.tooling.provider import Options
from config.settings import Settings, load_settings
from subagents.events import AnswerDelta, Event, ignore

WEEK = timedelta(days=7)


def settings(data_dir: Path, **env: str) -> Settings:
    return load_settings(env={"ASSISTANT_DATA_DIR": str(data_dir), **env})


def options(zip_file: Path, **more: object) -> Options:
    return Options(**{"model": "offline", "slack_export": zip_file, **more})  # type: ignore[arg-type]


async def test_a_run_is_stored_from_its_start_to_its_end(tmp_path: Path, data_dir: Path) -> None:
    async with open_app(settings(data_dir), options(small_export(tmp_path)), ignore) as app:
        async with app.run("ask", "What?") as run:
            assert [r.status for r in await app.store.runs()] == ["running"]
            document = await Ask(app, run, Request("Which channels?", app.window(WEEK))).work()
            await app.finish(run, document)
        (stored,) = await app.store.runs()
        assert (stored.status, stored.result) == ("complete", document.to_json())
        assert (await app.store.trajectory(run.id)).requests
        assert (await app.store.decisions(run.id))[0].tool == "list_channels"


@pytest.mark.parametrize(
    ("crash", "status"),
    [(RuntimeError("kaput"), "failed"), (asyncio.CancelledError(), "cancelled")],
)
async def test_a_run_that_crashes_is_not_left_running(
    tmp_path: Path, data_dir: Path, crash: BaseException, status: str
) -> None:
    async with open_app(settings(data_dir), options(small_export(tmp_path)), ignore) as app:
        with pytest.raises(type(crash)):
            async with app.run("ask", "What?"):
                raise crash
        (stored,) = await app.store.runs()
        assert stored.status == status
        assert stored.error is not None
        assert stored.error["code"] == type(crash).__name__


async def test_an_export_ends_at_the_midnight_after_its_last_message(
    tmp_path: Path, data_dir: Path
) -> None:
    zip_file = export(tmp_path, {"a": [said("10 09:00", "hi"), said("14 23:59", "late")], "b": []})
    async with open_app(settings(data_dir), options(zip_file), ignore) as app:
        assert app.as_of == datetime(2025, 3, 15, tzinfo=UTC)
        assert app.window(WEEK).oldest == datetime(2025, 3, 8, tzinfo=UTC)


async def test_an_export_without_messages_ends_now(tmp_path: Path, data_dir: Path) -> None:
    async with open_app(settings(data_dir), options(export(tmp_path, {"a": []})), ignore) as app:
        assert abs(app.as_of - datetime.now(UTC)) < timedelta(minutes=1)


async def test_the_sample_has_its_own_time(data_dir: Path) -> None:
    async with open_app(settings(data_dir), Options("offline", sample=True), ignore) as app:
        assert app.as_of == SAMPLE_AS_OF
        assert app.window(WEEK).oldest == SAMPLE_AS_OF - timedelta(days=SAMPLE_DAYS)
        assert len(await app.channels()) == 5


async def test_a_window_does_not_begin_before_there_was_time(
    tmp_path: Path, data_dir: Path
) -> None:
    long = options(small_export(tmp_path), since=timedelta(weeks=99_999))
    async with open_app(settings(data_dir), long, ignore) as app:
        assert app.window(WEEK).oldest == datetime(1970, 1, 1, tzinfo=UTC)


async def test_a_user_who_is_nobody_is_told_by_name(tmp_path: Path, data_dir: Path) -> None:
    for user in ("U0NOBODY", SLACKBOT + "X"):
        given = options(small_export(tmp_path), as_user=user)
        async with open_app(settings(data_dir), given, ignore) as app:
            with pytest.raises(SetupError, match=f"There is no user {user} here"):
                await app.channels()


async def test_what_could_not_be_loaded_is_kept_for_the_report(
    tmp_path: Path, data_dir: Path
) -> None:
    zip_file = export(
        tmp_path,
        {"a": [said("10 09:00", "hi")]},
        {"a/2025-03-11.json": b"[", "x/2025-01-01.json": b""},
    )
    async with open_app(settings(data_dir), options(zip_file), ignore) as app:
        assert len(app.problems) == 2
        assert app.problems[0].startswith("a/2025-03-11.json: ")


async def test_everything_is_closed_even_where_the_start_fails(
    tmp_path: Path, data_dir: Path
) -> None:
    for given in (
        Options("claude", slack_export=small_export(tmp_path)),
        Options("offline", slack_export=tmp_path / "none.zip"),
    ):
        with pytest.raises(SetupError):
            async with open_app(settings(data_dir), given, ignore):
                raise AssertionError("it opened")
    store = await Store.open(data_dir)
    assert await store.runs() == []
    await store.aclose()


async def test_an_address_without_a_key_is_enough_for_a_local_model(
    tmp_path: Path, data_dir: Path
) -> None:
    given = Options("claude", slack_export=small_export(tmp_path))
    local = settings(data_dir, ANTHROPIC_BASE_URL="http://127.0.0.1:9")
    async with open_app(local, given, ignore) as app:
        assert app.model_name == "claude"


async def test_events_reach_who_shows_them(tmp_path: Path, data_dir: Path) -> None:
    seen: list[Event] = []
    given = options(small_export(tmp_path), since=timedelta(days=30))
    async with open_app(settings(data_dir), given, seen.append) as app:
        app_text = await answered(app, "What is unanswered in #support-es?")
    kinds = [type(e).__name__ for e in seen]
    assert [k for k in kinds if k.startswith("Sub")] == [
        "SubagentQueued",
        "SubagentStarted",
        "SubagentFinished",
    ]
    streamed = "".join(e.text for e in seen if isinstance(e, AnswerDelta))
    assert streamed.strip() == app_text


async def answered(app: App, question: str) -> str:
    async with app.run("ask", question) as run:
        document = await Ask(app, run, Request(question, app.window(WEEK))).work()
        await app.finish(run, document)
    return document.answer
