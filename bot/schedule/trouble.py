"""Schedules that fail: who is told of it in private, once, and once more when it is over."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bot.approval.slips import Element, bold, date, paragraph, rich, user
from bot.errors import StoreError
from bot.policy.people import People
from bot.policy.policy_file import PolicyFault, PolicyFile
from bot.replies.outbox import Outbox
from bot.replies.render import Part
from bot.replies.writes import RateLimited, TokenRefused, Unsettled, WriteFailed
from bot.schedule.book import ScheduleBook
from bot.schedule.records import StoredSchedule
from bot.schedule.tables import schedules, ticks
from bot.storage.database import Database
from scopes.tool import iso

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""Between two looks at who is still to be told."""
HELD_FOR = timedelta(minutes=15)
"""How long a process may take to tell somebody; then another one does it."""
CLOCKS = timedelta(minutes=10)
"""Slack's clock may be so far behind ours."""
MOST_ADMINS = 10
LATER = "Its next run covers this time, too."
MENDED = "It is looked at again every ten minutes, and runs once that is mended."
ONCE = "You hear of it again when it works."
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)>")

Record = dict[str, Any]
"""Of a schedule that fails: `since`, `at` (of what failed last), `why`, `again` (when it is tried
again), `told` (ids of users), `over` (`at` and `said`), `held` (who is telling it, and `until`)."""


def fails(
    connection: sa.Connection,
    schedule: str,
    why: str,
    at: datetime,
    again: datetime | None = None,
) -> None:
    """Note that a schedule fails; `at` is the time of the tick. What is new is told."""
    known, now = _record(connection, schedule), datetime.now(UTC)
    if known is None or known["over"]:
        known = {"since": iso(now), "at": iso(at), "told": None, "over": None, "held": None}
    latest = max(datetime.fromisoformat(known["at"]), at)
    told = {"at": iso(latest), "why": why, "again": iso(again) if again else None}
    _store(connection, schedule, {**known, **told})


def works(connection: sa.Connection, schedule: str, at: datetime, said: str) -> None:
    """Note that the tick of `at` came to its end; a later one may have failed since."""
    known = _record(connection, schedule)
    if known and not known["over"] and datetime.fromisoformat(known["at"]) <= at:
        over = {"at": iso(datetime.now(UTC)), "said": said}
        _store(connection, schedule, {**known, "over": over})


