"""The gate: the only way to call a tool, in every context."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from config.sections import ToolCalls
from scopes.effects import Access, Effect, Handles
from scopes.intent import Intent
from scopes.label import INTERNET, TRUSTED_LABEL, Label, is_conversation
from scopes.preferences import ask_user
from scopes.tool import Item, Tool, ToolContext, ToolError, ToolResult, iso
from subagents.directory import Directory, Obstacle, Operator
from subagents.rules import RULES, STORES, Call, Rule, counts_of
from subagents.trajectory import digest_of


@dataclass(frozen=True, slots=True)
class Action:
    """One call of a tool that needs approval, with everything that the gate looks at."""

    id: str
    """128 random bits: the only thing that a button carries."""
    run: str
    context: str
    tool: str
    scope: str
    args: Mapping[str, Any]
    """Validated arguments, with names resolved to ids."""
    requester: str
    label: Label
    """Label of the context when it asked."""
    handles: Mapping[str, str]
    intent: Intent
    rule: str
    """Name of the rule that requires approval."""
    made: datetime
    told: Mapping[str, str] = field(default_factory=dict)
    """Readable forms of the arguments, found by code when it was proposed; shown next to them."""
    asks: tuple[str, ...] = ()
    """Addresses or search words of an outside look-up: once approved, the request is answered
    again with them. Empty for an action that is executed itself."""

    def body(self) -> str:
        """Return the stored bytes: JSON whose sets are in order, so that it has one digest."""
        fields = asdict(self) | {
            "label": self.label.to_json(),
            "intent": self.intent.to_json(),
            "made": iso(self.made),
        }
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)

    @property
    def digest(self) -> str:
        return digest_of(self.body())

    @property
    def held(self) -> Handles:
        return Handles(self.handles)

    @property
    def is_question(self) -> bool:
        """Return whether it asks the requester to choose: once chosen, the request is answered
        again."""
        return self.tool == ask_user.name

    def with_arguments(self, args: Mapping[str, Any]) -> Action:
        """Return the same action with other arguments and a new id."""
        return replace(self, id=new_id(), args={**self.args, **args})

    @classmethod
    def of(cls, body: str) -> Action:
        """Return the action that `body` contains."""
        return _ACTION_ADAPTER.validate_json(body)


_ACTION_ADAPTER: Final = TypeAdapter(Action)


def new_id() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Allow:
    args: Mapping[str, Any]
    """The arguments to run with: validated, handles resolved to ids."""
    rule: str
    effect: Effect
    """The effect that the call is counted by."""
    approved: bool = False
    """True for a look-up that the requester has approved word for word."""
    note: str = ""
    """Shown to the model with the result."""


@dataclass(frozen=True, slots=True)
class Card:
    """A call that runs only after a person approves it."""

    action: Action
    rule: str

    @property
    def reason(self) -> str:
        """Return the reason that the model is shown."""
        if self.action.is_question:
            return (
                "Asked: the requester sees it below your answer, with a button for each option, "
                "and the request is answered again with the choice. Do not guess and do not ask "
                "again: say in one sentence what you need to know."
            )
        if self.action.asks:
            return (
                "Not looked up: it would tell the internet of what was read. The requester is "
                "asked below your answer, once for all look-ups of this request, and gets a new "
                "answer with them. Do not call it again; say in your answer what waits."
            )
        return (
            "Not done: this needs approval. The requester is asked below your answer, with the "
            "exact text. Do not call it again; say in your answer what waits for approval."
        )


@dataclass(frozen=True, slots=True)
class Deny:
    reason: str
    """Shown to the model; the same for what is hidden as for what does not exist."""
    rule: str
    label: Label = TRUSTED_LABEL
    """Label of what was read before the refusal."""


Verdict = Allow | Card | Deny


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the gate's log. It contains no text of any person."""

    run: str
    context: str
    tool: str
    args_hash: str
    verdict: str
    """`allow`, `card` or `deny`; for a clicked card `approved` or `refused`."""
    rule: str
    at: datetime
    requester: str | None = None
    label: Mapping[str, Any] | None = None
    """Label of the context then: `untrusted`, `readers` (public, or a count), `sources`."""


