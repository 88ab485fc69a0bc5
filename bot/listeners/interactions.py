"""Handle what users open and click: App Home, the agent pane, cards, answers, digests."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from slack_sdk.web.async_client import AsyncWebClient

from bot.approvals.service import Approvals
from bot.listeners.events import ButtonClicked, DigestAction, FeedbackGiven, HomeOpened
from bot.listeners.home import Home
from bot.mailbox.accounts import Mailboxes, how_to_connect
from bot.mailbox.sync import MailState, is_incoming
from bot.policy.policy import Admission
from bot.reports.digest_actions import (
    CATEGORY,
    CORRECT,
    DRAFT,
    LABEL,
    SHOW,
    SNOOZE,
    WHOLE_DIGEST,
    DigestClick,
    blocks_after,
)
from bot.reports.documents import (
    AnswerDocument,
    SweepReport,
    ThreadVerdict,
    TriageAnswer,
    TriageReport,
    parse_document,
)
from bot.reports.frame import DETAILS, feedback_form, message_view
from bot.reports.slack import details_view, render_opened, report_parts
from bot.runs.store import PendingRecords, RunNotFound, Store
from bot.slack import assistant_pane
from bot.slack.assistant_pane import attempt
from bot.slack.blocks import Block
from bot.slack.client import WriteFailed
from bot.slack.messages import Mark, MessagePart
from bot.slack.writer import MessageWriter
from bot.storage.requests import IncomingMessage, RequestQueue
from bot.storage.tables import StoredRun
from config.sections import ReplySettings
from config.words import current, in_language, phrase
from scopes.google.errors import GoogleError
from scopes.google.gmail import Gmail
from scopes.label import Label
from subagents.gate import Decision

log = logging.getLogger(__name__)

HOME_TAB = "home"
LANGUAGE_S = 2.0
"""Seconds for asking Slack in which language to answer a command; it waits for three."""


SNOOZE_TIME = timedelta(days=1)
TOOLS = {LABEL: "apply_label", DRAFT: "create_draft"}
"""Button -> tool name in the gate's log."""
CORRECTION_TEXT_KEYS = {
    ("priority", "low"): "digest.noted_low",
    ("asked_of_me", "false"): "digest.noted_false",
}
"""Corrected field and value -> key of its message."""


class NotActed(Exception):
    """Nothing was done; the text explains why, in a sentence for people."""


