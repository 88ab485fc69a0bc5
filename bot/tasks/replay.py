"""Replay a recorded run: its task works again over its record, with today's code and prompts.

Each request that the task would send is compared with the recorded one, and answered by the
recorded reply; steps return their recorded results. Nothing is read, sent or stored.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, NoReturn, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from bot.errors import SetupError
from bot.mailbox.sync import MailState
from bot.reports.documents import Document
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.tables import StoredRun
from bot.tasks.ask import Ask
from bot.tasks.base import TaskRecord, task_key
from bot.tasks.panel import Panel
from bot.tasks.reports import GMAIL, TOOLS
from bot.tasks.sweep import Sweep
from bot.tasks.triage import Triage
from config.settings import Settings
from config.words import in_language
from scopes.google.gmail import Gmail
from scopes.tool import Clients, Tool, ToolContext, ToolError, ToolResult
from subagents.agent import ModelStep, ToolsStep
from subagents.brief import parent_prompt
from subagents.budget import NANOUSD_PER_USD, Budget, Caps
from subagents.delegation import DELEGATION_TOOLS
from subagents.fanout import TaskSpawner
from subagents.gate import Card, Deny, Gate
from subagents.model import ModelCall, ModelClient, ModelReply
from subagents.rate_limiter import RateLimiter
from subagents.run import Checkpoint, Run, step_value
from subagents.toolbox import ToolOutcome
from subagents.trajectory import Origin, Recording, Trajectory

T = TypeVar("T")
Call = tuple[str, int]
"""A model call: its context, and its step there."""
Part = tuple[str, str]
"""Place and hash of a block of a request."""

WITHOUT_LIMIT = Caps(10**18, 10**15, 10**9, 10.0**9)
"""Limits of a replay: the record shows where the run reached its own."""
REPORTS = frozenset(tool.name for tool in TOOLS)
PLACES = {"system": "prompt", "tool": "schema"}
"""Place of a block -> its name in a reported difference."""
SENTENCE = re.compile(r"(?<=[.;:!?]) ")
WIDTH, MOST_LINES = 100, 40
"""Width and maximum lines of a diff."""


class RecordEnded(BaseException):
    """The record lacks something that the replay needs; no boundary for faults may catch this."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A request that differs from the recorded one, or that only one of both runs has made."""

    context: str
    number: int
    """Number of the request in its context, from 1."""
    kind: str
    """`prompt`, `schema`, `order`, `record`, or the origin of the first block that differs."""
    detail: str
    diff: str = ""

    @property
    def line(self) -> str:
        return f"Request {self.number} of {self.context} departs ({self.kind}): {self.detail}"


@dataclass
class Record:
    """All stored data of a run, indexed for a replay."""

    run: StoredRun
    task: TaskRecord
    trajectory: Trajectory
    steps: Mapping[str, dict[str, Any]]

    def __post_init__(self) -> None:
        self.requests: dict[Call, tuple[Part, ...]] = {}
        """The last attempt of each call, in the order in which calls were first made."""
        for each in self.trajectory.requests:
            self.requests[each.context, each.seq] = each.parts
        self.order = {call: place for place, call in enumerate(self.requests)}
        self.contexts = {each.id: n for n, each in enumerate(self.trajectory.contexts)}
        self.parents = {e.id for e in self.trajectory.contexts if e.kind == "parent"}
        counts = Counter[str]()
        self.numbers: dict[Call, int] = {}
        for context, seq in sorted(self.requests):
            counts[context] += 1
            self.numbers[context, seq] = counts[context]

    def step(self, call: Call, name: str, kind: type[T]) -> T | None:
        """Return the result of a model call or of its tools; None if it is not recorded."""
        context, seq = call
        body = self.steps.get(f"{self.run.id}/{context}/{seq}/{name}")
        try:
            return None if body is None else step_value(kind, body)
        except ValidationError:  # another version recorded it in another form
            return None

    def tool_results(self) -> dict[str, ToolOutcome]:
        """Return the results of all ordinary tool calls, by tool and arguments."""
        found: dict[str, ToolOutcome] = {}
        for context, seq in self.requests:
            model_step = self.step((context, seq), "model", ModelStep)
            done = self.step((context, seq + 1), "tools", ToolsStep)
            calls = _calls(model_step.reply) if model_step and model_step.reply else ()
            found |= dict(zip(calls, done.outcomes if done else (), strict=False))
        return found


def _calls(reply: ModelReply) -> Iterator[str]:
    """Yield the keys of the ordinary tool calls in a reply."""
    for block in reply.content:
        match block:
            case {"type": "tool_use", "name": str(name), "input": given} if (
                name not in DELEGATION_TOOLS | REPORTS
            ):
                yield _call_key(name, given)


