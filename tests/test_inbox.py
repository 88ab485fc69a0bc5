"""Requests are stored, taken and started once, also after failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
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
from bot.runs.worker import LOOK_EVERY_S
from bot.storage.budget import StoredBudget
from bot.storage.database import Database
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
async def inboxes(
    place: StorePlace, count: int = 1, *runs: str
) -> AsyncIterator[list[RequestQueue]]:
    async with place.stores(count, *runs) as stores:
        yield [RequestQueue(store.database) for store in stores]


async def add_requests(inbox: RequestQueue, *requests: IncomingMessage) -> None:
    for request in requests:
        assert await inbox.add(request)


async def rows(store: Store, of: sa.Table) -> int:
    count = sa.select(sa.func.count().label("n")).select_from(of)
    return int((await store.database.read(count))[0].n)


# ---- stored once


async def test_request_is_added_once_by_concurrent_replicas(place: StorePlace) -> None:
    async with inboxes(place, 2) as both:
        copies = [incoming_request("1.0", type="message"), incoming_request("1.0", event_ts="2")]
        results = await asyncio.gather(
            *(inbox.add(each) for _ in range(10) for inbox in both for each in copies)
        )

        assert sum(results) == 1
        assert await both[0].count_waiting() == 1


async def test_edit_or_deletion_after_work_began_does_not_change_the_request(
    place: StorePlace,
) -> None:
    async with inboxes(place) as (inbox,):
        await add_requests(inbox, incoming_request("1.0"))
        await inbox.take("me", 9, NOW)
        for text in ("too late", None):
            await inbox.amend(MessageEdited("T1", "C1", "1.0", text))
            (request,) = await inbox.at_work("me")
            assert request.text == "text of 1.0"


# ---- taken once


async def test_requests_are_taken_in_arrival_order_up_to_the_free_slots(place: StorePlace) -> None:
    async with inboxes(place) as (inbox,):
        await add_requests(inbox, *(incoming_request(f"{n}.0") for n in (5, 3, 9, 1)))
        batches = [await inbox.take("me", free, NOW) for free in (0, 3, 9)]
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

        async def taker(inbox: RequestQueue, name: str) -> None:
            for _ in range(40):
                mine = await inbox.take(name, 2, NOW)
                at_work = await inbox.at_work()
                threads = [r.thread_ts for r in at_work]
                assert len(threads) == len(set(threads))
                for request in mine:
                    taken.append(request)
                    await inbox.finish(request.key, "done")
                if not await inbox.count_waiting():
                    return

        names = [f"taker {n}" for n in range(len(replicas))]
        await asyncio.gather(*(taker(i, n) for i, n in zip(replicas, names, strict=True)))

        assert sorted(float(r.ts) for r in taken) == [float(n) for n in range(40)]
        assert len({r.owner for r in taken}) == len(replicas)
        for thread in {r.thread_ts for r in taken}:
            order = [float(r.ts) for r in taken if r.thread_ts == thread]
            assert len(order) == 4
            assert order == sorted(order), "requests of a thread are taken in order"


# ---- ended


async def test_postponed_request_leaves_no_reservations(place: StorePlace) -> None:
    async with place.stores(1) as (store,):
        inbox = RequestQueue(store.database)
        await add_requests(inbox, incoming_request("1.0"))
        (request,) = await inbox.take("me", 1, NOW)
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


# ---- cursors, flags, clicks


async def test_spending_counts_paid_reserved_and_still_allowed_amounts(place: StorePlace) -> None:
    async with place.stores(1) as (store,):
        inbox = RequestQueue(store.database)
        clock = asyncio.get_running_loop().time
        for run, user in (("r1", "U1"), ("r2", "U1"), ("r3", "U2"), ("r4", "U1")):
            kind = SCHEDULE_KIND if run == "r4" else "mention"
            request = None if run == "r4" else run
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


@pytest.fixture
def alone(tmp_path: Path) -> StorePlace:
    """Return the store of one bot that has no replicas."""
    return StorePlace(tmp_path, None)


@asynccontextmanager
async def served_bot(place: StorePlace, model: Any = FINE, **more: Any) -> AsyncIterator[Served]:
    async with serve(place.path, model, url=place.url, **more) as bot:
        yield bot


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


async def test_concurrent_requests_stay_within_max_requests(alone: StorePlace) -> None:
    most = 0
    async with served_bot(
        alone, scripted_parent(echo), latency_s=0.2, serve={"max_requests": 4}
    ) as bot:
        questions = {bot.ask(f"Question {n}?"): f"Question {n}?" for n in range(12)}

        def done() -> bool:
            nonlocal most
            most = max(most, len(bot.bench.dispatch.at_work))
            return all(any(m.metadata for m in bot.replies(ts)) for ts in questions)

        await until(done, 30)
        for ts, text in questions.items():
            assert text in (await bot.answer(ts)).text
        assert len(await bot.store.runs()) == 12

    assert most == 4


async def test_request_stored_by_another_replica_is_answered(postgres: StorePlace) -> None:
    async with served_bot(postgres) as bot, inboxes(postgres) as (other,):
        request = post_message(bot)
        assert await other.add(request)
        assert (await bot.answer(request.ts)).text.startswith("Fine.")


async def test_drain_finishes_running_requests_and_takes_no_new_ones(alone: StorePlace) -> None:
    async with served_bot(alone, latency_s=0.5) as bot:
        first = bot.ask("One?")
        await until(lambda: bot.bench.dispatch.at_work)
        draining = asyncio.create_task(bot.bench.dispatch.drain(WAIT_S))
        await asyncio.sleep(0)
        second = bot.ask("Two?")

        assert await draining
        assert bot.replies(first)[0].text.startswith("Fine.")
        await bot.wait_until_stored(second)
        await bot.bench.dispatch.look()
        assert await state(bot, second) == "new"


# ---- failures


class Lossy(Database):
    """A database that makes a change, and then loses the response."""

    def __init__(self, database: Database) -> None:
        self.where, self.shared, self._upserts = database.where, database.shared, {}
        self._whole, self.lost = database, 0

    async def read(self, query: Any) -> Sequence[sa.Row[Any]]:
        return await self._whole.read(query)

    async def change(self, work: Any) -> Any:
        found = await self._whole.change(work)
        if found and self.lost == 0:
            self.lost += 1
            raise StoreError("here", "was lost", "Find it.")
        return found


async def test_request_is_started_after_the_response_to_taking_it_was_lost(
    alone: StorePlace, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_bot(alone) as bot:
        real = await idle(bot)
        request = post_message(bot)
        assert await bot.inbox.add(request)
        lossy = Lossy(bot.store.database)
        other = RequestWorker(RequestQueue(lossy), real.durable, 4, real.runs)
        running = asyncio.create_task(other.run())
        reply = await bot.answer(request.ts)
        running.cancel()

        assert reply.text.startswith("Fine.")
        assert lossy.lost == 1
        assert "was lost" in caplog.text


async def test_request_claimed_by_another_replica_is_dropped_and_can_return(
    postgres: StorePlace,
) -> None:
    async with served_bot(postgres, latency_s=3) as bot:
        dispatch, me = await idle(bot), bot.bench.durable.executor
        request = post_message(bot)
        assert await bot.inbox.add(request)
        await bot.inbox.take(me, 9, datetime.now(UTC))
        await dispatch.recover()
        assert dispatch.at_work == {request.key}
        await bot.inbox.claim(request.key, "another")
        await until(lambda: not dispatch.at_work, LOOK_EVERY_S + 5)
        await dispatch.mark_started(request.key)  # and it may come back

        assert dispatch.at_work == {request.key}
        (mine,) = await bot.inbox.at_work(me)
        assert mine.key == request.key
        assert (await bot.answer(request.ts)).text.startswith("Fine.")


async def test_request_whose_run_cannot_be_opened_fails_with_a_reply(alone: StorePlace) -> None:
    async with served_bot(alone) as bot:
        dispatch = await idle(bot)
        request = post_message(bot)
        assert await bot.inbox.add(request)
        (taken,) = await bot.inbox.take(bot.bench.durable.executor, 9, datetime.now(UTC))
        assert taken.run
        await bot.store.start_run(taken.run, "mention", "?", "m", {"limits": "nonsense"})
        await dispatch.recover()
        reply = await bot.answer(request.ts)

        assert taken.run in reply.text
        assert await state(bot, request.ts) == "failed"
        assert dispatch.at_work == set()