@dataclass
class DigestActing:
    """Executes clicks on a digest, and reports the result next to the thread."""

    inbox: RequestQueue
    mailboxes: Mailboxes
    writer: MessageWriter
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = Store(self.inbox.database)

    async def act(self, acted: DigestAction) -> None:
        """Execute a click after its ack, and after the earlier clicks of its user.

        Each first looks for what an earlier click did, also for one that a crash interrupted:
        messages and drafts by their key, labels by their name.
        """
        async with self._turns.setdefault(acted.click.user, asyncio.Lock()):
            await self._act(acted)

    async def _act(self, acted: DigestAction) -> None:
        click = acted.click
        try:
            stored = await self._digest(click)
            if click.what == SHOW:
                result = await self._open(acted, stored)
            else:
                result = await self._perform(click, _verdict(stored, click.thread))
        except WriteFailed as error:
            log.warning("%s of %s is not shown: %s", click.thread, click.run, error)
            return
        except (NotActed, GoogleError) as error:
            await self._tell(click, str(error))
            return
        log.info("%s: %s of %s in %s", click.user, click.what, click.thread, click.run)
        await self._show(acted, result, stored.request or click.run)

    async def _show(self, acted: DigestAction, result: str, key: str) -> None:
        click = acted.click
        blocks = blocks_after(acted.blocks, click, result)
        part = MessagePart(acted.text, tuple(map(dict, blocks)))
        try:
            await self.writer.update(Mark(key, click.run), click.channel, click.ts, part)
        except WriteFailed as error:
            log.warning("what was done for %s is not shown: %s", click.user, error)

    async def _digest(self, click: DigestClick) -> StoredRun:
        if by := await self.inbox.paused_by():
            raise NotActed(phrase("digest.paused", by=by))
        try:
            stored = await self.store.run(click.run)
        except RunNotFound:
            raise NotActed(phrase("digest.gone")) from None
        if stored.requester != click.user:
            raise NotActed(phrase("digest.not_yours"))
        return stored

    async def _open(self, acted: DigestAction, stored: StoredRun) -> str:
        """Post a folded section, or an earlier digest, into the thread of the digest, once.

        Raises WriteFailed.
        """
        click, categories = acted.click, self.mailboxes.settings.triage.categories
        document = _document(stored)
        while click.thread == WHOLE_DIGEST and (last := document.unchanged_since):
            document = _document(await self._digest(replace(click, run=last.run_id)))
        if click.thread == WHOLE_DIGEST:
            parts = report_parts(document, categories)
        else:
            parts = render_opened(document, categories, click.button_value)
        if not (parts and click.channel.startswith("D")):
            raise NotActed(phrase("digest.gone"))
        root, key = acted.thread_ts or click.ts, f"{click.ts}/{click.button_value}"
        for number, part in enumerate(parts, 1):
            mark = Mark(f"{key}#{number}", click.run)
            await self.writer.post(mark, click.channel, root, part, look_first=True)
        return ""

    async def _perform(self, click: DigestClick, verdict: ThreadVerdict) -> str:
        """Execute the action; return what was done, in a sentence."""
        state, account = MailState(self.store.database), click.user
        if click.what == CORRECT:
            await self._correct(state, click, verdict)
            key = CORRECTION_TEXT_KEYS.get((click.field, click.value), "digest.noted")
            return phrase(key, category=click.value)
        if click.what == SNOOZE:
            until = datetime.now(UTC) + SNOOZE_TIME
            await state.snooze(account, click.thread, until)
            return phrase("digest.snoozed", until=current().minute(until.isoformat()))
        key = f"{click.run}/{click.thread}/{click.what}"
        await self._log(click, key)
        return await self._in_gmail(click, verdict, key)

    async def _correct(self, state: MailState, click: DigestClick, verdict: ThreadVerdict) -> None:
        if click.field == CATEGORY and click.value not in self.mailboxes.settings.triage.categories:
            raise NotActed(phrase("digest.no_category", category=click.value))
        sender = verdict.writer or verdict.sender
        try:
            await state.corrections.add(click.user, click.thread, sender, click.field, click.value)
        except ValueError:
            raise NotActed(phrase("digest.gone")) from None

    async def _log(self, click: DigestClick, key: str) -> None:
        """Write a line to the gate's log: a person clicked."""
        digest, now = hashlib.sha256(key.encode()).hexdigest(), datetime.now(UTC)
        tool = TOOLS[click.what]
        row = Decision(click.run, "click", tool, digest, "approved", "button", now, click.user)
        await self.store.record(PendingRecords(decisions=[row]))

    async def _in_gmail(self, click: DigestClick, verdict: ThreadVerdict, key: str) -> str:
        gmail = await self.mailboxes.open(click.user)
        if gmail is None:
            how = how_to_connect(self.mailboxes.settings)
            raise NotActed(phrase("mail.not_connected", how=how))
        async with aclosing(gmail):
            return await _write(gmail, click, verdict, key)

    async def _tell(self, click: DigestClick, why: str) -> None:
        """Tell only the person who clicked."""
        try:
            await self.writer.whisper(click.channel, click.user, why)
        except WriteFailed as error:
            log.warning("%s is not told that nothing was done: %s", click.user, error)


