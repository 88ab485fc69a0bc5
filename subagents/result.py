"""The result of a subagent: read, checked, turned into one typed value, shown to the parent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import not_
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.words import phrase
from scopes.label import TRUSTED_LABEL, Label, is_conversation
from scopes.tool import BEFORE_WINDOW, Item, iso, one_line
from subagents.brief import SpawnedBrief
from subagents.contracts import (
    CONTRACTS,
    Day,
    FindingDraft,
    IssueDraft,
    IssuesContract,
    ReviewContract,
    ReviewFinding,
    ShortText,
    Submission,
    TrackedRow,
    TrackerContract,
    TriageVerdict,
    VerdictsContract,
    prose,
)
from subagents.conversation import OUTPUT_CUT, Ending
from subagents.delimiter import delimiters_in, first_of, leaks_delimiter, shorten
from subagents.evidence import (
    Coverage,
    SourceLog,
    check,
    distinct,
    figures_occur,
    is_named,
    normal,
    texts_of,
)
from subagents.gate import explain
from subagents.sanitizer import Material

MAX_REPEATED_CHARS = 60
"""Characters of a text that a fault repeats."""


def review_faults(value: ReviewContract, reading: SourceLog) -> Iterator[str]:
    """Yield the faults in the form of findings, each with the finding's id or number."""
    material, seen = Material.of(reading.items.values()), set[str]()
    for number, each in enumerate(value.points, 1):
        name = each.id or f"number {number}"
        if not each.id or each.id in seen:
            yield f"Finding {name}: it has no id of its own."
        seen.add(each.id)
        yield from (f"Finding {name}: {fault}." for fault in _point_faults(each, reading, material))


def _point_faults(each: ReviewFinding, reading: SourceLog, material: Material) -> Iterator[str]:
    """Yield a category that was not asked for, and why the material does not carry the finding."""
    if reading.panel_choices and each.category not in reading.panel_choices:
        yield f"category {each.category[:MAX_REPEATED_CHARS]!r} is none of CATEGORIES"
    if not material.holder(each.place):
        yield f"place {each.place[:MAX_REPEATED_CHARS]!r} is no [id] of MATERIAL"
    elif not each.quotes:
        yield "it has no quote"
    elif not any(material.find(quote, each.place) for quote in each.quotes):
        yield f"{each.quotes[0][:MAX_REPEATED_CHARS]!r} is not in MATERIAL"
    elif not each.claim.strip():
        yield "it claims nothing"


def supported_points(value: ReviewContract, reading: SourceLog) -> tuple[ReviewContract, list[str]]:
    """Return the findings that the material supports, with ids of items as places; and what was
    dropped, in words."""
    material, kept, dropped = Material.of(reading.items.values()), [], []
    for number, each in enumerate(value.points, 1):
        if fault := next(_point_faults(each, reading, material), ""):
            dropped.append(f"finding {number}: {fault}")
            continue
        quotes = [quote for quote in each.quotes if material.find(quote, each.place)]
        lost = [quote for quote in each.quotes if quote not in quotes]
        dropped += [
            f"finding {number}: {q[:MAX_REPEATED_CHARS]!r} is in nothing that was read"
            for q in lost
        ]
        held = material.holder(each.place)
        kept.append(each.model_copy(update={"place": held, "quotes": quotes}))
    return value.model_copy(update={"points": kept}), dropped


NEEDS_EVIDENCE = ("confirm", "refute", "weaken")


def verdict_faults(value: VerdictsContract, reading: SourceLog) -> Iterator[str]:
    """Yield the faults in the form of verdicts: ids, one for each finding, evidence."""
    judged = [each.finding for each in value.verdicts]
    if unknown := [id for id in judged if id not in reading.panel_choices]:
        yield f"Not to be judged: {', '.join(unknown)[:200]}."
    if twice := sorted({id for id in judged if judged.count(id) > 1}):
        yield f"Judged twice: {', '.join(twice)}."
    if missing := [id for id in reading.panel_choices if id not in judged]:
        yield f"Without a verdict: {', '.join(missing)}."
    material = Material.of(reading.items.values())
    for each in value.verdicts:
        if each.verdict in NEEDS_EVIDENCE and not material.find(each.evidence):
            yield f"{each.finding}: its evidence is no passage of MATERIAL."


