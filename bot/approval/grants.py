"""What an administrator signed once: sources whose text may stand in a destination for good."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.gate_tables import grants, signed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grant:
    id: str
    sources: tuple[str, ...]
    destination: str
    by: str
    """User id of the administrator."""
    at: datetime
    revoked_by: str | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Grants:
    """Kept for good, revoked ones too. Its methods raise StoreError."""

    database: Database

    async def add(self, sources: Iterable[str], destination: str, by: str, id: str) -> None:
        """Grant it once, however often it is asked for under this id."""
        row = {
            "id": id,
            "sources": sorted(set(sources)),
            "destination": destination,
            "by": by,
            "at": datetime.now(UTC),
        }
        insert = self.database.insert(grants).values({**row, "signed": signed(**row)})
        await self.database.write(insert.on_conflict_do_nothing())

    async def revoke(self, id: str, by: str) -> bool:
        """Whether there was such a grant to revoke."""
        wanted = sa.and_(grants.c.id == id, grants.c.revoked_at.is_(None))
        told = {"revoked_by": by, "revoked_at": datetime.now(UTC), "signed": None}
        return bool(await self.database.write(sa.update(grants).where(wanted).values(told)))

    async def all(self) -> list[Grant]:
        """Those that hold and those that were revoked, oldest first."""
        rows = await self.database.read(sa.select(grants).order_by(grants.c.at, grants.c.id))
        kept = [row for row in rows if row["revoked_at"] or _holds(row)]
        names = [each for each in Grant.__slots__ if each != "sources"]
        return [Grant(sources=tuple(r["sources"]), **{n: r[n] for n in names}) for r in kept]

    async def covering(self, destination: str) -> frozenset[str]:
        """The sources whose text may stand there, as of now."""
        standing = sa.and_(grants.c.destination == destination, grants.c.revoked_at.is_(None))
        rows = await self.database.read(sa.select(grants).where(standing))
        return frozenset(str(s) for row in rows if _holds(row) for s in row["sources"])


def _holds(row: Mapping[str, Any]) -> bool:
    """Whether the columns say what was signed; any other row somebody wrote without the key."""
    fields = {name: row[name] for name in ("id", "sources", "destination", "by", "at")}
    if row["signed"] == signed(**fields):
        return True
    log.error("the grant %s was not signed as it stands, and does not hold", row["id"])
    return False
