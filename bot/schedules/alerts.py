"""Alert owners in private, once when a schedule fails and once when it works again."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from bot.background import repeat
from bot.policy.policy import PolicyFile
from bot.schedules.description import language_of, when
from bot.schedules.store import ScheduleStore
from bot.slack.blocks import Element, bold, date, fill, paragraph, rich, user
from bot.slack.client import TokenRefused, WriteFailed, is_away
from bot.slack.messages import Mark, MessagePart
from bot.slack.people import People
from bot.slack.writer import MessageWriter
from bot.storage.database import Database, in_transaction
from bot.storage.schedules import Failure, StoredSchedule
from bot.storage.tables import schedules
from config.words import in_language, phrase
from scopes.tool import iso

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""Seconds between two checks for alerts to send."""
HELD_FOR = timedelta(minutes=5)
"""How long a process may take to send an alert; then it is sent again."""
CLOCK_SKEW = timedelta(minutes=10)
"""How far Slack's clock may be behind ours."""
MOST_ADMINS = 10
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)>")


def record_failure(
    connection: sa.Connection,
    schedule: str,
    why: str,
    at: datetime,
    again: datetime | None = None,
) -> None:
    """Record that a schedule fails at the occurrence of `at`. A new failure leads to an alert."""
    failure = _failure(connection, schedule)
    if failure is None or failure.over:
        failure = Failure(since=datetime.now(UTC), at=at, why=why)
    values = {"at": max(failure.at, at), "why": why, "again": again}
    _store(connection, schedule, failure.model_copy(update=values))


def record_success(connection: sa.Connection, schedule: str, at: datetime, summary: str) -> None:
    """Record that the occurrence of `at` has succeeded; a later one may have failed since."""
    failure = _failure(connection, schedule)
    if failure and not failure.over and failure.at <= at:
        _store(connection, schedule, failure.model_copy(update={"over": summary}))


@dataclass
class FailureAlerts:
    """Sends alerts about failing schedules from rows, so that a restart loses or repeats none.

    `fails` and `send` raise StoreError.
    """

    database: Database
    writer: MessageWriter
    people: People
    policy: PolicyFile
    team: str
    look_s: float = LOOK_S
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def fails(
        self, schedule: str, why: str, at: datetime, again: datetime | None = None
    ) -> None:
        """Alert the owner, once until the schedule works again.

        `at` is the time of the occurrence, which is retried at `again`.
        """
        await self.database.change(lambda c: record_failure(c, schedule, why, at, again))
        self.wake()

    def wake(self) -> None:
        """Check for alerts to send now."""
        self._woken.set()

    async def run(self) -> None:
        """Send alerts, and retry those that could not be sent. Runs until cancelled."""
        trouble = "the alerts about schedules could not be sent"
        await repeat(self.send, self.look_s, trouble, woken=self._woken)

    async def send(self) -> None:
        """Send all pending alerts."""
        failing = sa.select(schedules.c.id).where(
            schedules.c.trouble.is_not(None), schedules.c.state != "deleted"
        )
        for row in await self.database.read(failing):
            await self._send(row.id)

    async def _send(self, id: str) -> None:
        failure = await self._claim(id)
        stored = await ScheduleStore(self.database).get(id) if failure else None
        if failure is None or stored is None:
            return
        recipients: list[str] = []
        try:
            recipients = await self._send_to_owner(stored, failure)
        except WriteFailed as error:
            log.warning("the alert about %s is not sent yet: %s", id, error)
        finally:
            await self.database.change(lambda c: _record_reached(c, id, failure, recipients))

    @in_transaction
    def _claim(self, connection: sa.Connection, id: str) -> Failure | None:
        """Claim an alert for a while, so that no other process sends it."""
        failure, now = _failure(connection, id), datetime.now(UTC)
        if failure is None or (failure.told is not None and not failure.over):
            return None
        if failure.held_until and failure.held_until > now:
            return None
        failure = failure.model_copy(update={"held_until": now + HELD_FOR})
        _store(connection, id, failure)
        return failure

    async def _send_to_owner(self, stored: StoredSchedule, failure: Failure) -> list[str]:
        """Send an alert to the owner, or to administrators if the owner cannot be reached.

        Returns the recipients. Raises WriteFailed if Slack is unavailable.
        """
        if failure.told:
            return await self._post(failure.told, stored, failure) or list(failure.told)
        owner = stored.spec.owner
        person = await self.people.person(owner, self.team, fresh=True)
        is_gone = person.kind in ("deleted", "bot") if person else False
        is_gone = is_gone or (person is None and not self.people.has_no_answer(owner))
        if not is_gone and (recipients := await self._post([owner], stored, failure)):
            return recipients
        others = [each for each in await self.policy.admins() if each != owner]
        recipients = await self._post(others[:MOST_ADMINS], stored, failure, instead_of=owner)
        if not recipients:
            log.error("the schedule %s fails, and nobody can be told: %s", stored.id, failure.why)
        return recipients or [owner]

    async def _post(
        self, users: Sequence[str], stored: StoredSchedule, failure: Failure, instead_of: str = ""
    ) -> list[str]:
        """Send an alert to each user; return the recipients, without users who cannot be reached.

        Raises WriteFailed.
        """
        with in_language(await language_of(self.people, stored.spec, stored.spec.to)):
            part = _message(stored, failure, instead_of)
        recipients: list[str] = []
        news = "over" if failure.over else "began"
        mark = Mark(f"trouble/{stored.id}/{iso(failure.since)}/{news}")
        after = f"{(failure.since - CLOCK_SKEW).timestamp():.6f}"
        for each in users:
            try:
                channel = await self.writer.direct(each)
                await self.writer.post(mark, channel, None, part, look_first=True, after=after)
                recipients.append(each)
            except WriteFailed as error:
                if is_away(error) or isinstance(error, TokenRefused):
                    raise
                log.warning("%s is not told of %s: %s", each, stored.id, error)
        return recipients


