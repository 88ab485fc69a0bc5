"""One try to deliver a report: checked as of now, written once, noted; a workflow's body.

It may run again after a crash, and another try may follow: what was written is found by its key.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bot.errors import StoreError
from bot.logs import about
from bot.mail.state import MailState
from bot.replies.outbox import Outbox
from bot.replies.render import Part
from bot.replies.writes import WriteFailed
from bot.reports.sweep_blocks import sweep_parts
from bot.requests.finishing import Asker
from bot.requests.inbox import SCHEDULED
from bot.requests.requests import StoredRequest
from bot.runs.runs import Live, Runs
from bot.schedule.attached import attached
from bot.schedule.book import ScheduleBook
from bot.schedule.destinations import Destinations, NotDelivered, Place, told_of
from bot.schedule.issues import IssueBook
from bot.schedule.mailing import Mailing
from bot.schedule.news import is_news
from bot.schedule.posting import Posting
from bot.schedule.records import Delivery, StoredSchedule, Tick
from bot.schedule.ticks import Ticks
from bot.schedule.triaging import note_mail
from bot.schedule.trouble import Trouble, fails, works
from bot.storage.store import RunNotFound, Store
from bot.triage.digest_blocks import digest_parts
from config.settings import Settings
from scopes.label import Label

log = logging.getLogger(__name__)

BACKOFF = tuple(timedelta(seconds=s) for s in (30, 60, 120, 300, 900, 3600))
"""From one try to the next; the last one again and again."""
FELL_OVER = "Something went wrong inside; the log of the bot tells what."
GONE = "Its report is no longer stored: it was forgotten, or is too old. The next one follows."
QUIET = "It ran, and nothing was new, so nothing was posted."


@dataclass
class Delivering:
    """Delivers reports; one for the process. Its database is a patient one."""

    settings: Settings
    store: Store
    runs: Runs
    book: ScheduleBook
    ticks: Ticks
    issues: IssueBook
    outbox: Outbox
    destinations: Destinations
    mailing: Mailing
    trouble: Trouble
    approvals: Asker
    backoff: Sequence[timedelta] = BACKOFF

    async def work(self, schedule: str, at: str) -> dict[str, Any]:
        """The workflow of one try. It ends with the delivery's state stored, come what may."""
        when = datetime.fromisoformat(at)
        stored, tick = await self.book.get(schedule), await self.ticks.get(schedule, when)
        delivery = await self.ticks.delivery(schedule, when)
        if stored is None or tick is None or delivery is None or delivery.state != "waiting":
            return {"state": delivery.state if delivery else "gone"}
        with about(run=tick.run):
            try:
                state = await self._delivered(stored, tick)
            except NotDelivered as error:
                state = await self._not_delivered(stored, tick, delivery, error)
            except StoreError:
                raise
            except Exception:  # the seam: one try to deliver
                log.exception("the report %s could not be delivered", tick.key)
                fell = NotDelivered(FELL_OVER)
                state = await self._not_delivered(stored, tick, delivery, fell)
            log.info("the report of %s: %s", schedule, state)
        self.trouble.wake()
        return {"state": state}

    async def _delivered(self, stored: StoredSchedule, tick: Tick) -> str:
        document = await self._document(tick)
        async with self.runs.at_work(tick.run or "") as live:
            place = await self.destinations.find(stored, live)
            own = await self.mailing.own(stored, live) if place.mail else []
            label = Label.of(document["label"])
            await self.destinations.check(stored, live, place, label, own)
            quiet = stored.spec.quiet and not is_news(document)
            stands = None if quiet else await self._write(live, place, tick, document)
        said = QUIET if quiet else f"Its report was delivered to {place.name}."
        state = MailState(self.store.database)

        def noted(connection: sa.Connection) -> None:
            self.issues.noted(connection, stored.id, document, tick.latest or tick.at)
            note_mail(state, connection, tick.extra)
            works(connection, stored.id, tick.at, said)

        await self.ticks.delivered(stored.id, tick.at, quiet=quiet, place=stands, noted=noted)
        return "quiet" if quiet else "delivered"

    async def _document(self, tick: Tick) -> Mapping[str, Any]:
        try:
            document = (await self.store.run(tick.run or "")).result
        except RunNotFound:
            document = None
        if not document:
            raise NotDelivered(GONE)
        return document

    async def _write(
        self, live: Live, place: Place, tick: Tick, document: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Where it stands then. Raises NotDelivered."""
        parts = parts_of(document, self.settings)
        files = await attached(self.ticks, tick, document)
        if place.mail:
            id = await self.mailing.send(live, place, tick.schedule, parts, files)
            return {"mail": place.mail, "id": id}
        posting = Posting(self.outbox, live.run.id, tick.ended or tick.at)
        try:
            return await posting.post(place.channel, parts, files)
        except WriteFailed as error:
            log.warning("the report %s is not written: %s", tick.key, error)
            raise NotDelivered(told_of(error, place)) from error

    async def _not_delivered(
        self, stored: StoredSchedule, tick: Tick, delivery: Delivery, error: NotDelivered
    ) -> str:
        """It stays waiting; its owner is told, once until it is delivered."""
        pause = self.backoff[min(delivery.tries, len(self.backoff) - 1)]
        why, again = str(error), datetime.now(UTC) + pause
        if error.sources:
            await self._ask(stored, tick, error)
        await self.store.database.change(lambda c: fails(c, stored.id, why, tick.at, again))
        await self.ticks.not_delivered(stored.id, tick.at, why, again)
        return f"not delivered: {why}"

    async def _ask(self, stored: StoredSchedule, tick: Tick, error: NotDelivered) -> None:
        """Ask the administrators, once, whether it may stand there for good."""
        owner, team = stored.spec.owner, self.destinations.team
        request = StoredRequest(team, error.place, "", "", owner, SCHEDULED, {}, run=tick.run)
        try:
            await self.approvals.offer_grant(tick.run or "", request, error.sources, error.place)
        except WriteFailed as failed:
            log.warning("nobody is asked yet whether %s may be shown: %s", tick.key, failed)


def parts_of(document: Mapping[str, Any], settings: Settings) -> tuple[Part, ...]:
    """A report as messages: the first stands by itself, the others follow in its thread."""
    if "verdicts" in document:
        return digest_parts(document, settings.triage.categories)
    return sweep_parts(document)
