"""Manage schedules from chat: describe, list, create, pause, resume and delete them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bot.schedules.description import (
    contents,
    destination,
    line,
    moment,
    next_run,
    reads,
    timing,
    when,
)
from bot.schedules.description import (
    name as name_of,
)
from bot.schedules.store import ScheduleError, ScheduleStore
from bot.schedules.validation import (
    ScheduleFault,
    ScheduleValidator,
    find_channel,
)
from bot.storage.schedules import StoredSchedule
from bot.tasks.sources import match_channels
from config.schedules import OWN_DESTINATION, PERSON, Schedule
from config.words import current, phrase
from scopes.label import Label
from scopes.schedules import ScheduleChange
from scopes.slack_reader import ChannelInfo
from scopes.tool import ToolError

log = logging.getLogger(__name__)

MIN_PAUSE = timedelta(minutes=15)
"""Shortest pause between two runs of a schedule set in chat."""

OFTEN = (
    "It would run {often}, and every 15 minutes is the most. Nothing is set up: name times that "
    "lie further apart."
)
DESTINATION_ERROR = (
    "Its reports may not go there: they tell what not everyone there may read ({why}). Let them go "
    "to `dm`, or choose another destination."
)
MOST_LISTED = 50
"""Maximum schedules listed in one answer; the rest is counted."""
STATES: Mapping[ScheduleChange, str] = {"pause": "paused", "resume": "active", "delete": "deleted"}
"""Change -> the state that it leads to."""


@dataclass(frozen=True)
class ScheduleService:
    """Implements `scopes.schedules.ScheduleSetup`; one for each process. Also raises StoreError."""

    store: ScheduleStore
    validator: ScheduleValidator

    async def zone(self, by: str) -> str:
        directory = self.validator.directory
        person = await directory.people.person(by, directory.team)
        try:
            return ZoneInfo(person.zone if person and person.zone else "UTC").key
        except (ValueError, OSError, LookupError):
            log.warning("the time zone of %s is not known here", by)
            return "UTC"

    async def place(self, by: str, to: str) -> str:
        """Return the id of a destination; one that this person may not read counts as missing."""
        to = to.removeprefix("<@").removesuffix(">")
        if to == OWN_DESTINATION or "@" in to or PERSON.fullmatch(to):
            return to
        channels = await self._channels()
        found = find_channel(channels, to) or find_channel(channels, f"#{to.lstrip('#')}")
        if found and await self.validator.directory.may_read(by, found.id):
            return found.id
        raise ToolError(
            f"There is no channel {to[:80]!r} to post to that the requester may read, or it is "
            "archived. If it is private, invite me there first."
        )

    async def preview_schedule(
        self, name: str, spec: Schedule, label: Label, home: str
    ) -> Mapping[str, str]:
        if await self._exists(name, spec, label):
            raise ToolError(f"The schedule {name} is set already, just so.")
        channels, waits = await self._check(spec, label)
        public_names = [c.name for c in channels if not c.is_private or home.startswith("D")]
        goes = destination(spec, await self._names(spec))
        goes += f" ({spec.language})" * bool(spec.language)
        goes += f"; {phrase('schedule.quiet')}" * spec.quiet
        if spec.kind == "ask" and not spec.is_private:
            goes += f"; {phrase('schedule.held')}"
        goes += f"; {phrase('schedule.not_allowed')}" * waits
        shows = spec.kind if spec.kind in ("ask", "reminder") else "report"
        missed = phrase("schedule.missed", hours=f"{spec.missed_hours:g}")
        runs = phrase("schedule.rights", amount=current().usd(spec.budget_usd), missed=missed)
        return {
            phrase("schedule.when"): timing(spec, datetime.now(UTC)),
            phrase(f"schedule.{shows}_shows"): reads(
                spec, public_names, len(channels) - len(public_names)
            ),
            phrase("schedule.goes_to"): goes,
            phrase("schedule.runs"): missed if spec.kind == "reminder" else runs,
        }

    async def create(self, name: str, spec: Schedule, label: Label) -> str:
        now = datetime.now(UTC)
        if not await self._exists(name, spec, label):
            await self._check(spec, label)
            try:
                await self.store.create(name, spec, "chat", now, label)
            except ScheduleError as error:
                raise ToolError(f"{error} {error.hint}") from error
            log.info("%s set the schedule %s", spec.owner, name)
        return phrase(
            "schedule.is_set", kind=name_of(spec.kind), name=name, times=timing(spec, now)
        )

    async def list_schedules(self, by: str, home: str) -> tuple[dict[str, str], str]:
        """List schedules: in a DM the person's own and reminders from others (all for an
        administrator), else those that post here.
        """
        rows, now = await self.store.all(), datetime.now(UTC)
        admin, alone = by in await self.validator.policy.admins(), home.startswith("D")
        channels = await self._channels() if rows else []
        names = {c.id: c.name for c in channels if c.id == home or not c.is_private}
        if alone:
            seen = [row for row in rows if admin or by in (row.spec.owner, row.spec.to)]
        else:
            seen = [row for row in rows if _posts_to(row.spec.to, home, names)]
        hidden = frozenset[str]() if alone else _private_patterns(seen, channels)
        found = dict[str, str]()
        for row in seen[:MOST_LISTED]:
            is_own = row.spec.owner == by
            whose = phrase(
                "schedule.your_rights" if is_own else "schedule.rights_of", who=row.spec.owner
            )
            reading = contents(row.spec) if alone else _describe_sources(row, hidden)
            found[row.id] = line(row, now, reading=reading, whose=whose, names=names)
        note = f"{len(seen)} {'schedule' if len(seen) == 1 else 'schedules'}."
        note += f" {len(seen) - MOST_LISTED} are left out." if len(seen) > MOST_LISTED else ""
        return found, note

    async def preview_change(self, by: str, name: str, what: ScheduleChange) -> Mapping[str, str]:
        row = await self._own(by, name, what)
        if row.state == STATES[what]:
            raise ToolError(f"{name} is {row.state} already.")
        times = timing(row.spec, datetime.now(UTC)) if what == "resume" else when(row.spec)
        follows = phrase(f"schedule.{what}_means")
        return {name_of(row.spec.kind): times, phrase("schedule.follows"): follows}

    async def change(self, by: str, name: str, what: ScheduleChange) -> str:
        if what == "delete" and await self.store.get(name) is None:
            return phrase("schedule.delete_done", name=name)
        row, now = await self._own(by, name, what), datetime.now(UTC)
        if row.state != STATES[what]:
            if what == "pause":
                await self.store.pause(name, phrase("schedule.paused_by", by=f"<@{by}>"))
            elif what == "resume":
                await self.store.resume(name, now)
            else:
                await self.store.delete(name)
            log.info("%s: %s %s", by, what, name)
        return phrase(f"schedule.{what}_done", name=name, at=next_run(row.spec, now))

    async def _exists(self, name: str, spec: Schedule, label: Label) -> bool:
        """Return whether it already exists unchanged. Raises ToolError if the name is taken."""
        existing = await self.store.get(name)
        if existing is None or existing.state == "done":
            return False
        if existing.spec == spec and existing.origin == "chat" and label.within(existing.label):
            return True
        raise ToolError(phrase("schedule.taken", name=name))

    async def _own(self, by: str, name: str, what: ScheduleChange) -> StoredSchedule:
        """Return the schedule if this person may change it: they own it, or it reminds them.

        Raises ToolError.
        """
        row = await self.store.get(name)
        may = row and by in (row.spec.owner, row.spec.to, *await self.validator.policy.admins())
        if row is None or not may:
            raise ToolError(
                f"There is no schedule {name} that the requester may change. Its owner, the person "
                "whom it reminds and administrators may; schedule_list shows which there are."
            )
        if what == "delete" and row.origin == "config":
            raise ToolError(f"{name} is set in the settings file. Pause it, or remove it there.")
        is_over = row.state == "done" or row.spec.timetable.after(datetime.now(UTC)) is None
        if what != "delete" and is_over:
            raise ToolError(f"The one time of {name} is over: there is nothing to {what}.")
        if what == "resume" and row.state == "refused":
            raise ToolError(f"{name} is not paused; it cannot run: {row.why}")
        return row

    async def _check(self, spec: Schedule, label: Label) -> tuple[list[ChannelInfo], bool]:
        """Return the channels that a schedule would read now, and whether its reports need a grant.

        Raises ToolError for an invalid schedule.
        """
        _check_times(spec, datetime.now(UTC))
        try:
            async with aclosing(self.validator.reader.fresh()) as reader:
                channels = await self.validator.check(spec, "chat", reader)
        except ScheduleFault as fault:
            raise ToolError(str(fault)) from fault
        obstacles = await self.validator.obstacles(spec, channels, spec.to, label)
        if never := [o for o in obstacles if not o.grantable]:
            raise ToolError(DESTINATION_ERROR.format(why=never[0].why))
        if obstacles and not await self.validator.policy.admins():
            raise ToolError(DESTINATION_ERROR.format(why="and nobody is named who could allow it"))
        return channels, bool(obstacles)

    async def _names(self, spec: Schedule) -> Mapping[str, str]:
        """Return the name of its destination, by id."""
        if not PERSON.fullmatch(spec.to):
            return {c.id: c.name for c in await self._channels()}
        directory = self.validator.directory
        return await directory.people.names([spec.to], directory.team)

    async def _channels(self) -> list[ChannelInfo]:
        try:
            return await self.validator.channels()
        except ScheduleFault as fault:
            raise ToolError(str(fault)) from fault


def _check_times(spec: Schedule, now: datetime) -> None:
    """Raise ToolError for times that are past or too close to each other."""
    pause = spec.timetable.shortest(now)
    if pause is not None and pause < MIN_PAUSE:
        times_text = when(spec)
        raise ToolError(OFTEN.format(often=f"{times_text[:1].lower()}{times_text[1:]}"))
    if spec.at:
        at = spec.timetable.once
        shown = f"{moment(at.astimezone(spec.timetable.info))} ({spec.zone})"
        if at <= now:
            raise ToolError(phrase("schedule.past", at=shown))


def _private_patterns(
    rows: Sequence[StoredSchedule], channels: Sequence[ChannelInfo]
) -> frozenset[str]:
    """Return the patterns of these schedules that match a private channel, or no channel."""
    found = {p: match_channels(channels, p) for row in rows for p in row.spec.channels}
    return frozenset(p for p, hits in found.items() if any(c.is_private for c in hits) or not hits)


def _posts_to(to: str, channel: str, names: Mapping[str, str]) -> bool:
    """Return whether a destination, by id (set in chat) or by name (settings), is this channel."""
    return to.lstrip("#").casefold() in (channel.casefold(), names.get(channel, channel).casefold())


def _describe_sources(row: StoredSchedule, unnamed: Collection[str]) -> str:
    """Describe the sources or the text of a schedule, as far as they may be shown here."""
    if row.spec.kind in ("ask", "reminder"):
        return contents(row.spec) if row.spec.kind == "reminder" else ""
    shown = [p for p in row.spec.channels if p not in unnamed]
    return ", ".join(
        shown if len(shown) == len(row.spec.channels) else [*shown, phrase("schedule.private_ones")]
    )