VERDICTS = ("allow", "card", "deny")
"""Verdicts on a call in the log."""
ANSWER = "answer"
"""Name in the log of an answer that is to be shown, which is not a tool call."""
WITHIN = " within all rules"
"""Follows the effect in the log if no rule objects to the call."""
APPROVED_SUFFIX = " approved"
"""Follows the effect in the log if the requester has approved exactly this look-up."""
MAX_PROPOSED = 20
"""Maximum actions of one request that may wait for approval."""


Log = Callable[[Decision], None]
Propose = Callable[[Action], None]


@dataclass
class Gate:
    """Decides every call and logs each decision. Create one for each run.

    `rules` are those of `subagents.rules`; only tests pass fewer. `propose` takes an action that
    waits for approval; without it nothing can be approved, and such a call is denied.
    """

    log: Log
    directory: Directory = field(default_factory=Operator)
    propose: Propose | None = None
    rules: Sequence[Rule] = RULES
    counts: Counter[str] = field(default_factory=Counter)
    """Allowed calls by `counts_of`; a resumed run starts with those made before the crash."""
    limits: ToolCalls | None = None
    """Maximum calls that models may ask for; None = no limit."""
    requested: Counter[str] = field(default_factory=Counter)
    """Calls that models asked for, allowed or not: of a turn, of a context, of the run (`""`)."""
    _proposed: dict[str, Action] = field(default_factory=dict)

    def holds(self, rule: str) -> bool:
        """Return whether this rule is in force."""
        return any(each.name == rule for each in self.rules)

    async def decide(self, context: str, ctx: ToolContext, tool: Tool, args: Any) -> Verdict:
        """Decide whether this call may run, and with which arguments."""
        ctx = replace(ctx, context=context)
        verdict = await self._verdict(ctx, tool, args)
        if isinstance(verdict, Allow):  # nothing was awaited since the last rule looked
            guarded = ctx.label.is_guarded and not verdict.approved
            self.counts.update(counts_of(verdict.effect, context, guarded=guarded))
        name = type(verdict).__name__.lower()  # one of VERDICTS
        self._note(ctx, tool.name, args, name, verdict.rule)
        return verdict

    async def call(
        self, context: str, ctx: ToolContext, tool: Tool, args: Any
    ) -> ToolResult | Deny | Card:
        """Decide, then run. Nothing else in the product runs a tool."""
        verdict = await self.decide(context, ctx, tool, args)
        if not isinstance(verdict, Allow):
            return verdict
        found = await self._run(ctx, tool, verdict.args)
        if not verdict.note:
            return found
        return replace(found, note=f"{verdict.note} {found.note}".rstrip())

    async def perform(self, action: Action, ctx: ToolContext, tool: Tool) -> ToolResult | Deny:
        """Run an approved action exactly as stored, unless a rule forbids it by now."""
        ctx = replace(
            ctx,
            requester=action.requester,
            label=action.label,
            intent=action.intent,
            handles=action.held,
            context=action.context,
        )
        call = self._call(ctx, tool, action.args)
        found = call if isinstance(call, Deny) else await self._objection(call)
        denied = found if isinstance(found, Deny) else None
        how, rule = ("refused", denied.rule) if denied else ("approved", action.rule)
        self._note(ctx, tool.name, dict(action.args), how, rule)
        return denied or await self._run(ctx, tool, action.args)

    async def obstacles(
        self, context: str, ctx: ToolContext, to: str = "", *, again: bool = False
    ) -> tuple[Obstacle, ...]:
        """Decide whether a text of a context with this label may be shown where it was requested,
        or to the person `to`; return what keeps it from there, if anything.

        `again` = the same was asked before and is not logged again.
        """
        place, found = to or ctx.intent.home, tuple[Obstacle, ...]()
        if place and self.holds("audience"):
            found = await self.directory.obstacles(ctx.label, place)
        if not again:
            how = "deny" if found else "allow"
            self._note(replace(ctx, context=context), ANSWER, {"to": place}, how, "audience")
        return found

    async def may_read(self, requester: str | None, thing: str) -> bool:
        """Return whether a thing exists for this requester."""
        if not self.holds("entitlement"):
            return True
        return await self.directory.may_read(requester, thing)

    def inherited_label(self, label: Label) -> Label:
        """Return the label that a subagent starts with: that of the author of its brief."""
        return label if self.holds("inherit") else TRUSTED_LABEL

    async def _run(self, ctx: ToolContext, tool: Tool, args: Mapping[str, Any]) -> ToolResult:
        """Run it; keep only the items that the requester may read."""
        ctx = self._with_readers(ctx)
        found = _with_source(await tool.run(ctx, **args), tool)
        if tool.access is not Access.READ or ctx.requester is None:
            return found
        sources = {s for i in found.items for s in i.label.sources if is_conversation(s)}
        if not self.holds("entitlement"):
            return found
        hidden = {s for s in sources if not await ctx.may_read(s)}
        kept = tuple(i for i in found.items if _is_for(i, ctx.requester, hidden))
        return found if len(kept) == len(found.items) else replace(found, items=kept)

    def _with_readers(self, ctx: ToolContext) -> ToolContext:
        """Return the context with a check of what the requester may read."""
        return replace(ctx, may_read=partial(self.may_read, ctx.requester))

    def _over(self, ctx: ToolContext) -> str:
        """Count a call; return why it is one too many, or "". Calls by code are not counted."""
        if self.limits is None or ctx.turn is None:
            return ""
        places = {
            f"{ctx.context}/{ctx.turn}": (self.limits.turn, "turn"),
            ctx.context: (self.limits.context, "context"),
            "": (self.limits.request, "request"),
        }
        self.requested.update(places.keys())
        messages = (
            f"{most:,} calls were made in this {where}. Use what you have, or narrow the question."
            for place, (most, where) in places.items()
            if self.requested[place] > most
        )
        return next(messages, "")

    def _call(self, ctx: ToolContext, tool: Tool, args: Any, over: str = "") -> Call | Deny:
        try:
            values = tool.input_model.model_validate(args).model_dump()
        except ValidationError as error:
            if self.holds("arguments") or not isinstance(args, dict):
                return Deny(explain(error), "arguments")
            values = args
        return Call(ctx, tool, values, self.directory, self.counts, over)

    async def _verdict(self, ctx: ToolContext, tool: Tool, args: Any) -> Verdict:
        call = self._call(ctx, tool, args, self._over(ctx))
        if isinstance(call, Deny):
            return call
        found = await self._objection(call)
        if isinstance(found, Deny):
            return found
        if found:
            return await self._card(call, *found)
        approved = call.is_approved
        within = f"{call.effect}{APPROVED_SUFFIX if approved else ''}{WITHIN}"
        return Allow(call.values, within, call.effect, approved, call.note)

    async def _objection(self, call: Call) -> Deny | tuple[str, str] | None:
        """Return the refusal of a rule, else the first rule that wants approval, and why."""
        wanted: tuple[str, str] | None = None
        for rule in self.rules:
            objection = await rule.check(call)
            if objection and not objection.approvable:
                return Deny(objection.reason, rule.name)
            if objection and not wanted:
                wanted = rule.name, objection.reason
        return wanted

    async def _card(self, call: Call, rule: str, reason: str) -> Card | Deny:
        ctx, tool = call.ctx, call.tool
        intent = ctx.intent
        if self.propose is None or not ctx.requester or not intent.home or intent.scheduled:
            nobody = "This needs approval, and nobody can be asked here."
            return Deny(reason if call.asks else nobody, rule)
        readable: Mapping[str, str] = {}
        if tool.prepare:
            try:
                prepared = await tool.prepare(self._with_readers(ctx), **call.values)
            except ToolError as error:  # nobody is asked to approve what cannot be done
                return Deny(str(error), "arguments", error.label)
            call.values, readable = dict(prepared.values), prepared.facts
        key = json.dumps([tool.name, call.values], sort_keys=True, default=str)
        if key in self._proposed:
            return Card(self._proposed[key], rule)
        if tool is ask_user and any(each.is_question for each in self._proposed.values()):
            return Deny("One question of this request waits already.", rule)
        if len(self._proposed) >= MAX_PROPOSED:
            return Deny(f"{MAX_PROPOSED} things wait for approval already.", rule)
        used = (str(call.values.get(name) or "") for name in tool.handle_arguments)
        needed = [*used, tool.needs or ""]
        action = Action(
            id=new_id(),
            run=ctx.run,
            context=ctx.context,
            tool=tool.name,
            scope=ctx.scope,
            args=call.values,
            requester=ctx.requester,
            label=ctx.label,
            handles={h: ctx.handles.titles.get(h, "") for h in needed if h},
            intent=ctx.intent,
            rule=rule,
            made=datetime.now(UTC),
            told=readable,
            asks=call.asks,
        )
        self._proposed[key] = action
        self.propose(action)
        return Card(action, rule)

    def _note(self, ctx: ToolContext, tool: str, args: Any, verdict: str, rule: str) -> None:
        hashed = digest_of(json.dumps(args, sort_keys=True, default=str))[:16]
        place, who = (ctx.run, ctx.context), ctx.requester
        now, label = datetime.now(UTC), _summary(ctx.label)
        self.log(Decision(*place, tool, hashed, verdict, rule, now, who, label))


