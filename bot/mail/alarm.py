"""Says when Gmail will soon tell nothing any more: in the log, the numbers, the health, to admins.

Mail is looked for by polling then, so nothing is lost; it is only known of later.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from bot.mail.polls import Poll
from bot.mail.words import count
from bot.policy.policy_file import PolicyFault, PolicyFile
from bot.replies.outbox import Outbox
from bot.replies.writes import WriteFailed
from bot.serving.metrics import Metrics
from bot.storage.database import Database
from bot.storage.serve_tables import flags

log = logging.getLogger(__name__)

NEAR = timedelta(hours=24)
"""A watch that ends sooner, and whose renewal fails, is an alarm."""
NAME = "mail_watch"
"""Of the flag that stands while there is one, with those who were told."""
LOG_EVERY = timedelta(hours=1)


def is_ending(poll: Poll, now: datetime) -> bool:
    """Whether Gmail will not promise to tell of a mailbox, and what it promised ends soon."""
    near = poll.watched_until is None or poll.watched_until - now < NEAR
    return near and poll.watch_failures > 0 and not poll.revoked


@dataclass
class MailAlarm:
    """One alarm at a time, whatever the number of mailboxes; each admin is told once."""

    database: Database
    outbox: Outbox
    policy: PolicyFile
    """Names the admins."""
    metrics: Metrics
    said: str = ""
    """What is wrong now; empty = nothing is."""
    _logged: datetime | None = field(default=None)
    _over: bool = field(default=False)

    def check(self) -> str | None:
        """For the health."""
        return self.said or None

    async def sound(self, polls: Sequence[Poll], now: datetime) -> None:
        """Look at all mailboxes, and say what is wrong with them. Raises StoreError."""
        ending = [poll for poll in polls if is_ending(poll, now)]
        self.metrics.watches_ending(len(ending))
        self.said = sentence(ending) if ending else ""
        if not ending:
            if not self._over:
                self._over, self._logged = True, None
                await self.database.write(sa.delete(flags).where(flags.c.name == NAME))
            return
        self._over = False
        if self._logged is None or now - self._logged >= LOG_EVERY:
            log.error("%s", self.said)
            self._logged = now
        await self._tell(now)

    async def _tell(self, now: datetime) -> None:
        row = {"name": NAME, "value": {"told": []}, "at": now}
        await self.database.write(self.database.upsert(flags).values(row))
        (flag,) = await self.database.read(sa.select(flags).where(flags.c.name == NAME))
        told = list(flag["value"]["told"])
        for admin in [each for each in await self._admins() if each not in told]:
            try:
                channel = await self.outbox.direct(admin)
                key = f"mail-watch/{flag['at'].isoformat()}"
                await self.outbox.post(key, channel, None, self.said, look_first=True)
            except WriteFailed as error:
                log.warning("the admin %s is not told of it: %s", admin, error)
                continue
            told.append(admin)
            update = sa.update(flags).where(flags.c.name == NAME)
            await self.database.write(update.values(value={"told": told}))

    async def _admins(self) -> Sequence[str]:
        """Nobody while the policy is wrong: that has an alarm of its own."""
        try:
            return (await self.policy.read()).admins
        except PolicyFault:
            return ()


def sentence(ending: Sequence[Poll]) -> str:
    """What is wrong with these, which are at least one."""
    times = [poll.watched_until for poll in ending if poll.watched_until]
    when = f"from {min(times):%d %b %H:%M} UTC on" if times else "now"
    why = next(poll.watch_why for poll in ending if poll.watch_failures)
    which = count(len(ending), "mailbox", "mailboxes")
    return (
        f"Of {which} Gmail tells no new mail {when}, since its watch cannot be renewed: {why} "
        "Mail is still looked for at intervals."
    )
