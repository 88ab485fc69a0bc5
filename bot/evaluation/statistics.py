"""Figures of a suite with their confidence intervals, and comparisons case by case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from bot.errors import SetupError
from bot.evaluation.cases import Suite
from bot.evaluation.observation import CaseResult, Observation

CONFIDENCE = 0.95
RESAMPLES = 4_999
SEED = 1
"""Of the resampling: the same cases give the same table."""
Verdict = Literal["better", "worse", "no difference shown"]


class Figure(BaseModel):
    """One figure of a system."""

    name: str
    value: float | None = None
    """None if it cannot be told, such as an unknown price."""
    low: float | None = None
    high: float | None = None
    """The 95 % confidence interval; None if there is too little for one."""


class SystemResult(BaseModel):
    """The outcomes and figures of one system on a suite."""

    name: str
    figures: list[Figure]
    outcomes: list[CaseResult]
    seconds: Figure
    """Of all runs together, one after another."""

    def figure(self, name: str) -> Figure:
        return next((each for each in self.figures if each.name == name), Figure(name=name))


class Difference(BaseModel):
    """The share of cases by which the assistant is more often right than another system."""

    against: str
    cases: str
    """`all`, or those whose right answer is yes or no."""
    count: int
    value: float
    low: float | None
    high: float | None
    p: float
    """Of a permutation test."""
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
        hint = "Install the extra: pip install 'workspace-assistant[eval]'."
        raise SetupError("no_scipy", "`assistant eval` needs scipy.", hint) from None
    assert isinstance(stats, ModuleType)
    return stats


def system_result(
    name: str, outcomes: Sequence[CaseResult], runs: Sequence[Observation]
) -> SystemResult:
    """Count what a system made of all cases in these runs."""
    seconds = _total("seconds", [run.seconds for run in runs])
    figures = list(_figures(outcomes, runs))
    return SystemResult(name=name, figures=figures, outcomes=list(outcomes), seconds=seconds)


def _figures(outcomes: Sequence[CaseResult], runs: Sequence[Observation]) -> Iterator[Figure]:
    yield _share("accuracy", [each.right for each in outcomes])
    asked = [each for each in outcomes if each.needed is not None]
    if asked:
        yield _share("precision", [bool(each.needed) for each in asked if each.found])
        yield _share("recall", [bool(each.found) for each in asked if each.needed])
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
    """Return a sum, with an interval over the parts that it is made of."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return Figure(name=name)
    low, high = _interval(known)
    many = len(known)
    return Figure(
        name=name,
        value=sum(known),
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
    """Return how often a mean as far from 0 comes about if the two systems are alike."""
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
    """Put together what all systems made of a suite; the first one is the assistant."""
    ours, *others = systems
    found = [d for other in others for d in differences(ours.outcomes, other.name, other.outcomes)]
    return EvaluationReport(
        suite=suite.name,
        model=model,
        cases=len(suite.cases),
        systems=list(systems),
        differences=found,
    )


def earlier_result(path: Path, suite: str) -> SystemResult:
    """Return what the assistant made of a suite, as it was saved. Raises SetupError."""
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
    """Return the table of a report; it says nothing of time, so that it is the same twice."""
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