def _call_key(tool: str, args: Any) -> str:
    return f"{tool} {json.dumps(args, sort_keys=True, default=str)}"


async def read_record(store: Store, run: StoredRun, days: int | None) -> Record:
    """Return the record of a run. Raises SetupError where it does not suffice for a replay.

    `days`: age in days at which records are deleted.
    """
    if run.finished is None:
        text = f"The run {run.id} has not ended ({run.status})."
        raise SetupError("not_ended", text, "Replay it when it has.")
    trajectory, steps = await store.trajectory(run.id), await store.steps(run.id)
    if not trajectory.contexts:
        after = f" after {days} days (`retention.trajectories_days`)" if days else ""
        ways = f"records are deleted{after} and by `assistant forget`"
        text = f"Nothing is recorded of the run {run.id}: {ways}."
        raise SetupError("no_record", text, "`assistant runs` lists newer ones.")
    body = steps.get(task_key(run.id))
    try:
        if body is not None:
            return Record(run, step_value(TaskRecord, body), trajectory, steps)
    except ValidationError:
        pass  # same sentence as for a record without a task
    text = f"The run {run.id} was recorded by another version, without what a replay needs."
    raise SetupError("old_record", text, "Replay a run of this version.")


@dataclass
class Replay:
    """One replay: its input, and its departures from the record."""

    record: Record
    settings: Settings
    database: Database
    model: ModelClient | None = None
    """The model to call again; None = the record answers all."""
    start: str = ""
    """The context whose first request is the first to call it; empty = the first one."""
    departures: list[Departure] = field(default_factory=list)
    repeated_calls: set[Call] = field(default_factory=set)
    """Recorded calls that were repeated."""
    live_calls: set[Call] = field(default_factory=set)
    """Calls that were sent to the model."""
    system: Callable[[], str] | None = None
    """Returns today's prompt of the parent that answers a request."""

    def __post_init__(self) -> None:
        self.sink = Recording()
        self.results = self.record.tool_results()
        entries = self.record.trajectory.entries
        self.origins = {(e.context, e.hash): e.origin for e in entries}
        self.start = self.start or next(iter(self.record.contexts))
        if self.start not in self.record.contexts:
            contexts = ", ".join(self.record.contexts)
            text = f"The run {self.record.run.id} has no context {self.start!r}."
            raise SetupError("no_context", text, f"Its contexts: {contexts}.")

    def is_live(self, context: str, seq: int | None = None) -> bool:
        """Return whether a context, or this step of a parent, calls the model again."""
        if self.model is None:
            return False
        order, contexts = self.record.order.items(), self.record.contexts
        if contexts.get(context, len(contexts)) >= contexts[self.start]:
            return True
        if context not in self.record.parents or seq is None:
            return False
        first = min((n for (each, _), n in order if each == self.start), default=0)
        later = (n for (each, at), n in order if each == context and at >= seq)
        return min(later, default=first) >= first

    @property
    def ordered(self) -> list[Departure]:
        """Return the departures, in the order of the run's requests."""
        calls = {(c, n): self.record.order[c, seq] for (c, seq), n in self.record.numbers.items()}
        last = len(calls)
        return sorted(self.departures, key=lambda d: calls.get((d.context, d.number), last))

    def end(self, context: str, number: int, detail: str) -> NoReturn:
        """Record what is missing in the record, and end the replay."""
        self.departures.append(Departure(context, number, "record", detail))
        raise RecordEnded(detail)

    def number(self, call: Call) -> int:
        """Return the number of a request in its context, from 1."""
        context, seq = call
        before = sum(c == context and at < seq for c, at in self.record.numbers)
        return self.record.numbers.get(call, before + 1)

    def compare(self, call: Call, body: Mapping[str, Any]) -> None:
        """Record the difference between a request and the recorded one, if there is any."""
        self.repeated_calls.add(call)
        run, (context, seq) = self.record.run.id, call
        recording = Recording()
        recording.request(run, context, seq, 1, body)
        old, new = self.record.requests[call], recording.requests[0].parts
        if tuple(old) == new:
            return
        blocks = {**self.record.trajectory.blocks, **recording.blocks}
        origins = {(e.context, e.hash): e.origin for e in self.sink.entries} | self.origins
        kind, detail, pair = _difference(old, new, lambda h: origins.get((context, h)))
        texts = [_text(blocks[h]) if h else "" for h in pair]
        diff = "" if kind == "order" else _diff(*texts)
        self.departures.append(Departure(context, self.number(call), kind, detail, diff))

    def unmade(self) -> None:
        """Record the first recorded request that was not repeated."""
        calls = (
            c for c in self.record.requests if c not in self.repeated_calls and not self.is_live(*c)
        )
        if call := next(calls, None):
            detail = "it is recorded, and is not made any more."
            self.departures.append(Departure(call[0], self.record.numbers[call], "order", detail))

    async def run(self) -> Document | None:
        """Run the task again; return the document, or None if the record is incomplete."""
        task_record, run = self.record.task, self._run()
        place = ReplayPlace(self, run)
        task = _task(self.record, place, run)
        if isinstance(task, Ask):
            self.system = lambda: parent_prompt(task.parent_tools())
        document = None
        with in_language(task_record.language):
            try:
                document = await task.work()
                self.unmade()
            except* RecordEnded:
                pass  # already recorded
            finally:
                await place.tasks.aclose()
        return document

    def _run(self) -> Run:
        task_record, limits = self.record.task, self.record.task.limits
        caps = WITHOUT_LIMIT
        if self.model:
            caps = Caps.of(limits)
        unopened = {name: partial(self._client, name) for name in task_record.clients}
        return ReplayedRun(
            id=self.record.run.id,
            requester=task_record.requester,
            model=ReplayModel(self),
            rate_limiter=RateLimiter(limits.max_concurrency),
            budget=Budget(caps, asyncio.get_running_loop().time),
            gate=ReplayGate(self),
            sink=self.sink,
            limits=limits,
            clients=Clients({}, unopened),
            handles=task_record.handles,
            checkpoint=ReplaySteps(self),
        )

    def _client(self, name: str) -> object:
        if name == GMAIL:
            return _no_mailbox(self)
        return self.end(
            "p1", 1, f"{name.rpartition(':')[2]} would be used, which is not in the record."
        )