async def _write(gmail: Gmail, click: DigestClick, verdict: ThreadVerdict, key: str) -> str:
    """Write the digest's proposal to the mailbox; return what was done, in a sentence."""
    if click.what == LABEL:
        await gmail.relabel(click.thread, [verdict.category], [])
        return phrase("digest.labelled", category=verdict.category)
    if click.what == DRAFT and verdict.draft_reply:
        thread = await gmail.thread(click.thread)
        judged_at = datetime.fromisoformat(verdict.at) if verdict.at else None
        if any(m.at and judged_at and m.at > judged_at and is_incoming(m) for m in thread.messages):
            raise NotActed(
                phrase("digest.newer")
            )  # the draft would answer the last writer, not the asker
        await gmail.draft(thread, verdict.draft_reply, key)
        return phrase("done.draft")
    raise NotActed(phrase("digest.gone"))


def _verdict(stored: StoredRun, thread: str) -> ThreadVerdict:
    found = next((v for v in _document(stored).verdicts if v.thread_id == thread), None)
    if found is None:
        raise NotActed(phrase("digest.gone"))
    return found


def _document(stored: StoredRun) -> TriageReport:
    document = parse_document(stored.result) if stored.result else None
    if not isinstance(document, TriageReport):
        raise NotActed(phrase("digest.gone"))
    return document


@dataclass
class Interactions:
    """Handles views that users open, and their clicks. Its methods raise StoreError."""

    web: AsyncWebClient
    admission: Admission
    approvals: Approvals
    digests: DigestActing
    home: Home
    store: Store
    settings: ReplySettings

    async def follow(self, found: HomeOpened | ButtonClicked | DigestAction) -> None:
        """Handle, after the ack, an opened Home or pane, a button or field, or a digest's click."""
        user = found.click.user if isinstance(found, DigestAction) else found.user
        with in_language(await self.language(user)):
            match found:
                case DigestAction():
                    await self.digests.act(found)
                case ButtonClicked(action=action) if action == DETAILS:
                    view = await self._details(found.value, user)
                    opened = self.web.views_open(trigger_id=found.trigger, view=view)
                    await attempt("the details", opened)
                case ButtonClicked():
                    await self.home.press(found.action, user, found.team, found.value)
                case HomeOpened(tab=tab) if tab == HOME_TAB:
                    await self.home.show(user, found.team)
                case HomeOpened():
                    event = {**found.event, "channel": found.channel}
                    await assistant_pane.suggest(self.web, self.admission.people, event)

    async def _details(self, run: str, user: str) -> Block:
        """Return the details of an answer, for a user who may read its sources."""
        try:
            stored = await self.store.run(run)
        except RunNotFound:
            return message_view(phrase("answer.details_gone"))
        document = parse_document(stored.result) if stored.result else None
        if not isinstance(document, AnswerDocument | SweepReport | TriageAnswer) or not (
            document.label
        ):
            return message_view(phrase("answer.details_gone"))
        if await self.approvals.cards.directory.obstacles(Label.of(document.label), user):
            return message_view(phrase("answer.details_hidden"))
        took = (stored.finished or stored.started) - stored.started
        return details_view(document, self.settings, took.total_seconds())

    async def ask_why(self, feedback: FeedbackGiven) -> bool:
        """Open the form that asks why an answer is bad; return whether it is open."""
        with in_language(await self.language(feedback.user, feedback.channel)):
            form = feedback_form(feedback.key)
            opened = self.web.views_open(trigger_id=feedback.trigger, view=form)
            return not await attempt("the form of a rating", opened)

    async def entitle(self, request: IncomingMessage) -> None:
        """Name a conversation after the direct message that starts it, after the ack."""
        if request.thread_ts == request.ts:
            await assistant_pane.set_title(self.web, request.channel, request.ts, request.text)

    async def language(self, user: str, channel: str = "") -> str:
        """Return the language for replies to this user; empty if Slack does not answer in time."""
        try:
            async with asyncio.timeout(LANGUAGE_S):
                return await self.admission.people.language(user, channel)
        except TimeoutError:
            return ""
