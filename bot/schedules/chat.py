"""Manage schedules from chat: describe, list, create, pause, resume and delete them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from bot.schedules.store import ScheduleError, ScheduleStore
from bot.schedules.validation import (
    CheckUnavailable,
    ScheduleInvalid,
    ScheduleValidator,
    admins,
    find_channel,
    matching,
)
from bot.storage.schedules import StoredSchedule
from config.schedules import Schedule
from scopes.label import Label
from scopes.schedules import Change, Listed
from scopes.slack_reader import ChannelInfo
from scopes.tool import ToolError
from subagents.directory import Obstacle

log = logging.getLogger(__name__)

SHOWN = 3
"""Next runs that are shown before somebody decides."""
NAMED = 20
"""Channels that are named; the rest is counted."""


def moment(at: datetime) -> str:
    """Format a time as `Mon 23 Nov 2026 09:00`, in its own zone."""
    return f"{at:%a} {at.day} {at:%b %Y %H:%M}" + (f":{at:%S}" if at.second else "")


def next_runs(spec: Schedule, now: datetime, count: int = SHOWN) -> str:
    """Return the next times, in the schedule's own zone, which is named."""
    times = [moment(at) for at in spec.timetable.next(count, now)]
    return f"{'; '.join(times) or 'never'} ({spec.zone})"


def reads(spec: Schedule, named: Sequence[str], unnamed: int) -> str:
    """Describe what a report is made of.

    `named` are the channels that may be named here, `unnamed` counts the private ones that may not.
    """
    if spec.kind == "triage":
        return "the mailbox of who asks for it"
    shown = [f"#{name}" for name in named[:NAMED]]
    more = len(named) - len(shown)
    shown += [f"{more:,} more"] if more > 0 else []
    shown += [f"{unnamed:,} private {'channel' if unnamed == 1 else 'channels'}"] if unnamed else []
    total = len(named) + unnamed
    count = f"{total:,} {'channel' if total == 1 else 'channels'} now"
    later = [f"{p!r}" for p in spec.channels if set(p) & set("*?[")]
    grows = f"; new ones that match {', '.join(later)} are read, too" if later else ""
    tracker = f"; the tracker {spec.tracker}" if spec.tracker else ""
    return f"{', '.join(shown)} ({count}{grows}){tracker}"


def destination(spec: Schedule, names: Mapping[str, str]) -> str:
    """Describe where its reports go; `names` of channels by id."""
    if spec.is_private:
        return "a direct message to who asks for it"
    if "@" in spec.to:
        return f"{spec.to}, by mail"
    name = names.get(spec.to)
    return f"{spec.to} (#{name})" if name else spec.to


def line(
    stored: StoredSchedule,
    now: datetime,
    *,
    reading: str = "",
    whose: str = "",
    names: Mapping[str, str] | None = None,
) -> str:
    """Format as one line: `markets: sweep of ..., at '0 9 * * 1' (UTC), next ..., to ...`."""
    spec = stored.spec
    what = f"{spec.kind} of {reading}" if reading else spec.kind
    goes = "a direct message" if spec.is_private else destination(spec, names or {})
    when = f"at '{' '.join(spec.cron.split())}' ({spec.zone})"
    whose = f", with {whose}" if whose else ""
    return f"{stored.id}: {what}, {when}, to {goes}{whose}; {state(stored, now)}"


def state(stored: StoredSchedule, now: datetime) -> str:
    """Return `next run ...`, or why there is none."""
    if stored.state == "active":
        failing = "; it fails at present" if stored.trouble else ""
        return f"next run {next_runs(stored.spec, now, 1)}{failing}"
    why = f": {stored.why.rstrip('.')}" if stored.why else ""
    return f"{'cannot run' if stored.state == 'refused' else stored.state}{why}"


WAITS = (
    "not everyone there may read all that it reads: until an administrator allows that for good, "
    "its reports are held back; administrators are asked when the first one is to be posted"
)
MISSED = (
    "of runs missed while I was away the latest one is caught up, up to {hours:g} h later; a run "
    "whose time comes while the one before is at work is left out"
)
"""Policy for runs that cannot start at their time."""
NEVER = (
    "Its reports may not go there: they tell what not everyone there may read ({why}). Let them go "
    "to `dm`, or choose another destination."
)
ONLY_PUBLIC = "mail leaves the workspace, so only public channels are mailed to others"
NO_ADMIN = "only an administrator has reports mailed to others than themselves"
MOST_LISTED = 50
"""Schedules in one answer; the rest is counted."""
STATES: Mapping[Change, str] = {"pause": "paused", "resume": "active", "delete": "deleted"}
"""Change -> the state that it leads to."""
FOLLOWS: Mapping[Change, str] = {
    "pause": "it runs no more until it is resumed",
    "resume": "times that passed while it was paused are not caught up",
    "delete": "it never runs again, and its history goes",
}


