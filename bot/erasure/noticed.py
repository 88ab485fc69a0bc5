"""What was deleted or changed in Slack: noted before the event is acked, forgotten after it.

A note stays until no run is at work that may have read the old text: what has ended by then is
looked at once more. After a crash the notes are still there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bot.erasure.forget import CHUNK, Forget, at_work
from bot.erasure.gone import edited_at
from bot.erasure.targets import NOTES, Target, note
from bot.errors import StoreError
from bot.storage.database import Database
from bot.storage.gate_tables import quoted
from bot.storage.serve_tables import flags

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
GRACE = timedelta(seconds=60)
"""How long a note stays at least: a request that begins now may still read what is stored now."""


async def forgetting(database: Database, data_dir: Path) -> None:
    """Forget what is noted, until cancelled."""
    while True:
        try:
            await forget_noted(database, data_dir=data_dir)
        except StoreError as error:
            log.error("%s What was deleted in Slack could not be forgotten.", error)
        except Exception:  # the seam: the notes stay, and are taken up again
            log.exception("what was deleted in Slack could not be forgotten; it is tried again")
        await asyncio.sleep(LOOK_EVERY_S)


async def forget_noted(
    database: Database, grace: timedelta = GRACE, data_dir: Path | None = None
) -> int:
    """One look at all notes; how many of them stay. Raises StoreError."""
    noted = sa.func.substr(flags.c.name, 1, len(NOTES)) == NOTES
    notes = await database.read(sa.select(flags).where(noted).order_by(flags.c.at))
    return sum([await _stays(Forget(database, data_dir=data_dir), each, grace) for each in notes])


async def _stays(forget: Forget, noted: Mapping[str, Any], grace: timedelta) -> bool:
    """Forget what a note says; whether there may be more of it when others have ended."""
    database, until = forget.database, noted["at"] + grace
    now, busy = datetime.now(UTC), await at_work(database)  # what ends after this is not counted
    kind, _, id = noted["name"].removeprefix(NOTES).partition("/")
    facts = noted["value"] or {}
    before = noted["at"] if facts.get("edited") else None
    done = await forget(Target(kind, id), before, heard=not facts.get("amended"))
    if done.runs or done.requests:
        log.info("what was deleted or changed in Slack is forgotten: %s", asdict(done))
    if done.later or now < until or any(began < until for began in busy.values()):
        return True
    same = sa.and_(flags.c.name == noted["name"], flags.c.at == noted["at"])
    await database.write(sa.delete(flags).where(same))
    return False


async def note_missed(
    database: Database, channel: str, messages: Iterable[Mapping[str, Any]]
) -> None:
    """Note what a listing shows to be changed, or deleted but for its replies, since it was read.

    A message that was deleted without a trace is in no listing: that it is not there says nothing,
    since replies are in none, either. Raises StoreError.
    """
    told = {f"{channel}/{m['ts']}": m for m in messages if m.get("edited") or _is_gone(m)}
    ids = sorted(told)
    for start in range(0, len(ids), CHUNK):
        some = quoted.c.item.in_(ids[start : start + CHUNK])
        for row in await database.read(sa.select(quoted.c.item).distinct().where(some)):
            await database.change(partial(_note, database, row["item"], told[row["item"]]))


def _note(
    database: Database, item: str, message: Mapping[str, Any], connection: sa.Connection
) -> None:
    edited = not _is_gone(message)
    at = edited_at(message) if edited else None
    note(connection, database, Target("item", item), at, edited=edited, amended=edited)


def _is_gone(message: Mapping[str, Any]) -> bool:
    return message.get("subtype") == "tombstone"
