"""Scores of a suite: observations of runs, outcomes of cases, figures, comparisons."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from bot.citations import CITATION_PATTERN
from bot.errors import SetupError
from bot.evaluation.cases import Alternatives, Case, Expected, Suite, cited_items, items_of
from bot.reports.documents import Document, PanelReport, SweepReport, ThreadVerdict, TriageReport
from subagents.contracts import NEEDS_ACTION
from subagents.result import Finding

REPORTED_OUTCOMES = ("confirmed", "disputed", "unjudged")
"""Outcomes of findings that a panel reports."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one run, reduced to the facts that cases need."""

    complete: bool = True
    """Whether it covers all items."""
    flagged: frozenset[str] = frozenset()
    """Items that need action according to it: `channel/ts`, mail threads."""
    judged: frozenset[str] = frozenset()
    """Covered items and names of channels, if it is not complete."""
    verdicts: Mapping[str, ThreadVerdict] = field(default_factory=dict)
    filtered: frozenset[str] = frozenset()
    text: str = ""
    findings: tuple[str, ...] = ()
    """The text of each finding of a review."""
    cited: frozenset[str] = frozenset()
    denied: int = 0
    """Number of calls that the gate denied."""
    claims: int = 0
    """Number of claims, including unsupported ones."""
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
    """The right answer to a yes-or-no question."""
    found: bool | None = None
    """The answer that was given."""


def observe(document: Document, denied: int, seconds: float) -> Observation:
    """Return the observation of a document of the assistant."""
    costs = [result.cost_usd for result in document.subagents]
    known_costs = [cost for cost in costs if cost is not None]
    unknown = document.cost_usd is None or len(known_costs) < len(costs)
    rest = None if unknown else (document.cost_usd or 0.0) - sum(known_costs)
    costs += [] if rest == 0.0 and costs else [rest]
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
        names = {section.channel: section.item for section in document.sections}
        whole = {each.item for each in document.sections if each.status == "complete"}
        return _with_threads(seen, document.findings(), names, whole)
    if isinstance(document, TriageReport):
        filtered = frozenset(each.thread_id for each in document.filtered)
        verdicts = {each.thread_id: each for each in document.verdicts}
        judged = filtered | verdicts.keys()
        return replace(seen, verdicts=verdicts, filtered=filtered, judged=judged)
    if isinstance(document, PanelReport):
        reported = [each for each in document.findings if each.outcome in REPORTED_OUTCOMES]
        texts = (" ".join([f.claim, f.place, *f.quotes, f.fix]) for f in reported)
        return replace(seen, findings=tuple(texts))
    findings = [finding for result in document.subagents for finding in result.findings]
    seen = _with_threads(seen, findings, document.places or {})
    return replace(seen, text=document.answer, cited=frozenset(cited_items(document)))


def _with_threads(
    seen: Observation,
    findings: Iterable[Finding],
    names: Mapping[str, str],
    whole: Collection[str] = (),
) -> Observation:
    """Add the threads that findings are about; `names`: id of a channel -> its name.

    `whole`: names of channels that were read to their end.
    """
    flagged, judged = set[str](), set(whole)
    for each in findings:
        parts = (id.partition("/") for id in items_of(each))
        items = {f"{names[c].lstrip('#')}/{ts}" if c in names else c for c, _, ts in parts}
        judged |= items
        flagged |= items if each.state in NEEDS_ACTION else set()
    return replace(seen, flagged=frozenset(flagged), judged=frozenset(judged))


def outcome(case: Case, seen: Observation) -> CaseResult:
    """Compare an observation with the right outcome; an item that is not covered is wrong."""
    covered = seen.complete or not {case.item, case.item.partition("/")[0]}.isdisjoint(seen.judged)
    needed = case.expected.needed
    found = None if needed is None else _answer_to(case.expected, case.item, seen)
    right = covered and needed == found and all(_faults(case, seen))
    return CaseResult(case=case.id, right=right, covered=covered, needed=needed, found=found)


def _answer_to(expected: Expected, item: str, seen: Observation) -> bool:
    """Return the answer to the yes-or-no question of the case."""
    if expected.filtered is not None:
        return item in seen.filtered
    verdict = seen.verdicts.get(item)
    if verdict is None:
        return item in seen.flagged
    if expected.asked is not None:
        return verdict.asked_of_me
    return verdict.asked_of_me or verdict.priority == "high"


def _faults(case: Case, seen: Observation) -> Iterable[bool]:
    """Yield for each further expectation whether it is met."""
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


def _stands_in(words: Alternatives, text: str) -> bool:
    choices = (words,) if isinstance(words, str) else words
    return any(_plain(each) in _plain(text) for each in choices)


