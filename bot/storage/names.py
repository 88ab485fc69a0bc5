"""Names of people and channels by their ids in Slack, as it was last asked about them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime

import sqlalchemy as sa

from bot.errors import StoreError
from bot.storage.database import Database, chunks
from bot.storage.run_index import folded
from bot.storage.tables import names

log = logging.getLogger(__name__)

MOST_KEPT = 10_000


class Names:
    """The names in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._saved: dict[str, tuple[str, date]] = {}

    async def save(self, id: str, name: str) -> None:
        """Store a name, once a day; if the database cannot be used, later."""
        now = datetime.now(UTC)
        latest = (name, now.date())
        if self._saved.get(id) == latest:
            return
        if len(self._saved) >= MOST_KEPT:
            self._saved.clear()
        row = {"id": id, "name": name, "folded": folded(name.removeprefix("#")), "at": now}
        upsert = self._database.upsert(names, ("id",), ("name", "folded", "at"))
        try:
            await self._database.change(lambda connection: connection.execute(upsert, row))
            self._saved[id] = latest
        except StoreError as error:
            log.warning("%s The name of %s is not stored.", error, id)

    async def known(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of these, without those that are not known. Raises StoreError."""
        found = {}
        for some in chunks(set(ids) - {""}):
            query = sa.select(names.c.id, names.c.name).where(names.c.id.in_(some))
            found.update({row.id: row.name for row in await self._database.read(query)})
        return found


def ids_named(text: str) -> sa.Select[tuple[str]]:
    """Select the ids whose names have words that begin with this text."""
    wanted, c = folded(text.removeprefix("#").removeprefix("@")), names.c
    begins = c.folded.startswith(wanted, autoescape=True)
    later = c.folded.contains(f" {wanted}", autoescape=True)
    return sa.select(c.id).where(sa.or_(begins, later))
