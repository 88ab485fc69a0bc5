"""A run as commands have it: recorded from its start, and never left running."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bot_kit import export, small_export

from bot.context import App, open_app
from bot.tooling.provider import Options
from config.settings import load_settings
from subagents.events import ignore


@pytest.mark.parametrize(
    ("crash", "status"),
    [(RuntimeError("kaput"), "failed"), (asyncio.CancelledError(), "cancelled")],
)
async def test_a_run_that_crashes_is_not_left_running(
    tmp_path: Path, crash: BaseException, status: str
) -> None:
    given = Options("offline", slack_export=small_export(tmp_path))
    async with open_app(load_settings(), given, ignore) as app:
        with pytest.raises(type(crash)):
            await crashing(app, crash)
        (stored,) = await app.store.runs()
        assert stored.status == status
        assert stored.error is not None
        assert stored.error["code"] == type(crash).__name__


async def crashing(app: App, crash: BaseException) -> None:
    async with app.run("ask", "What?"):
        assert [r.status for r in await app.store.runs()] == ["running"]
        raise crash


async def test_an_export_without_messages_ends_now(tmp_path: Path) -> None:
    given = Options("offline", slack_export=export(tmp_path, {"a": []}))
    async with open_app(load_settings(), given, ignore) as app:
        assert abs(app.as_of - datetime.now(UTC)) < timedelta(minutes=1)


async def test_an_address_without_a_key_is_enough_for_a_local_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    given = Options("claude", slack_export=small_export(tmp_path))
    async with open_app(load_settings(), given, ignore) as app:
        assert app.model_name == "claude"
