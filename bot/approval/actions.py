"""Actions that wait for a person's word: their rows, from the proposal to what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.gate_tables import actions, proposal, signed
from bot.storage.tables import decisions
from subagents.action import Action, digest_of
from subagents.gate import Decision

BATCH = "batch"
"""Tool of the action that stands for several: its arguments are their ids and digests."""
GRANT = "standing_grant"
"""Tool of the offer that is made to administrators."""
OURS = frozenset({BATCH, GRANT})
"""No tools of a scope: actions that code proposes."""
WAITS = ("proposed", "asked")
"""States in which nobody has decided yet."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a card is shown, and what is known of it."""

    messages: tuple[tuple[str, str], ...] = ()
    """(channel, ts) of each message that has its buttons."""
    thread: str = ""
    """Root of the thread that they stand in; empty where they stand in none."""
    teams: tuple[str, ...] = ()
    """Workspaces that the requester may be at home in."""
    batch: str = ""
    """The batch that decides on it; empty = it has a card of its own."""
    drawn: str = ""
    """The state that the card shows now."""

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": [list(each) for each in self.messages],
            "thread": self.thread,
            "teams": list(self.teams),
            "batch": self.batch,
            "drawn": self.drawn,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Place:
        stored = stored or {}
        return cls(
            tuple((str(c), str(t)) for c, t in stored.get("messages", ())),
            stored.get("thread", ""),
            tuple(stored.get("teams", ())),
            stored.get("batch", ""),
            stored.get("drawn", ""),
        )


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
    """See bot/storage/gate_tables.py."""
    made: datetime
    expires: datetime | None
    card: Mapping[str, Any] | None
    decided_by: str | None
    decided_at: datetime | None
    decision: str | None
    """What was signed by the process that heard the person."""
    instead_of: str | None
    owner: str | None
    outcome: Mapping[str, Any] | None

    @cached_property
    def genuine(self) -> bool:
        """Whether the bytes are those that were proposed under this id, for this requester."""
        try:
            of = self.action
        except (ValueError, KeyError, TypeError):
            return False
        proposed = (of.run, of.tool, of.requester, digest_of(self.body))
        return proposed == (self.run, self.tool, self.requester, self.digest)

    @property
    def approved(self) -> bool:
        """Whether these bytes were approved, as the columns say: the state alone proves nothing."""
        if not self.genuine or self.decided_by is None or self.decided_at is None:
            return False
        wanted = _decision(self.id, self.digest, "approved", self.decided_by, self.decided_at)
        return self.decision == wanted

    @cached_property
    def action(self) -> Action:
        """What the bytes say. Raises ValueError, KeyError or TypeError where they are no action."""
        return Action.of(self.id, self.body)

    @property
    def rule(self) -> str:
        """The rule that wants a person's word; empty where nobody knows what was proposed."""
        return self.action.rule if self.genuine else ""

    @property
    def place(self) -> Place:
        return Place.of(self.card)

    @property
    def stands_for(self) -> dict[str, str]:
        """Ids and digests of the actions that it decides on: its own, or those of a batch."""
        if self.tool != BATCH or not self.genuine:
            return {self.id: self.digest}
        args = self.action.args
        return dict(zip(args["ids"], args["digests"], strict=True))


