"""Requests are stored, taken and started once, also after failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from engine_kit import say, scripted_parent, turns, until
from pg_kit import StorePlace
from serve_kit import ASKER, Served, echo, mention, serve
from timing import WAIT_S

from bot.errors import StoreError
from bot.requests.handler import RequestWorker
from bot.runs.store import Store
from bot.storage.budget import StoredBudget
from bot.storage.requests import (
    SCHEDULE_KIND,
    IncomingMessage,
    MessageEdited,
    RequestQueue,
    StoredRequest,
)
from bot.storage.tables import inbox as table
from bot.storage.tables import reservations
from subagents.budget import Amount, Caps

NOW = datetime(2099, 1, 1, tzinfo=UTC)
"""Later than anything that a test stores."""


def incoming_request(
    ts: str, thread: str = "", channel: str = "C1", **event: Any
) -> IncomingMessage:
    payload = {"type": "app_mention", "text": f"text of {ts}", **event}
    return IncomingMessage("T1", channel, ts, thread or ts, "U1", "mention", payload)


@asynccontextmanager
async def inboxes(place: StorePlace, count: int = 1) -> AsyncIterator[list[RequestQueue]]:
    async with place.stores(count) as stores:
        yield [RequestQueue(store.database) for store in stores]


async def add_requests(inbox: RequestQueue, *requests: IncomingMessage) -> None:
    for request in requests:
        assert await inbox.add(request)


async def rows(store: Store, of: sa.Table) -> int:
    count = sa.select(sa.func.count().label("n")).select_from(of)
    return int((await store.database.read(count))[0].n)


async def test_edit_or_deletion_after_work_began_does_not_change_the_request(
    place: StorePlace,
) -> None:
    async with inboxes(place) as (inbox,):
        await add_requests(inbox, incoming_request("1.0"))
        await inbox.take(9, NOW)
        for text in ("too late", None):
            await inbox.amend(MessageEdited("T1", "C1", "1.0", text))
            (request,) = await inbox.at_work()
            assert request.text == "text of 1.0"


async def test_requests_are_taken_in_arrival_order_up_to_the_free_slots(place: StorePlace) -> None:
    async with inboxes(place) as (inbox,):
        await add_requests(inbox, *(incoming_request(f"{n}.0") for n in (5, 3, 9, 1)))
        batches = [await inbox.take(free, NOW) for free in (0, 3, 9)]
        order = [[request.ts for request in each] for each in batches]
        assert order == [[], ["5.0", "3.0", "9.0"], ["1.0"]]


async def test_concurrent_replicas_never_take_the_same_request_or_thread(
    place: StorePlace,
) -> None:
    async with inboxes(place, 3) as replicas:
        await add_requests(
            replicas[0], *(incoming_request(f"{n:02}.0", thread=f"{n // 4}.0") for n in range(40))
        )
        taken: list[StoredRequest] = []
        takers: set[RequestQueue] = set()

        async def taker(inbox: RequestQueue) -> None:
            for _ in range(40):
                mine = await inbox.take(2, NOW)
                at_work = await inbox.at_work()
                threads = [r.thread_ts for r in at_work]
                assert len(threads) == len(set(threads))
                takers.update([inbox] * bool(mine))
                for request in mine:
                    taken.append(request)
                    await inbox.finish(request.key, "done")
                if not await inbox.count_waiting():
                    return

        await asyncio.gather(*map(taker, replicas))

        assert sorted(float(r.ts) for r in taken) == [float(n) for n in range(40)]
        assert takers == {*replicas}
        for thread in {r.thread_ts for r in taken}:
            order = [float(r.ts) for r in taken if r.thread_ts == thread]
            assert order == sorted(order), "requests of a thread are taken in order"


async def test_postponed_request_leaves_no_reservations(place: StorePlace) -> None:
    async with place.stores(1) as (store,):
        inbox = RequestQueue(store.database)
        await add_requests(inbox, incoming_request("1.0"))
        (request,) = await inbox.take(1, NOW)
        assert request.run
        await store.start_run(request.run, "mention", "?", "m", {})
        amounts = dict.fromkeys(("nanousd", "tokens", "steps"), 1)
        row = {"run": request.run, "key": "k", "owner": "me", "state": "held", **amounts}
        await store.database.write(store.database.insert(reservations).values(row))

        await inbox.postpone(request.key, NOW, None)

        assert await rows(store, reservations) == 0


async def test_only_finished_requests_are_forgotten(place: StorePlace) -> None:
    async with place.stores(1) as (store,):
        inbox = RequestQueue(store.database)
        await add_requests(inbox, *(incoming_request(f"{n}.0") for n in range(4)))
        for n, state in enumerate(("done", "ignored", "failed")):
            await inbox.finish(f"T1/C1/{n}.0", state)

        assert await inbox.forget(datetime.now(UTC) - timedelta(days=7)) == 0
        assert await inbox.forget(NOW) == 3
        assert await rows(store, table) == 1
        assert await inbox.count_waiting() == 1


async def test_spending_counts_paid_reserved_and_still_allowed_amounts(place: StorePlace) -> None:
    async with place.stores(1) as (store,):
        inbox = RequestQueue(store.database)
        clock = asyncio.get_running_loop().time
        for run, user, kind, request in (
            ("r1", "U1", "mention", "r1"),
            ("r2", "U1", "mention", "r2"),
            ("r3", "U2", "mention", "r3"),
            ("r4", "U1", SCHEDULE_KIND, None),
        ):
            await store.start_run(run, kind, "?", "m", {}, requester=user, request=request)
            caps = Caps(10**9, 10**6, 10, 60.0)
            budget = await StoredBudget.open(store.database, run, caps, clock, "me")
            await budget.reserve("a", Amount(200_000_000, 10, 1))
            await budget.settle("a", Amount(100_000_000, 10, 1))
            await budget.reserve("b", Amount(300_000_000, 10, 1))
        await store.finish_run("r2", "complete", cost_usd=0.05)
        hour_ago = datetime.now(UTC) - timedelta(hours=1)

        assert await inbox.spending("U1", hour_ago) == pytest.approx((0.45, 0.6))
        assert await inbox.spending(None, hour_ago) == pytest.approx((1.25, 1.8))
        assert await inbox.spending("U1", NOW) == (0.0, 0.0)
        assert [r.id for r in await inbox.recent("U1")] == ["r2", "r1"]


FINE = turns(say("Fine."))


async def idle(bot: Served) -> RequestWorker:
    """Stop the worker from taking requests; return it."""
    dispatch = bot.bench.dispatch
    assert await dispatch.drain(WAIT_S)
    return dispatch


def post_message(bot: Served, text: str = "Hello?") -> IncomingMessage:
    """Post a message in Slack; return it as another replica would store it."""
    ts = bot.slack.people.say("U0LUIS", bot.channel, text)
    event = {"type": "app_mention", "text": mention(text), "channel": bot.channel, "ts": ts}
    return IncomingMessage(
        "T0ACME", bot.channel, ts, ts, ASKER, "mention", {**event, "user": ASKER}
    )


async def state(bot: Served, ts: str) -> str:
    request = await bot.inbox.request(f"T0ACME/{bot.channel}/{ts}")
    return request.state if request else "unknown"


async def test_concurrent_requests_stay_within_max_requests(tmp_path: Path) -> None:
    model, most = scripted_parent(echo), 0
    async with serve(tmp_path, model, latency_s=0.2, serve={"max_requests": 4}) as bot:
        questions = {bot.ask(f"Question {n}?"): f"Question {n}?" for n in range(12)}

        def done() -> bool:
            nonlocal most
            most = max(most, len(bot.bench.dispatch.at_work))
            return all(any(m.metadata for m in bot.replies(ts)) for ts in questions)

        await until(done, 30)
        for ts, text in questions.items():
            assert text in (await bot.answer(ts)).text
    assert most == 4


# ---- failures


async def test_request_is_started_after_the_response_to_taking_it_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, losses = RequestQueue.take, [StoreError("here", "was lost", "Find it.")]

    async def lossy_take(queue: RequestQueue, *args: Any) -> list[StoredRequest]:
        taken = await take(queue, *args)
        if taken and losses:
            raise losses.pop()
        return list(taken)

    monkeypatch.setattr(RequestQueue, "take", lossy_take)
    async with serve(tmp_path, FINE) as bot:
        assert (await bot.answer(bot.ask("Hello?"))).text.startswith("Fine.")
    assert losses == []
    assert "was lost" in caplog.text


async def test_request_whose_replica_died_before_it_began_is_begun_by_another(
    postgres: StorePlace,
) -> None:
    async with serve(postgres.path, FINE, url=postgres.url) as bot:
        dispatch = await idle(bot)
        request = post_message(bot)
        assert await bot.inbox.add(request)
        await bot.inbox.take(9, datetime.now(UTC))  # by a replica that dies now
        dispatch.at_work.add("done elsewhere")
        await dispatch.recover()
        assert "done elsewhere" not in dispatch.at_work
        await asyncio.gather(*(dispatch.recover() for _ in range(3)))

        assert (await bot.answer(request.ts)).text.startswith("Fine.")
        assert len(bot.replies(request.ts)) == 1
        await until(lambda: not dispatch.at_work)


async def test_request_whose_run_cannot_be_opened_fails_with_a_reply(tmp_path: Path) -> None:
    async with serve(tmp_path, FINE) as bot:
        dispatch = await idle(bot)
        request = post_message(bot)
        assert await bot.inbox.add(request)
        (taken,) = await bot.inbox.take(9, datetime.now(UTC))
        assert taken.run
        await bot.store.start_run(taken.run, "mention", "?", "m", {"limits": "nonsense"})
        await dispatch.recover()
        reply = await bot.answer(request.ts)

        assert taken.run in reply.text
        assert await state(bot, request.ts) == "failed"
        assert dispatch.at_work == set()
