"""The limits on how many subagents a request may start, and the tools that start them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

import scopes
from config.prompts import prompt
from config.sections import LimitSettings
from scopes.effects import Handles
from scopes.tool import ToolContext, Window, not_found, one_line, tool_schema
from subagents.agent import Outcome
from subagents.brief import (
    MAX_TITLE,
    SCOPE_FIELD,
    SUBMIT,
    Block,
    Brief,
    BriefDraft,
    TimeFrame,
    check_brief,
)
from subagents.challenge import MAX_CONTRADICTIONS, Pair, check_draft, claims, contradictions
from subagents.contracts import DEFAULT_MODEL, PARENT_CONTRACTS
from subagents.delimiter import MAX_NAMED, clip, first_of
from subagents.errors import BriefRefused
from subagents.events import BriefWasRefused
from subagents.evidence import Coverage
from subagents.fanout import Fanout
from subagents.gate import explain
from subagents.overlap import shingles
from subagents.result import Finding, SubagentResult, join_labels
from subagents.summary import finding_line, overview
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
    _own: set[int] = field(default_factory=set)
    """Eight-word runs that the parent may use freely: from the request and its own briefs."""
    _foreign: set[int] = field(default_factory=set)
    """Eight-word runs of views that it has read; it may not retype them into a brief."""

    async def check(self, brief: Brief) -> None:
        """Raise BriefRefused if a subagent could not do this brief alone."""
        await asyncio.sleep(0)  # checking a thousand takes long: let other tasks run
        check_brief(brief, self.limits, self._foreign)
        self.note_own(brief.draft.model_dump_json())

    def note_own(self, text: str) -> None:
        """Note a text that the parent may use freely."""
        self._own |= (words := shingles(text))
        self._foreign -= words

    def note_view(self, text: str) -> None:
        """Note a text that the parent has read and may not retype."""
        self._foreign |= shingles(text) - self._own

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


ONE, MANY, CHALLENGE = "run_subagent", "run_subagents", "challenge"
DELEGATION_TOOLS = frozenset({ONE, MANY, CHALLENGE})
OPEN = (":search", ":read")
"""Suffixes of open handles, with which a subagent finds its sources itself."""
IN_ONE_HEAD = (
    " all = the tools of all of these, dearer: for a task that needs two at once in one head."
)


class ManyAlike(BaseModel):
    """The arguments of `run_subagents`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    items: tuple[str, ...] = Field(min_length=1)
    template: BriefDraft


