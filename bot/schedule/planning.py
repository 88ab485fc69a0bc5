"""What one run of a schedule reads: found out once, without a model, and kept for a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from bot.schedule.budget import planned_usd
from bot.schedule.checking import Checking
from bot.schedule.readers import language_of
from bot.schedule.records import StoredSchedule, Tick
from bot.schedule.ticks import Ticks
from bot.schedule.windows import changes, since_json, windows
from config.schedules import Schedule
from config.settings import Settings
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import Window, estimate_tokens, iso
from subagents.run import Run

log = logging.getLogger(__name__)

SURELY = 2.0
"""A run that may spend so many times what is likely needs no estimate."""
LOOK_SHARE = 0.3
"""Share of a run's time that an estimate of its cost may take."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run reads; of a triage no channels."""

    name: str
    workflow: str
    spec: Schedule
    oldest: datetime
    latest: datetime
    notes: tuple[str, ...]
    channels: tuple[ChannelInfo, ...] = ()
    since: Mapping[str, datetime] | None = None
    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    covered: Mapping[str, str] | None = None
    """By channel id: up to where it was covered before."""
    last: datetime | None = None
    """End of the last report that was delivered."""
    reports: int = 0
    """How many were delivered before."""
    likely_usd: float | None = None
    """What it will cost if it costs as much a day as the last one; None = there is none."""
    language: str | None = None
    """Of the report; None = nobody knows what its readers read."""

    def to_json(self) -> dict[str, Any]:
        times = {name: getattr(self, name) for name in ("oldest", "latest", "last")}
        return {
            **{n: getattr(self, n) for n in ("name", "workflow", "notes", "added", "gone")},
            **{n: getattr(self, n) for n in ("covered", "reports", "likely_usd", "language")},
            **{name: at and iso(at) for name, at in times.items()},
            "spec": self.spec.model_dump(mode="json"),
            "channels": [asdict(each) for each in self.channels],
            "since": since_json(self.since or {}),
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Plan:
        """What `to_json` gave."""
        since = {id: datetime.fromisoformat(at) for id, at in stored["since"].items()}
        lists: dict[str, Any] = {n: tuple(stored[n]) for n in ("notes", "added", "gone")}
        return cls(
            **{name: stored[name] for name in ("name", "workflow", "covered", "reports")},
            **{name: stored[name] for name in ("likely_usd", "language")},
            **lists,
            spec=Schedule.model_validate(stored["spec"]),
            oldest=datetime.fromisoformat(stored["oldest"]),
            latest=datetime.fromisoformat(stored["latest"]),
            last=datetime.fromisoformat(stored["last"]) if stored["last"] else None,
            channels=tuple(ChannelInfo(**each) for each in stored["channels"]),
            since=since,
        )


@dataclass(frozen=True)
class Planning:
    """Plans the runs of schedules."""

    settings: Settings
    checking: Checking
    ticks: Ticks

    async def plan(self, stored: StoredSchedule, tick: Tick, reader: SlackReader) -> Plan:
        """The plan of one run. Raises Wrong, NotChecked and StoreError."""
        spec = stored.spec
        channels = await self.checking.check(spec, stored.origin, reader)
        days = getattr(self.settings, spec.kind).since_days
        first = timedelta(days=spec.since_days or days)
        if spec.kind == "triage":
            now = datetime.now(UTC)  # what came in since its time came is read, too
            window = (now - first, now)
            return Plan(stored.id, tick.key, spec, *window, (), language=spec.language)
        found = await self.ticks.last_delivered(stored.id)
        extra = (found[0].extra or {}) if found else {}
        names = {c.id: c.name for c in channels}
        covered = extra.get("covered") or {}
        made = windows(names, covered, tick.at, first)
        added, gone = changes(names, extra.get("channels"))
        return Plan(
            *(stored.id, tick.key, spec, made.oldest, tick.at, made.notes),
            channels=tuple(channels),
            since=made.since,
            added=tuple(added),
            gone=tuple(gone),
            covered=covered,
            last=found[0].latest if found else None,
            reports=await self.ticks.reports(stored.id),
            likely_usd=_likely(found[0], made.oldest, tick.at) if found else None,
            language=await self._language(spec, reader),
        )

    async def _language(self, spec: Schedule, reader: SlackReader) -> str | None:
        if told := spec.language or self.settings.report.language:
            return told
        try:
            return await language_of(spec, reader)
        except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            log.warning("the readers of %s are not known: %s", spec.to, error)
            return None


def _likely(last: Tick, oldest: datetime, latest: datetime) -> float | None:
    if last.cost_usd is None or last.oldest is None or last.latest is None:
        return None
    span = max(last.latest - last.oldest, timedelta(minutes=1))
    return last.cost_usd * max(1.0, (latest - oldest) / span)


async def estimated_usd(run: Run, reader: SlackReader, plan: Plan) -> float | None:
    """About what a sweep will cost; None = that is not known, or it is not worth a look: the last
    one cost far less than this may.

    What is read for it, the sweep has from the reader.
    """
    if plan.likely_usd is not None and plan.likely_usd * SURELY < run.limits.cost_usd:
        return None

    async def tokens(channel: ChannelInfo) -> int:
        window = Window((plan.since or {})[channel.id], plan.latest)
        try:
            found = await reader.conversations(channel.id, window)
        except (Absent, SlackRefused, aiohttp.ClientError, TimeoutError):
            return 0  # the sweep says so in its place
        return sum(estimate_tokens(i.line()) + 1 for c in found for i in c.items)

    try:
        async with asyncio.timeout(LOOK_SHARE * run.purse.seconds_left()):
            sizes = await asyncio.gather(*map(tokens, plan.channels))
    except TimeoutError:
        return None
    return planned_usd(run.model.name("subagent_fast"), run.model.name("parent"), sizes)


def too_little(planned: float | None, usd: float) -> tuple[str, ...]:
    """What to say before a run begins that will not be done with what it may spend."""
    if planned is None or planned <= usd:
        return ()
    said = f"About ${planned:.2f} may be needed and ${usd:.2f} may be spent"
    return (f"{said}: it may not cover everything.",)