def _no_mailbox(replay: Replay) -> Gmail:
    """Return a mailbox that ends the replay when it is read: what a run read are its steps."""

    class NoMailbox(Gmail):
        def __init__(self) -> None:
            """Connect to nothing."""

        def __getattr__(self, name: str) -> NoReturn:
            replay.end("p1", 1, "the mailbox would be read, which the record does not hold.")

    return NoMailbox()


def _task(record: Record, place: ReplayPlace, run: Run) -> Ask | Sweep | Triage | Panel:
    """Return the task of the run. Raises SetupError."""
    task_record = record.task
    kinds: dict[str, type[Sweep | Triage | Panel]] = {k.kind: k for k in (Sweep, Triage, Panel)}
    if task_record.kind == Ask.kind:
        return Ask(place, run, task_record.request)
    kind = kinds[task_record.kind]
    hints = get_type_hints(kind)
    own = {
        name: TypeAdapter(hints[name]).validate_python(value)
        for name, value in task_record.fields.items()
    }
    if kind is Triage:
        own |= {"gmail": run.clients[Gmail], "listing": place.listing}
    return kind(place, run, task_record.request, **own)


@dataclass
class ReplayPlace:
    """The surroundings of a replayed task."""

    replay: Replay
    run: Run
    problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        record = self.replay.record
        self.settings, self.database = self.replay.settings, self.replay.database
        self.model_name, self.lists = record.run.model, record.task.lists
        self.mail = MailState(self.database) if record.task.connects else None
        self.tasks = TaskSpawner(self.run)

    async def listing(self) -> NoReturn:
        """End the replay: the content of a mailbox must be a step of the record."""
        self.replay.end("p1", 1, "the mailbox would be listed, which the record does not hold.")

    async def extend(self, run: Run, usd: float, seconds: float) -> None:
        await run.budget.extend(round(usd * NANOUSD_PER_USD), seconds)

    def spawner(self, run: Run) -> TaskSpawner:
        return self.tasks


class ReplayedRun(Run):
    """A run whose record may come from a version with other steps."""

    def find_recorded(self, key: str, kind: type[T]) -> T | None:
        try:
            return super().find_recorded(key, kind)
        except ValidationError:
            assert isinstance(self.checkpoint, ReplaySteps)
            self.checkpoint.end(key, "another version recorded a step in another form")


