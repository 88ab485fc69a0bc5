"""What several ask at one time, done in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


class Together(Generic[Given, Made]):
    """Hands to `work` all that was asked for while it was at what was asked for before.

    `work` returns for each, in order, what was made or why it was not; what it raises is for all.
    Who is cancelled while waiting leaves their part to be done. Where the work itself is cancelled,
    as at the end of a loop, so are all who wait.
    """

    def __init__(
        self, work: Callable[[Sequence[Given]], Awaitable[Sequence[Made | Exception]]]
    ) -> None:
        self._work = work
        self._asked: list[tuple[Given, asyncio.Future[Made]]] = []
        self._working: asyncio.Task[None] | None = None

    def ask(self, given: Given) -> asyncio.Future[Made]:
        """What is made of it; it is worked on also where nobody waits."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Made] = loop.create_future()
        self._asked.append((given, done))
        if self._working is None:
            self._working = loop.create_task(self._work_on_all())
        return done

    async def aclose(self) -> None:
        """Wait until all is done that was asked for."""
        if self._working:
            await self._working

    async def _work_on_all(self) -> None:
        asked: list[tuple[Given, asyncio.Future[Made]]] = []
        try:
            while self._asked:
                asked, self._asked = self._asked, []
                outcomes = await self._outcomes([given for given, _ in asked])
                for (_, done), outcome in zip(asked, outcomes, strict=True):
                    if done.cancelled():
                        continue
                    if isinstance(outcome, Exception):
                        done.set_exception(outcome)
                    else:
                        done.set_result(outcome)
        finally:
            self._working = None
            for _, done in (*asked, *self._asked):
                done.cancel()
            self._asked = []

    async def _outcomes(self, given: Sequence[Given]) -> Sequence[Made | Exception]:
        try:
            return await self._work(given)
        except Exception as error:  # handed on to all who wait
            return [error] * len(given)
