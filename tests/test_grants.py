"""What an administrator allowed for good: added once, revoked, and never forgotten."""

from __future__ import annotations

import asyncio

from pg_kit import Kept, place

from bot.policy.directory import Grants
from bot.storage.database import Database

__all__ = ["place"]


async def test_a_grant_covers_its_sources_in_its_destination_until_it_is_revoked(
    place: Kept,
) -> None:
    database = await Database.open(place.path, place.url)
    grants = Grants(database)
    await grants.add(["G2", "G1", "G1"], "C1", "U0ADMIN", "a")
    await grants.add(["G3"], "C1", "U0ADMIN", "b")
    await grants.add(["G4"], "C2", "U0ADMIN", "c")
    assert await grants.sources_for("C1") == frozenset({"G1", "G2", "G3"})
    assert await grants.sources_for("G1") == frozenset()

    assert await grants.revoke("a", "U0OTHER")
    assert not await grants.revoke("a", "U0ADMIN")
    assert not await grants.revoke("none", "U0ADMIN")
    assert await grants.sources_for("C1") == frozenset({"G3"})
    first, second, third = await grants.all()
    assert (first.sources, first.by, first.revoked_by) == (("G1", "G2"), "U0ADMIN", "U0OTHER")
    assert first.revoked_at
    assert first.at <= first.revoked_at
    assert (second.revoked_by, third.destination) == (None, "C2")
    await database.aclose()


async def test_a_grant_counts_once_however_often_it_is_clicked(place: Kept) -> None:
    database = await Database.open(place.path, place.url)
    grants = Grants(database)
    await asyncio.gather(*(grants.add(["G1"], "C1", f"U{n}", "a") for n in range(5)))
    assert len(await grants.all()) == 1
    await grants.revoke("a", "U0")
    await grants.add(["G1"], "C1", "U0", "a")  # a click that comes late revives nothing
    assert await grants.sources_for("C1") == frozenset()
    await database.aclose()
