"""The one agent loop, shared by the parent and by subagents.

A turn is a model call and what follows from it. Both run as steps of a `Checkpoint`; between them
the loop looks at nothing but what the steps returned. Nothing already sent is ever changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scopes.effects import Effect
from scopes.label import TRUSTED, Label
from scopes.tool import Item, ToolContext
from subagents.brief import SUBMIT, Block, text_block
from subagents.conversation import Conversation, Ending, Spec
from subagents.events import ContextGrew, ToolsCalled
from subagents.evidence import Reading
from subagents.prices import Usage
from subagents.result import read_submission
from subagents.run import Run
from subagents.steps import DELEGATE, Steps
from subagents.toolbox import Toolbox, ToolCall
from subagents.trajectory import Origin


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call is answered with; `origin` is VIEW, TOOL_RESULT, ERROR or REPAIR."""

    text: str
    origin: Origin
    ref: str = ""
    label: Label = TRUSTED
    """Of what went into it; the context joins it."""

    @property
    def is_error(self) -> bool:
        return self.origin in (Origin.ERROR, Origin.REPAIR)

    def block(self, call: ToolCall) -> Block:
        made: Block = {"type": "tool_result", "tool_use_id": call.id, "content": self.text}
        return {**made, "is_error": True} if self.is_error else made


Workflow = Callable[[Sequence[ToolCall], ToolContext], Awaitable[list[Outcome]]]
"""Runs one turn's calls that start subagents, outside any step; one outcome a call, in order."""

NOT_RUN = Outcome("Not run: limit reached.", Origin.ERROR)


