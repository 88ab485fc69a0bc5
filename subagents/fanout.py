"""Starts, runs and joins subagents: each in a new context, all counted, failures isolated."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from scopes.label import TRUSTED_LABEL, Label
from subagents.agent import Agent
from subagents.brief import Brief, SpawnedBrief, template
from subagents.conversation import Ending, Spec
from subagents.delimiter import new_delimiter
from subagents.errors import BriefRefused
from subagents.events import SubagentFinished, SubagentQueued, SubagentStarted
from subagents.result import SubagentResult, crash_result, placeholder, settle
from subagents.run import Run
from subagents.toolbox import Toolbox, crash_text

log = logging.getLogger(__name__)

CHILD_SHARE = 0.8
"""Share of the remaining time that a subagent may take: the rest is for reading its result."""


ResultWaiter = Callable[[], Awaitable[SubagentResult]]
"""Waits for a subagent that was started and returns its result; raises no error of its work."""


class Spawner(Protocol):
    """Starts subagents, outside any step. A durable one starts child workflows."""

    async def ready(self, frozen: Sequence[SpawnedBrief]) -> None:
        """Prepare for all subagents that will be started together, before the first one starts."""

    async def start(self, frozen: SpawnedBrief) -> ResultWaiter:
        """Start one."""


@dataclass
class TaskSpawner:
    """Runs subagents as tasks of this process: at most `max_concurrency` at once, the rest queued.

    Each result is stored as soon as it ends: a crash loses none that was paid for.
    """

    run: Run
    _tasks: set[asyncio.Task[SubagentResult]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.run.limits.max_concurrency)

    async def ready(self, frozen: Sequence[SpawnedBrief]) -> None:
        """Do nothing: tasks share this process's memory."""

    async def start(self, frozen: SpawnedBrief) -> ResultWaiter:
        task = asyncio.create_task(self._run(frozen), name=f"{self.run.id}/{frozen.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return lambda: task

    async def _run(self, frozen: SpawnedBrief) -> SubagentResult:
        async with self._free:  # until it is stored: a crash pays for no more than these again
            result = await run_subagent(self.run, frozen)
            try:
                await self.run.checkpoint.keep_result(frozen, result)
            except Exception:  # top-level boundary: it is still a result
                log.exception("the result of %s of %s was not stored", frozen.id, self.run.id)
        return result

    async def aclose(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class SpawnValues:
    """Values that a replay cannot compute again."""

    delimiters: tuple[str, ...]
    seconds_left: float
    at: datetime


@dataclass
class Fanout:
    """The subagents of one run."""

    run: Run
    spawner: Spawner
    results: dict[str, SubagentResult] = field(default_factory=dict)
    """Every subagent so far by id, including refused ones."""
    parent: str = "p1"
    """The context that starts subagents now."""
    before: frozenset[str] = frozenset()
    """Ids of subagents that other contexts of this run had started before."""
    _freezing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _arriving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _id_counts: Counter[str] = field(default_factory=Counter)
    """Number of ids assigned of each kind."""
    _complete: dict[str, str] = field(default_factory=dict)
    """Key of a brief -> id of the subagent that completed it."""

    @property
    def own(self) -> list[SubagentResult]:
        """Return the results of the subagents that this context started."""
        return [result for id, result in self.results.items() if id not in self.before]

    def for_context(self, context: str) -> Fanout:
        """Return the fan-out of another context of this run: ids continue, results are in both."""
        return replace(self, parent=context, before=frozenset(self.results), _complete={})

    def _next(self, kind: str) -> str:
        """Give the next id: `s3` for the third subagent that runs, `r1` for the first refused."""
        self._id_counts[kind] += 1
        return f"{kind}{self._id_counts[kind]}"

    def refuse(
        self, description: str, scope: str, contract: str, refusal: BriefRefused
    ) -> SubagentResult:
        """Record a brief that is not run."""
        result = SubagentResult(
            id=self._next("r"),
            scope=scope[:40],
            model="",
            status="refused",
            stopped_by="none",
            reason=str(refusal),
            contract=contract[:40],
            text=description,
            label=TRUSTED_LABEL.to_json(),
        )
        self.results[result.id] = result
        return result

    async def freeze(self, briefs: Sequence[Brief]) -> list[SpawnedBrief]:
        """Fix everything that these subagents will send, and assign the next ids."""
        if not briefs:
            return []
        async with self._freezing:  # two callers get different numbers, in the order they came
            ids = [self._next("s") for _ in briefs]
            key = f"{self.run.id}/{self.parent}/{ids[0]}/freeze"
            values = self.run.find_recorded(key, SpawnValues)
            if values is None:
                values = await self.run.record(key, SpawnValues, self._draw(len(briefs)))
            frozen = []
            for id, brief, delimiter in zip(ids, briefs, values.delimiters, strict=True):
                one = self._freeze(id, brief, delimiter, values)
                self.results[one.id] = placeholder(one)
                frozen.append(one)
                await asyncio.sleep(0)
        for one in frozen:
            draft = one.brief.draft
            self.run.emit(SubagentQueued(one.id, draft.description, draft.scope, one.model))
            await asyncio.sleep(0)
        return frozen

    def _draw(self, count: int) -> SpawnValues:
        seconds = max(0.0, self.run.budget.seconds_left())
        delimiters = tuple(new_delimiter() for _ in range(count))
        return SpawnValues(delimiters, seconds, datetime.now(UTC))

    def _freeze(self, id: str, brief: Brief, delimiter: str, values: SpawnValues) -> SpawnedBrief:
        draft, strict = brief.draft, self.run.model.models.strict_tools
        offered, held = brief.tools(self.run.clients), brief.handles.titles
        system, tools, version = template(draft.scope, draft.contract, strict, offered, held)
        return SpawnedBrief(
            id=id,
            brief=brief,
            delimiter=delimiter,
            model=brief.model,
            system=tuple(system),
            tools=tuple(tools),
            template=version,
            parent=self.parent,
            seconds=max(1.0, CHILD_SHARE * values.seconds_left),
            spare=(1 - CHILD_SHARE) * values.seconds_left,
            frozen_at=values.at,
        )

    async def run_all(self, briefs: Sequence[Brief]) -> list[SubagentResult]:
        """Run the briefs; return one result per brief, in order.

        A brief that was completed before is not run again. Of equal briefs in one call only the
        first runs, and its result serves all; a second one runs if the first did not complete.
        """
        found: dict[int, SubagentResult] = {}
        async with self._arriving:  # nothing overtakes at this yield: a replay gives the same ids
            keys = []
            for brief in briefs:
                keys.append(brief.key())
                await asyncio.sleep(0)  # a thousand keys take longer than other tasks may wait
            chosen = self._find_missing(keys, found)
            frozen = await self.freeze([briefs[i] for i in chosen])
        for again in (False, True):
            if again:
                chosen = self._find_missing(keys, found)
                frozen = await self.freeze([briefs[i] for i in chosen])
            found |= dict(zip(chosen, await self._run(frozen), strict=True))
            ended = ((keys[i], found[i]) for i in chosen)
            self._complete |= {key: r.id for key, r in ended if r.status == "complete"}
        latest = {keys[i]: found[i] for i in sorted(found)}
        return [
            found.get(i) or self.results.get(self._complete.get(key, "")) or latest[key]
            for i, key in enumerate(keys)
        ]

    def _find_missing(self, keys: Sequence[str], found: Container[int]) -> list[int]:
        """Return for each key that nobody has completed the first place that is not in `found`."""
        missing = [i for i, key in enumerate(keys) if i not in found and key not in self._complete]
        return sorted({keys[i]: i for i in reversed(missing)}.values())

    async def _run(self, frozen: Sequence[SpawnedBrief]) -> list[SubagentResult]:
        if not frozen:
            return []
        await self.spawner.ready(frozen)
        started = [await self._start(one) for one in frozen]
        results = []
        for one, joined in zip(frozen, started, strict=True):
            self.results[one.id] = result = await self._result(one, joined)
            results.append(result)
            await asyncio.sleep(0)  # hundreds may have ended before the last was started
        return results

    async def _start(self, frozen: SpawnedBrief) -> ResultWaiter | None:
        try:
            return await self.spawner.start(frozen)
        except Exception:  # top-level boundary: its siblings run, and are waited for
            log.exception("%s of %s could not be started", frozen.id, self.run.id)
            return None

    async def _result(self, frozen: SpawnedBrief, joined: ResultWaiter | None) -> SubagentResult:
        if joined is None:
            return crash_result(frozen, "it could not be started")
        try:
            return await joined()
        except Exception as error:  # top-level boundary: one subagent's run
            log.exception("%s of %s was lost", frozen.id, self.run.id)
            return crash_result(frozen, crash_text("its run", error))


async def run_subagent(run: Run, frozen: SpawnedBrief) -> SubagentResult:
    """Run one subagent from its frozen brief to its result; raise no error of its work."""
    try:
        run.emit(SubagentStarted(frozen.id))
        result = await _work(run, frozen)
    except Exception as error:  # top-level boundary: one subagent's run
        log.exception("subagent %s of %s crashed", frozen.id, run.id)
        result = crash_result(frozen, crash_text("its run", error))
    run.emit(finished_event(result))
    return result


def finished_event(result: SubagentResult) -> SubagentFinished:
    """Return the event for the end of a subagent."""
    return SubagentFinished(
        result.id,
        result.status,
        result.stopped_by,
        len(result.findings),
        result.cost_usd,
        Label.of(result.label),
    )


async def _work(run: Run, frozen: SpawnedBrief) -> SubagentResult:
    agent = _agent(run, frozen)
    try:
        ending = await agent.run()
    except Exception as error:  # keep what was read and spent so far
        log.exception("subagent %s of %s crashed", frozen.id, run.id)
        ending = Ending("tool_error", text=agent.text, reason=crash_text("its run", error))
    draft = frozen.brief.draft
    return SubagentResult(
        id=frozen.id,
        scope=draft.scope,
        model=frozen.model,
        contract=draft.contract,
        usage=agent.usage.to_json(),
        cost_usd=agent.cost_usd,
        steps=agent.steps,
        tool_calls=agent.tool_calls,
        **settle(ending, int(frozen.id.removeprefix("s")), draft.contract, agent.reading),
    )


def _agent(run: Run, frozen: SpawnedBrief) -> Agent:
    brief, limits, role = frozen.brief, run.limits, f"subagent_{frozen.model}"
    scope, panel = brief.draft.scope, brief.panel
    run.declare(
        frozen.id,
        scope=scope,
        role=role,
        template=frozen.template,
        tools=[tool["name"] for tool in frozen.tools],
        kind="subagent",
        parent=frozen.parent,
    )
    if panel:
        panel.check()
    spec = Spec(
        run=run.id,
        context=frozen.id,
        role=role,
        system=frozen.system,
        tools=frozen.tools,
        opening=list(brief.blocks(frozen.delimiter)),
        max_steps=limits.files_steps if scope == "files" else limits.subagent_steps,
        context_limit=limits.child_context,
        seconds=frozen.seconds,
        spare=frozen.spare,
        contract=brief.draft.contract,
        effort=brief.draft.effort,
        divisible=brief.divisible,
        single=bool(brief.material) and not brief.handles.titles,
    )
    tools = {tool.name: tool for tool in brief.tools(run.clients)}
    agent = Agent(
        run,
        spec,
        Toolbox(tools, run.gate, limits.tool_timeout_s, frozen.delimiter),
        run.context(
            brief.label,
            handles=brief.handles,
            window=brief.window,
            intent=brief.intent,
            scope=scope,
        ),
    )
    agent.reading.expect(brief.expects)
    agent.reading.add(brief.material, {})
    agent.reading.material_count = len(agent.reading.items)
    agent.reading.delimiter = frozen.delimiter
    seen = [(item.id, item.author) for item in brief.material]
    if panel:
        seen += [(item.id.rpartition("@")[0], item.author) for item in panel.references]
        agent.reading.panel_choices = (*panel.categories, *panel.ids)
    run.sink.saw(run.id, seen)
    return agent
