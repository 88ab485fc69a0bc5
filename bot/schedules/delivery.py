"""Deliver reports, answers and reminders, after checking that all readers may read them now."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from markdown_it import MarkdownIt

from bot.errors import StoreError
from bot.log import about
from bot.mailbox.accounts import how_to_connect
from bot.mailbox.sync import MailState
from bot.memory import kept_files
from bot.reports.documents import (
    Answer,
    AnswerDocument,
    SweepReport,
    TriageAnswer,
    parse_document,
)
from bot.reports.files import FEWEST, FINDINGS_FILE, findings_csv, open_issues_chart
from bot.reports.issues import IssueStore, has_changes
from bot.reports.markdown import report_markdown
from bot.reports.slack import answer_message, lead_message, report_parts
from bot.requests.delivery import (
    MAX_FILES,
    Asker,
    format_obstacles,
    post_thread,
    read_file,
    upload,
)
from bot.runs.run import ActiveRun, Runs
from bot.schedules.alerts import CLOCK_SKEW, FailureAlerts, record_success
from bot.schedules.description import contents, language_of, moment, when
from bot.schedules.run import note_mail
from bot.schedules.store import ScheduleStore
from bot.schedules.validation import (
    DeliveryPlace,
    ScheduleFault,
    ScheduleValidator,
)
from bot.slack import blocks
from bot.slack.client import ChannelClosed, TokenRefused, WriteFailed, is_away
from bot.slack.messages import Mark, MessagePart
from bot.slack.people import People
from bot.slack.writer import MessageWriter
from bot.storage.schedules import Occurrence, StoredSchedule, Work
from config.schedules import PERSON
from config.settings import Settings
from config.words import in_language, phrase, words_of
from scopes.charts import DrawingFailed
from scopes.google.errors import GoogleBusy, GoogleError
from scopes.google.gmail_compose import DeliveryReport, MailAttachment, NoRecipient
from scopes.intent import Intent
from scopes.label import Label
from scopes.slack_reader import SlackReader
from subagents.run import Run

log = logging.getLogger(__name__)

MOST_NAMED = 5
BACKOFF = tuple(timedelta(seconds=s) for s in (30, 60, 120, 300, 900, 3600))
"""Pauses between attempts; the last one repeats."""
LATE_AFTER = timedelta(minutes=15)
"""Delay after which a reminder shows its due time."""
MOST_REPORTS = 60
"""Reports that the chart includes."""
OPEN = "open"


class Ungranted(ScheduleFault):
    """Not everybody in a place may read the report, but an administrator could allow it."""

    def __init__(self, why: str, sources: Mapping[str, str], place: str) -> None:
        self.sources, self.place = sources, place
        """Id -> name of what could be allowed there."""
        super().__init__(why)


@dataclass
class ReportDelivery:
    """Delivers reports; one for each process. Its database retries."""

    settings: Settings
    runs: Runs
    schedules: ScheduleStore
    writer: MessageWriter
    validator: ScheduleValidator
    alerts: FailureAlerts
    approvals: Asker
    backoff: Sequence[timedelta] = BACKOFF

    @property
    def people(self) -> People:
        return self.validator.directory.people

    async def work(self, work: Work) -> None:
        """Run the workflow of one attempt. It always stores the delivery's state."""
        stored = await self.schedules.get(work.schedule)
        occurrence = await self.schedules.occurrence(work.schedule, work.at)
        if not (stored and occurrence) or occurrence.delivery != "waiting":
            return
        language = await self.validator.language(stored.spec)
        with about(run=occurrence.run), in_language(language):
            try:
                state = await self._deliver(work, stored, occurrence)
            except ScheduleFault as error:
                state = await self._not_delivered(work, stored, occurrence, error)
            except StoreError:
                raise
            except Exception:  # top-level boundary: one delivery must not take down the worker
                log.exception("the report %s could not be delivered", work.id)
                crash = ScheduleFault(phrase("schedule.crashed"))
                state = await self._not_delivered(work, stored, occurrence, crash)
            log.info("the report of %s: %s", work.schedule, state)
        self.alerts.wake()

    async def _deliver(self, work: Work, stored: StoredSchedule, occurrence: Occurrence) -> str:
        document = await self._document(occurrence)
        async with self.runs.at_work(occurrence.run or "") as live:
            reader = live.run.client(SlackReader)
            place = await self.validator.destination(stored.spec, stored.origin, reader)
            await self._check(stored, live, place, Label.of(document.label))
            quiet = stored.spec.quiet and not has_changes(document)
            with in_language(await language_of(self.people, stored.spec, place.channel)):
                parts = () if quiet else self._parts(stored, occurrence, document)
            written = await self._write(live, place, occurrence, document, parts) if parts else None
        summary = phrase("delivery.quiet" if quiet else "delivery.done", place=place.name)
        database = self.runs.store.database

        def on_delivery(connection: sa.Connection) -> None:
            if stored.spec.kind == "sweep" and isinstance(document, SweepReport):
                at = occurrence.latest or occurrence.at
                IssueStore(database).save(connection, stored.id, document, at)
            note_mail(MailState(database), connection, occurrence.extra)
            record_success(connection, stored.id, occurrence.at, summary)

        await self.schedules.record_delivery(
            work, quiet=quiet, place=written, on_delivery=on_delivery
        )
        return "quiet" if quiet else "delivered"

    async def _document(self, occurrence: Occurrence) -> Answer | SweepReport:
        run = await self.runs.store.find_run(occurrence.run or "")
        document = parse_document(run.result) if run and run.result else None
        if not isinstance(document, Answer | SweepReport):
            raise ScheduleFault(phrase("delivery.gone"))
        return document

    def _parts(
        self, stored: StoredSchedule, occurrence: Occurrence, document: Answer | SweepReport
    ) -> tuple[MessagePart, ...]:
        """Render the content of a delivery as messages; the first is the root of the thread."""
        spec, settings = stored.spec, self.settings
        if spec.kind == "reminder" and isinstance(document, AnswerDocument):
            text = document.answer
            late = datetime.now(UTC) - occurrence.at > LATE_AFTER
            due = moment(occurrence.at.astimezone(spec.timetable.info))
            message = f"{phrase('delivery.reminder')} {text}"
            message += f"\n\n{phrase('delivery.due', at=due, zone=spec.zone)}" if late else ""
            own = "" if stored.label.untrusted else text
            return blocks.message(
                message, own, settings.reply, "" if spec.is_private else spec.owner
            )
        if isinstance(document, AnswerDocument):
            request, times = blocks.escape_mrkdwn(contents(spec)), when(spec)
            values = {"name": stored.id, "owner": spec.owner, "times": times, "asked": request}
            of = phrase("delivery.schedule", **values)
            return answer_message(document, "", settings.reply, spec.owner, schedule=of)
        lead = lead_message(document, settings.reply, spec.owner)
        return (*lead, *report_parts(document, settings.triage.categories))

    async def _not_delivered(
        self, work: Work, stored: StoredSchedule, occurrence: Occurrence, error: ScheduleFault
    ) -> str:
        """Keep the delivery waiting, and alert its owner once until it is delivered."""
        pause = self.backoff[min(work.attempt, len(self.backoff)) - 1]
        why, at, again = str(error), occurrence.at, datetime.now(UTC) + pause
        is_late = again > at + timedelta(hours=stored.spec.missed_hours)
        next_try = None if stored.spec.at and is_late else again  # no later one replaces it
        if isinstance(error, Ungranted):
            try:  # ask once whether it may always be posted there
                await self.approvals.offer_grant(
                    occurrence.run or "", stored.spec.owner, error.sources, error.place
                )
            except WriteFailed as failed:
                log.warning("nobody is asked yet whether %s may be shown: %s", work.id, failed)
        await self.alerts.fails(stored.id, why, at, next_try)
        await self.schedules.record_undelivered(work, why, next_try)
        return f"not delivered: {why}"

    async def _check(
        self, stored: StoredSchedule, live: ActiveRun, place: DeliveryPlace, label: Label
    ) -> None:
        """Check that the owner and all readers there may read the report now."""
        owner, gate = stored.spec.owner, live.run.gate
        own = await self._own_addresses(stored, live) if place.mail else []
        ctx = live.run.context(label, intent=Intent(home=place.channel))
        if hidden := await gate.obstacles("p1", ctx, to=owner):
            names = format_obstacles(hidden, MOST_NAMED)
            raise ScheduleFault(phrase("delivery.not_yours", owner=owner, names=names))
        if place.mail and place.mail.casefold() not in own:
            if not label.is_open:  # a mail leaves the workspace and cannot be recalled
                raise ScheduleFault(phrase("delivery.only_public"))
            if stored.origin == "chat" and owner not in await self.validator.policy.admins():
                raise ScheduleFault(phrase("delivery.not_approved"))
        if place.mail or place.channel == owner:
            return
        if obstacles := await gate.obstacles("p1", ctx):
            grantable = all(o.grantable for o in obstacles)
            then = phrase("delivery.asked" if grantable else "delivery.elsewhere")
            names = format_obstacles(obstacles, MOST_NAMED)
            why = phrase("delivery.not_there", place=place.name, names=names, then=then)
            if not grantable:
                raise ScheduleFault(why)
            raise Ungranted(why, {o.source: o.name for o in obstacles}, place.channel)

    async def _own_addresses(self, stored: StoredSchedule, live: ActiveRun) -> list[str]:
        """Return the owner's own addresses: from their mailbox, and from Slack."""
        made_for, owner = live.run.requester, stored.spec.owner
        if made_for != owner:
            raise ScheduleFault(phrase("delivery.not_theirs", before=made_for, owner=owner))
        if live.mail is None:
            how = how_to_connect(self.settings)
            raise ScheduleFault(phrase("check.no_mailbox", owner=owner, how=how))
        try:
            mailbox = await live.mail.address()
        except GoogleError as error:
            raise ScheduleFault(_explain_not_sent(error)) from error
        profile = await self.people.address(owner)
        return [each.casefold() for each in (mailbox, profile) if each]

    async def _write(
        self,
        live: ActiveRun,
        place: DeliveryPlace,
        occurrence: Occurrence,
        document: Answer | SweepReport,
        parts: Sequence[MessagePart],
    ) -> dict[str, Any]:
        """Write the report; return where it was posted. Raises ScheduleFault."""
        files = await self._files(live, place, occurrence, document)
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
            root = await post_thread(self.writer, Mark(run, run), channel, parts, after=after)
            await self._attach(live.run, (channel, root), files)
        except WriteFailed as error:
            log.warning("the report %s is not written: %s", run, error)
            raise ScheduleFault(explain_refusal(error, place)) from error
        return {"channel": channel, "ts": root}

    async def _mail(
        self,
        live: ActiveRun,
        place: DeliveryPlace,
        subject: str,
        document: Answer | SweepReport,
        files: Sequence[MailAttachment],
    ) -> str:
        """Send a report, once for each run; return the id of the mail."""
        assert live.mail
        assert isinstance(document, SweepReport | TriageAnswer)  # nothing else goes by mail
        markdown = report_markdown(document, self.settings.triage.categories)
        report = DeliveryReport(page_of(markdown), tuple(files))
        try:
            return await live.mail.send([place.mail], subject, markdown, live.run.id, report=report)
        except NoRecipient as error:
            raise ScheduleFault(phrase("delivery.no_address", to=place.mail)) from error
        except GoogleError as error:
            raise ScheduleFault(_explain_not_sent(error)) from error

    async def _attach(
        self, run: Run, place: tuple[str, str], files: Sequence[MailAttachment]
    ) -> None:
        """Post the files in the thread, and which of them are missing."""
        missing = []
        for file in files:

            async def read(content: bytes = file.content) -> bytes:
                return content

            step = f"{run.id}/files/{place[1]}/{file.name}"
            missing += await upload(self.writer.uploads, place, file.name, read, step, run.once)
        if missing:
            part = blocks.sentence(phrase("file.missing", names="; ".join(missing)))
            await self.writer.post(Mark(f"{run.id}/files"), *place, part, look_first=True)

    async def _files(
        self,
        live: ActiveRun,
        place: DeliveryPlace,
        occurrence: Occurrence,
        document: Answer | SweepReport,
    ) -> list[MailAttachment]:
        """Return the attachments: the files that a question kept, as far as all readers may read
        them, or for a sweep a table and a chart of its open issues so far.
        """
        if isinstance(document, AnswerDocument):
            found = (await kept_files(live.run))[:MAX_FILES]
            ctx = live.run.context(intent=Intent(home=place.channel))
            return [
                MailAttachment(each.name, each.kind, await read_file(live.run, each))
                for each in found
                if not await live.run.gate.obstacles("p1", replace(ctx, label=each.label))
            ]
        if not isinstance(document, SweepReport):
            return []
        table = await asyncio.to_thread(
            findings_csv, document
        )  # takes seconds for thousands of findings
        files = [MailAttachment(FINDINGS_FILE, "text/csv", table)]
        schedule = occurrence.schedule
        earlier = await self.schedules.list_delivered(schedule, MOST_REPORTS)
        points = {o.at: o.figures[OPEN] for o in earlier if o.figures and OPEN in o.figures}
        points[occurrence.at] = document.counts.open
        if len(points) >= FEWEST:
            words = words_of(document.language)
            title = words("chart", title=document.title or schedule)
            try:
                chart = await open_issues_chart(sorted(points.items()), title)
                files.append(MailAttachment("chart.png", "image/png", chart))
            except DrawingFailed as error:  # the report is complete without it
                log.warning("there is no chart of %s: %s", schedule, error)
        return files


def _explain_not_sent(error: GoogleError) -> str:
    away = isinstance(error, GoogleBusy)
    return phrase("delivery.away", service="Gmail") if away else str(error)


def explain_refusal(error: WriteFailed, place: DeliveryPlace) -> str:
    """Explain why Slack refused the message, in a sentence with what to do."""
    if isinstance(error, ChannelClosed) and error.code != "thread_not_found":
        return phrase("delivery.read_only", place=place.name)
    if isinstance(error, TokenRefused):
        lacks = error.code in ("missing_scope", "no_permission")
        return phrase("delivery.no_scope" if lacks else "delivery.no_token")
    if is_away(error):
        return phrase("delivery.away", service="Slack")
    return phrase("delivery.refused", code=error.code)


_WEB: Final = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
_MAIL_TEMPLATE: Final = (
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
    return _MAIL_TEMPLATE.format(_MailMarkdown().render(markdown))
