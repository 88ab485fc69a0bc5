"""The kill matrix: one request with twelve subagents, its process killed at every critical point.

`python -m benchmarks.kills [--short] [--database sqlite|postgres|both] [--only NAME]
    [--streams all|kept|404|unknown_method|channel_type_not_supported]`
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from pg_kit import database as own_database
from standins.slack_faults import StreamsRefused
from standins.slack_shown import Shown

from benchmarks.kill_model import OFFICE
from benchmarks.kill_points import (
    EDITED,
    SHORT_FORM,
    SHORT_REFUSED,
    STREAMED,
    Point,
    points,
)
from benchmarks.kill_scenarios import SCENARIOS, Phrases, Scenario
from benchmarks.kill_stage import CAP_USD, NotReached, Stage, staged
from benchmarks.kill_teams import OF_REPLICAS, SHORT, named, two_staged
from benchmarks.kill_watch import Call
from benchmarks.table import columns
from subagents.budget import NANOUSD_PER_USD
from subagents.prices import Usage, cost_nanousd

IN_FLIGHT_S = 0.3
"""Seconds: an answer sent so shortly before a kill may not have been stored."""
REFUSALS = get_args(StreamsRefused)
STREAMS: dict[str, StreamsRefused | None] = {"kept": None, **{each: each for each in REFUSALS}}
"""Kinds of Slack by their handling of streams."""
HEAD = "point, seconds, repeated, in flight, answers, items, spent, audit, ".split(", ")


@dataclass
class Row:
    """The result of one point."""

    where: str
    """The database, and how Slack refuses streams if it does."""
    point: Point
    workspaces: int = 1
    """Number of workspaces with the same request."""
    seconds: float = 0.0
    """Seconds from the last start to the finished answer; 0 = it was there before."""
    repeated: int = 0
    """Superfluous repeats of model calls."""
    in_flight: int = 0
    """Calls in progress at a kill."""
    answers: int = 0
    items: int = 0
    spent_usd: float = 0.0
    leaks: int | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def scenario(self) -> Scenario:
        return SCENARIOS[self.point.scenario]

    def cells(self) -> list[str]:
        items = f"{self.items}/{self.workspaces * sum(self.scenario.subagents())}"
        figures = [self.repeated, self.in_flight, self.answers, items]
        audit = "-" if self.leaks is None else f"{self.leaks} leaks"
        verdict = "FAILED" if self.faults else "ok"
        spent = f"${self.spent_usd:.3f}"
        return [
            *(f"{self.where}: {self.point.name}", f"{self.seconds:.1f}", *map(str, figures)),
            *(spent, audit, verdict),
        ]


def run_point(where: str, point: Point, stage: Stage, *others: Stage) -> Row:
    """Ask, kill and restart as often as the point says, and check the result.

    `others` get the same request at the same time: other workspaces of the same process.
    """
    stages = (stage, *others)
    row, killed = Row(where, point, len(stages)), list[float]()
    try:
        for each in stages:
            each.ready()
        stage.set_trap(point.kills[0])
        for each in stages:
            each.ask(row.scenario)
        for following in (*point.kills[1:], None):
            killed.append(stage.killed())
            began = time.time()
            for each in stages:
                each.watch.end_life(is_alone=not stage.is_alive)
            if not stage.is_alive:
                stage.lives.start()
            if following:
                stage.set_trap(following)
        try:
            row.seconds = max(0.0, max(each.answered() for each in stages) - began)
        except NotReached as error:
            row.faults.append(str(error))
        for each in stages:
            _check(row, each, killed, 0.0 if each is stage else stage.stepped_s)
    except NotReached as error:
        row.faults.append(str(error))
    return row


def _check(row: Row, stage: Stage, killed: Sequence[float], late_s: float) -> None:
    """Add to the figures, and note every fault.

    `late_s`: seconds for which the process may have left an answer unread, because it was stopped.
    """
    fault, books = row.faults.append, stage.books
    shown = stage.told()
    row.answers += len(shown)
    messages = [tuple(map(stage.filled, each)) for each in row.scenario.messages]
    row.faults += message_faults(shown, messages)
    repeated, in_flight, again = repeats(stage.watch.calls, killed, late_s)
    row.repeated += repeated
    row.in_flight += in_flight
    row.faults += again
    if stage.is_shown_at_work:
        fault("Slack still shows its Stop button")
    if is_taken_back(stage.watch.log):
        fault("the finished answer was replaced by progress for a while")
    _, state = books.latest()
    if state != "done":
        fault(f"the request is {state}")
    if open_work := books.open_work():
        fault(f"{open_work} requests and workflows have not ended")
    row.faults += _kept_faults(stage)
    row.faults += stage.foreign()
    runs = stage.runs()
    if len(runs) != len(row.scenario.contexts):
        fault(f"{len(runs)} runs were stored: {runs}")
    _check_budget(row, stage, runs)
    row.leaks = row.leaks or 0
    expected = zip(row.scenario.contexts, row.scenario.subagents(), strict=True)
    for run, (contexts, subagents) in zip(runs, expected, strict=False):
        statuses = [each["status"] for each in books.document(run).get("subagents", ())]
        stored = books.subagents(run)
        row.items += min(statuses.count("complete"), stored.count("complete"))
        if not statuses == stored == ["complete"] * subagents:
            fault(f"subagents in the document: {statuses}, in their table: {stored}")
        report = books.audit(run)
        row.leaks += len(report.leaks)
        if report.leaks or report.contexts != contexts:
            fault(f"audit: {report.line()} {report.leaks[:2]}")


def message_faults(shown: Sequence[Shown], wanted: Sequence[Phrases]) -> Iterator[str]:
    """Yield the faults of the messages, each of which must have its phrases once."""
    if len(shown) != len(wanted):
        yield f"{len(shown)} messages: {[m.text[:60] for m in shown]}"
    for message in shown:
        if message.streaming or not message.metadata:
            yield f"an unfinished message: {message.text[:80]!r}"
    for message, phrases in zip(shown, wanted, strict=False):
        counts = {each: message.text.count(each) for each in phrases}
        if wrong := {each: count for each, count in counts.items() if count != 1}:
            yield f"not once in a message: {wrong} {message.text[:200]!r}"


def _kept_faults(stage: Stage) -> Iterator[str]:
    """Yield what is not stored exactly once."""
    scenario, books = stage.scenario, stage.books
    for query, count in scenario.rows:
        if (found := books.rows(stage.filled(query))[0][0]) != count:
            yield f"{found} rows: {stage.filled(query)}"
    if (kept := books.preferences(stage.asker)) != list(scenario.preferences):
        yield f"preferences: {kept}"
    if scenario.instructions and (found := books.instructions(OFFICE)) != scenario.instructions:
        yield f"instructions: {found!r}"


def is_taken_back(log: Iterable[tuple[float, str, str]]) -> bool:
    """Return whether something unfinished replaced a finished answer."""
    is_final = False
    for name in (name for _, name, phase in log if phase == "done"):
        if is_final and name in ("chat.update plan", "chat.update text"):
            return True
        if name in (STREAMED.first, EDITED.first):  # another answer begins
            is_final = False
        elif name.endswith(" final"):
            is_final = True
    return False


def repeats(
    calls: Iterable[Call], killed: Sequence[float], late_s: float = 0.0
) -> tuple[int, int, list[str]]:
    """Return superfluous calls, calls in progress at the kills, and wrong repeats."""
    by_name: dict[str, list[Call]] = {}
    for call in calls:
        by_name.setdefault(call.name, []).append(call)
    repeated = in_flight = 0
    faults = []
    for name, group in by_name.items():
        repeated += len(group) - 1
        if len({call.body for call in group}) > 1:
            faults.append(f"{name} was repeated with another request")
        for number, call in enumerate(group, 1):
            end = killed[call.life] if call.life < len(killed) else None
            stored_by = None if call.finished is None else call.finished + IN_FLIGHT_S + late_s
            open_at_end = end is not None and (stored_by is None or stored_by > end)
            in_flight += open_at_end
            if number < len(group) and not open_at_end:
                late = f"{end - call.finished:.2f} s" if end and call.finished else "long"
                faults.append(f"{name} was repeated, {late} after it was answered")
    return repeated, in_flight, faults


def _check_budget(row: Row, stage: Stage, runs: Iterable[str]) -> None:
    budgets = [found for run in runs if (found := stage.books.budget(run))]
    paid = [call for call in stage.watch.calls if call.finished]
    least = sum(cost_nanousd(c.model, Usage.of(c.usage)) or 0 for c in paid)
    spent = sum(spent for _, spent, _ in budgets)
    row.spent_usd += spent / NANOUSD_PER_USD
    if least > spent:
        row.faults.append(f"budget: spent {spent}, least {least}")
    for cap, spent, reserved in budgets:
        if spent > cap or reserved or cap != round(CAP_USD * NANOUSD_PER_USD):
            row.faults.append(f"budget: spent {spent}, reserved {reserved}, cap {cap}")


Staged = Callable[[Path, str | None], AbstractContextManager[Sequence[Stage]]]
"""Makes the stages to kill, in a folder and perhaps a Postgres database."""


def run_points(
    database: str, points: Iterable[Point], streams_refused: StreamsRefused | None = None
) -> Iterator[Row]:
    """Run the points with one workspace."""

    @contextmanager
    def one(folder: Path, url: str | None) -> Iterator[Sequence[Stage]]:
        with staged(folder, url, streams_refused) as stage:
            yield [stage]

    where = f"{database}, streams {streams_refused}" if streams_refused else database
    yield from _run(where, database, points, one)


def run_team_points(
    database: str, points: Iterable[Point], replicas: int = 1, dying: int = 1
) -> Iterator[Row]:
    """Run the points with two workspaces on so many processes, so many of which are killed."""

    @contextmanager
    def two(folder: Path, url: str | None) -> Iterator[Sequence[Stage]]:
        with two_staged(folder, url, replicas) as stages:
            stages[0].lives.kills_all = dying == replicas
            yield stages

    of = f" of {replicas}" if replicas > 1 else ""
    yield from _run(f"{database}, two teams, {dying}{of} killed", database, points, two)


def _run(where: str, database: str, points: Iterable[Point], make: Staged) -> Iterator[Row]:
    """Yield row after row; after a failed one, keep its log and start a new stage."""
    remaining = list(points)
    while remaining:
        with ExitStack() as stack:
            url = stack.enter_context(own_database()) if database == "postgres" else None
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="kills-")))
            stages = stack.enter_context(make(folder, url))
            while remaining:
                row = run_point(where, remaining.pop(0), *stages)
                if row.faults:
                    row.faults.append(f"log: {kept(stages[0], row)}")
                yield row
                if row.faults:
                    break


def kept(stage: Stage, row: Row) -> Path:
    """Keep the bot's log and the traffic, for debugging."""
    folder = Path(os.environ.get("TMPDIR") or "/tmp") / "kill-matrix"
    folder.mkdir(exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in f"{row.where} {row.point.name}")
    passed = "\n".join(f"{at:.3f} {what} {phase}" for at, what, phase in stage.watch.log)
    path = folder / f"{name}.log"
    path.write_text(f"{stage.said()}\n\n{passed}\n")
    return path


