"""The log of a run, which stores its trajectory together with the steps that produced it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bot.errors import StoreError
from bot.runs.store import PendingRecords, RanSubagent, Store
from bot.storage.database import BatchWriter
from bot.storage.encryption import JsonText
from subagents.agent import ModelStep
from subagents.brief import SpawnedBrief
from subagents.budget import NANOUSD_PER_USD, Amount
from subagents.gate import Action, Decision
from subagents.result import SubagentResult
from subagents.run import Checkpoint, step_value
from subagents.trajectory import Context, SeenItem

OnCall = Callable[[str, str, Mapping[str, int] | None, float | None], None]
"""Takes a model, the outcome of its call, and the tokens and US dollars that it used."""


class RunLog(PendingRecords, Checkpoint):
    """The recording and the checkpoint of a durable run, which was started in the store.

    It buffers trajectory and decisions, and stores them with each step; a replay gets the results
    of the steps. Storing twice is harmless, so after a failure or a cancellation everything stays
    in the buffer for the next flush.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        on_call: OnCall | None = None,
        on_fault: Callable[[StoreError], None] | None = None,
    ) -> None:
        """Create a log; `on_call` is called for each model call, `on_fault` for a step that could
        not be stored.

        Without `on_fault` a failure raises StoreError: a step that is not stored would run again.
        """
        super().__init__()
        self._store, self._run, self._on_call, self._on_fault = store, run, on_call, on_fault
        self._models: dict[str, str] = {}
        self._seen: set[tuple[str, str]] = set()
        self._done: dict[str, dict[str, Any]] = {}
        self._flushes: BatchWriter[None, None] = BatchWriter(self._store_pending)

    def context(self, context: Context) -> None:
        self._models[context.id] = context.model
        super().context(context)

    def reply(
        self, run: str, context: str, seq: int, attempt: int, body: Mapping[str, Any]
    ) -> None:
        super().reply(run, context, seq, attempt, body)
        if self._on_call:
            outcome = "failed" if body.get("error") else "ok"
            model = self._models.get(context, "")
            self._on_call(model, outcome, body.get("usage"), body.get("cost_usd"))

    def log_decision(self, decision: Decision) -> None:
        """Buffer one line of the gate's log: pass this to the gate."""
        self.decisions.append(decision)

    def propose(self, action: Action) -> None:
        """Buffer an action that waits for approval: pass this to the gate."""
        self.actions.append(action)

    def saw(self, run: str, items: Iterable[SeenItem]) -> None:
        fresh = {(run, id): author for id, author in items if (run, id) not in self._seen}
        self._seen.update(fresh)
        self.authors |= fresh

    async def flush(self) -> None:
        """Return when everything recorded so far is in the store. Raises StoreError.

        Callers that wait while a transaction runs share the next one.
        """
        await self._flushes.ask(None)

    async def _store_pending(self, waiting: Sequence[None]) -> Sequence[None]:
        records = self.take()
        try:
            await self._store.record(records)
        except BaseException:
            self.put_back(records)
            raise
        return waiting

    async def load(self, prefix: str = "") -> None:
        """Load the results of steps with this key prefix from before a restart."""
        self._done |= await self._store.steps(self._run, prefix)

    def find_step(self, key: str) -> dict[str, Any] | None:
        """Return the result of this step from before a restart."""
        return self._done.get(key)

    async def keep(self, key: str, body: str) -> None:
        self.defer(key, body)
        await self._store_step()

    def defer(self, key: str, body: str) -> None:
        self.steps.append({"run": self._run, "key": key, "body": JsonText(body)})

    async def keep_result(self, brief: SpawnedBrief, result: SubagentResult) -> None:
        self.subagents.append(RanSubagent(self._run, brief, result))
        await self._store_step()

    async def _store_step(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            if self._on_fault is None:
                raise
            self._on_fault(error)

    def sum_paid(self) -> Amount:
        """Return the cost of the model calls before a restart."""
        paid = Amount()
        for key, body in self._done.items():
            if not key.endswith("/model"):
                continue
            if reply := step_value(ModelStep, body).reply:
                paid += Amount(
                    round((reply.cost_usd or 0.0) * NANOUSD_PER_USD), reply.usage.total, 1
                )
        return paid
