"""What the buttons under a digest do: once each, and for whom the digest was made alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.digest_clicks import CORRECT, DRAFT, LABEL, SNOOZE, DigestClick, answered
from bot.heard import Acted
from bot.mail_acts import UnderWay
from bot.mail_state import MailState
from bot.mailboxes import Mailboxes
from bot.outbox import Outbox
from bot.sentences import NOT_CONNECTED
from bot.store import RunNotFound, Store
from bot.tables import StoredRun
from bot.writes import WriteFailed
from scopes.gmail import Gmail
from scopes.google import GoogleError

log = logging.getLogger(__name__)

SNOOZED = timedelta(days=1)
NOT_YOURS = "This digest is somebody else's; only they can use its buttons."
GONE = "This digest is no longer stored, so its buttons do nothing. Ask for a new one."
SAID = {
    ("priority", "low"): "Noted: not urgent.",
    ("asked_of_me", "false"): "Noted: nothing is asked of you.",
}


class NotActed(Exception):
    """Nothing was done; its text says why, in a sentence for people."""


@dataclass(frozen=True, slots=True)
class DigestActing:
    """Does what is clicked, and says so beside the thread."""

    store: Store
    mailboxes: Mailboxes
    outbox: Outbox

    async def act(self, acted: Acted) -> None:
        """After the ack. A click whose work is cut short does it when it is clicked again."""
        click = acted.click
        try:
            stored = await self._digest(click)
            said = await self._done(click, _verdict(stored, click.thread))
        except (NotActed, UnderWay, GoogleError) as error:
            await self._tell(click, str(error))
            return
        log.info("%s: %s of %s in %s", click.user, click.what, click.thread, click.run)
        try:
            blocks = answered(acted.blocks, click, said)
            key = stored.request or click.run
            await self.outbox.update(
                key, click.channel, click.ts, acted.text, blocks, run=click.run
            )
        except WriteFailed as error:
            log.warning("what was done for %s is not shown: %s", click.user, error)

    async def _digest(self, click: DigestClick) -> StoredRun:
        try:
            stored = await self.store.run(click.run)
        except RunNotFound:
            raise NotActed(GONE) from None
        if stored.requester != click.user:
            raise NotActed(NOT_YOURS)
        return stored

    async def _done(self, click: DigestClick, verdict: Mapping[str, Any]) -> str:
        """What was done, in a sentence."""
        state, account = MailState(self.store.database), click.user
        if click.what == CORRECT:
            await self._correct(state, click, verdict)
            return SAID.get((click.field, click.value)) or f"Noted: it is {click.value}."
        if click.what == SNOOZE:
            until = datetime.now(UTC) + SNOOZED
            await state.snooze(account, click.thread, until)
            return f"Snoozed until {until:%d %b %H:%M} UTC."
        key = f"{click.run}/{click.thread}/{click.what}"
        found = await state.acts.once(
            account, key, click.thread, lambda: self._in_gmail(click, verdict, key)
        )
        return str(found["said"])

    async def _correct(
        self, state: MailState, click: DigestClick, verdict: Mapping[str, Any]
    ) -> None:
        try:
            await state.corrections.add(
                click.user, click.thread, verdict["sender"], click.field, click.value
            )
        except ValueError:
            raise NotActed("This digest is too old for that. Ask for a new one.") from None

    async def _in_gmail(
        self, click: DigestClick, verdict: Mapping[str, Any], key: str
    ) -> dict[str, str]:
        opened = await self.mailboxes.open(click.user)
        if opened is None:
            raise NotActed(NOT_CONNECTED)
        try:
            return {"said": await _write(opened.gmail, click, verdict, key)}
        finally:
            await opened.aclose()

    async def _tell(self, click: DigestClick, why: str) -> None:
        """Tell who clicked, and nobody else."""
        try:
            await self.outbox.whisper(click.channel, click.user, why)
        except WriteFailed as error:
            log.warning("%s is not told that nothing was done: %s", click.user, error)


async def _write(gmail: Gmail, click: DigestClick, verdict: Mapping[str, Any], key: str) -> str:
    """Write to the mailbox what the digest proposed; what was done, in a sentence."""
    if click.what == LABEL:
        await gmail.relabel(click.thread, [verdict["category"]], [])
        return f"Labelled {verdict['category']}."
    if click.what == DRAFT and verdict["draft_reply"]:
        await gmail.draft(await gmail.thread(click.thread), verdict["draft_reply"], key)
        return "A draft is in your mailbox. Nothing was sent."
    raise NotActed("There is nothing to be done by that button.")


def _verdict(stored: StoredRun, thread: str) -> Mapping[str, Any]:
    verdicts: Sequence[Mapping[str, Any]] = (stored.result or {}).get("verdicts") or ()
    found = next((v for v in verdicts if v["thread_id"] == thread), None)
    if found is None:
        raise NotActed(GONE)
    return found
