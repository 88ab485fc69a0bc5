"""Deliver reports by Slack or mail, after checking that all readers may read them now."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp
import sqlalchemy as sa
from markdown_it import MarkdownIt

from bot.errors import StoreError
from bot.logging import about
from bot.mailbox.sync import MailState
from bot.policy.directory import PERSON
from bot.policy.policy import PolicyFile
from bot.reports.documents import SweepReport, TriageAnswer, parse_document
from bot.reports.files import FEWEST, findings_csv, open_issues_chart
from bot.reports.issues import IssueStore, has_changes
from bot.reports.markdown import report_markdown
from bot.reports.slack import report_parts
from bot.requests.delivery import Asker, bare_context, format_obstacles, post_thread
from bot.runs.run import ActiveRun, Runs
from bot.runs.store import RunNotFound, Store
from bot.schedules.alerts import CLOCK_SKEW, FailureAlerts, record_failure, record_success
from bot.schedules.run import note_mail
from bot.schedules.store import CRASHED, Occurrences, ScheduleStore
from bot.schedules.validation import admins, find_channel
from bot.slack import blocks
from bot.slack.client import ChannelClosed, OutcomeUnknown, TokenRefused, WriteFailed, is_away
from bot.slack.people import People
from bot.slack.writer import MessageWriter
from bot.storage.requests import SCHEDULED, StoredRequest
from bot.storage.schedules import Occurrence, StoredSchedule, Work
from config.settings import Settings
from scopes.chart_renderer import DrawingFailed
from scopes.google.errors import GoogleBusy, GoogleError
from scopes.google.gmail_compose import DeliveryReport, MailAttachment, NoRecipient
from scopes.intent import Intent
from scopes.label import Label
from scopes.slack_client import SlackRefused
from scopes.slack_reader import SlackReader

log = logging.getLogger(__name__)

MOST_NAMED = 5
ANOTHER = "or let its reports go elsewhere."
CLOSED: Mapping[str, str] = {
    "is_archived": f"{{place}} is archived. Unarchive it, {ANOTHER}",
    "channel_is_archived": f"{{place}} is archived. Unarchive it, {ANOTHER}",
    "not_in_channel": f"I am not in {{place}}. Invite me there with /invite, {ANOTHER}",
    "channel_not_found": f"I do not see {{place}} any more. Invite me there, {ANOTHER}",
    "messages_tab_disabled": "Direct messages with me are switched off in this workspace.",
    "thread_not_found": "The message that the report began with is gone.",
}
READ_ONLY = f"I may not post in {{place}}. Let me post there, {ANOTHER}"
NO_SCOPE = "Slack says that I lack a permission to post. An admin has to install me again."
NO_TOKEN = "Slack does not accept my token any more. An admin has to check it."
AWAY = "Slack could not be reached, or gave no answer in time."
REFUSED = "Slack did not take it ({code})."
OWNER_GONE = (
    "Its owner <@{owner}> is deactivated, and it uses their rights. It needs another owner."
)
NOT_YOURS = "<@{owner}> may not read all that it rests on any more: {names}."
NOT_THERE = "Not everyone in {place} may read what it rests on: {names}. {then}"
ASKED = "An administrator is asked to allow it there."
ELSEWHERE = f"Take those channels out of it, {ANOTHER}"
ONLY_PUBLIC = (
    "It rests on what not everyone in the workspace may read, so it is mailed to nobody but its "
    "owner. Let it go to the owner, or read public channels only."
)
NOT_APPROVED = (
    "A report is mailed to anybody but its owner only where an administrator, or the settings "
    "file, says so. Ask an administrator to set it."
)
NO_MAILBOX = (
    "It is sent from the mailbox of <@{owner}>, and none is connected. "
    "Press Connect Gmail in my App Home."
)
NOT_THEIRS = (
    "It was made while <@{before}> owned it, and it is mailed from nobody's mailbox but its "
    "owner's. The next report is of <@{owner}>."
)
MAIL_AWAY = "Gmail could not be reached, or gave no answer in time."
NO_ADDRESS = "No mail can be sent to {to}."
GONE = "Its report is no longer stored: it was forgotten, or is too old. The next one follows."
QUIET = "It ran, and nothing was new, so nothing was posted."
CANNOT_POST = "I lack the permission files:write. Whoever runs me can install me again with it."
NOT_SHOWN = "Slack gave no proper answer."
NOT_TAKEN = "Slack did not take it."
MISSING = "{name} could not be put here: {why} The report above is whole without it."
BACKOFF = tuple(timedelta(seconds=s) for s in (30, 60, 120, 300, 900, 3600))
"""Pauses between tries; the last one repeats."""
MOST_REPORTS = 60
"""Reports that the chart includes."""
OPEN = "open"


class DeliveryFailed(Exception):
    """A try to deliver failed; the text says why and what to do, for the schedule's owner."""

    def __init__(
        self, text: str, sources: Mapping[str, str] | None = None, place: str = ""
    ) -> None:
        self.sources = sources or {}
        """Id -> name of sources that an administrator could allow in `place` permanently."""
        self.place = place
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class DeliveryPlace:
    """The place where a report goes."""

    channel: str
    """Id of a conversation; empty = by mail."""
    name: str
    """Its name for people; a person as `<@U...>`."""
    mail: str = ""


