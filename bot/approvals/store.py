"""Store actions that need approval, from the proposal to the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict

from bot.storage.database import Database, in_transaction
from bot.storage.tables import actions, decisions, proposal
from subagents.gate import Action, Decision

BATCH = "batch"
"""Tool of an action that groups several: see `Batch`."""
GRANT = "standing_grant"
"""Tool of the offer to administrators to grant access: see `GrantOffer`."""
INTERNAL_TOOLS = frozenset({BATCH, GRANT})
"""Actions proposed by code, not by tools of a scope."""
STATES = ("proposed", "asked", "approved", "denied", "expired", "edited", "done", "failed")
UNDECIDED_STATES = ("proposed", "asked")
"""States in which nobody has decided yet."""


class CardPlace(BaseModel):
    """Where a card is shown, and what it shows."""

    model_config = ConfigDict(frozen=True)

    messages: tuple[tuple[str, str], ...] = ()
    """(channel, ts) of each message with its buttons."""
    thread: str = ""
    """Root of the thread of these messages; empty if they are in none."""
    teams: tuple[str, ...] = ()
    """Workspaces that the requester may belong to."""
    batch: str = ""
    """The batch whose card decides on it; empty = it has its own card."""
    drawn: str = ""
    """The state that the card shows now."""


class Batch(BaseModel):
    """Arguments of an action that groups several."""

    ids: tuple[str, ...]
    tools: tuple[str, ...]


class Question(BaseModel):
    """Arguments of a question that the parent asks back."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CardDecision:
    """A decision on an action."""

    state: str
    by: str
    """User who decided; empty = code decided."""
    option: str = ""
    """The chosen option."""


class GrantOffer(BaseModel):
    """Arguments of the offer of a grant."""

    sources: dict[str, str]
    """Id -> name."""
    destination: str
    destination_name: str


@dataclass(frozen=True)
class StoredAction:
    """A row of `actions`."""

    id: str
    run: str
    tool: str
    requester: str
    digest: str
    body: str
    state: str
    """See bot/storage/tables.py."""
    made: datetime
    expires: datetime | None
    card: Mapping[str, Any] | None
    decided_by: str | None
    decided_at: datetime | None
    instead_of: str | None
    outcome: Mapping[str, Any] | None

    @cached_property
    def action(self) -> Action:
        return Action.of(self.body)

    @property
    def place(self) -> CardPlace:
        return CardPlace.model_validate(self.card or {})

    @property
    def said(self) -> str:
        """Return a sentence with the result, or the reason why not, or the chosen option."""
        return str((self.outcome or {}).get("said") or "")

    @property
    def stands_for(self) -> list[str]:
        """Return the ids of the actions that it decides on: itself, or those of a batch."""
        return list(self.batch.ids) if self.tool == BATCH else [self.id]

    @property
    def batch(self) -> Batch:
        return Batch.model_validate(self.action.args)

    @property
    def question(self) -> Question:
        return Question.model_validate(self.action.args)

    @property
    def grant(self) -> GrantOffer:
        return GrantOffer.model_validate(self.action.args)


