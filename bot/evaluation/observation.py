"""What a run says about the cases, whatever made it, and whether that is right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from bot.citations import CITED
from bot.evaluation.cases import Case, Expected, Words, cited_items, items_of
from bot.reports.documents import Document, PanelReport, SweepReport, ThreadVerdict, TriageReport
from subagents.contracts import NEEDS_ACTION
from subagents.result import Finding, SubagentResult

STANDS = ("confirmed", "disputed", "unjudged")
"""Outcomes of findings that a panel reports."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one run, reduced to what cases ask for."""

    complete: bool = True
    """Whether it covers everything."""
    flagged: frozenset[str] = frozenset()
    """Items that it says need action: `channel/ts`, mail threads."""
    judged: frozenset[str] = frozenset()
    """Items, and names of channels, that it covers if it is not complete."""
    verdicts: Mapping[str, ThreadVerdict] = field(default_factory=dict)
    filtered: frozenset[str] = frozenset()
    text: str = ""
    findings: tuple[str, ...] = ()
    """The words of each finding of a review."""
    cited: frozenset[str] = frozenset()
    denied: int = 0
    """Calls that the gate denied."""
    claims: int = 0
    """Claims, unsupported ones included."""
    unsupported: int = 0
    costs: tuple[float | None, ...] = ()
    """Dollars of each context."""
    seconds: float = 0.0
    fault: str = ""
    """Why a context ended early; empty if none did."""


class CaseResult(BaseModel):
    """The outcome of one case with one system."""

    case: str
    right: bool
    covered: bool
    needed: bool | None = None
    """The right answer of a question with yes or no."""
    found: bool | None = None
    """The answer that was given."""


def observe(document: Document, denied: int, seconds: float) -> Observation:
    """Return what a document of the assistant says."""
    costs = [result.cost_usd for result in document.subagents]
    known = [cost for cost in costs if cost is not None]
    unknown = document.cost_usd is None or len(known) < len(costs)
    costs.append(None if unknown else max(0.0, (document.cost_usd or 0.0) - sum(known)))
    claims = sum(len(r.findings) for r in document.subagents) + document.unsupported
    seen = Observation(
        complete=document.status == "complete",
        denied=denied,
        claims=claims,
        unsupported=document.unsupported,
        costs=tuple(costs),
        seconds=seconds,
        fault=next((each.reason for each in document.subagents if each.reason), ""),
    )
    if isinstance(document, SweepReport):
        return _of_sweep(seen, document)
    if isinstance(document, TriageReport):
        filtered = frozenset(each.thread_id for each in document.filtered)
        verdicts = {each.thread_id: each for each in document.verdicts}
        judged = filtered | verdicts.keys()
        return replace(seen, verdicts=verdicts, filtered=filtered, judged=judged)
    if isinstance(document, PanelReport):
        stands = [each for each in document.findings if each.outcome in STANDS]
        texts = (" ".join([f.claim, f.place, *f.quotes, f.fix]) for f in stands)
        return replace(seen, findings=tuple(texts))
    return replace(seen, text=document.answer, cited=frozenset(cited_items(document)))


def _of_sweep(seen: Observation, report: SweepReport) -> Observation:
    flagged, judged = set[str](), set[str]()
    for section in report.sections:
        if section.status == "complete":
            judged.add(section.item)
        for each in section.findings:
            items = {f"{section.item}/{id.partition('/')[2]}" for id in items_of(each)}
            judged |= items
            flagged |= items if each.state in NEEDS_ACTION else set()
    return replace(seen, flagged=frozenset(flagged), judged=frozenset(judged))


def observe_context(
    result: SubagentResult, names: Mapping[str, str], denied: int, seconds: float
) -> Observation:
    """Return what one context says that read everything; `names` are those of channels by id."""

    def items(finding: Finding) -> set[str]:
        parts = (id.partition("/") for id in items_of(finding))
        if not names:
            return {thread for thread, _, _ in parts}
        return {f"{names.get(channel, channel)}/{ts}" for channel, _, ts in parts}

    found = [(each, items(each)) for each in result.findings]
    return Observation(
        complete=result.status == "complete",
        flagged=frozenset(i for f, ids in found if f.state in NEEDS_ACTION for i in ids),
        judged=frozenset(i for _, ids in found for i in ids),
        text=result.text,
        cited=frozenset(i for f, _ in found for i in items_of(f)),
        denied=denied,
        claims=len(found) + len(result.unsupported),
        unsupported=len(result.unsupported),
        costs=(result.cost_usd,),
        seconds=seconds,
        fault=result.reason,
    )


def outcome(case: Case, seen: Observation) -> CaseResult:
    """Compare what a run says with what is right; what is not covered is not right."""
    covered = seen.complete or not {case.item, case.item.partition("/")[0]}.isdisjoint(seen.judged)
    needed = case.expected.needed
    found = None if needed is None else _found(case.expected, case.item, seen)
    right = covered and needed == found and all(_faults(case, seen))
    return CaseResult(case=case.id, right=right, covered=covered, needed=needed, found=found)


def _found(expected: Expected, item: str, seen: Observation) -> bool:
    """Return the answer to the question with yes or no that the case asks."""
    if expected.filtered is not None:
        return item in seen.filtered
    verdict = seen.verdicts.get(item)
    if verdict is None:
        return item in seen.flagged
    if expected.asked is not None:
        return verdict.asked_of_me
    return verdict.asked_of_me or verdict.priority == "high"


def _faults(case: Case, seen: Observation) -> Iterable[bool]:
    """Yield for each further expectation whether it holds."""
    expected, verdict = case.expected, seen.verdicts.get(case.item)
    if expected.priority:
        yield verdict is not None and verdict.priority == expected.priority
    if expected.category:
        yield verdict is not None and verdict.category == expected.category
    if expected.rows is not None:
        yield names_rows(seen.text, expected.rows)
    if expected.says:
        texts = seen.findings if case.task == "review" else (seen.text,)
        yield any(all(_stands_in(each, text) for each in expected.says) for text in texts)
    yield not any(_stands_in(each, seen.text) for each in expected.omits)
    yield seen.cited >= set(expected.cites)
    yield expected.denied is None or seen.denied <= expected.denied


def _stands_in(words: Words, text: str) -> bool:
    choices = (words,) if isinstance(words, str) else words
    return any(_plain(each) in _plain(text) for each in choices)


def _plain(text: str) -> str:
    return " ".join(CITED.sub("", text).casefold().split())


def names_rows(text: str, rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether an answer says all figures and names of some rows, each standing alone.

    Empty rows are said by nothing, and the numbers of its sources say nothing.
    """
    flat = _flat(CITED.sub("", text))
    return bool(rows) and all(
        cell is None or any(re.search(form, flat) for form in _forms(cell))
        for row in rows
        for cell in row
    )


def _forms(cell: Any) -> list[str]:
    """Return patterns of how a value may be written, standing alone."""
    forms = [_flat(str(cell).removesuffix(" 00:00:00"))]
    if isinstance(cell, float):
        short = f"{cell:.0f}" if cell.is_integer() else f"{cell:.2f}".rstrip("0")
        forms = [short, f"{cell:.2f}", str(cell)]
    return [rf"(?<![\w.]){re.escape(form)}(?!\w|\.\d)" for form in forms]


def _flat(text: str) -> str:
    """Return the text without the commas between thousands."""
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
