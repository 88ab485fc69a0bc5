"""Has Gmail tell of new mail at once, over Pub/Sub: beside polling, never in its place."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from bot.accounts.connected import OPERATOR
from bot.errors import SetupError, StoreError
from bot.mail.alarm import MailAlarm
from bot.mail.mailboxes import Mailboxes, OpenedMail
from bot.mail.polling import MailPolling, pause, safely
from bot.mail.polls import Poll, at_most
from bot.mail.state import MailState
from bot.policy.policy_file import PolicyFile
from bot.replies.outbox import Outbox
from bot.serving.health import Health
from bot.serving.metrics import Metrics
from bot.storage.database import Database
from config.settings import Settings
from scopes.google.client import GoogleError
from scopes.google.gmail_watch import stop, watch
from scopes.google.pubsub import Pubsub, Received, pubsub_credentials

log = logging.getLogger(__name__)

RENEW_S = 60.0
"""Seconds between two looks for watches that are due."""
RENEWED = timedelta(days=1)
"""Gmail ends a watch after a week, and wants it renewed each day."""
TAKEN_FOR = timedelta(minutes=5)
"""So long a renewal belongs to the process that began it."""
SHORTEST_S, LONGEST_S = 1.0, 60.0
"""Before the next pull, where the last one failed or gave nothing that could be done."""
NOTICED_AFTER = 3
"""Pulls that fail in a row before the health says so."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one message says: a mailbox has changed."""

    address: str
    history: str


@dataclass
class MailWatching:
    """The watches of all mailboxes, and what Gmail tells by them."""

    polling: MailPolling
    alarm: MailAlarm
    pubsub: Pubsub | None
    """None = nothing is pulled any more; watches that still last are ended."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _failed: int = field(default=0)

    def check(self) -> str | None:
        """For the health: why new mail is known of late; None = it is not."""
        lost = self._failed >= NOTICED_AFTER
        return "What Gmail tells over Pub/Sub cannot be pulled." if lost else None

    async def run(self) -> None:
        """Renew watches and listen, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renewing())
            if self.pubsub:
                group.create_task(self._listening(self.pubsub))

    # ---- watches

    async def _renewing(self) -> None:
        while True:
            await safely(self.renew)
            await self.sleep(RENEW_S)

    async def renew(self) -> None:
        """Renew each watch that is due, and sound the alarm where that fails. Raises StoreError."""
        polls, now = self.polling.polls, self.polling.clock()
        await polls.begin(but=(OPERATOR,))
        for poll in await polls.all():
            wanted = self.pubsub is not None and not poll.revoked
            due = poll.watch_again is None or poll.watch_again <= now
            unwanted = self.pubsub is None and poll.watched_until and poll.watched_until > now
            if (wanted or unwanted) and due and await polls.take_watch(poll, now + TAKEN_FOR):
                await self._renew(poll)
        await self.alarm.sound(await polls.all() if self.pubsub else [], now)

    async def _renew(self, poll: Poll) -> None:
        opened = await self.polling.mailboxes.open(poll.account)
        if opened is None:  # whose mailbox is not connected any more
            await self.polling.polls.watched(poll.account, None, self.polling.clock() + RENEWED)
            return
        try:
            await self._ask(poll, opened)
        except GoogleError as error:
            why, again = str(error), self.polling.clock() + pause(poll.watch_failures + 1)
            log.warning("the watch of the mailbox of %s is not renewed: %s", poll.account, why)
            await self.polling.polls.not_watched(poll, why, again)
        finally:
            await opened.aclose()

    async def _ask(self, poll: Poll, opened: OpenedMail) -> None:
        polls, again = self.polling.polls, self.polling.clock() + RENEWED
        topic = self.polling.mailboxes.settings.google.pubsub_topic
        if self.pubsub and topic:
            await polls.watched(poll.account, await watch(opened.google, topic), again)
        else:
            await stop(opened.google)
            await polls.watched(poll.account, None, again)

    # ---- messages

    async def _listening(self, pubsub: Pubsub) -> None:
        wait = SHORTEST_S
        while True:
            done = await self._listen(pubsub)
            wait = SHORTEST_S if done else min(2 * wait, LONGEST_S)
            await self.sleep(wait)

    async def _listen(self, pubsub: Pubsub) -> bool:
        try:
            done = await self.listen(pubsub)
        except (GoogleError, StoreError) as error:
            log.warning("Gmail's messages cannot be pulled: %s Polling goes on.", error)
        except Exception:  # the seam: one pull
            log.exception("Gmail's messages could not be read; it is tried again")
        else:
            self._failed = 0
            return done
        self._failed += 1
        return False

    async def listen(self, pubsub: Pubsub) -> bool:
        """Look into the mailboxes of which messages wait, and acknowledge what is stored then.

        Returns whether all could be: what was not comes again. Raises GoogleError, StoreError.
        """
        received = await pubsub.pull()
        named = defaultdict[str, list[tuple[Received, Told]]](list)
        done = list[Received]()
        for each in received:
            if told := told_by(each.data):
                named[told.address.casefold()].append((each, told))
            else:
                log.warning("a message of Pub/Sub makes no sense, and is let pass")
                done.append(each)
        accounts = await self._accounts() if named else {}
        for address, messages in named.items():
            latest = _latest([told for _, told in messages])
            if await self._look_into(accounts.get(address, ()), latest):
                done += [each for each, _ in messages]
        if done:
            await pubsub.acknowledge([each.ack_id for each in done])
        return len(done) == len(received)

    async def _look_into(self, accounts: Sequence[str], reached: str) -> bool:
        """Whether what a mailbox was said to have is stored for all whose mailbox it is."""
        looks = [await self.polling.poll(a, reached=reached, early=True) for a in accounts]
        return all(looks)

    async def _accounts(self) -> dict[str, list[str]]:
        """Address of a mailbox -> those whose it is."""
        found = defaultdict[str, list[str]](list)
        for poll in await self.polling.polls.all():
            if cursor := await self.polling.state.cursor(poll.account):
                found[cursor.mailbox.casefold()].append(poll.account)
        return found