def count_allowed(log: Iterable[Decision]) -> Counter[str]:
    """Return what a run was allowed so far, according to its log: see `Gate.counts`.

    A call that stores something is decided again after each restart until its step is stored, but
    is made once: it counts once.
    """
    allowed = [d for d in log if d.verdict == "allow" and d.rule.endswith(WITHIN)]
    effects = [Effect(d.rule.removesuffix(WITHIN).removesuffix(APPROVED_SUFFIX)) for d in allowed]
    last = {(d.context, d.tool, d.args_hash): n for n, d in enumerate(allowed)}
    return Counter(
        key
        for n, (effect, d) in enumerate(zip(effects, allowed, strict=True))
        if effect not in STORES or last[d.context, d.tool, d.args_hash] == n
        for key in counts_of(effect, d.context, guarded=_was_guarded(d))
    )


def count_calls(log: Iterable[Decision]) -> Counter[str]:
    """Return what models of a run asked for so far, according to its log: see `Gate.asked`."""
    contexts = [d.context for d in log if d.verdict in VERDICTS and d.tool != ANSWER]
    return Counter({**Counter(contexts), "": len(contexts)})


def _was_guarded(decision: Decision) -> bool:
    """Return whether the label of a decision in the log was guarded: see `Label.is_guarded`."""
    if decision.rule.endswith(f"{APPROVED_SUFFIX}{WITHIN}"):
        return False
    label = decision.label or {}
    named = not isinstance(label.get("readers"), str)
    return label.get("readers") != INTERNET and (named or bool(label.get("outside", True)))