@dataclass
class Trouble:
    """Tells of schedules that fail, from rows, so that no restart loses or doubles it."""

    database: Database
    outbox: Outbox
    people: People
    policy: PolicyFile
    team: str
    executor: str
    look_s: float = LOOK_S
    held_for: timedelta = HELD_FOR
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _telling: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def began(
        self, schedule: str, why: str, at: datetime | None = None, again: datetime | None = None
    ) -> None:
        """Its owner is to be told, once until it works again: `at` of its tick, which is tried
        again at `again`. Raises StoreError."""

        def change(connection: sa.Connection) -> None:
            fails(connection, schedule, why, at or _reached(connection, schedule), again)

        await self.database.change(change)
        self.wake()

    def wake(self) -> None:
        """Look now at who is to be told."""
        self._woken.set()

    async def run(self) -> None:
        """Tell, and what could not be told again. Until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self.tell()
            except StoreError as error:
                log.error("%s", error)
            except Exception:  # the seam: one look
                log.exception("nobody could be told of a schedule that fails")
            with suppress(TimeoutError):
                async with asyncio.timeout(self.look_s):
                    await self._woken.wait()

    async def tell(self) -> None:
        """Tell whoever is to be told and was not yet. Raises StoreError."""
        there = sa.select(schedules.c.id).where(schedules.c.trouble.is_not(None))
        async with self._telling:
            for row in await self.database.read(there):
                await self._tell(row["id"])

    async def _tell(self, id: str) -> None:
        record = await self.database.change(lambda connection: self._held(connection, id))
        stored = await ScheduleBook(self.database).get(id) if record else None
        if record is None or stored is None:
            return
        told: list[str] = []
        try:
            told = await self._told(stored, record)
        except WriteFailed as error:
            log.warning("nobody is told yet of the trouble with %s: %s", id, error)
        finally:
            await self.database.change(lambda connection: _done(connection, id, record, told))

    def _held(self, connection: sa.Connection, id: str) -> Record | None:
        """What is to be told, and by nobody else for a while."""
        record, now = _record(connection, id), datetime.now(UTC)
        if record is None or (record["told"] is not None and not record["over"]):
            return None
        held = record["held"]
        if held and held["by"] != self.executor and datetime.fromisoformat(held["until"]) > now:
            return None
        record["held"] = {"by": self.executor, "until": iso(now + self.held_for)}
        _store(connection, id, record)
        return record

    async def _told(self, stored: StoredSchedule, record: Record) -> list[str]:
        """Who was told. Raises WriteFailed where Slack is away."""
        what = "over" if record["over"] else "began"
        if before := record["told"]:
            return await self._each(before, stored, record, what) or list(before)
        owner = stored.spec.owner
        person = await self.people.person(owner, self.team, fresh=True)
        gone = person.kind in ("deleted", "bot") if person else self._unknown(owner)
        if not gone and (told := await self._each([owner], stored, record, what)):
            return told
        admins = await self._admins(owner)
        told = await self._each(admins, stored, record, what, in_place_of=owner)
        if not told:
            log.error("the schedule %s fails, and nobody can be told: %s", stored.id, record["why"])
        return told or [owner]

    def _unknown(self, owner: str) -> bool:
        """Whether Slack says that there is no such user, rather than nothing."""
        return not self.people.unanswered(owner, self.team)

    async def _admins(self, owner: str) -> list[str]:
        try:
            named = (await self.policy.read()).admins
        except PolicyFault as fault:
            log.warning("no administrator is told: %s", fault.fault)
            return []
        return [each for each in named if each != owner][:MOST_ADMINS]

    async def _each(
        self,
        users: Sequence[str],
        stored: StoredSchedule,
        record: Record,
        what: str,
        in_place_of: str = "",
    ) -> list[str]:
        """Who of them was told; who cannot be reached is left out. Raises WriteFailed."""
        part, told = _message(stored, record, in_place_of), []
        since = datetime.fromisoformat(record["since"])
        key, after = f"trouble/{stored.id}/{record['since']}/{what}", since - CLOCKS
        for each in users:
            try:
                channel = await self.outbox.direct(each)
                place = (channel, None, part.text, part.blocks)
                start = f"{after.timestamp():.6f}"
                await self.outbox.post(key, *place, look_first=True, after=start)
                told.append(each)
            except WriteFailed as error:
                if is_passing(error):
                    raise
                log.warning("%s is not told of %s: %s", each, stored.id, error)
        return told


def is_passing(error: WriteFailed) -> bool:
    """Whether it is Slack that is away, or shut to us, rather than this place."""
    away = isinstance(error, Unsettled | RateLimited | TokenRefused)
    return away or error.code == "no_connection" or error.code.startswith("http_")


def mentioned(text: str) -> Iterator[str | Element]:
    """A sentence of ours in which `<@U...>` is shown as the person."""
    for number, part in enumerate(_MENTION.split(text)):
        if part:
            yield user(part) if number % 2 else part


def _message(stored: StoredSchedule, record: Record, in_place_of: str) -> Part:
    since, why = datetime.fromisoformat(record["since"]), _ended(record["why"])
    parts: list[str | Element]
    if over := record["over"]:
        title = f"The scheduled report {stored.id} is delivered again."
        said = f"{_ended(over['said'])} It had failed since "
        parts = [f"\n{said}", date(since), ": ", *mentioned(why)]
    else:
        cannot = "cannot run as it is set" if stored.state == "refused" else "was not delivered"
        title = f"The scheduled report {stored.id} {cannot}."
        parts = ["\nIt fails since ", date(since), ": ", *mentioned(why), "\n"]
        refused = stored.state == "refused"
        parts += [f"{MENDED} {ONCE}"] if refused else _next(record["again"])
    if in_place_of:
        parts += ["\nIts owner ", user(in_place_of), " cannot be reached, so you are told."]
    return Part(title, (rich(paragraph(bold(title), *parts)),))


def _next(again: str | None) -> list[str | Element]:
    if not again:
        return [f"{LATER} {ONCE}"]
    at = date(datetime.fromisoformat(again))
    kept = " and so on, until it is delivered or a later report takes its place. "
    return ["It is tried again on ", at, kept, ONCE]


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _done(
    connection: sa.Connection, id: str, record: Mapping[str, Any], told: Sequence[str]
) -> None:
    """Note who was told; nobody = it is told again."""
    now = _record(connection, id)
    if now is None or now["since"] != record["since"]:
        return
    if told and record["over"]:
        _store(connection, id, None)
        return
    now["held"] = None
    _store(connection, id, {**now, "told": list(told)} if told else now)


def _reached(connection: sa.Connection, schedule: str) -> datetime:
    """Its latest tick that was begun: the report of that one, or of a later one, says that it works
    again."""
    begun = sa.and_(ticks.c.schedule == schedule, ticks.c.begun.is_not(None))
    last: datetime | None = connection.execute(
        sa.select(sa.func.max(ticks.c.at)).where(begun)
    ).scalar()
    mine = sa.select(schedules.c.watermark).where(schedules.c.id == schedule)
    return last or connection.execute(mine).scalar() or datetime.now(UTC)


def _record(connection: sa.Connection, schedule: str) -> Record | None:
    mine = sa.select(schedules.c.trouble).where(schedules.c.id == schedule).with_for_update()
    found: Record | None = connection.execute(mine).scalar()
    return found


def _store(connection: sa.Connection, schedule: str, record: Record | None) -> None:
    mine = sa.update(schedules).where(schedules.c.id == schedule)
    connection.execute(mine.values(trouble=record))
