"""App Home: the schedules of this user, and when each runs next."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from bot.approval.slips import paragraph, rich
from bot.errors import StoreError
from bot.schedule import telling
from bot.schedule.book import ScheduleBook
from bot.storage.database import Database

log = logging.getLogger(__name__)

Block = dict[str, Any]

MOST = 10
"""Schedules that are shown; of more the number is told."""


async def mine(database: Database, user: str) -> tuple[str, ...]:
    """A line for each of this user's schedules; nothing where they cannot be read now."""
    now = datetime.now(UTC)
    try:
        rows = [row for row in await ScheduleBook(database).all() if row.spec.owner == user]
    except StoreError as error:
        log.error("%s", error)
        return ()
    return tuple(
        telling.line(row, now, reading=", ".join(row.spec.channels) or "your mailbox")
        for row in rows
    )


def blocks(lines: Sequence[str]) -> Iterator[Block]:
    """Nothing for who has none."""
    if not lines:
        return
    yield {"type": "header", "text": {"type": "plain_text", "text": "Your schedules"}}
    shown = [f"• {line}" for line in lines[:MOST]]
    more = len(lines) - MOST
    shown += [f"and {more} more"] if more > 0 else []
    yield rich(paragraph("\n".join(shown)[:3000]))  # a crontab is full of what is markup elsewhere
