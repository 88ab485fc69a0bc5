"""Store actions that need approval: their rows, from the proposal to the result."""

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
"""Tool of the offer of a grant to administrators: see `GrantOffer`."""
OURS = frozenset({BATCH, GRANT})
"""Actions that code proposes, not tools of a scope."""
STATES = ("proposed", "asked", "approved", "denied", "expired", "edited", "done", "failed")
WAITS = ("proposed", "asked")
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
    """The batch whose card decides on it; empty = it has a card of its own."""
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
    """User who decided; empty = code did."""
    owner: str | None = None
    """Process that executes it."""
    said: str = ""
    """The option that was chosen."""


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
    owner: str | None
    outcome: Mapping[str, Any] | None

    @cached_property
    def action(self) -> Action:
        return Action.of(self.body)

    @property
    def place(self) -> CardPlace:
        return CardPlace.model_validate(self.card or {})

    @property
    def said(self) -> str:
        """Return the sentence on what was done, or why not, or the chosen option."""
        return str((self.outcome or {}).get("said") or "")

    @property
    def stands_for(self) -> list[str]:
        """Return the ids of the actions that it decides on: its own, or those of a batch."""
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
        """Return the actions that it decides on: those of a batch in its order, or itself alone."""
        return await self._several(row.stands_for) if row.tool == BATCH else [row]

    async def of_run(self, run: str) -> list[StoredAction]:
        """Return what a run proposed, oldest first, without what code proposed for it."""
        mine = sa.and_(actions.c.run == run, actions.c.tool.not_in(OURS))
        return await self._rows(mine, actions.c.instead_of.is_(None))

    async def in_state(
        self, *states: str, owner: str | None = None, since: datetime | None = None
    ) -> list[StoredAction]:
        """Return actions in these states, oldest first, of one process, created since then."""
        of = [actions.c.owner == owner] if owner else []
        young = [actions.c.made >= since] if since else []
        return await self._rows(actions.c.state.in_(states), *of, *young)

    async def add(self, action: Action) -> StoredAction:
        """Store an action that code proposes, once for each id; return its row."""
        await self.database.write(self.database.upsert(actions).values(proposal(action)))
        (stored,) = await self._rows(actions.c.id == action.id)
        return stored

    @in_transaction
    def ask(
        self, connection: sa.Connection, places: Mapping[str, CardPlace], expires: datetime
    ) -> None:
        """Record that the cards of these are posted: from now on a person can decide on them."""
        for id, place in places.items():
            told = {"state": "asked", "card": place.model_dump(mode="json"), "expires": expires}
            _set(connection, (id,), ("proposed",), told)

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

        It is one conditional update: of several people who decide at the same moment, one does.
        `decided` is for the gate's log. `among`: the states in which a decision is possible.
        """
        told: dict[str, Any] = {"state": decision.state, "decided_by": decision.by}
        told |= {"decided_at": datetime.now(UTC), "owner": decision.owner}
        told |= {"outcome": {"said": decision.said}} if decision.said else {}
        if not _set(connection, (row.id,), among, told):
            return False
        _set(connection, [id for id in row.stands_for if id != row.id], among, told)
        _log(connection, decided)
        return True

    async def deny(self, row: StoredAction, by: str, where: str) -> bool:
        """Deny a waiting action; return whether it was still waiting.

        Its card shows this when `serve` has noticed it. `where` is for the gate's log.
        """
        now = datetime.now(UTC)
        line = Decision(row.run, row.id, row.tool, row.digest[:16], "denied", where, now, None)
        return await self.decide(row, CardDecision("denied", by), (line,), among=WAITS)

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
        told = {"state": "edited", "decided_by": by, "decided_at": datetime.now(UTC)}
        if not _set(connection, (row.id,), ("asked",), told):
            return False
        place = {**(row.card or {}), "drawn": ""}
        made = {**proposal(new), "instead_of": row.id, "card": place}
        connection.execute(sa.insert(actions).values(made))
        _log(connection, decided)
        return True

    async def finish(self, id: str, state: str, said: str) -> None:
        """Store the result of an approved action: `done` or `failed`, and a sentence on it."""
        mine = sa.and_(actions.c.id == id, actions.c.state == "approved")
        values = {"state": state, "outcome": {"said": said}, "owner": None}
        await self.database.write(sa.update(actions).where(mine).values(values))

    async def mark_shown(self, id: str, place: CardPlace) -> None:
        """Record that the card shows this state now."""
        mine = actions.c.id == id
        await self.database.write(
            sa.update(actions).where(mine).values(card=place.model_dump(mode="json"))
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

    async def _rows(self, *wanted: sa.ColumnElement[bool]) -> list[StoredAction]:
        query = sa.select(actions).where(*wanted).order_by(actions.c.made, actions.c.id)
        return [StoredAction(**row._asdict()) for row in await self.database.read(query)]


def _set(
    connection: sa.Connection, ids: Sequence[str], among: Sequence[str], told: Mapping[str, Any]
) -> int:
    mine = sa.and_(actions.c.id.in_(ids), actions.c.state.in_(among))
    return connection.execute(sa.update(actions).where(mine).values(**told)).rowcount


def _log(connection: sa.Connection, decided: Sequence[Decision]) -> None:
    rows = [{name: getattr(each, name) for name in Decision.__slots__} for each in decided]
    if rows:
        connection.execute(sa.insert(decisions), rows)
