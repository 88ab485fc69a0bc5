"""Kit of the tests of schedules: a bot with schedules, and their occurrences.

Their crontabs are far away, so that a run begins only when the test calls `fire`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from engine_kit import come
from serve_kit import ASKER, Served, change_settings, serve

from bot.schedules.scheduler import Schedules
from bot.storage.schedules import Occurrence
from config.schedules import Schedule
from config.settings import Settings

Json = dict[str, Any]

NEVER = f"0 0 1 {(datetime.now(UTC).month + 5) % 12 + 1} *"
"""A crontab that is always due in about half a year."""
LONG_AGO = 36_500
"""Days that reach back to all messages of the tests' workspaces."""


def sweep(**more: Any) -> Schedule:
    """A sweep of all support channels into a direct message to the asker."""
    fields = {"channels": ("support-*",), "since_days": LONG_AGO, **_PLAIN}
    return Schedule(**{"kind": "sweep", **fields, **more})


def triage(**more: Any) -> Schedule:
    """A triage of the asker's mailbox into a direct message to them."""
    return Schedule(**{"kind": "triage", "since_days": LONG_AGO, **_PLAIN, **more})


_PLAIN: Json = {"cron": NEVER, "to": "dm", "owner": ASKER}


@dataclass
class ScheduledBot:
    """A bot at work that has schedules."""

    bot: Served

    def __post_init__(self) -> None:
        self.schedules.runner.settling = timedelta()

    @property
    def schedules(self) -> Schedules:
        return self.bot.bench.schedules

    async def set(self, name: str, spec: Schedule) -> None:
        """Create one as in chat."""
        await self.schedules.store.create(name, spec, "chat", datetime.now(UTC))

    async def fire(self, name: str, at: datetime | None = None) -> Occurrence:
        """Let it run now; return the occurrence once it is over."""
        occurrence = await self.begin(name, at)
        return await self.over(occurrence)

    async def begin(self, name: str, at: datetime | None = None) -> Occurrence:
        """Let it run now; return at once."""
        occurrence = await self.schedules.store.ask_now(name, at or datetime.now(UTC))
        self.schedules.worker.wake()
        return occurrence

    async def over(self, occurrence: Occurrence) -> Occurrence:
        """Return the occurrence once it ran, failed or was skipped."""
        return await self._comes(occurrence, lambda now: now.state not in ("due", "running"))

    async def waits_again(self, occurrence: Occurrence, tries: int) -> Occurrence:
        """Return the occurrence once so many tries of it have failed."""
        return await self._comes(occurrence, lambda now: now.tries >= tries)

    async def wait_for_delivery(self, occurrence: Occurrence) -> Occurrence:
        """Return the occurrence once its delivery is over."""
        return await self._comes(occurrence, lambda now: now.delivery not in (None, "waiting"))

    async def wait_for_tries(self, occurrence: Occurrence, times: int = 1) -> Occurrence:
        """Return the occurrence once its delivery was tried so often."""
        return await self._comes(occurrence, lambda now: now.delivery_tries >= times)

    async def _comes(
        self, occurrence: Occurrence, condition: Callable[[Occurrence], bool]
    ) -> Occurrence:
        async def find_occurrence() -> Occurrence | None:
            now = await self.schedules.store.occurrence(occurrence.schedule, occurrence.at)
            return now if now and condition(now) else None

        return await come(find_occurrence)

    async def document(self, occurrence: Occurrence) -> Json:
        """Return the report of an occurrence that ran."""
        assert occurrence.run, occurrence
        return dict((await self.bot.store.run(occurrence.run)).result or {})

    def private_texts(self, user: str = ASKER) -> list[str]:
        """Return the direct messages to this user."""
        return [m.text for m in self.bot.slack.visible(self.bot.slack.people.dm(user))]


@asynccontextmanager
async def scheduled_bot(
    tmp_path: Path, schedules: Mapping[str, Schedule], *args: Any, **more: Any
) -> AsyncIterator[ScheduledBot]:
    """A bot with these schedules in its settings; the rest is for `serve_kit.serve`."""
    async with serve(tmp_path, *args, **{**more, "change": with_schedules(schedules, more)}) as bot:
        yield ScheduledBot(bot)
        assert await bot.bench.schedules.worker.drain(60)


def with_schedules(schedules: Mapping[str, Schedule], more: Mapping[str, Any]) -> Any:
    """Return a change of settings that adds these, after the one in `more`, and does not pace
    calls to the tests' Slack."""
    other = more.get("change") or (lambda settings: settings)

    def change(settings: Settings) -> Settings:
        unpaced = change_settings(other(settings), slack={"paced": False})
        return unpaced.model_copy(update={"schedules": dict(schedules)})

    return change