MONEY = re.compile(
    r"(?:\d{1,3} ?[x\u00d7] ?)?"
    r"(?:(?:€|£|\$|EUR|CHF|USD|GBP) ?\d[\d.,'’ \u00a0\u202f]{0,15}"
    r"|\d[\d.,'’ \u00a0\u202f]{0,15}(?:€|£|\$|EUR\b|CHF\b|USD\b|GBP\b|Euro\b|euros?\b))"
)
"""An amount as people write it, such as `2 x 59 €` and `CHF 1'200.-`."""
SENTENCE = re.compile(r"(?<=[.!?…\n])\s+")


class CustomerCase(BaseModel):
    """The case of one customer of a finding."""

    customer: str
    since: str | None = None
    """When the first thread that names them was opened (ISO 8601, UTC)."""
    waits_since: str | None = None
    """As in the finding, of these threads."""
    answered: str | None = None
    """When a person who did not open these threads last wrote there (ISO 8601, UTC)."""
    answered_by: str = ""
    """Name of that person."""
    amount: str = ""
    """The first amount of money that is named with them, as written."""
    link: str | None = None


class Finding(IssueDraft):
    """A finding that was checked; the fields here are made by code."""

    wants: ShortText = Field(default="", exclude_if=not_)
    """What the customer wants, in a few words; absent where no subagent says it."""
    deadline: Day = Field(default="", exclude_if=not_)
    """The day by which somebody asks for it or promised it; absent without one."""

    id: str
    """`F<number of the subagent>.<number>`."""
    links: list[str] = Field(default_factory=list)
    author: str = ""
    """Name of who wrote what the first link leads to; empty where the source has none."""
    at: str | None = None
    """When that was written (ISO 8601, UTC)."""
    queries: list[str] = Field(default_factory=list)
    """Databases and statements that the rows in its evidence came from: `data:shop: SELECT ...`."""
    threads: list[str] = Field(default_factory=list)
    """Ids of the messages that opened the threads of its evidence, the oldest first."""
    sources: list[str] = Field(default_factory=list)
    """Handles with which another subagent can read the threads, mails, pages, lists, folders and
    databases of its evidence."""
    messages: int = 0
    """Messages read of the threads in its evidence, inside the window."""
    people: int = 0
    """Distinct customers that it names, or else distinct people who opened those threads."""
    since: str | None = None
    """When the first of those threads was opened (ISO 8601, UTC); null without a time."""
    waits: list[str] = Field(default_factory=list)
    """Names of those who opened these threads."""
    waits_since: str | None = None
    """When the one of them who has waited longest wrote first since a person last answered them
    (ISO 8601, UTC)."""
    cases: list[CustomerCase] = Field(default_factory=list, exclude_if=not_)
    """Each customer with `since`, `waits_since`, `answered`, `answered_by`, `amount` (as written)
    and `link` of the threads that name them."""


class ToolUse(BaseModel):
    """A call of a tool by a subagent."""

    name: str
    is_error: bool


class SubagentResult(BaseModel):
    """The result of one subagent: stored whole, shown to the parent as a view."""

    model_config = ConfigDict(frozen=True)

    id: str
    scope: str
    model: str
    status: str
    """complete, partial, failed, cancelled or refused."""
    stopped_by: str
    """none, steps, tokens, cost, time, rate_limit, model_error, tool_error, invalid_output,
    needs_context, injection or user."""
    reason: str = ""
    """Why, in words; empty when complete."""
    contract: str
    value: dict[str, Any] | None = None
    """The validated contract object without its findings; null when there is none."""
    text: str = ""
    findings: list[Finding] = []
    not_covered: list[str] = []
    coverage: dict[str, Any] = {}
    unsupported: list[str] = []
    """What the subagent claimed and its sources do not carry; it was dropped."""
    alarms: list[str] = Field(default=[], exclude_if=lambda given: not given)
    """Signs that a source steered it: `own_delimiter`, `other_delimiter`."""
    usage: dict[str, int] = {}
    cost_usd: float | None = 0.0
    steps: int = 0
    tool_calls: list[ToolUse] = []
    label: dict[str, Any] = {}

    @property
    def read(self) -> Coverage:
        return Coverage.model_validate(self.coverage)

    @property
    def is_too_long(self) -> bool:
        """Return whether there is no result because it was too long for one answer."""
        return self.value is None and self.reason == OUTPUT_CUT


def tracked_rows(result: SubagentResult) -> list[TrackedRow]:
    """Return the rows of a tracker that a result holds."""
    value = result.value if result.contract == "tracker" else None
    return TrackerContract.model_validate(value).rows if value else []


