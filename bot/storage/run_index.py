"""Indexes to find runs and add up costs: questions, names in Slack, and costs by model."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from bot.errors import StoreError
from bot.storage.database import Database, chunks
from bot.storage.tables import contexts, model_costs, names, questions, runs, subagents
from scopes.clean import normalize_unicode

PARENT = "p1"
"""Context of a run's first parent."""
LEAST_USD = 1e-9
"""A smaller amount is a rounding error."""


def fold_text(text: str) -> str:
    """Return a text folded for comparison without case, in every script."""
    return normalize_unicode(text, "NFKC").casefold()


def asks(text: str) -> sa.ColumnElement[bool]:
    """Match runs whose question contains this text."""
    same_run = questions.c.run == runs.c.id
    return sa.exists().where(same_run, questions.c.text.contains(fold_text(text), autoescape=True))


def store_model_costs(connection: sa.Connection, run: str) -> None:
    """Store the cost of a finished run by model.

    Subagents count for their own models, the rest for the model of the run's parent.
    """
    connection.execute(sa.delete(model_costs).where(model_costs.c.run == run))
    total = sa.select(runs.c.cost_usd, runs.c.started).where(runs.c.id == run)
    cost, started = connection.execute(total).one()
    if cost is None:
        return
    query = sa.select(contexts.c.id, contexts.c.model).where(contexts.c.run == run)
    models = {row.id: row.model for row in connection.execute(query)}
    paid = sa.select(subagents.c.id, subagents.c.cost_usd).where(subagents.c.run == run)
    costs: defaultdict[str, float] = defaultdict(float)
    for row in connection.execute(paid.where(subagents.c.cost_usd > 0)):
        costs[models.get(row.id, "")] += row.cost_usd
    rest = cost - sum(costs.values())
    if PARENT in models or rest > LEAST_USD:
        costs[models.get(PARENT, "")] += max(rest, 0.0)
    rows = [{"run": run, "model": m, "started": started, "usd": usd} for m, usd in costs.items()]
    if rows:
        connection.execute(sa.insert(model_costs), rows)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Names:
    """The names in one database."""

    database: Database

    async def save(self, id: str, name: str) -> None:
        """Store a name; if that fails, Slack will send it again."""
        plain = fold_text(name.removeprefix("#"))
        row = {"id": id, "name": name, "folded": plain, "at": datetime.now(UTC)}
        upsert = self.database.upsert(names, ("id",), ("name", "folded", "at"))
        try:
            await self.database.write(upsert.values(row))
        except StoreError as error:
            log.warning("%s The name of %s is not stored.", error, id)

    async def find_names(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of these ids, without unknown ones. Raises StoreError."""
        found = {}
        for some in chunks(set(ids) - {""}):
            query = sa.select(names.c.id, names.c.name).where(names.c.id.in_(some))
            found.update({row.id: row.name for row in await self.database.read(query)})
        return found


def ids_named(text: str) -> sa.Select[tuple[str]]:
    """Select the ids whose names have words that begin with this text."""
    folded, c = fold_text(text.removeprefix("#").removeprefix("@")), names.c
    at_start = c.folded.startswith(folded, autoescape=True)
    in_middle = c.folded.contains(f" {folded}", autoescape=True)
    return sa.select(c.id).where(sa.or_(at_start, in_middle))
