"""Work that waits while the store or Slack is out of reach, so that nothing of it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bot.schema import StoreError
from bot.writes import RateLimited, TokenRefused, Unsettled, WriteFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

STORE_S = 2.0
"""Pause before the store is tried again: a disk may be emptied, a server come back."""
SLACK_S = (2.0, 30.0)
"""First and longest pause before a write that Slack did not take is tried again."""


async def stored(call: Callable[[], Awaitable[T]]) -> T:
    """What `call` returns; it is made again for as long as the store cannot be used."""
    while True:
        try:
            return await call()
        except StoreError as error:
            log.error("%s It is tried again every %.0f s.", error, STORE_S)
            await asyncio.sleep(STORE_S)


async def written(call: Callable[[], Awaitable[T]], give_up_s: float) -> T:
    """What `call` returns; it is made again while Slack is down, or refuses our token.

    It must find out by itself what it has written already. Raises WriteFailed for what Slack does
    not want, and after `give_up_s` seconds.
    """
    clock = asyncio.get_running_loop().time
    began, pause = clock(), SLACK_S[0]
    while True:
        try:
            return await call()
        except WriteFailed as error:
            if not _passes(error) or clock() - began + pause > give_up_s:
                raise
            log.warning("%s; it is tried again in %.0f s", error, pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, SLACK_S[1])


def _passes(error: WriteFailed) -> bool:
    down = isinstance(error, Unsettled | RateLimited) or error.code == "no_connection"
    return down or isinstance(error, TokenRefused)
