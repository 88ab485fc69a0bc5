"""By what runs are found and added up: their questions, names in Slack, and costs by model."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from bot.errors import StoreError
from bot.storage.database import Database, chunks
from bot.storage.tables import contexts, model_costs, names, questions, runs, subagents
from scopes.clean import unified

PARENT = "p1"
"""Context of a run's first parent."""
LEAST_USD = 1e-9
"""Less is an error of rounding."""


def folded(text: str) -> str:
    """Return a text as it is compared, whatever its case, in every script."""
    return unified(text, "NFKC").casefold()


def asks(text: str) -> sa.ColumnElement[bool]:
    """Match runs whose question contains this text."""
    mine = questions.c.run == runs.c.id
    return sa.exists().where(mine, questions.c.text.contains(folded(text), autoescape=True))


def store_model_costs(connection: sa.Connection, run: str | None = None) -> None:
    """Store what a finished run has cost by model, or all of them.

    Subagents count to their own models, the rest to that of the run's parent.
    """
    is_wanted = sa.true() if run is None else runs.c.id == run
    connection.execute(
        sa.delete(model_costs).where(sa.true() if run is None else model_costs.c.run == run)
    )
    is_paid = sa.and_(is_wanted, runs.c.cost_usd.is_not(None))
    own = sa.and_(contexts.c.run == runs.c.id, contexts.c.id == subagents.c.id)
    model = sa.func.coalesce(contexts.c.model, "")
    children = (
        sa.select(runs.c.id, model, runs.c.started, sa.func.sum(subagents.c.cost_usd))
        .select_from(runs.join(subagents).outerjoin(contexts, own))
        .where(is_paid, subagents.c.cost_usd > 0)
        .group_by(runs.c.id, model, runs.c.started)
    )
    names = [each.name for each in model_costs.c]
    connection.execute(sa.insert(model_costs).from_select(names, children))
    theirs = sa.select(sa.func.coalesce(sa.func.sum(subagents.c.cost_usd), 0.0))
    rest = runs.c.cost_usd - theirs.where(subagents.c.run == runs.c.id).scalar_subquery()
    first = sa.and_(contexts.c.run == runs.c.id, contexts.c.id == PARENT)
    parents = sa.select(runs.c.id, model, runs.c.started, sa.case((rest > 0, rest), else_=0.0))
    is_known = sa.or_(contexts.c.model.is_not(None), rest > LEAST_USD)
    parents = parents.select_from(runs.outerjoin(contexts, first)).where(is_paid, is_known)
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(model_costs).from_select(names, parents)
    more = {"usd": model_costs.c.usd + insert.excluded.usd}
    connection.execute(insert.on_conflict_do_update(index_elements=["run", "model"], set_=more))


log = logging.getLogger(__name__)

MOST_KEPT = 10_000


@dataclass(frozen=True)
class Names:
    """The names in one database."""

    database: Database
    _saved: dict[str, tuple[str, date]] = field(default_factory=dict)

    async def save(self, id: str, name: str) -> None:
        """Store a name, once a day; if the database cannot be used, later."""
        now = datetime.now(UTC)
        latest = (name, now.date())
        if self._saved.get(id) == latest:
            return
        if len(self._saved) >= MOST_KEPT:
            self._saved.clear()
        row = {"id": id, "name": name, "folded": folded(name.removeprefix("#")), "at": now}
        upsert = self.database.upsert(names, ("id",), ("name", "folded", "at"))
        try:
            await self.database.change(lambda connection: connection.execute(upsert, row))
            self._saved[id] = latest
        except StoreError as error:
            log.warning("%s The name of %s is not stored.", error, id)

    async def known(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of these, without those that are not known. Raises StoreError."""
        found = {}
        for some in chunks(set(ids) - {""}):
            query = sa.select(names.c.id, names.c.name).where(names.c.id.in_(some))
            found.update({row.id: row.name for row in await self.database.read(query)})
        return found


def ids_named(text: str) -> sa.Select[tuple[str]]:
    """Select the ids whose names have words that begin with this text."""
    wanted, c = folded(text.removeprefix("#").removeprefix("@")), names.c
    begins = c.folded.startswith(wanted, autoescape=True)
    later = c.folded.contains(f" {wanted}", autoescape=True)
    return sa.select(c.id).where(sa.or_(begins, later))
