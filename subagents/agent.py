"""The agent loop, shared by the parent and the subagents.

A turn is a model call and the tool calls that it asks for. Both run as steps of a `Checkpoint`;
between them the loop depends only on what the steps returned. What was sent is never changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from scopes.effects import Effect
from scopes.label import DIRECTORY, TRUSTED_LABEL, Label
from scopes.tool import ToolContext
from subagents.brief import SUBMIT, Block, text_block
from subagents.budget import Amount
from subagents.conversation import OUTPUT_CUT, Conversation, Ending, Spec
from subagents.errors import BudgetExceeded, ModelFailed, ModelMisconfigured
from subagents.events import ContextGrew, ToolsCalled
from subagents.evidence import SourceLog
from subagents.model import ModelCall, ModelReply
from subagents.prices import Usage, sum_usd
from subagents.result import ToolUse, read_submission
from subagents.run import Run
from subagents.toolbox import MIN_OUTPUT_TOKENS, Toolbox, ToolCall, ToolOutcome, failed_outcome
from subagents.trajectory import Origin

FINAL_SHARE, FINAL_SECONDS = 0.15, 30.0
"""Time reserved for the final call: this share of the total, at most this many seconds."""
REMINDER_TOKENS = 200
LIMIT_OF = {"nanousd": "cost", "tokens": "tokens", "steps": "steps"}
DELEGATE = "Your context is filling up: delegate this with run_subagent."


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of one step of a context."""

    limit: str = ""
    """The limit that stopped it, or `user`; empty if it ran to its end."""


@dataclass(frozen=True, slots=True)
class ModelStep(StepResult):
    """The outcome of a model call: a reply, a limit or a fault."""

    reply: ModelReply | None = None
    fault: str = ""
    reason: str = ""
    passing: bool = False
    """True if the fault may pass."""


@dataclass(frozen=True, slots=True)
class ToolsStep(StepResult):
    """The outcome of one batch of ordinary tools, in call order."""

    outcomes: tuple[ToolOutcome, ...] = ()


S = TypeVar("S", bound=StepResult)


class LimitReached(Exception):
    """A limit of the run, or the user, stopped the wait of a step."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one tool call; `origin` is VIEW, TOOL_RESULT, ERROR or REPAIR."""

    text: str
    origin: Origin
    ref: str = ""
    label: Label = TRUSTED_LABEL
    """Label of what the answer was made from; the context joins it."""

    @property
    def is_error(self) -> bool:
        return self.origin in (Origin.ERROR, Origin.REPAIR)

    def block(self, call: ToolCall) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": call.id, "content": self.text}
        return {**block, "is_error": True} if self.is_error else block


Workflow = Callable[[Sequence[ToolCall], ToolContext], Awaitable[list[Outcome]]]
"""Runs one turn's calls that start subagents, outside any step; returns one outcome per call."""

NOT_RUN = Outcome("Not run: limit reached.", Origin.ERROR)


