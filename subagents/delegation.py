"""The limits on how many subagents a request may start, and the tools that start them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import scopes
from config.prompts import prompt
from config.sections import LimitSettings
from scopes.handles import Handles
from scopes.schema import tool_schema
from scopes.tool import ToolContext, not_found
from subagents.agent import Outcome
from subagents.brief import MAX_TITLE, Block, Brief, BriefDraft, is_isolable
from subagents.contracts import DEFAULT_MODEL, OFFERED
from subagents.errors import BriefRefused
from subagents.events import BriefWasRefused
from subagents.fanout import Fanout
from subagents.gate import explain
from subagents.overlap import shingles
from subagents.result import Finding, SubagentResult, join_labels
from subagents.summary import finding_line, overview, parent_view
from subagents.toolbox import ToolCall
from subagents.trajectory import Origin


@dataclass
class SpawnGuard:
    """Admits the briefs of one request. A refusal names the field and costs nothing.

    Depth is always one: no subagent is offered a tool that starts another.
    """

    limits: LimitSettings
    started: int = 0
    """Number of subagents that the model started one by one (`run_subagent`)."""
    items: int = 0
    """Number of subagents started over a list (`run_subagents`)."""
    delivered: list[str] = field(default_factory=list)
    """Views that the parent has read: their text may not be retyped into a brief."""
    own: list[str] = field(default_factory=list)
    """Texts that the parent may use freely: the request, and the briefs that it wrote before."""
    _own: set[int] = field(default_factory=set)
    _foreign: set[int] = field(default_factory=set)
    """Eight-word runs of `delivered` without those of `own`."""
    _hashed: list[int] = field(default_factory=lambda: [0, 0])
    """Number of texts of `own` and of `delivered` that were hashed."""

    async def check(self, brief: Brief) -> None:
        """Raise BriefRefused if a subagent could not do this brief alone."""
        await self._hash_new()
        if refusal := is_isolable(brief, self.limits, self._foreign):
            raise refusal
        self.own.append(brief.draft.model_dump_json())

    async def _hash_new(self) -> None:
        """Hash each text once, yielding to the event loop; do nothing until a view is delivered."""
        await asyncio.sleep(0)
        if not self.delivered:
            return
        for text in self.own[self._hashed[0] :]:
            self._own |= (words := shingles(text))
            self._foreign -= words
            self._hashed[0] += 1
            await asyncio.sleep(0)
        for text in self.delivered[self._hashed[1] :]:
            self._foreign |= shingles(text) - self._own
            self._hashed[1] += 1
            await asyncio.sleep(0)

    def admit_one(self) -> None:
        """Admit one subagent; raise BriefRefused above `max_subagents`."""
        if self.started >= self.limits.max_subagents:
            raise BriefRefused(
                "max_subagents",
                f"this request has started {self.started} subagents and may start no more. "
                "Answer from what you have, and say what was not covered",
            )
        self.started += 1

    def admit_items(self, items: Sequence[str]) -> None:
        """Admit a list; raise BriefRefused above `max_items`, and then start none of it."""
        if self.items + len(items) > self.limits.max_items:
            raise BriefRefused(
                "items",
                f"{len(items)} items; {self.limits.max_items - self.items} more are allowed in "
                "this request. Group them or leave some out",
            )
        self.items += len(items)


MAX_NAMED = 20
"""Maximum of refused briefs, and of reasons, that one result names; the rest is counted."""
ONE, MANY = "run_subagent", "run_subagents"
DELEGATING = frozenset({ONE, MANY})
IN_ONE_HEAD = " all = where one head needs several; it reads no web page and writes nothing."


class ManyAlike(BaseModel):
    """The arguments of `run_subagents`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    items: tuple[str, ...] = Field(min_length=1)
    template: BriefDraft


def delegation_schemas(max_subagents: int, offering: Sequence[str] = ()) -> list[Block]:
    """Return both tools as offered to the parent, with the limits that code enforces.

    `offering` are the scopes that have tools; none = all known scopes.
    """
    one = f"{prompt(ONE)} At most {max_subagents} in one request."
    made = deepcopy([tool_schema(ONE, one, BriefDraft), tool_schema(MANY, prompt(MANY), ManyAlike)])
    single, many = (schema["input_schema"]["properties"] for schema in made)
    named = list(offering) or scopes.scope_names()
    for draft in (single, many["template"]["properties"]):
        draft["scope"]["enum"] = named
        if scopes.ALL in named:
            draft["scope"]["description"] += IN_ONE_HEAD
    return made