def verdict(result: SubagentResult) -> TriageVerdict | None:
    """Return the verdict on a thread that a result holds."""
    value = result.value if result.contract == "triage" else None
    return TriageVerdict.model_validate(value) if value is not None else None


def read_submission(
    contract: str, data: Any, reading: SourceLog
) -> tuple[str, str, Submission | None]:
    """Read a submission: (kind of fault, the fault in words or empty, the value if any)."""
    if held := delimiters_in(str(data)):
        own = all(each == reading.delimiter for each in held)
        reading.alarms.append("own_delimiter" if own else "other_delimiter")
        return "injection", "It holds the delimiter.", None
    try:
        value = CONTRACTS[contract].model_validate(data)
    except ValidationError as error:
        return "invalid_output", explain(error) + ".", None
    return "invalid_output", " ".join(_faults(value, reading)), value


def _faults(value: Submission, reading: SourceLog) -> Iterable[str]:
    if isinstance(value, ReviewContract):
        return review_faults(value, reading)
    if isinstance(value, VerdictsContract):
        return verdict_faults(value, reading)
    return faults(value, reading)


def faults(value: Submission, reading: SourceLog) -> Iterator[str]:
    """Yield what code can find wrong with a well-formed submission."""
    threads = reading.threads()
    states: dict[str, set[str]] = {}
    for finding in value.drafts():
        for root in _roots(finding.evidence, reading.items):
            states.setdefault(root, set()).add(finding.state)
    if answered := [r for r, s in states.items() if "unanswered" in s and _answers(threads[r])]:
        yield f"Not unanswered, others replied: {first_of(answered)}."
    unread = isinstance(value, TriageVerdict) and not set(value.evidence) & reading.items.keys()
    if unread and reading.items:
        yield "evidence names no message that you read: give the ids in [brackets]."
    if isinstance(value, TrackerContract):
        listed = {row.id for row in value.rows}
        if missing := [id for id in reading.items if id not in listed]:
            yield f"{len(missing)} rows are missing: {first_of(missing)}."
    if not isinstance(value, IssuesContract):
        return
    aside = _roots(value.no_issue, reading.items)
    if mixed := [root for root, held in states.items() if len(held) > 1 and root not in aside]:
        named = first_of(mixed)
        yield f"In findings of different states, place each once: {named}."
    if unplaced := _find_unplaced(value, reading):
        yield (
            f"{len(unplaced)} threads that you read are in no finding's evidence "
            f"and not in no_issue: {first_of(unplaced)}."
        )


def _find_unplaced(value: IssuesContract, reading: SourceLog) -> list[str]:
    """Return roots of threads read inside the window that the submission does not place."""
    placed = _roots([e for f in value.drafts() for e in f.evidence], reading.items)
    placed |= _roots(value.no_issue, reading.items)
    read = reading.threads()
    return [r for r in read if r not in placed and any(_inside(i) for i in read[r])]


def _roots(ids: Sequence[str], items: Mapping[str, Item]) -> set[str]:
    return {items[i].thread or i for i in ids if i in items and items[i].at}


def _inside(item: Item) -> bool:
    return BEFORE_WINDOW not in item.notes


def _answers(thread: Sequence[Item]) -> list[Item]:
    """Return the replies of persons other than the one who opened a thread."""
    return [i for i in thread[1:] if i.author != thread[0].author and _is_person(i)]


def _is_person(item: Item) -> bool:
    return "bot" not in item.notes


def checked_findings(
    number: int, value: Submission, reading: SourceLog
) -> tuple[list[Finding], list[str]]:
    """Return the findings that hold, with ids, links and counts by code; and what was dropped."""
    aside = _roots(value.no_issue, reading.items) if isinstance(value, IssuesContract) else set()
    drafts = [_place(f, aside, reading.items) for f in value.drafts()]
    kept, dropped = check(drafts, reading.whole(), aside)
    threads = reading.threads()
    findings = []
    for k, draft in enumerate(kept, 1):
        rests_on = _roots(draft.evidence, reading.items)
        roots = [r for r in threads if r in rests_on]
        inside = [i for r in roots for i in threads[r] if _inside(i)]
        openers = {threads[r][0].author for r in roots}
        since, waits_since = _since([threads[r] for r in roots])
        cited = [reading.items[e] for e in draft.evidence]
        linked = [i for i in sorted(cited, key=lambda i: i.at is None) if i.link]  # messages first
        findings.append(
            Finding(
                **_on_one_line(draft),
                id=f"F{number}.{k}",
                links=[i.link for i in linked if i.link],
                author=one_line(linked[0].by or "") if linked else "",
                at=iso(linked[0].at) if linked and linked[0].at else None,
                queries=list(dict.fromkeys(item.query for item in cited if item.query)),
                threads=roots,
                sources=list(dict.fromkeys(filter(None, map(_source, cited)))),
                messages=len(inside),
                people=len(distinct(draft.customers)) or len(openers),
                since=since,
                waits_since=waits_since,
                waits=list(dict.fromkeys(filter(None, (threads[r][0].by for r in roots)))),
                cases=list(_cases(draft.customers, [threads[r] for r in roots])),
            )
        )
    return findings, dropped