@dataclass
class ReplaySteps(Checkpoint):
    """The checkpoint of a replay: it returns recorded results of steps, and stores nothing."""

    replay: Replay

    def find_step(self, key: str) -> dict[str, Any] | None:
        """Return the result of a step; None if the model is called, or answers from the record."""
        body, (context, *path) = self.replay.record.steps.get(key), key.split("/")[1:]
        if path[-1:] == ["freeze"] and self.replay.is_live(path[0]):
            return None
        if (path and path[0].isdigit()) and path[-1] in ("model", "tools", "room"):
            call = context, int(path[0])
            if self.replay.is_live(*call):
                return None
            if path[-1] == "model" and (body is None or step_value(ModelStep, body).reply):
                return None  # it is compared at the point of sending
            if path[-1] == "model":
                self.replay.repeated_calls.add(call)
        if body is None:
            self.end(key, "it takes a step that is not in the record")
        if context == "opening" and self.replay.system:
            return {"value": {**body["value"], "system": self.replay.system()}}
        return body

    def end(self, key: str, why: str) -> NoReturn:
        """End the replay at this step."""
        _, context, *path = key.split("/")
        at = int(path[0]) if path and path[0].isdigit() else 0
        is_recorded = context in self.replay.record.contexts
        call = (context, at) if is_recorded else ("p1", 0)
        self.replay.end(call[0], self.replay.number(call), f"{why} ({key.partition('/')[2]}).")


class ReplayModel(ModelClient):
    """Compares each request with the record, and answers with the recorded reply."""

    def __init__(self, replay: Replay) -> None:
        self.models, self.replay = replay.settings.models, replay
        self._prices = self.models.prices

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    async def complete(self, call: ModelCall, run: Run) -> ModelReply:
        replay, (_, context, seq), on_text = self.replay, call.place, call.spec.on_text
        at = (context, seq)
        if replay.model and replay.is_live(*at):
            replay.live_calls.add(at)
            return await replay.model.complete(call, run)
        step = replay.record.step(at, "model", ModelStep)
        if at not in replay.record.requests or step is None or step.reply is None:
            replay.end(context, replay.number(at), "it is made now, and is not recorded.")
        replay.compare(at, self.body(call))
        if on_text:
            for block in step.reply.content:
                match block:
                    case {"type": "text", "text": str(text)}:
                        on_text(text)
        return step.reply


class ReplayGate(Gate):
    """Runs no tool but those that start subagents; the record answers all other calls."""

    def __init__(self, replay: Replay) -> None:
        super().__init__(lambda decision: None)
        self.replay = replay

    async def call(
        self, context: str, ctx: ToolContext, tool: Tool, args: Any
    ) -> ToolResult | Deny | Card:
        if tool.name in REPORTS:
            return await super().call(context, ctx, tool, args)
        found = self.replay.results.get(_call_key(tool.name, args))
        if found is None:
            number = self.replay.number((context, ctx.turn or 0))
            detail = f"it calls {tool.name} in a way that the record does not hold."
            self.replay.departures.append(Departure(context, number, "tool call", detail))
            raise ToolError("This is a replay: the record holds no answer to this call.")
        if found.is_error:
            error = ToolError(found.text)
            error.label, error.undone = found.result.label, found.result.undone
            raise error
        return found.result


def _difference(
    old: Sequence[Part], new: Sequence[Part], origin: Callable[[str], Origin | None]
) -> tuple[str, str, tuple[str, str]]:
    """Return the first difference, in words, and the hashes of both blocks; "" = there is none."""
    if Counter(old) == Counter(new):
        return "order", "the same blocks stand in another order.", ("", "")
    for place, name in PLACES.items():
        before, after = ([h for p, h in parts if p == place] for parts in (old, new))
        if before != after:
            removed, added = set(before) - set(after), set(after) - set(before)
            pair = (
                next(filter(removed.__contains__, before), ""),
                next(filter(added.__contains__, after), ""),
            )
            return name, f"{_change(*pair)} {name}.", pair
    hashes = [[h for p, h in parts if p not in PLACES] for parts in (old, new)]
    pair = next((a, b) for a, b in zip_longest(*hashes, fillvalue="") if a != b)
    kind = str(origin(pair[0] or pair[1]) or "message").replace("_", " ")
    return kind, f"{_change(*pair)} {kind}.", pair


def _change(old: str, new: str) -> str:
    if not old:
        return "it has one more"
    return "it has another" if new else "it lacks a"


def _text(block: str) -> str:
    """Return a block as text whose lines can be compared."""
    value = json.loads(block)
    text = value.get("text") or value.get("content")
    if isinstance(text, str):
        return text
    return json.dumps(value, indent=1, ensure_ascii=False).replace("\\n", "\n")


def _diff(old: str, new: str) -> str:
    """Return a unified diff, sentence by sentence, shortened if it is long."""
    before, after = (list(_sentences(text)) for text in (old, new))
    lines = list(difflib.unified_diff(before, after, "recorded", "today", n=1, lineterm=""))
    more = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"... {more} more lines"] if more > 0 else [])])


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, long ones in pieces, and its empty lines."""
    for line in text.splitlines():
        for sentence in SENTENCE.split(line):
            yield from textwrap.wrap(sentence, WIDTH) or [""]
