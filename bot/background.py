"""Background work of a process: it continues after failures, until it is cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from bot.errors import SetupError, StoreError

log = logging.getLogger(__name__)


async def repeat(
    work: Callable[[], Awaitable[object]],
    every_s: float,
    message: str,
    *,
    woken: asyncio.Event | None = None,
    known: type[Exception] | tuple[type[Exception], ...] = StoreError,
) -> None:
    """Await work repeatedly until cancelled: after so many seconds, or when it is woken.

    Its errors are logged after `message`, with a traceback unless they are `known`.
    """
    woken = woken or asyncio.Event()
    while True:
        woken.clear()
        try:
            await work()
        except Exception as error:  # top-level boundary: one pass must not stop the next
            log.error("%s: %s", message, error, exc_info=not isinstance(error, known))
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await woken.wait()


@asynccontextmanager
async def in_background(work: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run these tasks inside the context, which ends if one of them fails."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
            yield
            for task in tasks:
                task.cancel()
    except* SetupError as errors:
        raise errors.exceptions[0] from None
