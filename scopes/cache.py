"""Cache facts: each is requested once, however many wait for it, and kept for a while."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
Clock = Callable[[], float]
Key = tuple[str, ...]


class Cache:
    """Facts by key, for one event loop; failures are not kept. The least recently used go first."""

    def __init__(
        self, kept_s: float = math.inf, clock: Clock = time.monotonic, most: float = math.inf
    ) -> None:
        self._kept_s, self._clock, self._most = kept_s, clock, most
        self._facts: dict[Key, tuple[float, Any]] = {}
        """The key -> the time until which the fact is valid, and the fact."""
        self._asking: dict[Key, asyncio.Future[Any]] = {}

    def get_fact(self, *key: str) -> Any:
        """Return the cached fact, or None."""
        until, fact = self._facts.pop(key, (0.0, None))
        if self._clock() >= until:
            return None
        self._facts[key] = (until, fact)
        return fact

    async def get(self, key: Key, ask: Callable[[], Awaitable[T]], *, fresh: bool = False) -> T:
        """Return the fact; `fresh` = ask again now. Raises the errors of `ask`."""
        if not fresh and (fact := self.get_fact(*key)) is not None:
            return fact  # type: ignore[no-any-return]
        if key not in self._asking:
            self._asking[key] = asyncio.ensure_future(self._ask(key, ask))
        return await asyncio.shield(self._asking[key])

    async def _ask(self, key: Key, ask: Callable[[], Awaitable[T]]) -> T:
        self._facts.pop(key, None)  # if it cannot be read again, the old one is invalid too
        try:
            fact = await ask()
        finally:
            del self._asking[key]
        self.put(key, fact, self._kept_s)
        return fact

    def put(self, key: Key, fact: object, kept_s: float) -> None:
        """Keep a fact for so many seconds."""
        while len(self._facts) >= self._most:
            del self._facts[next(iter(self._facts))]
        self._facts[key] = (self._clock() + kept_s, fact)

    def forget(self, *start: str) -> None:
        """Drop every fact whose key begins like this."""
        for key in [key for key in self._facts if key[: len(start)] == start]:
            del self._facts[key]

    async def aclose(self) -> None:
        """Cancel the requests in progress."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