def chosen(
    short: bool,
    database: str,
    only: str | None = None,
    streams_refused: StreamsRefused | None = None,
) -> list[Point]:
    """Return the points for this database and this Slack."""
    found = [
        point
        for point in points(EDITED if streams_refused else STREAMED)
        if re.search(only or "", point.name)
    ]
    names = (SHORT_REFUSED if streams_refused else SHORT_FORM)[database]
    return [point for point in found if not short or point.name in names]


def matrix(
    databases: Sequence[str], streams: Sequence[str], short: bool, only: str | None
) -> Iterator[Row]:
    for database in databases:
        for refused in map(STREAMS.__getitem__, streams):
            yield from run_points(database, chosen(short, database, only, refused), refused)


def team_matrix(databases: Sequence[str]) -> Iterator[Row]:
    """Run two workspaces on one process, and on two replicas, one or both of which are killed."""
    for database in databases:
        yield from run_team_points(database, named(SHORT[database]))
        for dying in (1, 2) if database == "postgres" else ():
            yield from run_team_points(database, named(OF_REPLICAS), 2, dying)


def main() -> int:
    """Print a line as each point is done, then the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="the points that CI runs")
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument(
        "--streams", choices=("all", *STREAMS), default="all", help="what Slack does with streams"
    )
    parser.add_argument("--only", help="points whose name holds this (a regular expression)")
    parser.add_argument("--teams", action="store_true", help="two workspaces, in the short form")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the bot and removes our files
    databases = ["sqlite", "postgres"] if options.database == "both" else [options.database]
    streams = list(STREAMS) if options.streams == "all" else [options.streams]
    rows = []
    of_teams = team_matrix(databases)
    of_one = matrix(databases, streams, options.short, options.only)
    try:
        for row in of_teams if options.teams else of_one:
            rows.append(row)
            print(" ".join(row.cells()), *row.faults, sep="\n    ", file=sys.stderr, flush=True)
    except pytest.skip.Exception as why:
        sys.exit(f"{why}: set TEST_DATABASE_URL, or take --database sqlite")
    print(columns(HEAD, [row.cells() for row in rows]))
    failed = [row for row in rows if row.faults]
    for row in failed:
        print(f"{row.where}: {row.point.name}", *row.faults, sep="\n    ")
    print(f"{len(rows)} points, {len(failed)} failed")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
