"""Run maintenance in a serving process: delete old data, and adopt the work of dead replicas."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from bot.errors import StoreError
from bot.privacy.retention import tidy
from bot.runs.durable import Durable, LockLost
from bot.runs.store import Store
from bot.storage.requests import RequestQueue
from bot.terminal import WRONG_USE
from config.sections import RetentionSettings

log = logging.getLogger(__name__)

TIDY_EVERY_S = 3_600.0
COLLECT_EVERY_S = 60.0


async def collect_when_idle(is_idle: Callable[[], bool]) -> None:
    """Collect all garbage about once a minute while nothing is running, until cancelled."""
    while True:
        await asyncio.sleep(COLLECT_EVERY_S)
        if is_idle():
            gc.collect()


async def tidy_forever(
    retention: RetentionSettings, store: Store, inbox: RequestQueue, durable: Durable
) -> None:
    """Delete what exceeds its retention, now and every hour, until cancelled."""
    while True:
        try:
            await tidy(store.database, retention)
            await inbox.forget(_long_ago(retention.workflows_days))
            await durable.forget(_long_ago(retention.workflows_days))
        except StoreError as error:
            log.error("%s What is old could not be deleted.", error)
        except Exception:  # top-level boundary: nobody waits for this
            log.exception("what is old could not be deleted; it is tried again in an hour")
        await asyncio.sleep(TIDY_EVERY_S)


async def reap_or_exit(durable: Durable) -> None:
    """Adopt the work of dead replicas until cancelled; exit if we may be considered dead."""
    try:
        await durable.reap()
    except LockLost as error:
        log.error("%s", error)
        logging.shutdown()
        os._exit(WRONG_USE)  # another replica may be doing our work already


def _long_ago(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)