@dataclass
class ReportDelivery:
    """Delivers reports; one for each process. Its database retries."""

    settings: Settings
    store: Store
    runs: Runs
    schedules: ScheduleStore
    occurrences: Occurrences
    writer: MessageWriter
    people: People
    policy: PolicyFile
    team: str
    alerts: FailureAlerts
    approvals: Asker
    backoff: Sequence[timedelta] = BACKOFF

    async def work(self, work: Work) -> None:
        """Run the workflow of one try. It always stores the delivery's state."""
        stored = await self.schedules.get(work.schedule)
        occurrence = await self.occurrences.get(work.schedule, work.at)
        delivery = await self.occurrences.delivery(work.schedule, work.at)
        if not (stored and occurrence and delivery) or delivery.state != "waiting":
            return
        with about(run=occurrence.run):
            try:
                state = await self._deliver(work, stored, occurrence)
            except DeliveryFailed as error:
                state = await self._not_delivered(work, stored, occurrence, error)
            except StoreError:
                raise
            except Exception:  # top-level boundary: one delivery must not take down the worker
                log.exception("the report %s could not be delivered", work.id)
                crash = DeliveryFailed(CRASHED)
                state = await self._not_delivered(work, stored, occurrence, crash)
            log.info("the report of %s: %s", work.schedule, state)
        self.alerts.wake()

    async def _deliver(self, work: Work, stored: StoredSchedule, occurrence: Occurrence) -> str:
        document = await self._document(occurrence)
        async with self.runs.at_work(occurrence.run or "") as live:
            place = await self._place(stored, live)
            await self._check(stored, live, place, Label.of(document.label))
            quiet = stored.spec.quiet and not has_changes(document)
            written = None if quiet else await self._write(live, place, occurrence, document)
        said = QUIET if quiet else f"Its report was delivered to {place.name}."
        database = self.store.database

        def on_delivery(connection: sa.Connection) -> None:
            if isinstance(document, SweepReport):
                at = occurrence.latest or occurrence.at
                IssueStore(database).save(connection, stored.id, document, at)
            note_mail(MailState(database), connection, occurrence.extra)
            record_success(connection, stored.id, occurrence.at, said)

        await self.occurrences.record_delivery(
            work, quiet=quiet, place=written, on_delivery=on_delivery
        )
        return "quiet" if quiet else "delivered"

    async def _document(self, occurrence: Occurrence) -> SweepReport | TriageAnswer:
        try:
            stored = (await self.store.run(occurrence.run or "")).result
        except RunNotFound:
            stored = None
        document = parse_document(stored) if stored else None
        if not isinstance(document, SweepReport | TriageAnswer):
            raise DeliveryFailed(GONE)
        return document

    async def _not_delivered(
        self, work: Work, stored: StoredSchedule, occurrence: Occurrence, error: DeliveryFailed
    ) -> str:
        """Keep it waiting, and alert its owner, once until it is delivered."""
        pause = self.backoff[min(work.attempt, len(self.backoff)) - 1]
        why, at, again = str(error), occurrence.at, datetime.now(UTC) + pause
        if error.sources:
            await self._ask(stored, occurrence.run or "", error)
        await self.store.database.change(lambda c: record_failure(c, stored.id, why, at, again))
        await self.occurrences.record_undelivered(work, why, again)
        return f"not delivered: {why}"

    async def _ask(self, stored: StoredSchedule, run: str, error: DeliveryFailed) -> None:
        """Ask the administrators, once, whether it may be posted there permanently."""
        owner, place = stored.spec.owner, error.place
        request = StoredRequest(self.team, place, "", "", owner, SCHEDULED, {}, run=run)
        try:
            await self.approvals.offer_grant(run, request, error.sources, place)
        except WriteFailed as failed:
            log.warning("nobody is asked yet whether %s may be shown: %s", run, failed)

    async def _place(self, stored: StoredSchedule, live: ActiveRun) -> DeliveryPlace:
        """Return the place with its current name. Raises DeliveryFailed."""
        owner, to = stored.spec.owner, stored.spec.to
        person = await self.people.person(owner, self.team, fresh=True)
        if person is not None and person.kind == "deleted":
            raise DeliveryFailed(OWNER_GONE.format(owner=owner))
        if stored.spec.is_private:
            return DeliveryPlace(owner, f"<@{owner}>")
        if "@" in to:
            return DeliveryPlace("", to, to)
        reader = live.run.clients[SlackReader]
        assert isinstance(reader, SlackReader)
        try:
            channels = await reader.channels()
        except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            raise DeliveryFailed(AWAY) from error
        if found := find_channel(channels, to):
            return DeliveryPlace(found.id, f"#{found.name}")
        if to.startswith("#"):
            gone = f"There is no channel {to} any more, or it is archived. Name another one."
            raise DeliveryFailed(gone)
        return DeliveryPlace(to, to)

    async def _check(
        self, stored: StoredSchedule, live: ActiveRun, place: DeliveryPlace, label: Label
    ) -> None:
        """Check that the owner and all readers there may read the report now."""
        owner, gate = stored.spec.owner, live.run.gate
        own = await self._own_addresses(stored, live) if place.mail else []
        ctx = bare_context(live.run, label, Intent(home=place.channel))
        if hidden := (await gate.release("p1", ctx, to=owner)).obstacles:
            names = format_obstacles(hidden, MOST_NAMED)
            raise DeliveryFailed(NOT_YOURS.format(owner=owner, names=names))
        if place.mail:
            if place.mail.casefold() not in own:
                await self._check_others(stored, label)
            return
        if place.channel == owner:
            return
        if obstacles := (await gate.release("p1", ctx)).obstacles:
            grantable = all(o.grantable for o in obstacles)
            then = ASKED if grantable else ELSEWHERE
            names = format_obstacles(obstacles, MOST_NAMED)
            sources = {o.source: o.name for o in obstacles} if grantable else {}
            why = NOT_THERE.format(place=place.name, names=names, then=then)
            raise DeliveryFailed(why, sources, place.channel)

    async def _check_others(self, stored: StoredSchedule, label: Label) -> None:
        """Check mail to others: it leaves the workspace, and nobody can take it back."""
        if not label.is_open:
            raise DeliveryFailed(ONLY_PUBLIC)
        if stored.origin == "config":
            return
        if stored.spec.owner not in await admins(self.policy):
            raise DeliveryFailed(NOT_APPROVED)

    async def _own_addresses(self, stored: StoredSchedule, live: ActiveRun) -> list[str]:
        """Return the owner's own addresses: of their mailbox, and as Slack knows it."""
        made_for, owner = live.run.requester, stored.spec.owner
        if made_for != owner:
            raise DeliveryFailed(NOT_THEIRS.format(before=made_for, owner=owner))
        if live.mail is None:
            raise DeliveryFailed(NO_MAILBOX.format(owner=owner))
        try:
            mailbox = await live.mail.gmail.address()
        except GoogleError as error:
            raise DeliveryFailed(_explain_not_sent(error)) from error
        profile = await self.people.address(owner)
        return [each.casefold() for each in (mailbox, profile) if each]

    async def _write(
        self,
        live: ActiveRun,
        place: DeliveryPlace,
        occurrence: Occurrence,
        document: SweepReport | TriageAnswer,
    ) -> dict[str, Any]:
        """Write the report; return where it was posted. Raises DeliveryFailed."""
        parts = report_parts(document, self.settings.triage.categories)
        files = await self._files(occurrence, document)
        if place.mail:
            subject = f"{occurrence.schedule}: {parts[0].text}"
            return {
                "mail": place.mail,
                "id": await self._mail(live, place, subject, document, files),
            }
        run, since = live.run.id, (occurrence.ended or occurrence.at) - CLOCK_SKEW
        try:
            channel = place.channel
            channel = await self.writer.direct(channel) if PERSON.fullmatch(channel) else channel
            after = f"{since.timestamp():.6f}"
            root = await post_thread(self.writer, run, channel, parts, run=run, after=after)
            for file in files:
                await self._attach(run, channel, root, file)
        except WriteFailed as error:
            log.warning("the report %s is not written: %s", run, error)
            raise DeliveryFailed(explain_refusal(error, place)) from error
        return {"channel": channel, "ts": root}

    async def _mail(
        self,
        live: ActiveRun,
        place: DeliveryPlace,
        subject: str,
        document: SweepReport | TriageAnswer,
        files: Sequence[MailAttachment],
    ) -> str:
        """Send a report, once for each run; return the id of the mail."""
        assert live.mail
        markdown = report_markdown(document, self.settings.triage.categories)
        report = DeliveryReport(page_of(markdown), tuple(files))
        try:
            return await live.mail.gmail.send(
                [place.mail], subject, markdown, live.run.id, report=report
            )
        except NoRecipient as error:
            raise DeliveryFailed(NO_ADDRESS.format(to=place.mail)) from error
        except GoogleError as error:
            raise DeliveryFailed(_explain_not_sent(error)) from error

    async def _attach(self, run: str, channel: str, root: str, file: MailAttachment) -> None:
        """Put a file into the thread; if that fails, say so there instead."""
        try:
            await self.writer.uploads.share(channel, root, file.name, file.content)
            return
        except WriteFailed as error:
            log.warning("%s is not attached to %s: %s", file.name, run, error)
            why = CANNOT_POST if isinstance(error, TokenRefused) else NOT_TAKEN
            why = NOT_SHOWN if isinstance(error, OutcomeUnknown) else why
        part = blocks.sentence(MISSING.format(name=file.name, why=why)).parts[0]
        key = f"{run}/{file.name}"
        await self.writer.post(key, channel, root, part.text, part.blocks, look_first=True)

    async def _files(
        self, occurrence: Occurrence, document: SweepReport | TriageAnswer
    ) -> list[MailAttachment]:
        """Return the attachments of a sweep: a table, and a chart of the open issues so far."""
        if not isinstance(document, SweepReport):
            return []
        table = await asyncio.to_thread(findings_csv, document)  # thousands take seconds
        files = [MailAttachment("findings.csv", "text/csv", table)]
        schedule = occurrence.schedule
        earlier = await self.occurrences.deliveries(schedule, MOST_REPORTS, over=True)
        points = {d.at: d.figures[OPEN] for d in earlier if d.figures and OPEN in d.figures}
        points[occurrence.at] = document.counts.open
        if len(points) >= FEWEST:
            title = f"Open issues: {document.title or schedule}"
            try:
                drawn = await open_issues_chart(sorted(points.items()), title)
                files.append(MailAttachment("chart.png", "image/png", drawn))
            except DrawingFailed as error:  # the report is complete without it
                log.warning("there is no chart of %s: %s", schedule, error)
        return files


