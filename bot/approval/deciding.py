"""The rules of a click on a card: who may decide on what, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.approval.actions import BATCH, GRANT, StoredAction
from bot.approval.clicks import APPROVE, EDIT, Clicked, Submitted
from bot.policy.policy import Admission
from bot.policy.policy_file import PolicyFault
from config.settings import Policy

CLICKER, BOUND, EXPIRY, ONCE, RECHECK = "clicker", "bound", "expiry", "once", "recheck"
CLICK_RULES = frozenset({CLICKER, BOUND, EXPIRY, ONCE, RECHECK})
"""All of them hold, always: nothing but a test passes fewer."""
OWN_RIGHTS = frozenset({"schedule_create"})
"""Tools whose calls go on with the requester's rights: nobody else's word counts for them."""
PERSON_S = 2.0
"""Seconds for asking Slack who clicked; it wants its ack within three."""

UNKNOWN = "There is nothing to decide on behind this button."
UNBOUND = "This is not the card that was shown for it, so nothing was done."
CHANGED = "What is stored is not what was proposed, so nothing was done. Please ask again."
EXPIRED = "This has expired, so nothing was done. Please ask again."
UNCHECKED = "I could not check just now who you are, so nothing was done. Please press again."
NOT_MEMBER = "Only full members of this workspace decide on this."
NOT_YOURS = "Only the person who asked for this, or an approver of the policy, decides on it."
NOT_RIGHTS = "Only the person who asked for this decides on it: it would go on using their rights."
NOT_ADMIN = "Only an administrator of the assistant decides on this."
PAUSED = "All work is paused by {by}, so nothing was done. Press again when it goes on."
DECIDED = {
    "proposed": "This card is being put up. Press again in a moment.",
    "approved": "{by} has approved this already.",
    "done": "{by} has approved this, and it is done.",
    "failed": "{by} has approved this already.",
    "denied": "{by} has denied this already.",
    "edited": "{by} has changed the text; the card is being brought up to date.",
    "expired": EXPIRED,
}


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a click counts for nothing; the sentence is for who clicked."""

    rule: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Deciding:
    """Looks at one click. Its rules are asked in turn; the first objection holds."""

    admission: Admission
    team: str
    """The workspace that we are installed in."""
    rules: frozenset[str] = CLICK_RULES

    async def objection(self, click: Clicked | Submitted, row: StoredAction) -> Objection | None:
        """Why this click does not count for what is stored; None = it counts. Raises StoreError."""
        checks: Sequence[tuple[str, Callable[[], Awaitable[str]]]] = (
            (BOUND, lambda: self._bound(click, row)),
            (CLICKER, lambda: self._clicker(click, row)),
            (ONCE, lambda: self._once(row)),
            (EXPIRY, lambda: self._expiry(row)),
            (RECHECK, lambda: self._paused(click)),
        )
        for rule, check in checks:
            if rule in self.rules and (sentence := await check()):
                return Objection(rule, sentence)
        return None

    async def _bound(self, click: Clicked | Submitted, row: StoredAction) -> str:
        """The bytes are those that were proposed, and it was clicked where they are shown."""
        if not row.genuine:
            return CHANGED
        if row.state == "proposed":
            return DECIDED["proposed"]
        if isinstance(click, Submitted):
            return UNBOUND if row.tool in (BATCH, GRANT) or row.place.batch else ""
        shown = (click.channel, click.ts) in row.place.messages
        whole = click.all == (row.tool == BATCH) and not row.place.batch
        editable = click.what != EDIT or row.tool not in (BATCH, GRANT)
        return "" if shown and whole and editable else UNBOUND

    async def _clicker(self, click: Clicked | Submitted, row: StoredAction) -> str:
        try:
            policy = await self.admission.file.read()
        except PolicyFault:
            return UNCHECKED
        if not _may_decide(policy, click, row, self.team):
            if row.tool == GRANT:
                return NOT_ADMIN
            return NOT_RIGHTS if _goes_on(row) else NOT_YOURS
        try:
            async with asyncio.timeout(PERSON_S):
                person = await self.admission.people.person(click.user, self.team, fresh=True)
        except TimeoutError:
            return UNCHECKED
        if person is None:
            return self.admission.people.refusal("user", self.team, click.user) or UNCHECKED
        return "" if person.kind == "member" else NOT_MEMBER

    async def _once(self, row: StoredAction) -> str:
        if row.state == "asked":
            return ""
        return DECIDED[row.state].format(by=named(row.decided_by))

    async def _expiry(self, row: StoredAction) -> str:
        late = row.state == "expired" or row.expires is None or row.expires <= datetime.now(UTC)
        return EXPIRED if late else ""

    async def _paused(self, click: Clicked | Submitted) -> str:
        """Nothing is begun while all work is paused; what is denied or changed begins nothing."""
        if isinstance(click, Submitted) or click.what != APPROVE:
            return ""
        by = await self.admission.inbox.paused()
        return PAUSED.format(by=by) if by else ""


def _may_decide(policy: Policy, click: Clicked | Submitted, row: StoredAction, team: str) -> bool:
    if row.tool == GRANT:
        return click.user in policy.admins and click.team == team
    if click.user == row.requester:
        return bool(click.team) and click.team in row.place.teams
    approver = click.user in policy.approvers and click.team == team
    return approver and not _goes_on(row)


def _goes_on(row: StoredAction) -> bool:
    """Whether it, or one of a batch, would go on with the rights of who asked for it."""
    batch = row.tool == BATCH and row.genuine
    return not OWN_RIGHTS.isdisjoint(row.action.args.get("tools", ()) if batch else (row.tool,))


def named(by: str | None) -> str:
    """Who decided, for a text that Slack parses: only an id becomes a mention."""
    return f"<@{by}>" if by and by[0] in "UW" and by.isalnum() else (by or "Somebody")