def _cases(customers: Sequence[str], threads: Sequence[Sequence[Item]]) -> Iterator[CustomerCase]:
    """Yield the case of each customer that a thread names, from the threads that name them."""
    thread_texts = [[normal(item.text) for item in thread] for thread in threads]
    named = [
        {name for name in customers if any(is_named(name, text) for text in texts)}
        for texts in thread_texts
    ]
    for name in customers:
        own = [(t, here) for t, here in zip(threads, named, strict=True) if name in here]
        since, waits_since = _since([thread for thread, _ in own])
        amounts = (_amount(name, thread, len(here) == 1) for thread, here in own)
        answers = [(at, i) for thread, _ in own for i in _answers(thread) if (at := i.at)]
        last = max(answers, key=lambda pair: pair[0], default=None)
        if own:
            yield CustomerCase(
                customer=name,
                since=since,
                waits_since=waits_since,
                answered=iso(last[0]) if last else None,
                answered_by=one_line(last[1].by or "") if last else "",
                amount=next(filter(None, amounts), ""),
                link=next((t[0].link for t, _ in own if t[0].link), None),
            )


def _since(threads: Sequence[Sequence[Item]]) -> tuple[str | None, str | None]:
    """Return when the first of these threads was opened, and since when somebody waits."""
    opened = min(filter(None, (thread[0].at for thread in threads)), default=None)
    waited = min(filter(None, map(_wait_of, threads)), default=None)
    return iso(opened) if opened else None, iso(waited) if waited else None


def _amount(name: str, thread: Sequence[Item], is_alone: bool) -> str:
    """Return the first amount of money in a thread that is about one customer alone, else the
    first in a sentence that names this one."""
    sentences = (each for item in thread for each in SENTENCE.split(item.text))
    found = (MONEY.search(s) for s in sentences if is_alone or is_named(name, normal(s)))
    return next((one_line(match[0]).strip(" .,") for match in found if match), "")


def _wait_of(thread: Sequence[Item]) -> datetime | None:
    """Return since when the opener of a thread waits: their first message after a person last
    answered. Asking again begins no new wait."""
    wait_start, answered = None, True
    for item in thread:
        if item.author != thread[0].author:
            answered = answered or _is_person(item)
        elif answered and item.at:
            wait_start, answered = item.at, False
    return wait_start


def _source(item: Item) -> str:
    """Return the handle with which the source of an item can be read again; empty for none."""
    if is_conversation(item.id.partition("/")[0]):
        return item.thread or item.id
    if item.link and item.id.startswith(item.link):  # a page, or a part of one
        return item.link
    source = next(iter(item.label.sources), "") if len(item.label.sources) == 1 else ""
    kind, _, name = source.partition(":")
    return name if kind in ("mail", "list") else source


def _place(draft: FindingDraft, aside: set[str], items: Mapping[str, Item]) -> FindingDraft:
    """Remove threads that were set aside as no issue from a finding, such as an announcement
    that explains it: its state holds for every thread that stays in its evidence."""
    own = [e for e in draft.evidence if not _roots([e], items) & aside]
    kept = any(e in items for e in own)
    return draft.model_copy(update={"evidence": own}) if kept else draft


def _on_one_line(draft: FindingDraft) -> dict[str, Any]:
    """Return the fields of a draft without line breaks, so that none imitates one made by code."""
    values = draft.model_dump()
    texts = {"claim", "severity_reason", "owner", "next_step", "wants"} & values.keys()
    values |= {name: one_line(values[name]) for name in texts}
    return values | {name: list(map(one_line, values[name])) for name in ("customers", "quotes")}


