"""Handle the buttons of a digest: each click once, only for the person whose digest it is."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from bot.listeners.events import DigestAction
from bot.mailbox.accounts import Mailboxes
from bot.mailbox.actions import UnderWay
from bot.mailbox.sync import MailState, is_incoming
from bot.messages import NOT_CONNECTED
from bot.reports.digest_actions import (
    CATEGORY,
    CORRECT,
    DRAFT,
    LABEL,
    SNOOZE,
    Block,
    DigestClick,
    blocks_after,
)
from bot.reports.documents import ThreadVerdict, TriageReport, parse_document
from bot.runs.store import PendingRecords, RunNotFound, Store
from bot.slack.client import WriteFailed
from bot.slack.writer import MessageWriter
from bot.storage.requests import RequestQueue
from bot.storage.tables import StoredRun
from scopes.google.errors import GoogleError
from scopes.google.gmail import Gmail
from subagents.gate import Decision

log = logging.getLogger(__name__)

SNOOZED = timedelta(days=1)
NOT_YOURS = "This digest is somebody else's; only they can use its buttons."
GONE = "This digest is no longer stored, so its buttons do nothing. Ask for a new one."
NEWER = "This thread got mail after the digest was made. Ask for a new triage first."
MOST_SHOWN = 100
TOOLS = {LABEL: "apply_label", DRAFT: "create_draft"}
"""Button -> tool name in the gate's log."""
SAID = {
    ("priority", "low"): "Noted: not urgent.",
    ("asked_of_me", "false"): "Noted: nothing is asked of you.",
}


class NotActed(Exception):
    """Nothing was done; the text explains why, in a sentence for people."""


@dataclass
class DigestActing:
    """Executes clicks on a digest, and reports the result beside the thread."""

    inbox: RequestQueue
    mailboxes: Mailboxes
    writer: MessageWriter
    _shown: dict[str, list[Block]] = field(default_factory=dict)
    """Message -> its blocks after the last click; the next payload may be older than that."""
    _showing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.store = Store(self.inbox.database)

    async def act(self, acted: DigestAction) -> None:
        """Execute a click after its ack.

        If the work of a click was cut short, the next click executes it.
        """
        click = acted.click
        try:
            stored = await self._digest(click)
            said = await self._perform(click, _verdict(stored, click.thread))
        except (NotActed, UnderWay, GoogleError) as error:
            await self._tell(click, str(error))
            return
        log.info("%s: %s of %s in %s", click.user, click.what, click.thread, click.run)
        async with self._showing:
            await self._show(acted, said, stored.request or click.run)

    async def _show(self, acted: DigestAction, said: str, key: str) -> None:
        click, message = acted.click, f"{acted.click.channel}/{acted.click.ts}"
        blocks = blocks_after(self._shown.get(message, acted.blocks), click, said)
        try:
            await self.writer.update(
                key, click.channel, click.ts, acted.text, blocks, run=click.run
            )
        except WriteFailed as error:
            log.warning("what was done for %s is not shown: %s", click.user, error)
            return
        if len(self._shown) >= MOST_SHOWN:
            self._shown.clear()
        self._shown[message] = blocks

    async def _digest(self, click: DigestClick) -> StoredRun:
        if by := await self.inbox.paused_by():
            raise NotActed(f"All new work is paused by {by}. Click again later.")
        try:
            stored = await self.store.run(click.run)
        except RunNotFound:
            raise NotActed(GONE) from None
        if stored.requester != click.user:
            raise NotActed(NOT_YOURS)
        return stored

    async def _perform(self, click: DigestClick, verdict: ThreadVerdict) -> str:
        """Execute the action; return what was done, in a sentence."""
        state, account = MailState(self.store.database), click.user
        if click.what == CORRECT:
            await self._correct(state, click, verdict)
            return SAID.get((click.field, click.value)) or f"Noted: it is {click.value}."
        if click.what == SNOOZE:
            until = datetime.now(UTC) + SNOOZED
            await state.snooze(account, click.thread, until)
            return f"Snoozed until {until:%d %b %H:%M} UTC."
        key = f"{click.run}/{click.thread}/{click.what}"
        await self._log(click, key)
        found = await state.acts.once(
            account, key, click.thread, lambda: self._in_gmail(click, verdict, key)
        )
        return str(found["said"])

    async def _correct(self, state: MailState, click: DigestClick, verdict: ThreadVerdict) -> None:
        if click.field == CATEGORY and click.value not in self.mailboxes.settings.triage.categories:
            raise NotActed(f"{click.value!r} is no category of the settings any more.")
        sender = verdict.writer or verdict.sender
        try:
            await state.corrections.add(click.user, click.thread, sender, click.field, click.value)
        except ValueError:
            raise NotActed("This digest is too old for that. Ask for a new one.") from None

    async def _log(self, click: DigestClick, key: str) -> None:
        """Write a line to the gate's log: a person clicked."""
        digest, now = hashlib.sha256(key.encode()).hexdigest(), datetime.now(UTC)
        tool = TOOLS[click.what]
        row = Decision(click.run, "click", tool, digest, "approved", "button", now, click.user)
        await self.store.record(PendingRecords(decisions=[row]))

    async def _in_gmail(
        self, click: DigestClick, verdict: ThreadVerdict, key: str
    ) -> dict[str, str]:
        opened = await self.mailboxes.open(click.user)
        if opened is None:
            raise NotActed(NOT_CONNECTED)
        try:
            return {"said": await _write(opened.gmail, click, verdict, key)}
        finally:
            await opened.aclose()

    async def _tell(self, click: DigestClick, why: str) -> None:
        """Tell only the person who clicked."""
        try:
            await self.writer.whisper(click.channel, click.user, why)
        except WriteFailed as error:
            log.warning("%s is not told that nothing was done: %s", click.user, error)


async def _write(gmail: Gmail, click: DigestClick, verdict: ThreadVerdict, key: str) -> str:
    """Write to the mailbox what the digest proposed; return what was done, in a sentence."""
    if click.what == LABEL:
        await gmail.relabel(click.thread, [verdict.category], [])
        return f"Labelled {verdict.category}."
    if click.what == DRAFT and verdict.draft_reply:
        thread = await gmail.thread(click.thread)
        told = datetime.fromisoformat(verdict.at) if verdict.at else None
        if any(m.at and told and m.at > told and is_incoming(m) for m in thread.messages):
            raise NotActed(NEWER)  # the draft would answer the last writer, not the one who asked
        await gmail.draft(thread, verdict.draft_reply, key)
        return "A draft is in your mailbox. Nothing was sent."
    raise NotActed("There is nothing to be done by that button.")


def _verdict(stored: StoredRun, thread: str) -> ThreadVerdict:
    document = parse_document(stored.result) if stored.result else None
    verdicts = document.verdicts if isinstance(document, TriageReport) else []
    found = next((v for v in verdicts if v.thread_id == thread), None)
    if found is None:
        raise NotActed(GONE)
    return found