@dataclass(frozen=True, slots=True)
class Allowed:
    """Limits on what subagents may be given; None = no limit."""

    scopes: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    """Allowed models of `fast` and `main`; a brief for another one runs on the first of these."""

    def among(self, names: Iterable[str]) -> list[str]:
        """Return those of the scopes that may be given."""
        return [name for name in names if self.scopes is None or name in self.scopes]


ANYTHING = Allowed()


@dataclass
class Delegation:
    """Runs one turn's delegating calls: admit all, run the admitted ones, answer in call order."""

    fanout: Fanout
    guard: SpawnGuard
    language: str | None = None
    earlier: Mapping[str, Finding] = field(default_factory=dict)
    """Findings of earlier answers that the request includes, by id."""
    allowed: Allowed = ANYTHING
    _returned: list[SubagentResult] = field(default_factory=list)
    """Results that the parent has been shown a view of."""

    @property
    def views(self) -> Mapping[str, str]:
        """Id of each subagent that has returned -> the view of its result alone."""
        cap = self.fanout.run.limits.max_result_tokens
        return {r.id: parent_view(r, cap) for r in self._returned}

    async def __call__(self, calls: Sequence[ToolCall], ctx: ToolContext) -> list[Outcome]:
        planned = [await self._plan(call, ctx) for call in calls]
        briefs = [b for plan in planned for b in plan if isinstance(b, Brief)]
        if sum(brief.draft.scope == "files" for brief in briefs) > 1:
            briefs = [replace(brief, beside=True) for brief in briefs]
        ran = iter(await self.fanout.run_all(briefs))
        results = [[next(ran) if isinstance(e, Brief) else e for e in plan] for plan in planned]
        share = self.fanout.run.limits.max_fanout_tokens // max(1, sum(map(len, results)))
        return [self._outcome(each, share) for each in results]

    def record_view(self, results: Sequence[SubagentResult], text: str) -> None:
        """Note that the parent was shown `text`, the view of these results."""
        self._returned += results
        self.guard.delivered.append(text)

    def _outcome(self, results: Sequence[SubagentResult], share: int) -> Outcome:
        refused = [r for r in results if r.status == "refused"]
        ran = [r for r in results if r.status != "refused"]
        if not ran:
            return Outcome(refusals(refused), Origin.ERROR)
        cap = self.fanout.run.limits.max_result_tokens
        text = overview(ran, cap, share * len(results))
        if refused:
            text += "\n\n" + refusals(refused)
        self.record_view(ran, text)
        return Outcome(text, Origin.VIEW, " ".join(r.id for r in ran), join_labels(ran))

    async def _plan(self, call: ToolCall, ctx: ToolContext) -> list[Brief | SubagentResult]:
        try:
            if call.name == ONE:
                return [await self._one(BriefDraft.model_validate(call.input), ctx)]
            many = ManyAlike.model_validate(call.input)
            items = tuple(dict.fromkeys(many.items))
            self.guard.admit_items(items)
            return [
                await self._item(for_item(many.template, item, ctx.handles), ctx) for item in items
            ]
        except ValidationError as error:
            return [self._refuse(call.input, "arguments", explain(error))]
        except BriefRefused as refusal:
            return [self._refuse(call.input, refusal.field, refusal.reason)]

    async def _one(self, draft: BriefDraft, ctx: ToolContext) -> Brief:
        brief = await self._brief(draft, ctx)
        self.guard.admit_one()
        return brief

    async def _item(self, draft: BriefDraft, ctx: ToolContext) -> Brief | SubagentResult:
        try:
            return await self._brief(draft, ctx)
        except BriefRefused as refusal:
            return self._refuse(draft.model_dump(), refusal.field, refusal.reason)

    async def _brief(self, draft: BriefDraft, ctx: ToolContext) -> Brief:
        """Return the admitted brief; raise BriefRefused."""
        if draft.scope not in scopes.scope_names():
            raise BriefRefused("scope", str(scopes.UnknownScope(draft.scope)))
        if draft.contract not in OFFERED:
            known = ", ".join(OFFERED)
            raise BriefRefused("contract", f"no contract {draft.contract[:40]!r}; known: {known}")
        if self.allowed.scopes is not None and draft.scope not in self.allowed.scopes:
            known = ", ".join(self.allowed.scopes) or "none"
            raise BriefRefused("scope", f"{draft.scope} is not allowed here; allowed: {known}")
        offering = scopes.offering(self.fanout.run.clients)
        if draft.scope not in offering:
            known = ", ".join(offering)
            raise BriefRefused("scope", f"{draft.scope} has no tools here; these have: {known}")
        model = draft.model_preference or DEFAULT_MODEL[draft.contract]
        if self.allowed.models and model not in self.allowed.models:
            draft = draft.model_copy(update={"model_preference": self.allowed.models[0]})
        brief = Brief(
            draft=draft,
            handles=self._handles(draft.handles, ctx.handles),
            window=ctx.window,
            label=self.fanout.run.gate.inherited_label(ctx.label),
            language=self.language,
            findings=self._findings(draft.findings),
            requester=ctx.requester,
            intent=ctx.intent,
        )
        await self.guard.check(brief)
        return brief

    @staticmethod
    def _handles(wanted: Sequence[str], held: Handles) -> Handles:
        """Allow only handles that the parent's own tools listed or the request names."""
        titles: dict[str, str] = {}
        for value in wanted:
            found = held.exact(value)
            if found is None:
                raise BriefRefused("handles", not_found("source", value))
            titles[found] = held.titles.get(found, "")
        return Handles(titles, frozenset(held.early & titles.keys()))

    def _findings(self, ids: Sequence[str]) -> tuple[str, ...]:
        if not ids:
            return ()
        found = {f.id: f for r in self.fanout.results.values() for f in r.findings}
        known = {**self.earlier, **found}
        if unknown := [i for i in ids if i.strip("[]") not in known]:
            raise BriefRefused("findings", f"no finding {unknown[0][:40]!r} was returned here")
        return tuple(finding_line(known[i.strip("[]")]) for i in ids)

    def _refuse(self, given: Any, field_name: str, reason: str) -> SubagentResult:
        data: Mapping[str, Any] = given if isinstance(given, dict) else {}
        title = _title(str(data.get("description") or data.get("task") or "a brief"))
        self.fanout.run.emit(BriefWasRefused(title, field_name, reason))
        scope, contract = str(data.get("scope", "")), str(data.get("contract", "answer"))
        return self.fanout.refuse(title, scope, contract, field_name, reason)


