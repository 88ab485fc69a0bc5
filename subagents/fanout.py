"""Starts subagents and joins them: each fresh, each accounted for, none able to harm another."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scopes.label import TRUSTED
from subagents.brief import Brief, Frozen, template
from subagents.child import run_child
from subagents.events import SubagentQueued
from subagents.fence import new_fence
from subagents.result import SubagentResult, crashed
from subagents.run import Run
from subagents.toolbox import crash_text

log = logging.getLogger(__name__)

CHILD_SHARE = 0.8
"""Share of the time left that a subagent may take: the rest is for who reads its result."""


class Handle(Protocol):
    """A subagent that was started."""

    async def result(self) -> dict[str, Any]:
        """Its SubagentResult as JSON; raises for nothing that the subagent did."""


class Spawner(Protocol):
    """Starts subagents, outside any step. A durable one starts child workflows."""

    async def ready(self, frozen: Sequence[Frozen]) -> None:
        """Told of all that will be started together, before the first is."""

    async def start(self, child_id: str, frozen: Frozen, *, ahead: bool = False) -> Handle:
        """Start one. `ahead`: return only when the model has first replied to it."""


Keep = Callable[[Frozen, SubagentResult], Coroutine[Any, Any, None]]
"""Stores a brief with the checked result of the subagent that had it."""


async def keep_nothing(frozen: Frozen, result: SubagentResult) -> None:
    """Store nothing."""


async def kept(keep: Keep, run: str, frozen: Frozen, result: SubagentResult) -> None:
    """Keep a result; one that cannot be stored is still a result."""
    try:
        await keep(frozen, result)
    except Exception:  # the seam: storing one result
        log.exception("the result of %s of %s was not stored", frozen.id, run)


@dataclass
class TaskHandle:
    task: asyncio.Task[SubagentResult]

    async def result(self) -> dict[str, Any]:
        return (await self.task).model_dump(mode="json")


@dataclass
class TaskSpawner:
    """Runs subagents as tasks of this process: at most `max_concurrency` at work, more queued.

    Each is kept as it ends, whatever its siblings still do: a crash loses none that was paid for.
    """

    run: Run
    keep: Keep = keep_nothing
    _tasks: set[asyncio.Task[SubagentResult]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.run.limits.max_concurrency)

    async def ready(self, frozen: Sequence[Frozen]) -> None:
        """Nothing to do: tasks share this process's memory."""

    async def start(self, child_id: str, frozen: Frozen, *, ahead: bool = False) -> Handle:
        answered = asyncio.Event()
        task = asyncio.create_task(self._run(frozen, answered), name=f"{self.run.id}/{child_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if ahead:
            await answered.wait()
        return TaskHandle(task)

    async def _run(self, frozen: Frozen, answered: asyncio.Event) -> SubagentResult:
        try:
            async with self._free:
                result = await run_child(self.run, frozen, answered.set)
            await kept(self.keep, self.run.id, frozen, result)
            return result
        finally:
            answered.set()

    async def aclose(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass
class Fanout:
    """The subagents of one run."""

    run: Run
    spawner: Spawner
    results: dict[str, SubagentResult] = field(default_factory=dict)
    """Every subagent so far, the refused ones too, by id."""
    parent: str = "p1"
    """The context that starts subagents now."""
    taken: int = 0
    """The last number that an earlier process of this run gave to a subagent."""
    _freezing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _arriving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _given: Counter[str] = field(default_factory=Counter)
    """How many ids of each kind were given."""
    _complete: dict[str, str] = field(default_factory=dict)
    """Key of a brief -> id of the subagent that completed it."""

    def next_id(self, kind: str) -> str:
        """The next id: `s3` for the third subagent that runs, `r1` for the first one refused."""
        return f"{kind}{1 + self.taken + self._given[kind]}"

    def refuse(
        self, description: str, scope: str, contract: str, field_name: str, reason: str
    ) -> SubagentResult:
        """Account for a brief that is not run."""
        result = SubagentResult(
            id=self.next_id("r"),
            scope=scope[:40],
            model="",
            status="refused",
            stopped_by="none",
            reason=f"{field_name}: {reason}",
            contract=contract[:40],
            text=description,
            label=TRUSTED.to_json(),
        )
        self.results[result.id] = result
        self._given["r"] += 1
        return result

    async def freeze(self, briefs: Sequence[Brief]) -> list[Frozen]:
        """Fix everything that these subagents will send; takes the next ids."""
        if not briefs:
            return []
        async with self._freezing:  # two callers get different numbers, in the order they came
            first = int(self.next_id("s")[1:])
            key = f"{self.run.id}/{self.parent}/s{first}/freeze"
            made = await self.run.checkpoint.step(key, lambda: self._draw(len(briefs)))
            frozen = []
            numbered = enumerate(zip(briefs, made["fences"], strict=True), first)
            for number, (brief, fence) in numbered:
                one = self._frozen(f"s{number}", brief, fence, made["seconds_left"])
                self.results[one.id] = _waiting(one)
                self._given["s"] += 1
                frozen.append(one)
                await asyncio.sleep(0)
        for one in frozen:
            draft = one.brief.draft
            self.run.emit(SubagentQueued(one.id, draft.description, draft.scope, one.model))
            await asyncio.sleep(0)
        return frozen

    async def _draw(self, count: int) -> dict[str, Any]:
        """What a replay cannot make again: delimiters by chance, and the time that was left."""
        left = max(0.0, self.run.purse.seconds_left())
        return {"fences": [new_fence() for _ in range(count)], "seconds_left": left}

    def _frozen(self, id: str, brief: Brief, fence: str, left: float) -> Frozen:
        strict = self.run.model.models.strict_tools
        system, tools, version = template(
            brief.draft.scope,
            brief.draft.contract,
            strict,
            self.run.clients,
            brief.handles.titles,
        )
        return Frozen(
            id=id,
            brief=brief,
            fence=fence,
            model=brief.model,
            system=tuple(system),
            tools=tuple(tools),
            template=version,
            parent=self.parent,
            seconds=max(1.0, CHILD_SHARE * left),
            spare=(1 - CHILD_SHARE) * left,
        )

    async def run_all(self, briefs: Sequence[Brief]) -> list[SubagentResult]:
        """One result a brief, in order.

        A brief that was completed before is not run again; where the first of several twins in one
        call did not complete, a second one runs, and stands for the rest.
        """
        found: dict[int, SubagentResult] = {}
        async with self._arriving:  # what yields here lets nobody overtake: a replay numbers alike
            keys = []
            for brief in briefs:
                keys.append(brief.key())
                await asyncio.sleep(0)  # a thousand of them take longer than others may wait
            copies = _copies(keys)
            chosen = self._missing(keys, copies, 0)
            frozen = await self.freeze([briefs[i] for i in chosen])
        for number in (0, 1):
            if number:
                chosen = self._missing(keys, copies, number)
                frozen = await self.freeze([briefs[i] for i in chosen])
            found |= dict(zip(chosen, await self._run(frozen), strict=True))
            self._complete |= {
                keys[i]: found[i].id for i in chosen if found[i].status == "complete"
            }
        latest = {keys[i]: found[i] for i in sorted(found)}
        return [
            found.get(i) or self.results.get(self._complete.get(key, "")) or latest[key]
            for i, key in enumerate(keys)
        ]

    def _missing(self, keys: Sequence[str], copies: Sequence[int], number: int) -> list[int]:
        """Return the places of the copies of this number (from 0) that nobody has completed."""
        return [
            i for i, key in enumerate(keys) if key not in self._complete and copies[i] == number
        ]

    async def _run(self, frozen: Sequence[Frozen]) -> list[SubagentResult]:
        if not frozen:
            return []
        await self.spawner.ready(frozen)
        prime = self.run.model.models.prime_cache and len(frozen) > 1
        handles = [await self._start(one, prime and k == 0) for k, one in enumerate(frozen)]
        results = []
        for one, handle in zip(frozen, handles, strict=True):
            self.results[one.id] = result = await self._result(one, handle)
            results.append(result)
            await asyncio.sleep(0)  # hundreds may have ended before the last was started
        return results

    async def _start(self, frozen: Frozen, ahead: bool) -> Handle | None:
        try:
            return await self.spawner.start(frozen.id, frozen, ahead=ahead)
        except Exception:  # the seam: its siblings run, and are waited for
            log.exception("%s of %s could not be started", frozen.id, self.run.id)
            return None

    async def _result(self, frozen: Frozen, handle: Handle | None) -> SubagentResult:
        try:
            if handle is not None:
                return SubagentResult.model_validate(await handle.result())
            reason = "it could not be started"
        except Exception as error:  # the seam: one subagent's run
            log.exception("%s of %s was lost", frozen.id, self.run.id)
            reason = crash_text("its run", error)
        draft = frozen.brief.draft
        return crashed(frozen.id, draft.scope, frozen.model, draft.contract, reason)


def _copies(keys: Iterable[str]) -> list[int]:
    """For each place how many before it hold the same key."""
    seen = Counter[str]()
    found = []
    for key in keys:
        found.append(seen[key])
        seen[key] += 1
    return found


def _waiting(frozen: Frozen) -> SubagentResult:
    """What stands for a subagent until it ends."""
    return SubagentResult(
        id=frozen.id,
        scope=frozen.brief.draft.scope,
        model=frozen.model,
        status="cancelled",
        stopped_by="user",
        reason="it had not ended",
        contract=frozen.brief.draft.contract,
    )