@dataclass(frozen=True)
class ScheduleService:
    """Implements `scopes.schedules.ScheduleDesk`; one for each process. Also raises StoreError."""

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
        """Return the id of a destination; what this person may not read is treated as missing."""
        if to == "dm" or "@" in to:
            return to
        channels = await self._channels()
        found = find_channel(channels, to) or find_channel(channels, f"#{to.lstrip('#')}")
        if found and await self.validator.directory.may_read(by, found.id):
            return found.id
        raise ToolError(
            f"There is no channel {to[:80]!r} to post to that the requester may read, or it is "
            "archived. If it is private, invite me there first."
        )

    async def weighed(self, name: str, spec: Schedule, home: str) -> Mapping[str, str]:
        if await self._exists(name, spec):
            raise ToolError(f"The schedule {name} is set already, just so.")
        channels, waits = await self._check(spec)
        named = [c.name for c in channels if not c.is_private or home.startswith("D")]
        names = {c.id: c.name for c in await self._channels()}
        shown = {
            "next runs": next_runs(spec, datetime.now(UTC)),
            "reads": reads(spec, named, len(channels) - len(named)),
            "goes to": destination(spec, names),
            "may cost": f"at most ${spec.budget_usd:.2f} a run",
            "rights": "those of the requester, checked at each run",
            "missed runs": MISSED.format(hours=spec.missed_hours),
        }
        return {**shown, "not yet allowed": WAITS} if waits else shown

    async def create(self, name: str, spec: Schedule) -> str:
        now = datetime.now(UTC)
        if not await self._exists(name, spec):
            await self._check(spec)
            try:
                await self.store.create(name, spec, "chat", now)
            except ScheduleError as error:
                raise ToolError(f"{error} {error.hint}") from error
            log.info("%s set the schedule %s", spec.owner, name)
        return f"The schedule {name} is set. Next run: {next_runs(spec, now, 1)}."

    async def listed(self, by: str, home: str) -> tuple[Sequence[Listed], str]:
        """List one's own schedules (an administrator: all) in a DM, else those that post here."""
        rows, now = await self.store.all(), datetime.now(UTC)
        admin, alone = by in await admins(self.validator.policy), home.startswith("D")
        channels = await self._channels() if rows else []
        names = {c.id: c.name for c in channels if c.id == home or not c.is_private}
        theirs = {row.id for row in rows if admin or row.spec.owner == by}
        here = {row.id for row in rows if not alone and _posts_to(row.spec.to, home, names)}
        seen = [row for row in rows if row.id in (theirs if alone else here)]
        hidden = frozenset[str]() if alone else _private_patterns(seen, channels)
        found = []
        for row in seen[:MOST_LISTED]:
            mine = row.spec.owner == by
            whose = "your rights" if mine else f"the rights of {row.spec.owner}"
            reading = _describe_sources(row, hidden)
            found.append(Listed(row.id, line(row, now, reading=reading, whose=whose, names=names)))
        others = len(theirs - here) if not alone else 0
        note = f"{len(seen)} {'schedule' if len(seen) == 1 else 'schedules'}."
        note += f" {len(seen) - MOST_LISTED} are left out." if len(seen) > MOST_LISTED else ""
        are = "is" if others == 1 else "are"
        note += f" {others} more {are} told in a direct message only." if others else ""
        return found, note

    async def known(self, by: str, name: str, what: Change) -> Mapping[str, str]:
        row = await self._own(by, name, what)
        if row.state == STATES[what]:
            raise ToolError(f"{name} is {row.state} already.")
        shown = {"schedule": f"{row.spec.kind}, '{row.spec.cron}'"}
        if what == "resume":
            shown |= {"next runs": next_runs(row.spec, datetime.now(UTC))}
        return {**shown, "what follows": FOLLOWS[what]}

    async def change(self, by: str, name: str, what: Change) -> str:
        if what == "delete" and await self.store.get(name) is None:
            return f"{name} is deleted."
        row, now = await self._own(by, name, what), datetime.now(UTC)
        if row.state != STATES[what]:
            if what == "pause":
                await self.store.pause(name, f"paused by <@{by}>")
            elif what == "resume":
                await self.store.resume(name, now)
            else:
                await self.store.delete(name)
            log.info("%s: %s %s", by, what, name)
        if what == "resume":
            return f"{name} goes on. Next run: {next_runs(row.spec, now, 1)}."
        return f"{name} is {STATES[what]}."

    async def _exists(self, name: str, spec: Schedule) -> bool:
        """Return whether it already exists unchanged. Raises ToolError if the name is taken."""
        known = await self.store.get(name)
        if known is None:
            return False
        if known.spec == spec and known.origin == "chat":
            return True
        raise ToolError(f"There is a schedule {name} already. Choose another name.")

    async def _own(self, by: str, name: str, what: Change) -> StoredSchedule:
        """Return the schedule if this person may change it. Raises ToolError."""
        row = await self.store.get(name)
        if row is None or (row.spec.owner != by and by not in await admins(self.validator.policy)):
            raise ToolError(
                f"There is no schedule {name} that the requester may change. Its owner and "
                "administrators may; schedule_list shows which there are."
            )
        if what == "delete" and row.origin == "config":
            raise ToolError(f"{name} is set in the settings file. Pause it, or remove it there.")
        if what == "resume" and row.state == "refused":
            raise ToolError(f"{name} is not paused; it cannot run: {row.why}")
        return row

    async def _check(self, spec: Schedule) -> tuple[list[ChannelInfo], bool]:
        """Return the channels that it would read now, and whether its reports wait for a grant.

        Raises ToolError for an invalid schedule.
        """
        try:
            async with self.validator.fresh_reader() as reader:
                channels = await self.validator.check(spec, "chat", reader)
        except (ScheduleInvalid, CheckUnavailable) as fault:
            raise ToolError(str(fault)) from fault
        obstacles = await in_the_way(self.validator, spec, channels, spec.to)
        if never := [o for o in obstacles if not o.grantable]:
            raise ToolError(NEVER.format(why=never[0].why))
        if obstacles and not await admins(self.validator.policy):
            raise ToolError(NEVER.format(why="and nobody is named who could allow it"))
        return channels, bool(obstacles)

    async def _channels(self) -> list[ChannelInfo]:
        try:
            return await self.validator.channels()
        except CheckUnavailable as fault:
            raise ToolError(str(fault)) from fault