def _summary(label: Label) -> dict[str, Any]:
    """Summarize a label without names: how many readers, not who."""
    readers = label.readers if isinstance(label.readers, str) else len(label.readers)
    return {**label.to_json(), "readers": readers}


def _with_source(found: ToolResult, tool: Tool) -> ToolResult:
    """Add the tool's source to what only some may read, so that an obstacle can be named."""

    def name_source(label: Label) -> Label:
        bare = not label.is_open and not label.sources
        return replace(label, sources=frozenset({f"tool:{tool.name}"})) if bare else label

    if all(i.label.sources or i.label.is_open for i in found.items):
        return replace(found, label=name_source(found.label))
    items = tuple(replace(i, label=name_source(i.label)) for i in found.items)
    return replace(found, items=items, label=name_source(found.label))


def _is_for(item: Item, requester: str, hidden: set[str]) -> bool:
    readers = item.label.readers
    listed = isinstance(readers, str) or requester in readers
    return listed and hidden.isdisjoint(item.label.sources)


def explain(error: ValidationError) -> str:
    """Return a validation error as one line that names each argument and its fault."""
    faults = []
    for each in error.errors()[:8]:
        place = ".".join(str(p)[:60] for p in each["loc"]) or "input"
        message = "is not an argument" if each["type"] == "extra_forbidden" else each["msg"][:200]
        faults.append(f"{place}: {message}")
    return "; ".join(faults)