def refusals(results: Sequence[SubagentResult]) -> str:
    """Group refused briefs by reason, the first of each by name."""
    by_reason: dict[str, list[SubagentResult]] = {}
    for result in results:
        by_reason.setdefault(result.reason, []).append(result)
    lines = []
    for reason, alike in list(by_reason.items())[:MAX_NAMED]:
        names = "; ".join(f"{r.id} ({r.text})" for r in alike[:MAX_NAMED])
        more = f" and {len(alike) - MAX_NAMED} more" if alike[MAX_NAMED:] else ""
        lines.append(f"refused, {reason}: {names}{more}")
    if left := len(by_reason) - len(lines):
        lines.append(f"and for {left} further reasons")
    return "\n".join(lines)


def _title(text: str) -> str:
    """Shorten a title to the length that a brief accepts."""
    return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 1].rstrip()}…"


def for_item(template: BriefDraft, item: str, held: Handles) -> BriefDraft:
    """Return the template's brief for one item, with the item among its handles."""
    title = held.titles.get(held.resolve(item) or "", "")
    named = f"{title} ({item})" if title and title != item else item

    def put(text: str) -> str:
        return text.replace("{item}", named)

    task = put(template.task)
    return template.model_copy(
        update={
            "task": task if item in task else f"{task} ({item})",
            "description": _title(put(template.description)),
            "questions": tuple(map(put, template.questions)),
            "known": put(template.known),
            "output": put(template.output),
            "out_of_scope": put(template.out_of_scope),
            "handles": tuple(
                dict.fromkeys((*(h for h in template.handles if h != "{item}"), item))
            ),
        }
    )
