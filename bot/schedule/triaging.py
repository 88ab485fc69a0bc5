"""The triage of a schedule: the same run as one asked for in Slack, told when it is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from bot.mail.state import MailState
from bot.requests.asked import Request
from bot.requests.desk import Desk
from bot.schedule.again import is_passing
from bot.triage.inbox_triage import InboxTriage
from bot.triage.triage import done_with
from scopes.tool import Window
from subagents.run import Run

MAIL = "mail"
"""Key of a tick's `extra`: what is to be noted of the mailbox once the digest is delivered."""


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest, and what is to be noted of the mailbox when it was delivered."""

    document: dict[str, Any]
    extra: dict[str, Any]
    figures: dict[str, int]
    passing: bool = False
    """It failed, and might not at another time."""


async def digest_of(desk: Desk, run: Run, name: str, window: Window, state: MailState) -> Digest:
    """The digest of the mailbox of whom the run is for."""
    work = InboxTriage(desk, run, Request(f"schedule {name}", window), state)
    document = {**await work.answer(), "title": name}
    if work.work is None:
        return Digest({**document, "status": "failed"}, {}, {}, work.passing)
    material = done_with(work.work.reader.owner, work.work)
    passing = work.passing or is_passing(document)
    return Digest(document, {MAIL: material}, figures_of(document), passing)


def figures_of(document: Mapping[str, Any]) -> dict[str, int]:
    """What of a digest is counted: all in it is new, as it lists nothing twice."""
    told = [*(document.get("verdicts") or ()), *(document.get("unreadable") or ())]
    high = sum(v.get("priority") == "high" for v in document.get("verdicts") or ())
    return {"new": len(told), "high": high}


def note_mail(state: MailState, connection: sa.Connection, extra: Mapping[str, Any] | None) -> None:
    """Note, in the transaction of its delivery, what the digest of this `extra` is done with."""
    if material := (extra or {}).get(MAIL):
        state.noted(connection, **material)
