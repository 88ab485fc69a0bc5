"""Standing approvals: sources that an administrator allowed in a destination permanently."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.tables import grants


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
    """All grants, including revoked ones. Its methods raise StoreError."""

    database: Database

    async def add(self, sources: Iterable[str], destination: str, by: str, id: str) -> None:
        """Add a grant, once for this id however often it is asked for."""
        insert = self.database.upsert(grants).values(
            id=id,
            sources=sorted(set(sources)),
            destination=destination,
            by=by,
            at=datetime.now(UTC),
        )
        await self.database.write(insert)

    async def revoke(self, id: str, by: str) -> bool:
        """Revoke a grant; return False if it does not exist."""
        wanted = sa.and_(grants.c.id == id, grants.c.revoked_at.is_(None))
        revoke = sa.update(grants).where(wanted)
        revoke = revoke.values(revoked_by=by, revoked_at=datetime.now(UTC))
        return bool(await self.database.write(revoke))

    async def all(self) -> list[Grant]:
        """Return the grants in force and the revoked ones, oldest first."""
        rows = await self.database.read(sa.select(grants).order_by(grants.c.at, grants.c.id))
        return [Grant(**{**row._asdict(), "sources": tuple(row.sources)}) for row in rows]

    async def covering(self, destination: str) -> frozenset[str]:
        """Return the sources whose text may appear there now."""
        standing = sa.and_(grants.c.destination == destination, grants.c.revoked_at.is_(None))
        rows = await self.database.read(sa.select(grants).where(standing))
        return frozenset(str(s) for row in rows for s in row.sources)
