"""Looks for new mail between two triages, so that the next one starts from what is known.

Gmail keeps a mailbox's history for about a week. A look asks for the changes since the one before
and stores them together with the place where they end: the next triage asks only for what came
after that. A process that dies in between has stored nothing, and the next look asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from bot.accounts.connected import GOOGLE, OPERATOR
from bot.errors import StoreError
from bot.mail.mailboxes import Mailboxes
from bot.mail.polls import MailPolls, Poll, at_most, noticed
from bot.mail.state import Cursor, MailState
from bot.replies.outbox import Outbox
from bot.replies.writes import WriteFailed
from bot.serving.metrics import Metrics
from scopes.google.client import GoogleError, GoogleRevoked
from scopes.google.gmail import Gmail, HistoryTooOld
from scopes.mail import Changes
from subagents.toolbox import crash_text

log = logging.getLogger(__name__)

LOOK_S = 15.0
"""Seconds between two looks for mailboxes that are due."""
AT_ONCE = 4
"""Mailboxes that are looked into together."""
REVOKED_FOR = timedelta(days=1)
"""A mailbox that lets us in no longer is tried again so often, or once it is connected again."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=1)
TELL_AGAIN = timedelta(hours=1)
"""Before a user who could not be reached is told again."""

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def pause(failures: int) -> timedelta:
    """How long to wait after so many failures in a row."""
    return min(FIRST_PAUSE * (1 << min(failures - 1, 10)), LONGEST_PAUSE)


@dataclass
class MailPolling:
    """The mailboxes of one bot; with several processes each mailbox is looked into by one."""

    state: MailState
    mailboxes: Mailboxes
    outbox: Outbox
    metrics: Metrics
    clock: Clock = utc_now
    _told: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.polls = MailPolls(self.state.database)

    @property
    def every(self) -> timedelta:
        """Between two looks; zero = none but those that Gmail asks for."""
        return timedelta(minutes=self.mailboxes.settings.google.poll_minutes)

    async def run(self) -> None:
        """Look into what is due, until cancelled."""
        while True:
            await safely(self.look)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look into each mailbox that is due, and tell whose is shut. Raises StoreError."""
        await self.polls.begin(but=(OPERATOR,))
        await self._let_in_again()
        now, slots = self.clock(), asyncio.Semaphore(AT_ONCE)

        async def each(poll: Poll) -> None:
            async with slots:
                await self.poll(poll.account)

        due = [p for p in await self.polls.all() if p.not_before <= now]
        due = [p for p in due if self.every or p.failures]
        async with asyncio.TaskGroup() as group:
            for poll in due:
                group.create_task(each(poll))
        for poll in await self.polls.all():
            if poll.revoked and not poll.told:
                await self._tell(poll)

    async def poll(self, account: str, *, reached: str = "", early: bool = False) -> bool:
        """Store what came to a mailbox, if it is due and nobody else looks into it.

        `early`: also before its time. `reached`: that is needless where the changes up to this
        history id are known. Returns whether all that Gmail told of when it was asked is stored.
        Raises StoreError.
        """
        known = await self.polls.get(account)
        if known and reached and (known.revoked or at_most(reached, known.history)):
            return True  # who is shut out looks as soon as somebody lets us in
        poll = await self.polls.take(account, self.clock(), early=early)
        cursor = await self.state.cursor(account)
        if poll is None or cursor is None:
            return False
        try:
            return await self._look_into(poll, cursor)
        except GoogleRevoked as error:
            self.metrics.mail_polled("revoked")
            now = self.clock()
            await self.polls.revoke(poll, str(error), now, now + REVOKED_FOR)
        except GoogleError as error:
            log.warning("new mail of %s could not be looked for: %s", account, error)
            await self._failed(poll)
        except StoreError:
            raise
        except Exception as error:  # the seam: one mailbox harms no other
            log.exception("%s", crash_text(f"looking for new mail of {account}", error))
            await self._failed(poll)
        return False

    async def _look_into(self, poll: Poll, cursor: Cursor) -> bool:
        opened = await self.mailboxes.open(poll.account)
        if opened is None:  # nothing is connected any more, or what opens it is gone
            self.metrics.mail_polled("not_connected")
            await self.polls.put_off(poll.account, self._next())
            return True
        try:
            found, lost = await _changes(opened.gmail, poll, cursor)
        finally:
            await opened.aclose()
        self.metrics.mail_polled("too_old" if lost else "ok")
        if found is None:  # nothing that was known is of this mailbox; the next triage lists it
            await self.polls.put_off(poll.account, self._next())
            return True
        return await self.polls.noted(poll, cursor, found, lost, self.clock(), self._next())

    async def _failed(self, poll: Poll) -> None:
        self.metrics.mail_polled("failed")
        failures = poll.failures + 1
        await self.polls.put_off(poll.account, self.clock() + pause(failures), failures)

    def _next(self) -> datetime:
        return self.clock() + (self.every or timedelta(days=1))

    async def _let_in_again(self) -> None:
        """Have those mailboxes looked into now that were shut and are connected again."""
        shut = {p.account: p.since for p in await self.polls.all() if p.since}
        if not shut:
            return
        for account, at in await self.mailboxes.store.accounts(GOOGLE):
            if account in shut and at > shut[account]:
                await self.polls.put_off(account, self.clock())

    async def _tell(self, poll: Poll) -> None:
        """Tell a user once, in private, that their mailbox is shut."""
        now = self.clock()
        if not poll.since or self._told.get(poll.account, now) > now:
            return
        text = f"{poll.revoked} Until then I do not see new mail there."
        try:
            channel = await self.outbox.direct(poll.account)
            key = f"mail-revoked/{poll.account}/{poll.since.isoformat()}"
            await self.outbox.post(key, channel, None, text, look_first=True)
        except WriteFailed as error:
            log.warning("%s is not told that Google lets us in no longer: %s", poll.account, error)
            self._told[poll.account] = now + TELL_AGAIN
            return
        await self.polls.told(poll.account, now)


async def _changes(gmail: Gmail, poll: Poll, cursor: Cursor) -> tuple[Changes | None, bool]:
    """What came since the last look or triage, and whether some of it is no longer known.

    None where this is not the mailbox, or not the history, that the cursor is of.
    """
    start = noticed(poll, cursor).history
    now = await gmail.history()
    if await gmail.address() != cursor.mailbox or not at_most(start, now):
        return None, False
    if now == start:
        return Changes(start), False
    try:
        return await gmail.changes(start), False
    except HistoryTooOld:
        return Changes(now), True


async def safely(work: Callable[[], Awaitable[object]]) -> bool:
    """Do it; what fails is logged, and False: the next look tries again."""
    try:
        await work()
    except StoreError as error:
        log.error("%s New mail is looked for later.", error)
        return False
    except Exception:  # the seam: one look
        log.exception("new mail could not be looked for; it is tried again")
        return False
    return True