def with_mentions(text: str) -> Iterator[str | Element]:
    """Yield one of our sentences with `<@U...>` shown as the person."""
    for number, part in enumerate(_MENTION.split(text)):
        if part:
            yield user(part) if number % 2 else part


def _message(stored: StoredSchedule, failure: Failure, instead_of: str) -> MessagePart:
    since, why = date(failure.since), [*with_mentions(_sentence(failure.why))]
    fails = [f"\n{when(stored.spec)}. ", *fill("alert.fails", since=since, why=why)]
    parts: list[str | Element]
    if failure.over:
        title = phrase("alert.again", name=stored.id)
        parts = [f"\n{_sentence(failure.over)} ", *fill("alert.had_failed", since=since, why=why)]
    elif stored.state == "refused":
        title = phrase("alert.refused", name=stored.id)
        parts = [*fails, f"\n{phrase('alert.checked_again')} {phrase('alert.once')}"]
    else:
        title = phrase("alert.not_delivered", name=stored.id)
        parts = [*fails, "\n"]
        if failure.again:
            parts += [*fill("alert.again_at", at=date(failure.again)), f" {phrase('alert.once')}"]
        elif stored.spec.at:
            parts += [phrase("alert.no_more")]
        else:
            covers = stored.spec.kind in ("sweep", "triage")  # no later reminder or answer does
            parts += [f"{phrase('alert.later')} " if covers else "", phrase("alert.once")]
    if instead_of:
        parts += ["\n", *fill("alert.instead", owner=user(instead_of))]
    return MessagePart(title, (rich(paragraph(bold(title), *parts)),))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _record_reached(
    connection: sa.Connection, id: str, failure: Failure, recipients: Sequence[str]
) -> None:
    """Record the recipients of the alert; none = send it again."""
    now = _failure(connection, id)
    if now is None or now.since != failure.since:
        return
    if recipients and failure.over:
        _store(connection, id, None)
        return
    _store(
        connection,
        id,
        now.model_copy(update={"held_until": None, "told": (*recipients,) or now.told}),
    )


def _failure(connection: sa.Connection, schedule: str) -> Failure | None:
    query = sa.select(schedules.c.trouble).where(schedules.c.id == schedule).with_for_update()
    found: Failure | None = connection.execute(query).scalar()
    return found


def _store(connection: sa.Connection, schedule: str, failure: Failure | None) -> None:
    update = sa.update(schedules).where(schedules.c.id == schedule)
    connection.execute(update.values(trouble=failure))
