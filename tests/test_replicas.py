"""Two replicas over one database answer once, share limits, and take over where one dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_kit import (
    brief,
    brief_answer,
    is_child,
    say,
    scripted_parent,
    until,
)
from engine_kit import workspace as small_workspace
from fleet_kit import Fleet, at_work_first, fleet
from pg_kit import StorePlace, execute
from standins.model_faults import Fault, Faults
from timing import Patience

from bot.local.model.answer import Answer
from bot.local.model.server import Responder

pytestmark = pytest.mark.system


def fan_out_model(count: int) -> Responder:
    """A parent that starts so many subagents in one turn, and then answers."""
    briefs = [brief(n) for n in range(2, count + 2)]
    return scripted_parent(Answer(briefs), say("All of it is **open** [F1.1]."))


def all_of(count: int) -> str:
    return "What is open in " + ", ".join(f"#support-{n}" for n in range(2, count + 2)) + "?"


STOPPED = "Stopped after 0 of 12 questions; 12 were not looked at."


def statuses(url: str) -> list[str]:
    return [row[0] for row in execute("SELECT status FROM assistant.subagents", url)]


def unfinished(url: str) -> list[tuple[str, ...]]:
    """Requests, workflows and reservations that have not ended."""
    queries = (
        "SELECT key, state FROM assistant.inbox WHERE state NOT IN ('done', 'ignored', 'failed')",
        "SELECT run, key FROM assistant.reservations",
        "SELECT workflow_uuid, status FROM dbos.workflow_status WHERE status <> 'SUCCESS'",
        "SELECT run, reserved_tokens::text FROM assistant.budgets WHERE reserved_tokens <> 0",
    )
    return [row for query in queries for row in execute(query, url)]


async def wait_until_settled(url: str) -> None:
    patience = Patience(5)
    while rows := unfinished(url):
        assert not patience.over, rows
        await asyncio.sleep(0.05)


def assert_no_crash(bots: Fleet) -> None:
    assert [line for bot in bots.bots for line in bot.tracebacks()] == []


async def test_event_sent_five_times_to_both_replicas_gets_one_answer(
    postgres: StorePlace, tmp_path: Path
) -> None:
    assert postgres.url
    model = scripted_parent(brief_answer(2), say("It is **open** [F1.1]."))
    with fleet(tmp_path, model, url=postgres.url) as bots:
        await bots.start_bots(2)
        bots.balancer.times = 5
        threads = [bots.ask(f"What is open in #support-2, {n}?") for n in range(3)]
        for thread in threads:
            assert "It is **open**" in (await bots.answer(thread)).text
        await wait_until_settled(postgres.url)

        assert len(bots.balancer.acks) >= 3 * 2 * 10  # each mention comes as two events
        assert set(bots.balancer.acks) == {200}
        assert len(bots.model.recorded) == 3 * 4
        assert execute("SELECT count(*) FROM assistant.runs", postgres.url) == [(3,)]
        assert_no_crash(bots)


@pytest.mark.parametrize("count", [12, pytest.param(50, marks=pytest.mark.slow)])
async def test_other_replica_finishes_the_work_of_a_killed_one(
    postgres: StorePlace, tmp_path: Path, count: int
) -> None:
    assert postgres.url
    limits = {"max_concurrency": 8, "max_subagents": 100, "cost_usd": 50.0}
    space = small_workspace(count + 1)
    with fleet(
        tmp_path,
        fan_out_model(count),
        url=postgres.url,
        space=space,
        latency_s=0.3,
        limits=limits,
    ) as bots:
        await bots.start_bots(2)
        thread = bots.ask(all_of(count))
        await until(lambda: len(bots.calls(of_children=True)) >= count, 20)
        first, _ = await at_work_first(bots)
        first.kill()
        calls = len(bots.model.recorded)
        stored = execute("SELECT key FROM assistant.steps WHERE key LIKE '%/model'", postgres.url)
        await until(lambda: bots.is_whole(thread), 60)
        shown = await bots.answer(thread)

        assert "All of it is **open**" in shown.text
        assert statuses(postgres.url) == ["complete"] * count
        assert bots.count_repeated_calls() <= calls - len(stored), (
            "stored answers are not requested again"
        )
        await wait_until_settled(postgres.url)
        assert_no_crash(bots)


@pytest.mark.parametrize("count", [16, pytest.param(50, marks=pytest.mark.slow)])
async def test_replicas_share_the_work_and_its_concurrency_limit(
    postgres: StorePlace, tmp_path: Path, count: int
) -> None:
    assert postgres.url
    limits = {"max_concurrency": 5, "max_subagents": 100, "cost_usd": 50.0}
    space = small_workspace(count + 1)
    with fleet(
        tmp_path, fan_out_model(count), url=postgres.url, space=space, latency_s=0.2, limits=limits
    ) as bots:
        await bots.start_bots(2)
        for number in range(1, 7):  # at times one replica takes all of it
            await bots.answer(bots.ask(all_of(count)), 60)
            workers = execute(
                "SELECT executor_id, count(*) FROM dbos.workflow_status WHERE name = 'subagent'"
                " GROUP BY executor_id",
                postgres.url,
            )
            assert sum(n for _, n in workers) == number * count
            if len(workers) == 2:
                break

        assert bots.model.in_flight_max <= 5
        assert bots.model.in_flight_max >= 4
        assert len(workers) == 2
        assert bots.count_repeated_calls() == 0
        assert_no_crash(bots)


async def test_stop_on_one_replica_ends_work_on_the_other(
    postgres: StorePlace, tmp_path: Path
) -> None:
    assert postgres.url
    limits = {"max_concurrency": 6, "max_subagents": 100, "cost_usd": 50.0}
    silent = Faults(lambda index, body: Fault("slow") if is_child(body) else None)
    with fleet(
        tmp_path,
        fan_out_model(12),
        url=postgres.url,
        space=small_workspace(13),
        faults=silent,
        limits=limits,
        models={"timeout_s": 300.0},
    ) as bots:
        await bots.start_bots(2)
        thread = bots.ask(all_of(12))
        await until(lambda: len(bots.calls(of_children=True)) >= 6, 20)
        _, second = await at_work_first(bots)
        bots.balancer.targets = [second.url]
        bots.slack.people.stop("U0ANA", bots.channel, thread)
        await until(lambda: any(STOPPED in m.text for m in bots.replies(thread)))
        calls = len(bots.model.recorded)
        shown = await bots.answer(thread)
        await wait_until_settled(postgres.url)

        assert STOPPED in shown.text
        assert len(bots.model.recorded) == calls <= 7
        assert set(statuses(postgres.url)) == {"cancelled"}
        assert_no_crash(bots)