async def mail_followed(
    mailboxes: Mailboxes,
    database: Database,
    outbox: Outbox,
    policy: PolicyFile,
    metrics: Metrics,
    health: Health,
) -> None:
    """Know of new mail between triages, until cancelled. Raises SetupError."""
    polling = MailPolling(MailState(database), mailboxes, outbox, metrics)
    alarm = MailAlarm(database, outbox, policy, metrics)
    pubsub = pubsub_of(mailboxes.settings)
    watching = MailWatching(polling, alarm, pubsub)
    health.add("mail_watches", alarm.check, "noted")
    health.add("mail_messages", watching.check, "noted")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watching.run())
            if polling.every or pubsub:
                group.create_task(polling.run())
    finally:
        if pubsub:
            await pubsub.aclose()


def pubsub_of(settings: Settings) -> Pubsub | None:
    """The subscription of the settings; None = there is none. Raises SetupError."""
    google, endpoints = settings.google, settings.endpoints
    key = google.pubsub_service_account or google.service_account
    if not google.pubsub_subscription or not key:
        return None
    try:
        access = pubsub_credentials(Path(key), endpoints.google_oauth_endpoint, google.timeout_s)
    except GoogleError as error:
        raise SetupError("pubsub", str(error), "docs/google.md tells how it is set up.") from None
    return Pubsub(access, google, google.pubsub_subscription, endpoints.pubsub_api_endpoint)


def told_by(data: bytes) -> Told | None:
    """What a message says (developers.google.com/gmail/api/guides/push); None = it is no such."""
    try:
        said = json.loads(data)
        told = Told(str(said["emailAddress"]), str(said["historyId"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return told if told.history.isdecimal() and "@" in told.address else None


def _latest(told: Sequence[Told]) -> str:
    latest = told[0].history
    for each in told[1:]:
        latest = each.history if at_most(latest, each.history) else latest
    return latest
