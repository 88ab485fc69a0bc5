"""Schedules set up in chat: looked into before a person is asked, and again when it is done."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import aiohttp

from bot.policy.policy_file import PolicyFault
from bot.schedule import telling
from bot.schedule.book import ScheduleBook, ScheduleError
from bot.schedule.checking import AGAIN, Checking, NotChecked, Wrong, matching
from bot.schedule.records import StoredSchedule
from config.schedules import Schedule
from scopes.label import Label
from scopes.schedules import Change, Listed
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import ChannelInfo
from scopes.tool import ToolError
from subagents.directory import Obstacle

log = logging.getLogger(__name__)

WAITS = (
    "not everyone there may read all that it reads: until an administrator allows that for good, "
    "its reports are held back; administrators are asked when the first one is to be posted"
)
NEVER = (
    "Its reports may not go there: they tell what not everyone there may read ({why}). Let them go "
    "to `dm`, or choose another destination."
)
ONLY_PUBLIC = "mail leaves the workspace, so only public channels are mailed to others"
NO_ADMIN = "only an administrator has reports mailed to others than themselves"
MOST_LISTED = 50
"""Schedules that one answer is given; of more the number is told."""
STATES: Mapping[Change, str] = {"pause": "paused", "resume": "active", "delete": "deleted"}
"""What is asked for -> the state that it leads to."""


@dataclass(frozen=True)
class ChatDesk:
    """One for the process: `scopes.schedules.ScheduleDesk`. Its methods raise StoreError, too."""

    book: ScheduleBook
    checking: Checking

    async def zone(self, by: str) -> str:
        try:
            told = await self.checking.directory.people.client.call("users.info", user=by)
            name = str((told.get("user") or {}).get("tz") or "UTC")
            return ZoneInfo(name).key
        except (Absent, SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            log.warning("the time zone of %s is not known: %s", by, error)
        except (ValueError, OSError, LookupError):
            log.warning("the time zone of %s is none that is known here", by)
        return "UTC"

    async def place(self, by: str, to: str) -> str:
        """What this person may not read is as if it did not exist."""
        if to == "dm" or "@" in to:
            return to
        bare, listed = to.lstrip("#"), await self._channels()
        found = [c for c in listed if bare == c.id or bare.casefold() == c.name.casefold()]
        if len(found) == 1 and await self.checking.directory.may_read(by, found[0].id):
            return found[0].id
        raise ToolError(
            f"There is no channel {to[:80]!r} to post to that the requester may read, or it is "
            "archived. If it is private, invite me there first."
        )

    async def weighed(self, name: str, spec: Schedule, home: str) -> Mapping[str, str]:
        if await self._stands(name, spec):
            raise ToolError(f"The schedule {name} is set already, just so.")
        channels, waits = await self._checked(spec)
        shown = [c.name for c in channels if not c.is_private or home.startswith("D")]
        names = {c.id: c.name for c in await self._channels()}
        told = {
            "next runs": telling.next_runs(spec, datetime.now(UTC)),
            "reads": telling.reads(spec, shown, len(channels) - len(shown)),
            "goes to": telling.destination(spec, names),
            "may cost": telling.budget(spec),
            "rights": "those of who asks for it, as they are at each run",
            "missed runs": telling.missed(spec),
        }
        return {**told, "not yet allowed": WAITS} if waits else told

    async def create(self, name: str, spec: Schedule) -> str:
        now = datetime.now(UTC)
        if not await self._stands(name, spec):
            await self._checked(spec)
            try:
                await self.book.create(name, spec, "chat", now)
            except ScheduleError as error:
                raise ToolError(f"{error} {error.hint}") from error
            log.info("%s set the schedule %s", spec.owner, name)
        return f"The schedule {name} is set. Next run: {telling.next_runs(spec, now, 1)}."

    async def listed(self, by: str, home: str) -> tuple[Sequence[Listed], str]:
        """In a direct message one's own, of an administrator all; in a channel what posts there."""
        rows, now = await self.book.all(), datetime.now(UTC)
        admin, alone = by in await admins(self.checking), home.startswith("D")
        channels = await self._channels() if rows else []
        names = {c.id: c.name for c in channels if c.id == home or not c.is_private}
        theirs = {row.id for row in rows if admin or row.spec.owner == by}
        here = {row.id for row in rows if not alone and _posts_to(row.spec.to, home, names)}
        seen = [row for row in rows if row.id in (theirs if alone else here)]
        hidden = frozenset[str]() if alone else _unnamed(seen, channels)
        found = [
            Listed(
                row.id,
                telling.line(
                    *(row, now),
                    reading=_reading(row, hidden),
                    whose="your rights"
                    if row.spec.owner == by
                    else f"the rights of {row.spec.owner}",
                    names=names,
                ),
            )
            for row in seen[:MOST_LISTED]
        ]
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
        now, told = datetime.now(UTC), {"schedule": f"{row.spec.kind}, '{row.spec.cron}'"}
        if what == "delete":
            return {**told, "what follows": "it never runs again, and its history goes"}
        if what == "pause":
            return {**told, "what follows": "it runs no more until it is resumed"}
        follows = "times that passed while it was paused are not caught up"
        return {**told, "next runs": telling.next_runs(row.spec, now), "what follows": follows}

    async def change(self, by: str, name: str, what: Change) -> str:
        if what == "delete" and await self.book.get(name) is None:
            return f"{name} is deleted."
        row, now = await self._own(by, name, what), datetime.now(UTC)
        if row.state != STATES[what]:
            if what == "pause":
                await self.book.pause(name, f"paused by <@{by}>")
            elif what == "resume":
                await self.book.resume(name, now)
            else:
                await self.book.delete(name)
            log.info("%s: %s %s", by, what, name)
        if what == "resume":
            return f"{name} goes on. Next run: {telling.next_runs(row.spec, now, 1)}."
        return f"{name} is {STATES[what]}."

    # ---- what may be

    async def _stands(self, name: str, spec: Schedule) -> bool:
        """Whether it is set just so already. Raises ToolError where another has its name."""
        known = await self.book.get(name)
        if known is None:
            return False
        if known.spec == spec and known.origin == "chat":
            return True
        raise ToolError(f"There is a schedule {name} already. Choose another name.")

    async def _own(self, by: str, name: str, what: Change) -> StoredSchedule:
        """The schedule, if this person may change it. Raises ToolError."""
        row = await self.book.get(name)
        if row is None or (row.spec.owner != by and by not in await admins(self.checking)):
            raise ToolError(
                f"There is no schedule {name} that the requester may change. Its owner and "
                "administrators may; schedule_list shows which there are."
            )
        if what == "delete" and row.origin == "config":
            raise ToolError(f"{name} stands in the settings file: pause it, or take it out there.")
        if what == "resume" and row.state == "refused":
            raise ToolError(f"{name} is not paused; it cannot run: {row.why}")
        return row

    async def _checked(self, spec: Schedule) -> tuple[list[ChannelInfo], bool]:
        """The channels that it would read now, and whether its reports wait for a grant.

        Raises ToolError for what may not be.
        """
        reader = self.checking.reader.fresh()
        try:
            channels = await self.checking.check(spec, "chat", reader)
        except (Wrong, NotChecked) as fault:
            raise ToolError(str(fault)) from fault
        finally:
            await reader.aclose()
        obstacles = await in_the_way(self.checking, spec, channels, spec.to)
        if never := [o for o in obstacles if not o.grantable]:
            raise ToolError(NEVER.format(why=never[0].why))
        if obstacles and not await admins(self.checking):
            raise ToolError(NEVER.format(why="and nobody is named who could allow it"))
        return channels, bool(obstacles)

    # ---- what there is

    async def _channels(self) -> list[ChannelInfo]:
        reader = self.checking.reader.fresh()
        try:
            return await reader.channels()
        except SlackRefused as error:
            raise ToolError(f"{error}." if error.remedy else AGAIN) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ToolError(AGAIN) from error
        finally:
            await reader.aclose()


