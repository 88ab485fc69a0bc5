"""Where a run's trajectory is gathered, and stored together with the steps that it was made in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bot.errors import StoreError
from bot.storage.store import Store
from subagents.action import Action
from subagents.gate import Decision
from subagents.sightings import Seen
from subagents.trajectory import Context, Origin, Recording

OnCall = Callable[[str, str, Mapping[str, int] | None, float | None], None]
"""Takes a model, how its call ended, the tokens and US dollars that it used."""

log = logging.getLogger(__name__)

FLUSH_AT = 1_000
"""Ledger entries after which the buffer is stored in the background: what a crash may lose."""


class StoreSink:
    """Buffers a run's trajectory and the gate's decisions; one of these per run, closed at its end.

    The run must have been started in the store. Storing twice does no harm, so after a failure or
    a cancellation everything stays in the buffer for the next flush.
    """

    def __init__(self, store: Store, on_call: OnCall | None = None) -> None:
        """`on_call` is told of each call of a model."""
        self._store, self._on_call = store, on_call
        self._models: dict[str, str] = {}
        self._buffer = Recording()
        self._decisions: list[Decision] = []
        self._steps: list[dict[str, Any]] = []
        self._actions: list[Action] = []
        self._known: set[tuple[str, str]] = set()
        self._sightings: dict[tuple[str, str], str | None] = {}
        self._storing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def context(self, context: Context) -> None:
        self._models[context.id] = context.model
        self._buffer.context(context)

    def note(
        self, run: str, context: str, origin: Origin, block: Mapping[str, Any], ref: str = ""
    ) -> str:
        return self._buffer.note(run, context, origin, block, ref)

    def request(
        self, run: str, context: str, seq: int, attempt: int, body: Mapping[str, Any]
    ) -> None:
        self._buffer.request(run, context, seq, attempt, body)

    def reply(
        self, run: str, context: str, seq: int, attempt: int, body: Mapping[str, Any]
    ) -> None:
        self._buffer.reply(run, context, seq, attempt, body)
        if self._on_call:
            outcome = "failed" if body.get("error") else "ok"
            model = self._models.get(context, "")
            self._on_call(model, outcome, body.get("usage"), body.get("cost_usd"))
        if len(self._buffer.entries) >= FLUSH_AT and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush_aside())

    def log_decision(self, decision: Decision) -> None:
        """One line of the gate's log: pass this to the gate."""
        self._decisions.append(decision)

    def propose(self, action: Action) -> None:
        """An action that waits for approval: pass this to the gate."""
        self._actions.append(action)

    def saw(self, run: str, items: Iterable[Seen]) -> None:
        fresh = {(run, id): author for id, author in items if (run, id) not in self._known}
        self._known.update(fresh)
        self._sightings |= fresh

    async def keep(self, run: str, key: str, body: Mapping[str, Any]) -> None:
        """Store what a step returned, with all that was recorded up to now. Raises StoreError."""
        self._steps.append({"run": run, "key": key, "body": body})
        await self.flush()

    async def flush(self) -> None:
        """Return when all that was recorded so far is in the store. Raises StoreError."""
        async with self._storing:
            buffer, decisions, steps = self._buffer, self._decisions, self._steps
            actions, sightings = self._actions, self._sightings
            self._buffer = buffer.successor()
            self._decisions, self._steps, self._actions, self._sightings = [], [], [], {}
            try:
                await self._store.record(buffer, decisions, steps, actions, sightings)
            except BaseException:
                self._buffer = buffer.followed_by(self._buffer)
                self._decisions = [*decisions, *self._decisions]
                self._steps = [*steps, *self._steps]
                self._actions = [*actions, *self._actions]
                self._sightings = sightings | self._sightings
                raise

    async def aclose(self) -> None:
        """Store the rest. Raises StoreError."""
        if self._task:
            await self._task
        await self.flush()

    async def _flush_aside(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            log.warning("the trajectory is kept in memory for now: %s", error)
            return  # and the task stays set: who closes the sink learns of it, nobody else tries
        self._task = None