@dataclass
class Agent:
    """One context at work. A fresh object for each; `run` it once."""

    run_: Run
    spec: Spec
    toolbox: Toolbox
    ctx: ToolContext
    workflow: Workflow | None = None
    workflow_names: frozenset[str] = frozenset()
    reading: Reading = field(default_factory=Reading)
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    """None as soon as one call has no known price."""
    steps: int = 0
    """Model calls that were made."""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    """The last text that the model wrote."""

    def __post_init__(self) -> None:
        self.talk = Conversation(self.spec, self.run_.sink)
        self.reading.label = self.reading.label.join(self.ctx.label)
        self._steps = Steps(self.run_, self.talk, self.toolbox)
        self._seq = 0
        self._limit = ""
        """The limit that was reached: only the final call is left."""
        self._final = False
        """The call just made is the final one."""
        self._chances = 1 if self.spec.contract else 2
        self._reminded = False
        self._parts: list[str] = []
        self._seen = 0
        """How many items had been shown when the text was begun."""

    async def run(self) -> Ending:
        """Turn after turn until it ends; raises for nothing that a model or a tool does."""
        self.run_.emit(ContextGrew(self.spec.context, self.reading.label))
        try:
            while (ending := await self._turn()) is None:
                pass
        finally:
            await self._steps.release()
        return ending

    async def _turn(self) -> Ending | None:
        if self.steps >= self.spec.max_steps - 1:
            self._close("steps")
        elif self.talk.prompt_tokens + self._steps.max_tokens > self.spec.context_limit:
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
        out = await self._step("model", lambda: self._steps.model(seq, final))
        if "limit" in out or "error" in out:
            self.reading.sent = before  # nothing was written with the others in view
        if limit := out.get("limit"):
            if final or limit == "user":
                return self._end("user" if limit == "user" else self._limit)
            self._close(limit)
            return None
        self.steps += 1
        if self.spec.on_reply:
            self.spec.on_reply()
        if kind := out.get("error"):
            return replace(self._end(kind, out["reason"]), passing=bool(out.get("passing")))
        usage = Usage(**{k: v for k, v in out["usage"].items() if k != "total"})
        self.talk.delivered(usage.prompt + usage.output)
        self.usage += usage
        known = self.cost_usd is not None and out["cost_usd"] is not None
        self.cost_usd = self.cost_usd + out["cost_usd"] if known else None
        return await self._follow(out["content"], out["stop_reason"])

    async def _step(self, name: str, fn: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        key = f"{self.spec.run}/{self.spec.context}/{self._seq}/{name}"
        self._seq += 1
        return await self.run_.checkpoint.step(key, fn)

    async def _follow(self, content: list[Block], stop: str) -> Ending | None:
        """What a reply asks for, by its stop reason."""
        calls = [
            ToolCall(b["id"], b["name"], b["input"]) for b in content if b["type"] == "tool_use"
        ]
        said = "".join(b["text"] for b in content if b["type"] == "text")
        self.text = said.strip() or self.text
        if said.strip() and not self._parts:
            self._seen = self.reading.sent
        if stop in ("tool_use", "end_turn", "stop_sequence") and calls:  # some servers mix them up
            self.talk.append(content)
            return await self._answer(calls)
        self.talk.append([b for b in content if b["type"] != "tool_use"])
        if stop in ("end_turn", "stop_sequence", "tool_use"):
            return self._ended(said)
        if stop == "max_tokens":
            return self._cut_off(said)
        if stop == "model_context_window_exceeded":
            return self._end("tokens", "the model's context window is full")
        if stop == "refusal":
            return self._end("model_error", "the model refused to answer")
        what = "go on" if stop == "pause_turn" else f"the reply ended by {stop[:40]!r}; go on"
        return self._again(what, "model_error", f"the reply ended by {stop[:40]!r}")

    def _ended(self, said: str) -> Ending | None:
        if self.spec.contract is None and (said.strip() or self._parts):
            text = "".join([*self._parts, said]).strip()
            return Ending(self._limit or "none", text=text, seen=self._seen)
        what = f"end by calling {SUBMIT}" if self.spec.contract else "write the answer as text"
        return self._again(what, "invalid_output", "it ended without a result")

    def _cut_off(self, said: str) -> Ending | None:
        if self.spec.contract is None and said.strip():
            self._parts.append(said)
            what = "your answer was cut off; go on exactly where it stopped"
        else:
            what = f"your output was cut at {self._steps.max_tokens} tokens; say it in half as many"
        return self._again(what, "tokens", "its output was cut off")

    def _again(self, what: str, stopped_by: str, reason: str) -> Ending | None:
        """One more chance; after that, and after the final call, it is over."""
        if self._final or self._chances <= 0:
            return self._end(self._limit or stopped_by, reason)
        self._chances -= 1
        self.talk.say(Origin.REMINDER, text_block(f"REMINDER: {what}."))
        return None

    async def _answer(self, calls: list[ToolCall]) -> Ending | None:
        """Run a turn's calls and put their results, in call order, into the next message."""
        if self.spec.contract and any(c.name == SUBMIT for c in calls):
            return self._submitted(calls)
        self.run_.emit(ToolsCalled(self.spec.context, tuple(c.name for c in calls)))
        if self._final:
            self._record([(c, NOT_RUN) for c in calls])
            return self._end(self._limit)
        answers: dict[str, Outcome] = {}
        crash = ""
        ordinary = [c for c in calls if c.name not in self.workflow_names]
        ctx = replace(self.ctx, label=self.reading.label, turn=self._seq)
        if ordinary:
            out = await self._step("tools", lambda: self._steps.tools(ctx, ordinary))
            crash = self._absorb(ordinary, out, answers, ctx.label)
        flow = [c for c in calls if c.name in self.workflow_names]
        if flow and self.workflow and not self._limit:
            answers |= await self._delegate(self.workflow, flow)
        given = [(c, answers.get(c.id, NOT_RUN)) for c in calls]
        self._record(given)
        self.run_.emit(ContextGrew(self.spec.context, self.reading.label))
        if crash and self.spec.contract:
            return self._end("tool_error", crash)
        self._say_all(given)
        return self._thresholds()

    async def _delegate(self, workflow: Workflow, calls: Sequence[ToolCall]) -> dict[str, Outcome]:
        """Start subagents, where the call that reads their results stays affordable."""
        room = await self._step("room", self._steps.make_room)
        if limit := room.get("limit"):
            self._close(limit)
            return {}
        outcomes = await workflow(calls, replace(self.ctx, label=self.reading.label))
        for outcome in outcomes:
            self.reading.label = self.reading.label.join(outcome.label)
        return {c.id: o for c, o in zip(calls, outcomes, strict=True)}

    def _absorb(
        self,
        calls: Sequence[ToolCall],
        out: Mapping[str, Any],
        answers: dict[str, Outcome],
        before: Label,
    ) -> str:
        """Take in what a batch returned that was called under the label `before`; the text of a
        crash, or nothing."""
        if limit := out.get("limit"):
            self._close(limit)
            return ""
        crash = ""
        for call, found in zip(calls, out["results"], strict=True):
            self.reading.add([Item.of(i) for i in found["items"]], found["holds"])
            # Steps of earlier versions have none of these three.
            self.reading.undone |= found.get("undone", {})
            self.reading.saw(found.get("lists", {}), found.get("reads", ()))
            if label := found.get("label"):
                self.reading.label = self.reading.label.join(Label.of(label))
            # A subagent's handles were fixed when it was spawned; it may follow what it is shown.
            listed = {h: t for h, t in found["handles"].items() if self._may_list(h)}
            tool = self.toolbox.tools.get(call.name)
            early = bool(tool and tool.effect is Effect.SEARCH) and self._is_early(before)
            self.ctx = replace(self.ctx, handles=self.ctx.handles.join(listed, early=early))
            origin = Origin.ERROR if found["error"] else Origin.TOOL_RESULT
            answers[call.id] = Outcome(found["text"], origin, call.name)
            crash = crash or (found["text"] if found["crash"] else "")
        return crash

    def _is_early(self, label: Label) -> bool:
        """Return whether no outsider can have chosen what a search under this label lists: the
        context has read nothing but what members wrote where the request was asked."""
        return label.is_open and not label.outside and label.sources <= {self.ctx.intent.home}

    def _may_list(self, handle: str) -> bool:
        return self.spec.contract is None or handle.startswith(("http://", "https://"))

    def _submitted(self, calls: list[ToolCall]) -> Ending | None:
        """Take the result, or say exactly what is wrong with it, once."""
        submit = next(c for c in calls if c.name == SUBMIT)
        kind, fault, value = read_submission(self.spec.contract or "", submit.input, self.reading)
        bad = Outcome(f"Not accepted: {fault} Submit again, whole.", Origin.REPAIR)
        good = Outcome("", Origin.TOOL_RESULT)
        skipped = Outcome("Not run.", Origin.REPAIR)
        given = [(c, (bad if fault else good) if c is submit else skipped) for c in calls]
        self._record(given)
        over = self._final or self._chances <= 0
        if value and (not fault or over):
            return Ending(self._limit or (kind if fault else "none"), value, reason=fault)
        if over:
            return self._end(kind if kind == "injection" else self._limit or kind, fault)
        self._chances -= 1
        self._say_all(given)
        return None

    def _say_all(self, given: Sequence[tuple[ToolCall, Outcome]]) -> None:
        for call, outcome in given:
            self.talk.say(outcome.origin, outcome.block(call), outcome.ref)

    def _thresholds(self) -> Ending | None:
        spec, tokens = self.spec, self.talk.prompt_tokens
        if spec.handoff_at and tokens > spec.handoff_at and self.steps < spec.max_steps - 1:
            return self._end("handoff")  # with one call left nobody else could be told to conclude
        if spec.remind_at and tokens > spec.remind_at and not self._reminded:
            self._reminded = True
            self.talk.say(Origin.REMINDER, text_block(f"REMINDER: {DELEGATE}"))
        return None

    def _close(self, limit: str) -> None:
        self._limit = self._limit or limit

    def _record(self, given: Sequence[tuple[ToolCall, Outcome]]) -> None:
        self.tool_calls += [{"name": c.name[:60], "is_error": o.is_error} for c, o in given]

    def _end(self, stopped_by: str, reason: str = "") -> Ending:
        text = "".join(self._parts) or self.text
        return Ending(stopped_by, text=text, reason=reason, seen=self._seen)
