"""Cards are put up: what a run proposed, below its answer; offers of grants, to administrators."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bot.approval import cards
from bot.approval.actions import BATCH, GRANT, Actions, Place, StoredAction
from bot.approval.board import Board
from bot.approval.cards import Card
from bot.policy.policy import Admission
from bot.policy.policy_file import PolicyFault
from bot.replies.outbox import Outbox
from bot.replies.writes import ChannelClosed, ContentRefused
from bot.requests.requests import StoredRequest
from bot.storage.database import Database
from config.settings import Approvals as Settings
from scopes.intent import Intent
from scopes.label import TRUSTED, Label
from subagents.action import Action
from subagents.directory import Directory

log = logging.getLogger(__name__)

MOST_CARDS = 3
"""Cards of one request; more actions share one card."""
MOST_ADMINS = 10
"""Administrators who are asked about one grant."""


@dataclass(frozen=True, slots=True)
class Proposals:
    """Shows what waits for a person's word. Its methods raise WriteFailed and StoreError."""

    actions: Actions
    board: Board
    admission: Admission
    directory: Directory
    grant_waits: timedelta
    """How long administrators may take to answer an offer of a grant."""

    @classmethod
    def made(
        cls,
        settings: Settings,
        database: Database,
        outbox: Outbox,
        admission: Admission,
        directory: Directory,
        address: str,
    ) -> Proposals:
        """The parts put together; `address` is the workspace's."""
        actions, waits = Actions(database), timedelta(minutes=settings.expires_minutes)
        board = Board(actions, outbox, address, waits)
        grant_waits = timedelta(hours=settings.grant_hours)
        return cls(actions, board, admission, directory, grant_waits)

    async def show(self, run: str, request: StoredRequest) -> int:
        """Post cards for what a run proposed, one for all that it would look up outside; how many
        things wait now. May be called again."""
        rows = [row for row in await self.actions.of_run(run) if row.genuine]
        unseen = [row for row in rows if row.state == "proposed" and row.card is None]
        lookups = [row for row in unseen if row.action.asks]
        others = [row for row in unseen if not row.action.asks]
        many = sum(not row.action.asks for row in rows) > MOST_CARDS
        for together in filter(None, (lookups if lookups[1:] else [], others if many else [])):
            await self._show_batch(run, together, request)
        alone = [*(() if lookups[1:] else lookups), *(() if many else others)]
        for row in alone:
            until = datetime.now(UTC) + self.board.waits
            card = cards.waiting(row.action, until)
            await self._show([row], row.action.label, card, until, request)
        return sum(row.state == "asked" for row in await self.actions.of_run(run))

    async def _show_batch(
        self, run: str, rows: Sequence[StoredAction], request: StoredRequest
    ) -> None:
        """One card for many: what it stands for is fixed in its own bytes."""
        first, until = rows[0].action, datetime.now(UTC) + self.board.waits
        stands_for = {"ids": [r.id for r in rows], "digests": [r.digest for r in rows]}
        stands_for["tools"] = [r.tool for r in rows]
        label = first.label
        for row in rows[1:]:
            label = label.join(row.action.label)
        batch = Action(
            id=_id(BATCH, *stands_for["ids"]),
            run=run,
            context=first.context,
            tool=BATCH,
            scope="",
            args=stands_for,
            requester=request.user,
            label=label,
            handles={},
            intent=first.intent,
            rule=first.rule,
            made=datetime.now(UTC),
        )
        await self.actions.add(batch)
        stored = await self.actions.get(batch.id)
        assert stored
        card = cards.batch(batch.id, [row.action for row in rows], until)
        await self._show([stored, *rows], label, card, until, request)

    async def _show(
        self,
        rows: Sequence[StoredAction],
        label: Label,
        card: Card | None,
        until: datetime,
        request: StoredRequest,
    ) -> None:
        """Show one card for the first of these rows; the others are of its batch."""
        head, *others = rows
        async for channel, thread in self._places(label, request):
            if card is None:
                break
            after = request.ts if channel == request.channel else ""
            try:
                ts = await self.board.post(f"action/{head.id}", card, channel, thread, after)
            except ChannelClosed as error:
                log.warning("no card in %s: %s", channel, error)
                continue
            except ContentRefused as error:
                log.warning("Slack does not show %s: %s", head.id, error)
                break
            place = Place(((channel, ts),), thread, homes(request), drawn="asked")
            parts = {each.id: replace(place, messages=(), batch=head.id) for each in others}
            await self.actions.ask({head.id: place, **parts}, until)
            return
        root = None if request.thread_ts == request.ts else request.thread_ts
        await self.board.drop(rows, request.channel, request.user, root)

    async def _places(self, label: Label, request: StoredRequest) -> AsyncIterator[tuple[str, str]]:
        """Where it may be shown, with the thread: at the answer, else to the requester alone."""
        if not await self.directory.obstacles(label, request.channel):
            yield request.channel, request.thread_ts
        if not await self.directory.obstacles(label, request.user):
            try:
                channel = await self.board.outbox.direct(request.user)
            except ChannelClosed as error:
                log.warning("no direct conversation with %s: %s", request.user, error)
            else:
                yield channel, ""

    async def offer_grant(
        self, run: str, request: StoredRequest, sources: Mapping[str, str], destination: str
    ) -> None:
        """Ask the administrators whether text of these sources (id -> name) may stand in the
        destination for good. May be called again."""
        try:
            admins = (await self.admission.file.read()).admins[:MOST_ADMINS]
        except PolicyFault:
            admins = ()
        if not admins:
            log.info("nobody can be asked about a grant for %s", destination)
            return
        facts = await self.admission.people.channel(destination)
        offer = Action(
            id=_id(GRANT, run, destination, *sorted(sources)),
            run=run,
            context="",
            tool=GRANT,
            scope="",
            args={
                "sources": dict(sources),
                "destination": destination,
                "destination_name": f"#{facts.name}" if facts and facts.name else destination,
            },
            requester=request.user,
            label=TRUSTED,
            handles={},
            intent=Intent(),
            rule="audience",
            made=datetime.now(UTC),
        )
        await self.actions.add(offer)
        stored = await self.actions.get(offer.id)
        if stored is None or stored.state != "proposed":
            return
        for other in await self.actions.in_state("asked"):
            same = other.tool == GRANT and other.genuine
            same = same and other.action.args == stored.action.args
            if same and other.expires and not other.place.batch:  # they were asked for it already
                await self.actions.ask({stored.id: Place(batch=other.id)}, other.expires)
                return
        await self._offer(stored, admins)

    async def _offer(self, row: StoredAction, admins: Sequence[str]) -> None:
        until = datetime.now(UTC) + self.grant_waits
        card, messages = cards.offer(row.action, until), []
        if card is None:
            log.warning("nobody is asked about %s: its sources are too many to be shown", row.id)
            return
        for admin in admins:
            try:
                channel = await self.board.outbox.direct(admin)
                key = f"action/{row.id}/{admin}"
                messages.append((channel, await self.board.post(key, card, channel, "")))
            except (ChannelClosed, ContentRefused) as error:
                log.warning("%s is not asked about a grant: %s", admin, error)
        if messages:
            await self.actions.ask({row.id: Place(tuple(messages), drawn="asked")}, until)


def homes(request: StoredRequest) -> tuple[str, ...]:
    """The workspaces that the requester may be at home in, as the signed event said."""
    said = (request.team, request.event.get("user_team"), request.event.get("team"))
    return tuple(dict.fromkeys(each for each in said if isinstance(each, str) and each))


def _id(*parts: str) -> str:
    """The same id for the same thing, so that it is asked for once."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