@dataclass
class Agent:
    """One running context. Create a new object for each, and call `run` once."""

    run_: Run
    spec: Spec
    toolbox: Toolbox
    ctx: ToolContext
    workflow: Workflow | None = None
    workflow_names: frozenset[str] = frozenset()
    reading: SourceLog = field(default_factory=SourceLog)
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    """None once a call has no known price."""
    steps: int = 0
    """Number of model calls made."""
    tool_calls: list[ToolUse] = field(default_factory=list)
    text: str = ""
    """The last text that the model wrote."""

    def __post_init__(self) -> None:
        self.talk = Conversation(self.spec, self.run_.sink)
        self.reading.label = self.reading.label.join(self.ctx.label)
        self._began = time.monotonic()
        self._seq = 0
        self._limit = ""
        """The limit that was reached: only the final call is left."""
        self._final = False
        """True if the call just made was the final one."""
        self._chances = 1 if self.spec.contract else 2
        self._reminded = False
        self._parts: list[str] = []
        self._seen = 0
        """Number of items that had been shown when the model began the text."""

    async def run(self) -> Ending:
        """Run turns until the context ends; raise no error of a model or a tool."""
        self.run_.emit(ContextGrew(self.spec.context, self.reading.label))
        try:
            while (ending := await self._turn()) is None:
                pass
        finally:
            await self.run_.budget.settle(self.spec.final_key, Amount())  # if it was not needed
        return ending

    async def _turn(self) -> Ending | None:
        if self.steps >= self.spec.max_steps - 1:
            self._close("steps")
        elif self.talk.prompt_tokens + self._max_tokens > self.spec.context_limit:
            self._close("tokens")
        if self.talk.sent and self.talk.prompt_tokens > self.spec.context_limit:
            return self._end("tokens", "its own output filled its context")
        self._final = bool(self._limit)
        if self._final and self.talk.sent:
            how = f"Call {SUBMIT} now with what you have" if self.spec.contract else "Answer now"
            reminder = f"REMINDER: limit reached ({self._limit}). {how}."
            self.talk.say(Origin.REMINDER, text_block(reminder))
        seq, final = self._seq, self._final
        before, self.reading.sent = self.reading.sent, len(self.reading.items)
        out = await self._step("model", ModelStep, lambda: self._call_model(seq, final))
        if not out.reply:
            self.reading.sent = before  # the model wrote nothing after it was shown the others
        if out.limit:
            if final or out.limit == "user":
                return self._end("user" if out.limit == "user" else self._limit)
            self._close(out.limit)
            return None
        self.steps += 1
        reply = out.reply
        if reply is None:
            return replace(self._end(out.fault, out.reason), passing=out.passing)
        self.talk.record_usage(reply.usage.prompt + reply.usage.output)
        self.usage += reply.usage
        self.cost_usd = sum_usd(self.cost_usd, reply.cost_usd)
        return await self._follow(reply.content, reply.stop_reason)

    async def _step(
        self,
        name: str,
        kind: type[S],
        fn: Callable[[], Awaitable[S]],
        *,
        repeatable: bool = False,
    ) -> S:
        """Return the result of a step, or the one that was stored before a restart."""
        key = f"{self.spec.run}/{self.spec.context}/{self._seq}/{name}"
        self._seq += 1
        if recorded := self.run_.find_recorded(key, kind):
            return recorded
        try:
            out = await fn()
        except LimitReached as reached:
            out = kind(limit=str(reached))
        return await self.run_.record(key, kind, out, repeatable=repeatable)

    @property
    def _max_tokens(self) -> int:
        return self.run_.model.role(self.spec.role).max_tokens

    def _seconds_left(self) -> float:
        seconds = self.run_.budget.seconds_left() - self.spec.spare
        if self.spec.contract is None:  # a parent's time is that of its run
            return seconds
        return min(seconds, self.spec.seconds - (time.monotonic() - self._began))

    @property
    def _final_call_s(self) -> float:
        """Return the seconds reserved for the final call."""
        return min(FINAL_SHARE * self.spec.seconds, FINAL_SECONDS)

    async def _call_model(self, seq: int, final: bool) -> ModelStep:
        run, seconds = self.run_, self._seconds_left() - (0.0 if final else self._final_call_s)
        if seconds <= 0:
            raise LimitReached("time")
        last = self.spec.final_key
        call = ModelCall(
            self.spec,
            seq,
            self.talk.messages,
            self.talk.prompt_tokens,
            reservation=last if final else None,
            later={} if final else {last: self._one_more(self._max_tokens)},
            own_keys=(last,),
        )
        try:
            async with self._within(seconds):
                reply = await run.model.complete(call, run)
        except ModelMisconfigured as error:
            return ModelStep(fault="model_error", reason=str(error))
        except ModelFailed as error:
            return ModelStep(fault=error.kind, reason=str(error), passing=error.passing)
        return ModelStep(reply=reply)

    async def _run_tools(self, ctx: ToolContext, calls: Sequence[ToolCall]) -> ToolsStep:
        """Run one batch of ordinary tools, sized so that the final call stays possible."""
        spec, prompt = self.spec, self.talk.prompt_tokens
        free = spec.context_limit - prompt - self._max_tokens - REMINDER_TOKENS
        each = min(self.run_.limits.max_tool_output_tokens, free // len(calls))
        if each < MIN_OUTPUT_TOKENS:
            raise LimitReached("tokens")
        if spec.remind_at and prompt > spec.remind_at:
            return ToolsStep(outcomes=tuple(failed_outcome(DELEGATE) for _ in calls))
        async with self._within(self._seconds_left() - self._final_call_s):
            wanted = {spec.final_key: self._one_more(each * len(calls))}
            await self.run_.budget.hold(wanted, own_keys=wanted)
        async with self._within(self._seconds_left()):
            found = await self.toolbox.batch(spec.context, ctx, calls, each)
        seen = [(item.id, item.author) for each in found for item in each.result.items]
        self.run_.sink.saw(spec.run, seen)
        return ToolsStep(outcomes=tuple(found))

    async def _make_room(self) -> StepResult:
        """Reserve the call that will read what the subagents of this turn return."""
        async with self._within(self._seconds_left() - self._final_call_s):
            worst = self._one_more(self.run_.limits.max_fanout_tokens)
            await self.run_.budget.keep(self.spec.final_key, worst)
        return StepResult()

    def _one_more(self, tokens: int) -> Amount:
        """Return what one more call may cost if its prompt grows by so many tokens."""
        prompt = self.talk.prompt_tokens + tokens + REMINDER_TOKENS
        return self.run_.model.worst(self.spec.role, prompt)

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """Raise LimitReached when the time or the budget is over, or the user stops the run."""
        try:
            async with asyncio.timeout(max(0.1, seconds)) as scope:
                with self.run_.stop.watch(scope):
                    yield
        except TimeoutError as error:
            raise LimitReached("user" if self.run_.stop else "time") from error
        except BudgetExceeded as error:
            raise LimitReached(LIMIT_OF[error.what]) from error

    async def _follow(self, content: list[Block], stop: str) -> Ending | None:
        """Do what the stop reason of a reply asks for."""
        calls, reply_text = list[ToolCall](), ""
        for block in content:
            match block:
                case {"type": "tool_use", "id": id, "name": name, "input": arguments}:
                    calls.append(ToolCall(id, name, arguments))
                case {"type": "text", "text": text}:
                    reply_text += text
        self.text = reply_text.strip() or self.text
        if reply_text.strip() and not self._parts:
            self._seen = self.reading.sent
        if stop in ("tool_use", "end_turn", "stop_sequence") and calls:  # some servers mix them up
            self.talk.append(content)
            return await self._answer(calls)
        self.talk.append([b for b in content if b["type"] != "tool_use"])
        if stop in ("end_turn", "stop_sequence", "tool_use"):
            return self._end_turn(reply_text)
        if stop == "max_tokens":
            return self._cut_off(reply_text)
        if stop == "model_context_window_exceeded":
            return self._end("tokens", "the model's context window is full")
        if stop == "refusal":
            return self._end("model_error", "the model refused to answer")
        what = "go on" if stop == "pause_turn" else f"the reply ended by {stop[:40]!r}; go on"
        return self._again(what, "model_error", f"the reply ended by {stop[:40]!r}")

    def _end_turn(self, reply_text: str) -> Ending | None:
        if self.spec.contract is None and (reply_text.strip() or self._parts):
            text = "".join([*self._parts, reply_text]).strip()
            return Ending(self._limit or "none", text=text, items_seen=self._seen)
        what = f"end by calling {SUBMIT}" if self.spec.contract else "write the answer as text"
        return self._again(what, "invalid_output", "it ended without a result")

    def _cut_off(self, reply_text: str) -> Ending | None:
        if self.spec.divisible:
            return self._end(self._limit or "tokens", OUTPUT_CUT)
        if self.spec.contract is None and reply_text.strip():
            self._parts.append(reply_text)
            what = "your answer was cut off; go on exactly where it stopped"
        else:
            what = f"your output was cut at {self._max_tokens} tokens; say it in half as many"
        return self._again(what, "tokens", OUTPUT_CUT)

    def _again(self, what: str, stopped_by: str, reason: str) -> Ending | None:
        """Give one more chance; end the context after that, or after the final call."""
        if self._final or self._chances <= 0:
            return self._end(self._limit or stopped_by, reason)
        self._chances -= 1
        self.talk.say(Origin.REMINDER, text_block(f"REMINDER: {what}."))
        return None

    async def _answer(self, calls: list[ToolCall]) -> Ending | None:
        """Run a turn's calls and add their results, in call order, to the next message."""
        if self.spec.contract and any(c.name == SUBMIT for c in calls):
            return self._accept(calls)
        self.run_.emit(ToolsCalled(self.spec.context, tuple(c.name for c in calls)))
        if self._final:
            self._record([(c, NOT_RUN) for c in calls])
            return self._end(self._limit)
        answers: dict[str, Outcome] = {}
        crash = ""
        ordinary = [c for c in calls if c.name not in self.workflow_names]
        ctx = replace(self.ctx, label=self.reading.label, turn=self._seq)
        if ordinary:
            out = await self._step(
                "tools",
                ToolsStep,
                lambda: self._run_tools(ctx, ordinary),
                repeatable=self.toolbox.only_reads(ordinary),
            )
            self._close(out.limit)
            for call, found in zip(ordinary, out.outcomes, strict=False):  # none at a limit
                answers[call.id] = self._absorb(call, found, ctx.label)
                crash = crash or (found.text if found.crashed else "")
        flow = [c for c in calls if c.name in self.workflow_names]
        if flow and self.workflow and not self._limit:
            answers |= await self._delegate(self.workflow, flow)
        answered = [(c, answers.get(c.id, NOT_RUN)) for c in calls]
        self._record(answered)
        self.run_.emit(ContextGrew(self.spec.context, self.reading.label))
        if crash and self.spec.contract:
            return self._end("tool_error", crash)
        self._say_all(answered)
        return self._thresholds()

    async def _delegate(self, workflow: Workflow, calls: Sequence[ToolCall]) -> dict[str, Outcome]:
        """Start subagents if the call that reads their results stays affordable."""
        room = await self._step("room", StepResult, self._make_room)
        self._close(room.limit)
        if room.limit:
            return {}
        outcomes = await workflow(calls, replace(self.ctx, label=self.reading.label))
        for outcome in outcomes:
            self.reading.label = self.reading.label.join(outcome.label)
        return {c.id: o for c, o in zip(calls, outcomes, strict=True)}

    def _absorb(self, call: ToolCall, found: ToolOutcome, before: Label) -> Outcome:
        """Add the result of a call that was made under the label `before`."""
        result = found.result
        self.reading.add(result.items, result.holds)
        self.reading.undone |= result.undone
        self.reading.saw(result.lists, result.reads)
        self.reading.label = self.reading.label.join(result.label)
        # A subagent's handles were fixed when it was spawned; it may follow links that it is shown.
        listed = {h: t for h, t in result.handles.items() if self._may_list(h)}
        tool = self.toolbox.tools.get(call.name)
        early = bool(tool and tool.effect is Effect.SEARCH) and self._is_early(before)
        self.ctx = replace(self.ctx, handles=self.ctx.handles.join(listed, early=early))
        origin = Origin.ERROR if found.is_error else Origin.TOOL_RESULT
        return Outcome(found.text, origin, call.name)

    def _is_early(self, label: Label) -> bool:
        """Return whether no outsider can have chosen what a search under this label lists: the
        context has read only what members wrote in the place where the request was asked, or
        names of channels."""
        safe = {self.ctx.intent.home, DIRECTORY}
        return label.is_open and not label.outside and label.sources <= safe

    def _may_list(self, handle: str) -> bool:
        return self.spec.contract is None or handle.startswith(("http://", "https://"))

    def _accept(self, calls: list[ToolCall]) -> Ending | None:
        """Accept the result, or say once exactly what is wrong with it."""
        submit = next(c for c in calls if c.name == SUBMIT)
        kind, fault, value = read_submission(self.spec.contract or "", submit.input, self.reading)
        bad = Outcome(f"Not accepted: {fault} Submit again, whole.", Origin.REPAIR)
        good = Outcome("", Origin.TOOL_RESULT)
        skipped = Outcome("Not run.", Origin.REPAIR)
        answered = [(c, (bad if fault else good) if c is submit else skipped) for c in calls]
        self._record(answered)
        over = self._final or self._chances <= 0
        if value and (not fault or over):
            return Ending(self._limit or (kind if fault else "none"), value, reason=fault)
        if over:
            return self._end(kind if kind == "injection" else self._limit or kind, fault)
        self._chances -= 1
        self._say_all(answered)
        return None

    def _say_all(self, answered: Sequence[tuple[ToolCall, Outcome]]) -> None:
        for call, outcome in answered:
            self.talk.say(outcome.origin, outcome.block(call), outcome.ref)

    def _thresholds(self) -> Ending | None:
        spec, tokens = self.spec, self.talk.prompt_tokens
        if spec.handoff_at and tokens > spec.handoff_at and self.steps < spec.max_steps - 1:
            return self._end("handoff")  # with one call left no session could be told to conclude
        if spec.remind_at and tokens > spec.remind_at and not self._reminded:
            self._reminded = True
            self.talk.say(Origin.REMINDER, text_block(f"REMINDER: {DELEGATE}"))
        return None

    def _close(self, limit: str) -> None:
        self._limit = self._limit or limit

    def _record(self, answered: Sequence[tuple[ToolCall, Outcome]]) -> None:
        self.tool_calls += [ToolUse(name=c.name[:60], is_error=o.is_error) for c, o in answered]

    def _end(self, stopped_by: str, reason: str = "") -> Ending:
        text = "".join(self._parts) or self.text
        return Ending(stopped_by, text=text, reason=reason, items_seen=self._seen)