def _private_patterns(
    rows: Sequence[StoredSchedule], channels: Sequence[ChannelInfo]
) -> frozenset[str]:
    """Return the patterns of these schedules that match something private, or nothing."""
    found = {p: matching(channels, p) for row in rows for p in row.spec.channels}
    return frozenset(p for p, hits in found.items() if any(c.is_private for c in hits) or not hits)


def _posts_to(to: str, channel: str, names: Mapping[str, str]) -> bool:
    """Return whether a destination, by id (set in chat) or by name (settings), is this channel."""
    return to.lstrip("#").casefold() in (channel.casefold(), names.get(channel, channel).casefold())


def _describe_sources(row: StoredSchedule, unnamed: Collection[str]) -> str:
    """Describe what it reads, as far as that may be said here."""
    shown = [p for p in row.spec.channels if p not in unnamed]
    return ", ".join(
        shown if len(shown) == len(row.spec.channels) else [*shown, "private channels"]
    )


async def in_the_way(
    validator: ScheduleValidator,
    spec: Schedule,
    channels: Sequence[ChannelInfo],
    place: str,
    *,
    trusted: bool = False,
) -> tuple[Obstacle, ...]:
    """Return what keeps its reports from their readers now; `place` is the id of its destination.

    `trusted`: it is in the settings, whose author may have reports mailed to others.
    """
    directory, private = validator.directory, [c.id for c in channels if c.is_private]
    if "@" in spec.to:
        own = await directory.people.address(spec.owner)
        if own is not None and own.casefold() == spec.to.casefold():
            return ()
        if spec.kind == "triage" or private:
            return (Obstacle(spec.to, spec.to, ONLY_PUBLIC, grantable=False),)
        trusted = trusted or spec.owner in await admins(validator.policy)
        return () if trusted else (Obstacle(spec.to, spec.to, NO_ADMIN, grantable=False),)
    sources = frozenset(["mail:"] if spec.kind == "triage" else private)
    if spec.is_private or not sources:
        return ()
    return await directory.obstacles(Label(True, frozenset({spec.owner}), sources), place)