class ChallengeArguments(BaseModel):
    """The arguments of `challenge`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    results: tuple[str, ...] = ()


def delegation_schemas(max_subagents: int, offering: Sequence[str] = ()) -> list[Block]:
    """Return these tools as offered to the parent, with the limits that code enforces.

    `offering` are the scopes that have tools; none = all known scopes.
    """
    one = f"{prompt(ONE)} At most {max_subagents} in one request."
    draft, many = _draft_types(tuple(offering or scopes.scope_names()))
    return [
        tool_schema(ONE, one, draft),
        tool_schema(MANY, prompt(MANY), many),
        tool_schema(CHALLENGE, prompt(CHALLENGE), ChallengeArguments),
    ]


@lru_cache(maxsize=64)
def _draft_types(names: tuple[str, ...]) -> tuple[type[BriefDraft], type[ManyAlike]]:
    """Return the arguments of the tools that start subagents of these scopes."""
    description = f"{SCOPE_FIELD}{IN_ONE_HEAD if scopes.ALL in names else ''}"
    field = Field(description=description, json_schema_extra={"enum": list(names)})
    doc = BriefDraft.__doc__
    draft = create_model("BriefDraft", __base__=BriefDraft, __doc__=doc, scope=(str, field))
    return draft, create_model("ManyAlike", __base__=ManyAlike, template=(draft, ...))


@dataclass(frozen=True, slots=True)
class Allowed:
    """Limits on what subagents may be given; None = no limit."""

    scopes: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    """Allowed models of `fast` and `main`; a brief for another one runs on the first of these."""

    def among(self, names: Iterable[str]) -> list[str]:
        """Return the allowed ones of these scopes."""
        return [name for name in names if self.scopes is None or name in self.scopes]


NO_LIMITS = Allowed()


@dataclass
class Delegation:
    """Runs one turn's delegating calls: admit all, run the admitted ones, answer in call order."""

    fanout: Fanout
    guard: SpawnGuard
    frame: TimeFrame
    """The times that its briefs may read."""
    language: str | None = None
    earlier: Mapping[str, Finding] = field(default_factory=dict)
    """Findings of earlier answers that the request includes, by id."""
    allowed: Allowed = NO_LIMITS
    named: Collection[str] = ()
    """Handles that the request names; a tool may list more later."""
    asked_by: str = ""
    now: str = ""
    """Who asks, and day and time where they are, as briefs state them."""
    zone: str = "UTC"
    """Their time zone."""
    reads: dict[Window, list[Coverage]] = field(default_factory=dict)
    """Windows in which subagents read messages, and what each read."""
    titles: dict[str, str] = field(default_factory=dict)
    """Names of the sources that subagents were given, by handle."""
    threads: dict[str, Sequence[str]] = field(default_factory=dict)
    """Id of each finding that the parent may refer to -> ids of the threads in its evidence."""
    returned: list[SubagentResult] = field(default_factory=list)
    """Results whose view the parent has seen."""
    _by_id: dict[str, Finding] = field(default_factory=dict)
    """Findings that the parent may refer to, by id."""
    subjects: dict[str, str] = field(default_factory=dict)
    """Id of each subagent -> its title."""
    _found: set[str] = field(default_factory=set)
    """Threads, mails, pages and lists in their evidence: further subagents may read them."""

    def __post_init__(self) -> None:
        self._know(self.earlier.values())

    async def __call__(self, calls: Sequence[ToolCall], ctx: ToolContext) -> list[Outcome]:
        planned = [await self._plan(call, ctx) for call in calls]
        briefs = [b for plan in planned for b in plan if isinstance(b, Brief)]
        for brief in briefs:
            self.titles |= brief.handles.titles
        done = await self.fanout.run_all(briefs)
        for brief, result in zip(briefs, done, strict=True):
            self.subjects[result.id] = brief.draft.description
        self._note_windows(briefs, done)
        ran = iter(done)
        results = [[next(ran) if isinstance(e, Brief) else e for e in plan] for plan in planned]
        share = self.fanout.run.limits.max_fanout_tokens // max(1, sum(map(len, results)))
        notes = [_sources_given(call, plan) for call, plan in zip(calls, planned, strict=True)]
        return [self._outcome(each, share, note) for each, note in zip(results, notes, strict=True)]

    def _note_windows(self, briefs: Sequence[Brief], done: Sequence[SubagentResult]) -> None:
        """Note in which windows messages and mails were read."""
        for brief, result in zip(briefs, done, strict=True):
            used_tools = any(c.name != SUBMIT and not c.is_error for c in result.tool_calls)
            if brief.window and brief.is_dated and used_tools:
                self.reads.setdefault(brief.window, []).append(result.read)

    @property
    def windows(self) -> list[Window]:
        """Return the windows that were read; one read whole begins with its first message."""
        found = ((window, Coverage.sum(parts)) for window, parts in self.reads.items())
        begin = (
            replace(window, oldest=max(window.oldest, read.oldest))
            if read.complete and read.oldest
            else window
            for window, read in found
        )
        return list(dict.fromkeys(begin))

    def record_view(self, results: Sequence[SubagentResult], text: str) -> None:
        """Note that the parent was shown `text`, the view of these results."""
        self.returned += results
        self._know(finding for result in results for finding in result.findings)
        self.guard.note_view(text)

    def _know(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._by_id[finding.id] = finding
            self.threads[finding.id] = finding.threads
            web = ("http:", "https:")  # unlike other handles with a colon, no whole store
            self._found.update(s for s in finding.sources if ":" not in s or s.startswith(web))

    def _outcome(self, results: Sequence[SubagentResult], share: int, note: str) -> Outcome:
        refused = [r for r in results if r.status == "refused"]
        ran = [r for r in results if r.status != "refused"]
        if not ran:
            return Outcome(refusals(refused), Origin.ERROR)
        cap = self.fanout.run.limits.max_result_tokens
        text = overview(ran, cap, share * len(results))
        text += "".join(f"\n\n{each}" for each in (note, refusals(refused)) if each)
        self.record_view(ran, text)
        return Outcome(text, Origin.VIEW, " ".join(r.id for r in ran), join_labels(ran))

    async def _plan(self, call: ToolCall, ctx: ToolContext) -> list[Brief | SubagentResult]:
        try:
            if call.name == ONE:
                return [await self._one(BriefDraft.model_validate(call.input), ctx)]
            if call.name == CHALLENGE:
                pairs = self._find_contested(ChallengeArguments.model_validate(call.input).results)
                return [await self._or_refused({}, self._check(pair, ctx)) for pair in pairs]
            many = ManyAlike.model_validate(call.input)
            items = self._items(many, ctx.handles)
            self.guard.admit_items(items)
            drafts = (for_item(many.template, item, ctx.handles) for item in items)
            planned = [
                await self._or_refused(draft.model_dump(), self._brief(draft, ctx))
                for draft in drafts
            ]
            self.guard.items -= sum(isinstance(each, SubagentResult) for each in planned)
            return planned
        except ValidationError as error:
            return [self._refuse(call.input, BriefRefused("arguments", explain(error)))]
        except BriefRefused as refusal:
            return [self._refuse(call.input, refusal)]

    async def _or_refused(self, arguments: Any, brief: Awaitable[Brief]) -> Brief | SubagentResult:
        try:
            return await brief
        except BriefRefused as refusal:
            return self._refuse(arguments, refusal)

    def _find_contested(self, names: Sequence[str]) -> list[Pair]:
        """Return the contradictions among these results; raise BriefRefused if there are none."""
        ids = {name.strip("[]") for name in names}
        found = [f for result in self.returned for f in result.findings]
        if unknown := ids - {f.id for f in found} - {r.id for r in self.returned}:
            raise BriefRefused("results", f"no result {min(unknown)[:40]!r} was returned here")
        owners = {f.id: result.id for result in self.returned for f in result.findings}
        chosen = [f for f in found if not ids or f.id in ids or owners[f.id] in ids]
        pairs = contradictions(chosen)[:MAX_CONTRADICTIONS]
        if not pairs and len(ids) == len(chosen) == 2:
            pairs = [(chosen[0], chosen[1])]
        if not pairs:
            raise BriefRefused("results", "no two of these findings contradict each other")
        return pairs

    async def _check(self, pair: Pair, ctx: ToolContext) -> Brief:
        """Return the brief of a new context that reads the sources of both findings again."""
        lines = claims(pair)
        return replace(await self._one(check_draft(pair), ctx), findings=lines)

    async def _one(self, draft: BriefDraft, ctx: ToolContext) -> Brief:
        brief = await self._brief(draft, ctx)
        self.guard.admit_one()
        return brief

    async def _brief(self, draft: BriefDraft, ctx: ToolContext) -> Brief:
        """Return the admitted brief; raise BriefRefused."""
        draft = self._complete(draft, ctx.handles)
        if draft.scope not in scopes.scope_names():
            raise BriefRefused("scope", str(scopes.UnknownScope(draft.scope)))
        if draft.contract not in PARENT_CONTRACTS:
            known = ", ".join(PARENT_CONTRACTS)
            raise BriefRefused("contract", f"no contract {draft.contract[:40]!r}; known: {known}")
        if self.allowed.scopes is not None and draft.scope not in self.allowed.scopes:
            known = ", ".join(self.allowed.scopes) or "none"
            raise BriefRefused("scope", f"{draft.scope} is not allowed here; allowed: {known}")
        offering = scopes.offering_scopes(self.fanout.run.clients)
        if draft.scope not in offering:
            known = ", ".join(offering)
            raise BriefRefused("scope", f"{draft.scope} has no tools here; these have: {known}")
        model = draft.model_preference or DEFAULT_MODEL[draft.contract]
        if self.allowed.models and model not in self.allowed.models:
            draft = draft.model_copy(update={"model_preference": self.allowed.models[0]})
        brief = Brief(
            draft=draft,
            handles=self._handles(draft, ctx.handles),
            window=self.frame.window(draft.since, draft.until),
            label=self.fanout.run.gate.inherited_label(ctx.label),
            language=self.language,
            findings=self._findings(draft.findings),
            requester=ctx.requester,
            asked_by=self.asked_by,
            now=self.now,
            zone=self.zone,
            intent=ctx.intent,
            allowed=self.allowed.scopes,
        )
        await self.guard.check(brief)
        return brief

    def _complete(self, draft: BriefDraft, held: Handles) -> BriefDraft:
        """Return a draft with the title and the sources that it leaves out."""
        title = draft.description or clip(one_line(draft.task), MAX_TITLE)
        named = draft.handles or draft.findings
        handles = draft.handles if named else self._find_sources(draft, held)
        return draft.model_copy(update={"description": title, "handles": handles})

    def _find_sources(self, draft: BriefDraft, held: Handles) -> tuple[str, ...]:
        """Return the sources of its scope named by the task, else those named by the request."""
        own = {
            handle: title
            for handle, title in held.titles.items()
            if draft.scope in (scopes.ALL, scopes.scope_of(handle))
        }
        matches = (
            h for h, title in own.items() if _says(draft.task, h) or _says(draft.task, title)
        )
        if in_task := tuple(matches):
            return in_task
        in_request = [h for h in own if h in self.named]
        single = tuple(h for h in in_request if own[h] or "//" in h)
        return single or tuple(h for h in in_request if h.endswith(OPEN))

    def _items(self, many: ManyAlike, held: Handles) -> tuple[str, ...]:
        """Return the items, with each finding replaced by the sources of its evidence."""
        scope = many.template.scope
        spread = (self._sources(item, scope, held) or (item,) for item in many.items)
        return tuple(dict.fromkeys(each for sources in spread for each in sources))

    def _sources(self, value: str, scope: str, held: Handles) -> tuple[str, ...]:
        """Return the sources of a scope that the finding with this id rests on."""
        finding = self._by_id.get(value.strip("[]"))
        return tuple(
            source
            for source in (finding.sources if finding else ())
            if (source in held.titles or source in self._found)
            and scope in (scopes.ALL, scopes.scope_of(source))
        )

    def _handles(self, draft: BriefDraft, held: Handles) -> Handles:
        """Allow only handles that the parent's own tools listed, the request names, or the evidence
        of a finding gives."""
        titles: dict[str, str] = {}
        for value in draft.handles:
            found = held.exact(value) or (value if value in self._found else None)
            sources = (found,) if found else self._sources(value, draft.scope, held)
            if not sources and value.strip("[]") in self._by_id:
                raise BriefRefused("handles", NOT_OF_SCOPE.format(value, draft.scope))
            if not sources:
                raise BriefRefused("handles", not_found("source", value))
            titles |= {source: held.titles.get(source, "") for source in sources}
        return Handles(titles, frozenset(held.early & titles.keys()))

    def _findings(self, ids: Sequence[str]) -> tuple[str, ...]:
        if unknown := [i for i in ids if i.strip("[]") not in self._by_id]:
            raise BriefRefused("findings", f"no finding {unknown[0][:40]!r} was returned here")
        return tuple(finding_line(self._by_id[i.strip("[]")]) for i in ids)

    def _refuse(self, arguments: Any, refusal: BriefRefused) -> SubagentResult:
        data: Mapping[str, Any] = arguments if isinstance(arguments, dict) else {}
        title = clip(str(data.get("description") or data.get("task") or "a brief"), MAX_TITLE)
        self.fanout.run.emit(BriefWasRefused(title, refusal.field, refusal.reason))
        scope, contract = str(data.get("scope", "")), str(data.get("contract", "answer"))
        return self.fanout.refuse(title, scope, contract, refusal)


NOT_OF_SCOPE = "{} rests on nothing that a subagent of the scope {} can read"


def _says(text: str, name: str) -> bool:
    """Return whether a text contains an id or a title as a whole."""
    whole = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    return bool(name and re.search(whole, text, re.IGNORECASE))


def _sources_given(call: ToolCall, plan: Sequence[Brief | SubagentResult]) -> str:
    """Return a note on the sources that code gave to a brief that named none; else nothing."""
    handles = call.input.get("handles") if isinstance(call.input, dict) else None
    titles = [t for b in plan if isinstance(b, Brief) for t in b.handles.titles.items()]
    if call.name != ONE or handles or not titles:
        return ""
    names = (f"{handle} ({one_line(title)})" if title else handle for handle, title in titles)
    return f"The brief named no source; it was given {'; '.join(names)}."


def refusals(results: Sequence[SubagentResult]) -> str:
    """Group refused briefs by reason, the first of each by name."""
    by_reason: dict[str, list[SubagentResult]] = {}
    for result in results:
        by_reason.setdefault(result.reason, []).append(result)
    lines = []
    for reason, alike in list(by_reason.items())[:MAX_NAMED]:
        names = first_of([f"{r.id} ({r.text})" for r in alike], between="; ")
        lines.append(f"refused, {reason}: {names}")
    if more := len(by_reason) - len(lines):
        lines.append(f"and for {more} further reasons")
    return "\n".join(lines)


def for_item(template: BriefDraft, item: str, held: Handles) -> BriefDraft:
    """Return the template's brief for one item, with the item among its handles."""
    title = held.titles.get(held.resolve(item) or "", "")
    named = f"{title} ({item})" if title and title != item else item

    def put(text: str) -> str:
        return text.replace("{item}", named)

    task = put(template.task)
    others = (handle for handle in template.handles if handle != "{item}")
    return template.model_copy(
        update={
            "task": task if item in task else f"{task} ({item})",
            "description": clip(template.description.replace("{item}", title or item), MAX_TITLE),
            "questions": tuple(map(put, template.questions)),
            **{name: put(getattr(template, name)) for name in ("known", "output", "out_of_scope")},
            "handles": tuple(dict.fromkeys((*others, item))),
        }
    )