class Actions:
    """The actions of one database. All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def get(self, id: str) -> StoredAction | None:
        found = await self._rows(actions.c.id == id)
        return found[0] if found else None

    async def several(self, ids: Sequence[str]) -> list[StoredAction]:
        """These actions, in this order."""
        found = {row.id: row for row in await self._rows(actions.c.id.in_(ids))}
        return [found[id] for id in ids if id in found]

    async def parts(self, row: StoredAction) -> list[StoredAction]:
        """The actions that it stands for: those of a batch, in its order, or itself alone."""
        return [row] if [*row.stands_for] == [row.id] else await self.several([*row.stands_for])

    async def of_run(self, run: str) -> list[StoredAction]:
        """All that a run proposed, oldest first; what code proposed in its name is left out."""
        mine = sa.and_(actions.c.run == run, actions.c.tool.not_in(OURS))
        return await self._rows(mine, actions.c.instead_of.is_(None))

    async def in_state(
        self, *states: str, owner: str | None = None, since: datetime | None = None
    ) -> list[StoredAction]:
        """Actions in these states, oldest first, of one process, made since then."""
        of = [actions.c.owner == owner] if owner else []
        young = [actions.c.made >= since] if since else []
        return await self._rows(actions.c.state.in_(states), *of, *young)

    async def owners(self) -> set[str]:
        """The processes that have something to execute."""
        return {row.owner for row in await self.in_state("approved") if row.owner}

    async def add(self, action: Action) -> None:
        """Store an action that code proposes; once for each id."""
        insert = self.database.insert(actions).values(proposal(action))
        await self.database.write(insert.on_conflict_do_nothing())

    async def ask(self, places: Mapping[str, Place], expires: datetime) -> None:
        """The cards of these stand there: from now on a person can decide on them."""

        def change(connection: sa.Connection) -> None:
            for id, place in places.items():
                told = {"state": "asked", "card": place.to_json(), "expires": expires}
                _set(connection, (id,), ("proposed",), told)

        await self.database.change(change)

    async def decide(
        self,
        row: StoredAction,
        state: str,
        by: str,
        decided: Sequence[Decision],
        *,
        owner: str | None = None,
        among: Sequence[str] = ("asked",),
    ) -> bool:
        """Decide on an action, or on all of a batch that still wait; whether it was this call.

        One conditional change: of several who decide at the same moment one does. `among`: the
        states in which it can be decided.
        """
        at = datetime.now(UTC)
        told = {"state": state, "decided_by": by, "decided_at": at, "owner": owner}

        def change(connection: sa.Connection) -> bool:
            for id, digest in {row.id: row.digest, **row.stands_for}.items():
                sealed = {**told, "decision": _decision(id, digest, state, by, at)}
                if not _set(connection, (id,), among, sealed) and id == row.id:
                    return False
            _log(connection, decided)
            return True

        return await self.database.change(change)

    async def replace(
        self, row: StoredAction, new: Action, by: str, decided: Sequence[Decision]
    ) -> bool:
        """Put an edited action in the place of one that waits; whether it still did.

        It cannot be decided on before its card shows it: see `ask`.
        """
        told = {"state": "edited", "decided_by": by, "decided_at": datetime.now(UTC)}
        place = {**(row.card or {}), "drawn": ""}
        made = {**proposal(new), "instead_of": row.id, "card": place}

        def change(connection: sa.Connection) -> bool:
            if not _set(connection, (row.id,), ("asked",), told):
                return False
            connection.execute(self.database.insert(actions).values(made))
            _log(connection, decided)
            return True

        return await self.database.change(change)

    async def finish(self, id: str, state: str, outcome: Mapping[str, Any]) -> None:
        """What came of an action that was approved: `done` or `failed`."""
        mine = sa.and_(actions.c.id == id, actions.c.state == "approved")
        await self.database.write(
            sa.update(actions).where(mine).values(state=state, outcome=outcome, owner=None)
        )

    async def drew(self, id: str, place: Place) -> None:
        """The card shows this state now."""
        mine = actions.c.id == id
        await self.database.write(sa.update(actions).where(mine).values(card=place.to_json()))

    async def adopt(self, dead: str, owner: str) -> None:
        """Take over what a process that died was to execute."""
        theirs = sa.and_(actions.c.owner == dead, actions.c.state == "approved")
        await self.database.write(sa.update(actions).where(theirs).values(owner=owner))

    async def expire(self, now: datetime, unseen_before: datetime) -> int:
        """End what nobody decided on in time, or what never came to be shown; how many."""
        late = sa.and_(actions.c.state == "asked", actions.c.expires < now)
        unseen = sa.and_(actions.c.state == "proposed", actions.c.made < unseen_before)
        ended = sa.update(actions).where(sa.or_(late, unseen))
        return await self.database.write(ended.values(state="expired", decided_at=now))

    async def log(self, decision: Decision) -> None:
        """One line of the gate's log."""
        await self.database.change(lambda connection: _log(connection, [decision]))

    async def _rows(self, *wanted: sa.ColumnElement[bool]) -> list[StoredAction]:
        query = sa.select(actions).where(*wanted).order_by(actions.c.made, actions.c.id)
        return [StoredAction(**row) for row in await self.database.read(query)]


def _set(
    connection: sa.Connection, ids: Sequence[str], among: Sequence[str], told: Mapping[str, Any]
) -> int:
    mine = sa.and_(actions.c.id.in_(ids), actions.c.state.in_(among))
    return connection.execute(sa.update(actions).where(mine).values(**told)).rowcount


def _decision(id: str, digest: str, state: str, by: str, at: datetime) -> str:
    return signed(id=id, digest=digest, state=state, by=by, at=at)


def _log(connection: sa.Connection, decided: Sequence[Decision]) -> None:
    rows = [{name: getattr(each, name) for name in Decision.__slots__} for each in decided]
    if rows:
        connection.execute(sa.insert(decisions), rows)