@dataclass(frozen=True)
class Actions:
    """The actions of one database. All methods raise StoreError."""

    database: Database

    async def get(self, id: str) -> StoredAction | None:
        found = await self._rows(actions.c.id == id)
        return found[0] if found else None

    async def _several(self, ids: Sequence[str]) -> list[StoredAction]:
        """Return these actions, in this order."""
        found = {row.id: row for row in await self._rows(actions.c.id.in_(ids))}
        return [found[id] for id in ids if id in found]

    async def parts(self, row: StoredAction) -> list[StoredAction]:
        """Return the actions that a row decides on: those of a batch in order, or itself."""
        return await self._several(row.stands_for) if row.tool == BATCH else [row]

    async def of_run(self, run: str) -> list[StoredAction]:
        """Return the proposals of a run, oldest first, without those made by code."""
        from_tools = sa.and_(actions.c.run == run, actions.c.tool.not_in(INTERNAL_TOOLS))
        return await self._rows(from_tools, actions.c.instead_of.is_(None))

    async def in_state(self, *states: str, since: datetime | None = None) -> list[StoredAction]:
        """Return the actions in these states, oldest first, created since then."""
        young = [actions.c.made >= since] if since else []
        return await self._rows(actions.c.state.in_(states), *young)

    async def add(self, action: Action) -> StoredAction:
        """Store an action proposed by code, once for each id; return its row."""
        await self.database.write(self.database.upsert(actions).values(proposal(action)))
        (stored,) = await self._rows(actions.c.id == action.id)
        return stored

    @in_transaction
    def ask(
        self, connection: sa.Connection, places: Mapping[str, CardPlace], expires: datetime
    ) -> None:
        """Record that the cards of these actions are posted: a person can decide on them now."""
        for id, place in places.items():
            changes = {"state": "asked", "card": place.model_dump(mode="json"), "expires": expires}
            _set(connection, (id,), ("proposed",), changes)

    @in_transaction
    def decide(
        self,
        connection: sa.Connection,
        row: StoredAction,
        decision: CardDecision,
        decided: Sequence[Decision] = (),
        *,
        among: Sequence[str] = ("asked",),
    ) -> bool:
        """Decide on an action, or on all waiting actions of a batch; return whether this call did.

        It is one conditional update: if several people decide at once, only one succeeds.
        `decided` is for the gate's log. `among`: the states in which a decision is possible.
        """
        changes: dict[str, Any] = {"state": decision.state, "decided_by": decision.by}
        changes |= {"decided_at": datetime.now(UTC)}
        changes |= {"outcome": {"said": decision.option}} if decision.option else {}
        if not _set(connection, (row.id,), among, changes):
            return False
        _set(connection, [id for id in row.stands_for if id != row.id], among, changes)
        _log(connection, decided)
        return True

    async def deny(self, row: StoredAction, by: str, where: str) -> bool:
        """Deny a waiting action; return whether it was still waiting.

        Its card shows this after `serve` has noticed it. `where` is for the gate's log.
        """
        now = datetime.now(UTC)
        line = Decision(row.run, row.id, row.tool, row.digest[:16], "denied", where, now, None)
        return await self.decide(row, CardDecision("denied", by), (line,), among=UNDECIDED_STATES)

    @in_transaction
    def replace(
        self,
        connection: sa.Connection,
        row: StoredAction,
        new: Action,
        by: str,
        decided: Sequence[Decision],
    ) -> bool:
        """Replace a waiting action by an edited one; return whether it was still waiting.

        Nobody can decide on the new one before its card shows it: see `ask`.
        """
        changes = {"state": "edited", "decided_by": by, "decided_at": datetime.now(UTC)}
        if not _set(connection, (row.id,), ("asked",), changes):
            return False
        place = {**(row.card or {}), "drawn": ""}
        new_row = {**proposal(new), "instead_of": row.id, "card": place}
        connection.execute(sa.insert(actions).values(new_row))
        _log(connection, decided)
        return True

    async def finish(self, id: str, state: str, text: str) -> None:
        """Store the result of an approved action: `done` or `failed`, and a sentence on it."""
        is_approved = sa.and_(actions.c.id == id, actions.c.state == "approved")
        values = {"state": state, "outcome": {"said": text}}
        await self.database.write(sa.update(actions).where(is_approved).values(values))

    async def mark_shown(self, id: str, place: CardPlace) -> None:
        """Record that the card shows this state now."""
        is_action = actions.c.id == id
        await self.database.write(
            sa.update(actions).where(is_action).values(card=place.model_dump(mode="json"))
        )

    async def expire(self, now: datetime, unseen_before: datetime) -> None:
        """Expire actions that nobody decided on or that were never shown."""
        late = sa.and_(actions.c.state == "asked", actions.c.expires < now)
        unseen = sa.and_(actions.c.state == "proposed", actions.c.made < unseen_before)
        ended = sa.update(actions).where(sa.or_(late, unseen))
        await self.database.write(ended.values(state="expired", decided_at=now))

    @in_transaction
    def log(self, connection: sa.Connection, decided: Sequence[Decision]) -> None:
        """Write lines to the gate's log."""
        _log(connection, decided)

    async def _rows(self, *conditions: sa.ColumnElement[bool]) -> list[StoredAction]:
        query = sa.select(actions).where(*conditions).order_by(actions.c.made, actions.c.id)
        return [StoredAction(**row._asdict()) for row in await self.database.read(query)]


def _set(
    connection: sa.Connection, ids: Sequence[str], among: Sequence[str], changes: Mapping[str, Any]
) -> int:
    is_target = sa.and_(actions.c.id.in_(ids), actions.c.state.in_(among))
    return connection.execute(sa.update(actions).where(is_target).values(**changes)).rowcount


def _log(connection: sa.Connection, decided: Sequence[Decision]) -> None:
    rows = [{name: getattr(each, name) for name in Decision.__slots__} for each in decided]
    if rows:
        connection.execute(sa.insert(decisions), rows)