STATUS_BY_ENDING = {"invalid_output": "partial", "injection": "failed", "user": "cancelled"}
"""Status of the endings for which it does not depend on what was read."""
OVER_BUDGET = "the budget of the request was used up"
"""Reason of an ending that the context gave no reason for."""


def settle(ending: Ending, number: int, contract: str, reading: SourceLog) -> dict[str, Any]:
    """Return the result fields that follow from the way a subagent ended."""
    value = ending.value
    coverage = reading.coverage()
    dropped: list[str] = []
    if isinstance(value, TriageVerdict):
        value, dropped = drop_unsupported(value, reading)
    if isinstance(value, ReviewContract):
        value, dropped = supported_points(value, reading)
    findings, unsupported = checked_findings(number, value, reading) if value else ([], [])
    gaps = reading.gaps()
    stopped_by, reason = ending.stopped_by, ending.reason
    if stopped_by == "none" and value and value.needs:
        stopped_by, reason = "needs_context", value.needs
    if reading.holds and not coverage.complete:
        gaps.append(phrase("gap.messages", done=reading.read_whole, of=reading.expected))
    not_covered = [*(value.not_covered if value else []), *gaps]
    if isinstance(value, IssuesContract) and (unplaced := _find_unplaced(value, reading)):
        not_covered.append(phrase("gap.unjudged", n=len(unplaced), threads=first_of(unplaced)))
    if isinstance(value, IssuesContract) and not reading.holds:
        not_covered.append(phrase("gap.no_whole"))
    if stopped_by == "cost":
        reason = reason or OVER_BUDGET
    whole = stopped_by == "none" and not gaps and (coverage.complete or contract != "issues")
    text = prose(value) if value else salvage(ending, reading)
    status = "complete" if whole else STATUS_BY_ENDING.get(stopped_by, "partial")
    if status == "partial" and not (
        value or len(reading.items) > reading.material_count or ending.text
    ):
        status = "failed"
    if stopped_by == "injection":
        text = "This source could not be read: what came back held the delimiter."
    return {
        "status": status,
        "stopped_by": stopped_by,
        "reason": one_line(reason)[:500],
        "value": value.model_dump(mode="json", exclude={"findings"}) if value else None,
        "text": text,
        "findings": findings,
        "not_covered": not_covered,
        "unsupported": [*dropped, *unsupported],
        "alarms": reading.alarms,
        "coverage": coverage.model_dump(mode="json"),
        "label": reading.label.to_json(),
    }


def drop_unsupported(value: TriageVerdict, reading: SourceLog) -> tuple[TriageVerdict, list[str]]:
    """Return a verdict without the facts whose figures or addresses its thread does not contain."""
    shown = (replace(i, text=t) for i in reading.whole().values() for t in texts_of(i))
    text = "\n".join(normal(f"{i.line()} {i.at or ''}") for i in shown)
    facts = [fact for fact in value.key_facts if figures_occur(fact, text)]
    lost = [fact for fact in value.key_facts if fact not in facts]
    dropped = [f"fact {fact[:60]!r}: its figures are not in the thread" for fact in lost]
    return value.model_copy(update={"key_facts": facts}), dropped


def join_labels(results: Iterable[SubagentResult]) -> Label:
    """Return the joined label of results; it stays untrusted whatever they say."""
    return reduce(Label.join, (Label.of(result.label) for result in results), TRUSTED_LABEL)


def placeholder(frozen: SpawnedBrief) -> SubagentResult:
    """Return the result of a subagent that has not ended."""
    return SubagentResult(
        id=frozen.id,
        scope=frozen.brief.draft.scope,
        model=frozen.model,
        status="cancelled",
        stopped_by="user",
        reason="it had not ended",
        contract=frozen.brief.draft.contract,
    )


def crash_result(frozen: SpawnedBrief, reason: str) -> SubagentResult:
    """Return the result of a subagent whose outcome is unknown."""
    ended = {"status": "failed", "stopped_by": "tool_error", "reason": reason, "text": "It failed."}
    read = {"coverage": Coverage().model_dump(mode="json"), "label": TRUSTED_LABEL.to_json()}
    return placeholder(frozen).model_copy(update=ended | read)


def salvage(ending: Ending, reading: SourceLog) -> str:
    """Return the text of a subagent without a result: how much it read, and its last words."""
    count = len(reading.items)
    read = f"Read {count} {'item' if count == 1 else 'items'}, then stopped."
    words = "" if leaks_delimiter(ending.text) else shorten(ending.text, 1000)
    return read + (f" Its last words: {words}" if words else "")
