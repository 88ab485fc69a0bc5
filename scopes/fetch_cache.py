"""What was fetched from a source, by its key: once, whoever asks first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FetchCache:
    """Answers of one source, for one event loop; a failure is not kept."""

    _tasks: dict[Key, asyncio.Future[Any]] = field(default_factory=dict)

    async def once(self, key: Key, fetch: Callable[[], Awaitable[Any]]) -> Any:
        """Return what was fetched under this key, or is now."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.ensure_future(fetch())
        elif task.done() and not task.cancelled() and not task.exception():
            return task.result()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            raise
        except BaseException:
            if self._tasks.get(key) is task:
                del self._tasks[key]
            raise

    def known(self, key: Key) -> Any:
        """Return what was fetched under this key; None where nothing was, or not yet."""
        task = self._tasks.get(key)
        if task is None or not task.done() or task.cancelled() or task.exception():
            return None
        return task.result()

    def forget(self, *start: str) -> None:
        """Let go of everything whose key begins so."""
        for key in [key for key in self._tasks if key[: len(start)] == start]:
            del self._tasks[key]

    async def aclose(self) -> None:
        """End what is still being fetched."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
