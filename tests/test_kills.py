"""The short kill matrix: a process that is killed at any point leaves one good answer.

`make kill-matrix` runs the whole matrix.
"""

from __future__ import annotations

import pytest
from standins.slack_faults import StreamsRefused
from starlette.types import Receive, Scope, Send

from benchmarks.kill_points import EDITED, STREAMED, Calls, points
from benchmarks.kill_scenarios import SCENARIOS
from benchmarks.kill_teams import OF_REPLICAS, SHORT, named
from benchmarks.kill_watch import Call, Phase, Watch
from benchmarks.kills import (
    REFUSALS,
    chosen,
    is_taken_back,
    postgres,
    repeats,
    run_points,
    run_team_points,
)

pytestmark = pytest.mark.system


def server_of(database: str) -> str | None:
    """Return the address of Postgres, None for SQLite; skip the test where no Postgres answers."""
    if database == "sqlite":
        return None
    return postgres() or pytest.skip("no Postgres answers: set TEST_DATABASE_URL")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("refused", [None, *REFUSALS])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_killed_request_ends_in_one_complete_answer_without_paying_twice(
    database: str, refused: StreamsRefused | None
) -> None:
    server = server_of(database)
    these = chosen(True, database, streams_refused=refused)
    rows = list(run_points(database, server, these, refused))
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
    server = server_of(database)
    these = named(OF_REPLICAS if replicas > 1 else SHORT[database])
    rows = list(run_team_points(database, server, these, replicas, dying))
    assert {row.point.name: row.faults for row in rows} == {p.name: [] for p in these}
    for row in rows:
        wanted = 2 * len(row.scenario.messages), 2 * sum(row.scenario.subagents()), 0
        assert (row.answers, row.items, row.leaks) == wanted


TWO = ("", "choice")
"""Scenarios in which it matters how a reply is written."""


@pytest.mark.parametrize("calls", [STREAMED, EDITED])
def test_kill_matrix_has_enough_points_and_all_scenarios(calls: Calls) -> None:
    names = [point.name for point in points(calls)]
    assert len(names) == len(set(names)) >= 25
    assert {p.scenario for p in points(calls)} == set(SCENARIOS if calls is STREAMED else TWO)
    assert sum(len(point.kills) > 1 for point in points(calls)) >= 3


def test_short_kill_matrix_has_the_expected_number_of_points() -> None:
    databases = ("sqlite", "postgres")
    assert [len(chosen(True, d)) for d in databases] == [8, 2]
    assert [len(chosen(True, d, None, "404")) for d in databases] == [2, 1]
    of_teams = (*SHORT.values(), OF_REPLICAS)
    assert [len(named(names)) for names in of_teams] == list(map(len, of_teams)) == [8, 3, 3]


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


def test_call_repeated_without_a_kill_or_with_another_request_is_a_fault() -> None:
    again = [call("parent 1", 0, 9.0), call("parent 1", 0, 9.5)]
    assert repeats(again, [])[2] == ["parent 1 was repeated, long after it was answered"]
    other = [call("parent 1", 0, None), call("parent 1", 1, 12.0, b"[]")]
    assert repeats(other, [10.0])[2] == ["parent 1 was repeated with another request"]


def test_progress_posted_over_a_finished_answer_is_detected() -> None:
    def finished_writes(*names: str) -> list[tuple[float, str, str]]:
        return [(0.0, name, "done") for name in names]

    assert is_taken_back(
        finished_writes("chat.update final", "chat.update plan", "chat.update final")
    )
    assert not is_taken_back(finished_writes("chat.update text", "chat.update final"))
    assert not is_taken_back(finished_writes("chat.update text"))
    another = ("chat.update final", "chat.startStream", "chat.update plan")
    assert not is_taken_back(finished_writes(*another))


async def test_late_calls_of_a_killed_process_trigger_no_kill_after_restart() -> None:
    seen: list[tuple[str, Phase]] = []

    def moment(name: str, phase: Phase) -> bool:
        seen.append((name, phase))
        return False

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: object) -> None:
        """Ignore the response."""

    watch = Watch(moment, is_starting=True)
    for method in ("chat.update", "auth.test", "users.info"):
        scope = {"type": "http", "path": f"/api/{method}"}
        await watch.slack(app)(scope, receive, send)
    assert [name for name, phase in seen if phase == "asked"] == ["auth.test", "users.info"]
    assert watch.life == 1