def _plain(text: str) -> str:
    return " ".join(CITATION_PATTERN.sub("", text).casefold().split())


def names_rows(text: str, rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether an answer contains all figures and names of some rows as separate words.

    Empty rows never match, and the numbers of its sources do not count.
    """
    flat = _flat(CITATION_PATTERN.sub("", text))
    return bool(rows) and all(
        cell is None or any(re.search(form, flat) for form in _forms(cell))
        for row in rows
        for cell in row
    )


def _forms(cell: Any) -> list[str]:
    """Return patterns of the possible forms of a value as a separate word."""
    forms = [_flat(str(cell).removesuffix(" 00:00:00"))]
    if isinstance(cell, float):
        short = f"{cell:.0f}" if cell.is_integer() else f"{cell:.2f}".rstrip("0")
        forms = [short, f"{cell:.2f}", str(cell)]
    return [rf"(?<![\w.]){re.escape(form)}(?!\w|\.\d)" for form in forms]


def _flat(text: str) -> str:
    """Return the text without the commas between thousands."""
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)


CONFIDENCE = 0.95
RESAMPLES = 4_999
SEED = 1
"""Seed of the resampling, so that the same cases give the same table."""
Verdict = Literal["better", "worse", "no difference shown"]


class Figure(BaseModel):
    """One figure of a system."""

    name: str
    value: float | None = None
    """None if it is not known, such as an unknown price."""
    low: float | None = None
    high: float | None = None
    """The 95 % confidence interval, with `low`; None if there is too little data."""


class SystemResult(BaseModel):
    """The outcomes and figures of one system on a suite."""

    name: str
    figures: list[Figure]
    outcomes: list[CaseResult]
    seconds: Figure
    """Total of all runs, one after another."""

    def figure(self, name: str) -> Figure:
        return next((each for each in self.figures if each.name == name), Figure(name=name))


class Difference(BaseModel):
    """The difference in the share of right cases between the assistant and another system."""

    against: str
    cases: str
    """`all`, or only cases whose right answer is yes or no."""
    count: int
    value: float
    low: float | None
    high: float | None
    p: float
    """p-value of a permutation test."""
    verdict: Verdict


class EvaluationReport(BaseModel):
    """The result of an evaluation; `--save` writes it and `--compare` reads it."""

    suite: str
    model: str
    cases: int
    systems: list[SystemResult] = Field(min_length=1)
    differences: list[Difference] = []


def scipy_stats() -> ModuleType:
    """Return the module. Raises SetupError without the extra `eval`."""
    try:
        from scipy import stats
    except ImportError:
        hint = "Install the extra, in the folder of the repository: uv tool install '.[eval]'."
        raise SetupError("no_scipy", "`assistant eval` needs scipy.", hint) from None
    assert isinstance(stats, ModuleType)
    return stats


def system_result(
    name: str, outcomes: Sequence[CaseResult], runs: Sequence[Observation]
) -> SystemResult:
    """Count the outcomes of a system on all cases of these runs."""
    seconds = _total("seconds", [run.seconds for run in runs])
    figures = list(_figures(outcomes, runs))
    return SystemResult(name=name, figures=figures, outcomes=list(outcomes), seconds=seconds)


def _figures(outcomes: Sequence[CaseResult], runs: Sequence[Observation]) -> Iterator[Figure]:
    yield _share("accuracy", [each.right for each in outcomes])
    yes_no = [each for each in outcomes if each.needed is not None]
    if yes_no:
        yield _share("precision", [bool(each.needed) for each in yes_no if each.found])
        yield _share("recall", [bool(each.found) for each in yes_no if each.needed])
    yield _share("coverage", [each.covered for each in outcomes])
    wrong, claims = sum(run.unsupported for run in runs), sum(run.claims for run in runs)
    yield _share("unsupported claims", [True] * wrong + [False] * (claims - wrong))
    yield _total("cost $", [cost for run in runs for cost in run.costs])


def _share(name: str, hits: Sequence[bool]) -> Figure:
    """Return a share with Wilson's interval."""
    if not hits:
        return Figure(name=name)
    found = scipy_stats().binomtest(sum(hits), len(hits)).proportion_ci(CONFIDENCE, "wilson")
    low, high = float(found.low), float(found.high)
    return Figure(name=name, value=sum(hits) / len(hits), low=low, high=high)


def _total(name: str, parts: Sequence[float | None]) -> Figure:
    """Return a sum, with an interval over its parts."""
    known_parts = [part for part in parts if part is not None]
    if len(known_parts) < len(parts):
        return Figure(name=name)
    low, high = _interval(known_parts)
    many = len(known_parts)
    return Figure(
        name=name,
        value=sum(known_parts),
        low=None if low is None else low * many,
        high=None if high is None else high * many,
    )


def _interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the bootstrap interval of a mean; None for fewer than two values."""
    if len(values) < 2:
        return None, None
    if len(set(values)) == 1:
        return values[0], values[0]
    found = scipy_stats().bootstrap(
        (list(values),),
        _mean,
        n_resamples=RESAMPLES,
        method="percentile",
        confidence_level=CONFIDENCE,
        rng=SEED,
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def _mean(values: Any, axis: int = -1) -> Any:
    return values.mean(axis=axis)


def differences(
    ours: Sequence[CaseResult], against: str, theirs: Sequence[CaseResult]
) -> list[Difference]:
    """Compare two systems over the cases that both have."""
    other = {each.case: each for each in theirs}
    pairs = [(each, other[each.case]) for each in ours if each.case in other]
    yes, no = ([pair for pair in pairs if pair[0].needed is each] for each in (True, False))
    parts = {"all": pairs, "answer yes": yes, "answer no": no}
    return [_difference(against, name, part) for name, part in parts.items() if part]


def _difference(
    against: str, name: str, pairs: Sequence[tuple[CaseResult, CaseResult]]
) -> Difference:
    gains = [float(ours.right) - float(theirs.right) for ours, theirs in pairs]
    low, high = _interval(gains)
    value, p = sum(gains) / len(gains), _p(gains)
    verdict: Verdict = "no difference shown"
    if low is not None and high is not None and p < 1 - CONFIDENCE and not low <= 0 <= high:
        verdict = "better" if value > 0 else "worse"
    return Difference(
        against=against,
        cases=name,
        count=len(pairs),
        value=value,
        low=low,
        high=high,
        p=p,
        verdict=verdict,
    )


def _p(gains: Sequence[float]) -> float:
    """Return the probability of a mean as far from 0 if the two systems are equal."""
    if len(gains) < 2 or not any(gains):
        return 1.0
    nothing = [0.0] * len(gains)
    found = scipy_stats().permutation_test(
        (list(gains), nothing),
        lambda a, b, axis: _mean(a - b, axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=SEED,
    )
    return float(found.pvalue)


def report(suite: Suite, model: str, systems: Sequence[SystemResult]) -> EvaluationReport:
    """Build the report of all systems on a suite; the first one is the assistant."""
    assistant, *others = systems
    found = [
        d for other in others for d in differences(assistant.outcomes, other.name, other.outcomes)
    ]
    return EvaluationReport(
        suite=suite.name,
        model=model,
        cases=len(suite.cases),
        systems=list(systems),
        differences=found,
    )


def earlier_result(path: Path, suite: str) -> SystemResult:
    """Return the saved result of the assistant on a suite. Raises SetupError."""
    hint = "Give a file that `assistant eval --save` wrote."
    try:
        stored = EvaluationReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise SetupError("bad_baseline", f"{path} is no result.", hint) from None
    if stored.suite != suite:
        text = f"{path} is a result of the suite {stored.suite}, not {suite}."
        raise SetupError("bad_baseline", text, "Compare results of one suite.")
    return stored.systems[0].model_copy(update={"name": path.stem})


def report_text(document: EvaluationReport) -> str:
    """Return the table of a report, without times, so that it is reproducible."""
    head = f"{document.suite}: {document.cases} cases, --model {document.model}"
    names = [figure.name for figure in document.systems[0].figures]
    rows = [["", *(system.name for system in document.systems)]]
    for name in names:
        rows.append([name, *(figure_text(system.figure(name)) for system in document.systems)])
    parts = [head, _table(rows)]
    if document.differences:
        parts.append(_table([DIFFERENCES, *map(_row, document.differences)]))
    return "\n\n".join(parts)


DIFFERENCES = ["right, against", "cases", "", "difference", "p", ""]


def _row(each: Difference) -> list[str]:
    figure = Figure(name="", value=each.value, low=each.low, high=each.high)
    shown = figure_text(figure, signed=True)
    return [each.against, each.cases, str(each.count), shown, f"{each.p:.3f}", each.verdict]


def figure_text(figure: Figure, *, signed: bool = False) -> str:
    """Return a figure with its interval: `0.83 [0.79, 0.87]`."""
    if figure.value is None:
        return "-"
    sign, digits = "+" if signed else "", 4 if figure.name == "cost $" else 3
    value = f"{figure.value:{sign}.{digits}f}"
    if figure.low is None or figure.high is None:
        return value
    return f"{value} [{figure.low:{sign}.{digits}f}, {figure.high:{sign}.{digits}f}]"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join(lines)
