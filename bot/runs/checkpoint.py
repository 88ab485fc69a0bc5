"""The recorder of a run's trajectory, which is stored together with the steps that produced it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from bot.errors import StoreError
from bot.runs.store import PendingRecords, Store, SubagentRecord
from subagents.agent import ModelStep
from subagents.brief import SpawnedBrief, brief_to_json
from subagents.budget import NANO, Amount
from subagents.gate import Action, Decision
from subagents.result import SubagentResult
from subagents.run import Checkpoint, step_value
from subagents.trajectory import Context, Origin, Seen

OnCall = Callable[[str, str, Mapping[str, int] | None, float | None], None]
"""Takes a model, how its call ended, and the tokens and US dollars that it used."""


class StoreSink:
    """Buffers a run's trajectory and the gate's decisions; one of these per run, closed at its end.

    The run must have been started in the store. Storing twice is harmless, so after a failure or a
    cancellation everything stays in the buffer for the next flush. Methods that store raise
    StoreError.
    """

    def __init__(self, store: Store, on_call: OnCall | None = None) -> None:
        """Create a sink; `on_call` is called for each model call."""
        self._store, self._on_call = store, on_call
        self._models: dict[str, str] = {}
        self._pending = PendingRecords()
        self._known: set[tuple[str, str]] = set()
        self._storing = asyncio.Lock()

    def context(self, context: Context) -> None:
        self._models[context.id] = context.model
        self._pending.recording.context(context)

    def note(
        self, run: str, context: str, origin: Origin, block: Mapping[str, Any], ref: str = ""
    ) -> str:
        return self._pending.recording.note(run, context, origin, block, ref)

    def request(
        self, run: str, context: str, seq: int, attempt: int, body: Mapping[str, Any]
    ) -> None:
        self._pending.recording.request(run, context, seq, attempt, body)

    def reply(
        self, run: str, context: str, seq: int, attempt: int, body: Mapping[str, Any]
    ) -> None:
        self._pending.recording.reply(run, context, seq, attempt, body)
        if self._on_call:
            outcome = "failed" if body.get("error") else "ok"
            model = self._models.get(context, "")
            self._on_call(model, outcome, body.get("usage"), body.get("cost_usd"))

    def log_decision(self, decision: Decision) -> None:
        """Buffer one line of the gate's log: pass this to the gate."""
        self._pending.decisions.append(decision)

    def propose(self, action: Action) -> None:
        """Buffer an action that waits for approval: pass this to the gate."""
        self._pending.actions.append(action)

    def saw(self, run: str, items: Iterable[Seen]) -> None:
        fresh = {(run, id): author for id, author in items if (run, id) not in self._known}
        self._known.update(fresh)
        self._pending.authors |= fresh

    async def keep(self, run: str, key: str, body: Mapping[str, Any]) -> None:
        """Store what a step returned, with everything recorded so far."""
        self.step(run, key, body)
        await self.flush()

    def step(self, run: str, key: str, body: Mapping[str, Any]) -> None:
        """Record what a step returned."""
        self._pending.steps.append({"run": run, "key": key, "body": body})

    async def keep_result(
        self, run: str, brief: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        """Store a frozen brief with its result, and everything recorded so far."""
        self._pending.subagents.append(SubagentRecord(run, brief, result))
        await self.flush()

    async def flush(self) -> None:
        """Return when everything recorded so far is in the store."""
        async with self._storing:
            pending = self._pending
            self._pending = PendingRecords(pending.recording.successor())
            try:
                await self._store.record(pending)
            except BaseException:
                self._pending = pending.followed_by(self._pending)
                raise

    async def aclose(self) -> None:
        """Store the rest."""
        await self.flush()


class StepLog(Checkpoint):
    """The checkpoint of a durable run: stores what a step returned, and returns it in a replay."""

    def __init__(
        self,
        store: Store,
        sink: StoreSink,
        run: str,
        on_fault: Callable[[StoreError], None] | None = None,
    ) -> None:
        """Create a log; `on_fault` is called for what could not be stored.

        Without it StoreError is raised: what is not stored would be done again.
        """
        self._store, self._sink, self._run, self._on_fault = store, sink, run, on_fault
        self._done: dict[str, dict[str, Any]] = {}

    async def load(self, prefix: str = "") -> None:
        """Load the results that steps with this key prefix returned before a restart."""
        self._done |= await self._store.steps(self._run, prefix)

    def known(self, key: str) -> dict[str, Any] | None:
        """Return what this step returned before a restart."""
        return self._done.get(key)

    async def keep(self, key: str, body: dict[str, Any]) -> None:
        await self._stored(self._sink.keep(self._run, key, body))

    def note(self, key: str, body: dict[str, Any]) -> None:
        self._sink.step(self._run, key, body)

    async def keep_result(self, frozen: SpawnedBrief, result: SubagentResult) -> None:
        brief, value = brief_to_json(frozen), result.model_dump(mode="json")
        await self._stored(self._sink.keep_result(self._run, brief, value))

    async def _stored(self, work: Awaitable[None]) -> None:
        try:
            await work
        except StoreError as error:
            if self._on_fault is None:
                raise
            self._on_fault(error)

    def paid(self) -> Amount:
        """Return what the model calls before a restart have cost."""
        paid = Amount()
        for key, body in self._done.items():
            if not key.endswith("/model"):
                continue
            if reply := step_value(ModelStep, body).reply:
                paid += Amount(round((reply.cost_usd or 0.0) * NANO), reply.usage.total, 1)
        return paid