def _explain_not_sent(error: GoogleError) -> str:
    return MAIL_AWAY if isinstance(error, GoogleBusy) else str(error)


def explain_refusal(error: WriteFailed, place: DeliveryPlace) -> str:
    """Explain why Slack refused it, in a sentence that says what to do."""
    if isinstance(error, ChannelClosed):
        return CLOSED.get(error.code, READ_ONLY).format(place=place.name)
    if isinstance(error, TokenRefused):
        return NO_SCOPE if error.code in ("missing_scope", "no_permission") else NO_TOKEN
    if is_away(error):
        return AWAY
    return REFUSED.format(code=error.code)


_WEB: Final = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
_PAGE: Final = (
    '<!DOCTYPE html><html><head><meta charset="utf-8"></head>'
    '<body style="font:14px/1.5 sans-serif;max-width:46em">{}</body></html>'
)


class _MailMarkdown(MarkdownIt):
    """CommonMark without raw HTML and images; only web addresses become links."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False})
        self.disable("image")

    def validateLink(self, url: str) -> bool:  # noqa: N802, the library's name
        return _WEB.fullmatch(url) is not None


def page_of(markdown: str) -> str:
    """Return the Markdown of a report as an HTML page."""
    return _PAGE.format(_MailMarkdown().render(markdown))
