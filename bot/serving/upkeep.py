"""What a serving process does for all: it deletes what is old, and takes up what the dead left."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from bot.cli.outcome import WRONG_USE
from bot.durable import Durable, LockLost
from bot.errors import StoreError
from bot.requests.inbox import Inbox
from bot.storage.resealing import reseal
from bot.storage.retention import tidy
from bot.storage.store import Store
from config.sections import Retention

log = logging.getLogger(__name__)

TIDY_EVERY_S = 3_600.0
COLLECT_EVERY_S = 60.0
FEW_FULL_COLLECTIONS = (2_000, 10, 1_000)
"""Thresholds of the collector in the process of `assistant serve`: a full collection goes over all
objects of all runs and stops the event loop for 60 to 240 ms where 1,000 subagents are at work
(`make bench ARGS=delegation`)."""


async def collect_when_idle(is_idle: Callable[[], bool]) -> None:
    """Collect all garbage about once a minute while nothing is at work, until cancelled."""
    while True:
        await asyncio.sleep(COLLECT_EVERY_S)
        if is_idle():
            gc.collect()


async def tidied(retention: Retention, store: Store, inbox: Inbox, durable: Durable) -> None:
    """Delete what is older than it is kept, now and every hour, until cancelled."""
    while True:
        try:
            await tidy(store.database, retention)
            await inbox.forget(_long_ago(retention.workflows_days))
            await durable.forget(_long_ago(retention.workflows_days))
            await reseal(store.database)
        except StoreError as error:
            log.error("%s What is old could not be deleted.", error)
        except Exception:  # the seam: nothing that anybody waits for
            log.exception("what is old could not be deleted; it is tried again in an hour")
        await asyncio.sleep(TIDY_EVERY_S)


async def reaped(durable: Durable) -> None:
    """Take up what dead replicas left, until cancelled; end at once where we may count as dead."""
    try:
        await durable.reap()
    except LockLost as error:
        log.error("%s", error)
        logging.shutdown()
        os._exit(WRONG_USE)  # another replica may be at our work already


def _long_ago(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)
