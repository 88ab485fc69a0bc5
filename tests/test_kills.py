"""The short kill matrix: a process that is killed at any point leaves one good answer.

`make kill-matrix` runs the whole matrix.
"""

from __future__ import annotations

import pytest
from standins.slack_faults import StreamsRefused

from benchmarks.kill_teams import OF_REPLICAS, SHORT, named
from benchmarks.kill_watch import Call
from benchmarks.kills import (
    REFUSALS,
    chosen,
    repeats,
    run_points,
    run_team_points,
)

pytestmark = pytest.mark.system


@pytest.mark.timeout(600)
@pytest.mark.parametrize("refused", [None, *REFUSALS])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_killed_request_ends_in_one_complete_answer_without_paying_twice(
    database: str, refused: StreamsRefused | None
) -> None:
    these = chosen(True, database, streams_refused=refused)
    assert these
    rows = list(run_points(database, these, refused))
    assert {row.point.name: row.faults for row in rows} == {p.name: [] for p in these}
    for row in rows:
        wanted = len(row.scenario.messages), sum(row.scenario.subagents()), 0
        assert (row.answers, row.items, row.leaks) == wanted


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("database", "replicas", "dying"),
    [("sqlite", 1, 1), ("postgres", 1, 1), ("postgres", 2, 1), ("postgres", 2, 2)],
)
def test_two_workspaces_get_each_answer_once_from_their_own_data(
    database: str, replicas: int, dying: int
) -> None:
    names = OF_REPLICAS if replicas > 1 else SHORT[database]
    these = named(names)
    assert len(these) == len(names)
    rows = list(run_team_points(database, these, replicas, dying))
    assert {row.point.name: row.faults for row in rows} == {p.name: [] for p in these}
    for row in rows:
        wanted = 2 * len(row.scenario.messages), 2 * sum(row.scenario.subagents()), 0
        assert (row.answers, row.items, row.leaks) == wanted


def call(name: str, life: int, finished: float | None, body: bytes = b"{}") -> Call:
    return Call(name, body, "m", life, 0.0, finished)


def test_only_calls_in_flight_at_the_kill_may_be_repeated() -> None:
    killed = [10.0]
    lost = [call("child 1.1", 0, None), call("child 1.1", 1, 12.0)]
    fresh = [call("child 2.1", 0, 9.9), call("child 2.1", 1, 12.0)]
    stale = [call("child 3.1", 0, 9.0), call("child 3.1", 1, 12.0)]
    assert repeats([*lost, *fresh], killed) == (2, 2, [])
    repeated, in_flight, faults = repeats(stale, killed)
    assert (repeated, in_flight) == (1, 0)
    assert faults == ["child 3.1 was repeated, 1.00 s after it was answered"]
    other = [*lost[:1], call("child 1.1", 1, 12.0, b"[]")]
    assert repeats(other, killed)[2] == ["child 1.1 was repeated with another request"]