def _unnamed(rows: Sequence[StoredSchedule], channels: Sequence[ChannelInfo]) -> frozenset[str]:
    """The patterns of theirs that name something private, or nothing that there is."""
    found = {p: matching(channels, p) for row in rows for p in row.spec.channels}
    return frozenset(p for p, hits in found.items() if any(c.is_private for c in hits) or not hits)


def _posts_to(to: str, channel: str, names: Mapping[str, str]) -> bool:
    """Whether a destination is this channel: chat has its id stored, settings may name it."""
    return to.lstrip("#").casefold() in (channel.casefold(), names.get(channel, channel).casefold())


def _reading(row: StoredSchedule, unnamed: Collection[str]) -> str:
    """What it reads, as far as that may be said here."""
    shown = [p for p in row.spec.channels if p not in unnamed]
    return ", ".join(
        shown if len(shown) == len(row.spec.channels) else [*shown, "private channels"]
    )


async def in_the_way(
    checking: Checking,
    spec: Schedule,
    channels: Sequence[ChannelInfo],
    place: str,
    *,
    trusted: bool = False,
) -> tuple[Obstacle, ...]:
    """What keeps its reports from their readers, as of now; `place` is the id of its destination.

    `trusted`: it stands in the settings, whose author may have reports mailed to others.
    """
    directory, private = checking.directory, [c.id for c in channels if c.is_private]
    if "@" in spec.to:
        own = await directory.people.address(spec.owner)
        if own is not None and own.casefold() == spec.to.casefold():
            return ()
        if spec.kind == "triage" or private:
            return (Obstacle(spec.to, spec.to, ONLY_PUBLIC, grantable=False),)
        trusted = trusted or spec.owner in await admins(checking)
        return () if trusted else (Obstacle(spec.to, spec.to, NO_ADMIN, grantable=False),)
    sources = frozenset(["mail:"] if spec.kind == "triage" else private)
    if spec.is_private or not sources:
        return ()
    return await directory.obstacles(Label(True, frozenset({spec.owner}), sources), place)


async def admins(checking: Checking) -> Collection[str]:
    """Nobody, while the policy cannot be read."""
    try:
        return (await checking.policy.read()).admins
    except PolicyFault:
        return ()
