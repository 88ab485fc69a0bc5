"""Spending never passes a cap, follows the price list, and leaves no context waiting for ever."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from engine_kit import (
    Json,
    LenientServer,
    always,
    ask_engine,
    brief_answer,
    call,
    channel_id,
    child,
    engine,
    list_price_nanousd,
    ran,
    results,
    run_agent,
    say,
    scripted_parent,
    settings_for,
    submit,
    turn,
    turns,
    until,
    use,
    workspace,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_kit import serve

from config.settings import load_settings
from subagents.budget import Amount, Budget, Caps
from subagents.errors import BudgetExceeded
from subagents.prices import Usage, cost_nanousd, worst_case

FIELDS = [f.name for f in fields(Amount)]


def budget() -> Budget:
    return Budget(Caps(100, 100, 100, 60.0), lambda: 100.0)


async def test_repeated_reservation_and_settlement_of_a_call_pay_nothing_twice() -> None:
    p = budget()
    await p.reserve("call", Amount(nanousd=60))
    for _ in range(2):
        await p.settle("call", Amount(nanousd=50))
    await p.reserve("call", Amount(nanousd=60))
    assert (p.spent, p.reserved) == (Amount(nanousd=50), Amount())


@pytest.mark.parametrize("what", FIELDS)
async def test_reservation_over_a_cap_is_refused_and_changes_nothing(what: str) -> None:
    p = budget()
    await p.keep("a", Amount(**{what: 60}))
    with pytest.raises(BudgetExceeded) as error:
        await p.reserve("b", Amount(**{what: 41}))

    refused = error.value
    assert (refused.what, refused.wanted, refused.spent, refused.limit) == (what, 41, 60, 100)
    assert p.reserved == Amount(**{what: 60})
    await p.reserve("b", Amount(**{what: 40}))


async def test_reserving_a_key_again_replaces_its_reservation() -> None:
    p = budget()
    for size in (80, 30, 100, 100, 10):
        await p.reserve("final", Amount(nanousd=size))
        assert p.reserved.nanousd == size
    with pytest.raises(BudgetExceeded):
        await p.reserve("final", Amount(nanousd=101))
    await p.reserve("call", Amount(nanousd=90))
    await p.settle("call", Amount(nanousd=95))  # a server that reports more than was possible
    await p.reserve("final", Amount(nanousd=8))
    assert p.reserved.nanousd == 8


# ---- waiting


async def start_hold(p: Budget, key: str, size: int, **more: Any) -> asyncio.Task[None]:
    """Start a task that asks for this; it has asked when this returns."""
    task = asyncio.create_task(p.hold({key: Amount(nanousd=size)}, **more))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_reservation_that_can_never_fit_is_refused_at_once() -> None:
    p = budget()
    await p.reserve("a", Amount(nanousd=80))
    await p.keep("parent", Amount(nanousd=20))
    with pytest.raises(BudgetExceeded):
        await p.hold({"b": Amount(nanousd=81)})
    c = await start_hold(p, "c", 80)
    await p.settle("a", Amount(nanousd=1))  # now it could not fit any more
    with pytest.raises(BudgetExceeded):
        await c


async def test_small_reservation_does_not_overtake_a_large_waiting_one() -> None:
    p = budget()
    await p.reserve("a", Amount(nanousd=60))
    large = await start_hold(p, "large", 90)
    small = await start_hold(p, "small", 10)
    assert not small.done()
    await p.settle("a", Amount())
    await large
    await p.settle("large", Amount())
    await small


async def test_running_context_gets_budget_before_a_new_one() -> None:
    p = budget()
    await p.reserve("a", Amount(nanousd=60))
    await p.hold({"s1/final": Amount(nanousd=20)})
    new = await start_hold(p, "new", 70)
    mine = await start_hold(p, "s1/0/1", 30, own_keys=["s1/final"])
    await p.settle("a", Amount(nanousd=10))
    await mine
    assert not new.done()
    await p.settle("s1/0/1", Amount())
    await p.settle("s1/final", Amount())
    await new


async def test_contexts_with_reserved_final_calls_do_not_deadlock() -> None:
    p = budget()
    for n in range(3):
        await p.hold({f"s{n}/final": Amount(nanousd=25)})
    waiting = [await start_hold(p, f"s{n}/0/1", 45, own_keys=[f"s{n}/final"]) for n in range(3)]
    assert [task.done() for task in waiting] == [False, False, True]
    with pytest.raises(BudgetExceeded):
        await waiting[2]
    await p.reserve("s2/final", Amount(nanousd=25))  # it makes its final call, and ends
    await p.settle("s2/final", Amount(nanousd=1))
    await waiting[0]
    assert not waiting[1].done()
    await p.settle("s0/0/1", Amount(nanousd=1))
    await p.settle("s0/final", Amount())
    await waiting[1]


async def test_cancelled_waiter_leaves_no_reservation_and_unblocks_the_next() -> None:
    p = budget()
    await p.reserve("a", Amount(nanousd=60))
    large, small = await start_hold(p, "large", 90), await start_hold(p, "small", 40)
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    await small
    assert p.reserved.nanousd == 100


# ---- prices

MODELS = load_settings(env={}).models
NAMES = (MODELS.main, MODELS.fast)
CLIFF = 100_000
"""Tokens of prompt above which the fast model's price is five times as high."""


@settings(max_examples=200, deadline=None, database=None)
@given(
    st.sampled_from(NAMES),
    st.integers(0, 300_000) | st.integers(CLIFF - 3, CLIFF + 3),
    st.integers(1, 64_000),
    st.data(),
)
def test_call_costs_the_list_price_and_no_more_than_its_worst_case(
    model: str, prompt: int, most: int, data: st.DataObject
) -> None:
    read = data.draw(st.integers(0, prompt))
    written = data.draw(st.integers(0, prompt - read))
    usage = Usage(prompt - read - written, data.draw(st.integers(0, most)), read, written)
    worst, cost = worst_case(model, prompt, most), cost_nanousd(model, usage)
    counts = {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    }
    assert cost is not None
    assert abs(cost - list_price_nanousd(model, counts)) <= 1  # a nanodollar of rounding
    assert cost <= worst.nanousd
    assert usage.total <= worst.tokens
    assert worst.steps == 1


def test_worst_case_counts_the_prompt_of_a_model_without_cache_prices() -> None:
    model, bedrock = "regional.anthropic.claude-3-haiku-20240307-v1:0", "bedrock"
    cost = cost_nanousd(model, Usage(1000, 500), bedrock)
    assert cost == 1000 * 250 + 500 * 1250
    assert worst_case(model, 1000, 500, bedrock).nanousd == cost


async def test_token_cap_applies_to_a_model_without_a_price() -> None:
    models = {"fast": "llama-of-the-house", "strict_tools": False}
    server = LenientServer(lambda body: [{**use("look", word="tea"), "id": f"t{turn(body)}"}])
    limits = {"tokens": 50_000, "cost_usd": 0.0}

    e, agent, ending = await ran(turns(), settings_for(limits, models), lax=server)

    assert (ending.stopped_by, agent.cost_usd) == ("tokens", None)
    assert 0 < e.run.budget.spent.tokens <= 50_000
    assert agent.usage.total == e.run.budget.spent.tokens


# ---- many under one cap

SHIPPED = load_settings(env={}).limits


async def test_subagents_on_main_all_complete_within_the_shipped_cap(tmp_path: Path) -> None:
    count = 64
    template = {
        "task": "Find out what is open in {item}",
        "description": "Read {item}",
        "scope": "slack",
        "model_preference": "main",
    }
    items = [channel_id(n) for n in range(1, count + 1)]
    delegating = call("run_subagents", items=items, template=template)
    responder = scripted_parent(call("list_channels"), delegating, say("All are read [F1.1]."))
    limits = {"cost_usd": SHIPPED.cost_usd, "seconds": SHIPPED.seconds}
    async with serve(tmp_path, responder, space=workspace(count), limits=limits) as bot:
        await bot.answer(bot.ask("What is open?"), seconds=120)
        (run,) = await bot.store.runs(10)
        stored = (await bot.store.run(run.id)).result
        assert stored
        ends = Counter(f"{s['status']} {s['stopped_by']}" for s in stored["subagents"])
        assert ends == {"complete none": count}, f"{ends} for ${stored['cost_usd']:.2f}"
        assert stored["status"] == "complete"
        assert stored["cost_usd"] <= SHIPPED.cost_usd


async def test_subagents_waiting_for_budget_use_no_rate_limit_slot_and_can_be_stopped() -> None:
    """Two calls fit at a time, and room for one more; the others wait outside the rate limiter."""

    settings = settings_for({"cost_usd": 0.6, "seconds": 60.0})
    async with engine(child, settings, faults=always("slow")) as e:
        briefs = [e.brief(f"Read {n}", 1, model_preference="main") for n in range(8)]
        task = asyncio.create_task(e.fanout().run_all(briefs))
        await until(lambda: len(e.requests) == 2)
        limit = e.run.rate_limiter.limit(e.settings.models.main)
        await asyncio.sleep(0.2)
        assert (len(e.requests), limit.in_flight) == (2, 2)
        e.run.stop.set()
        endings = await task
        assert {r.status for r in endings} == {"cancelled"}
        assert e.run.budget.reserved.nanousd == 0


# ---- odd usage reports, and too little money


async def test_negative_token_count_does_not_reduce_the_total() -> None:
    usage = {"input_tokens": 20_000, "cache_read_input_tokens": -19_000, "output_tokens": 9}
    server = LenientServer(lambda body: [{**submit("Done."), "id": "t1"}], {"usage": usage})
    async with engine(turns(), lax=server) as e:
        await run_agent(e.agent())
        assert e.run.budget.spent.tokens == 20_009


async def test_thinking_is_counted_in_the_next_prompt_estimate() -> None:
    thought: Json = {"type": "thinking", "thinking": "Well.", "signature": "x" * 24_000}
    estimates: list[int] = []
    reported: list[int] = []

    def content(body: Json) -> list[Json]:
        estimates.append(agent.talk.prompt_tokens)
        reported.append(-(-len(json.dumps(body)) // 3))
        if turn(body) == 4:
            return [{**submit("Thought."), "id": "t9"}]
        return [thought, {**use("look", word="tea"), "id": f"t{turn(body)}"}]

    async with engine(turns(), lax=LenientServer(content)) as e:
        agent = e.agent()
        await run_agent(agent)
    assert len(reported) == 5
    assert reported[-1] > 4 * 8_000
    for estimate, actual in zip(estimates[1:], reported[1:], strict=True):
        assert estimate >= actual - 150  # the JSON round the blocks of one turn


async def test_delegation_that_leaves_no_budget_for_the_answer_is_refused(tmp_path: Path) -> None:
    """The call that reads what subagents return must stay affordable before any is started."""
    settings = settings_for({"cost_usd": 0.06}, roles={"parent": {"max_tokens": 1_000}})
    script = scripted_parent(brief_answer(1), say("There is no money to read for this."))
    got = await ask_engine(script, tmp_path, settings)

    assert got.children == []
    assert [r["content"] for r in results(got.parent[1])] == ["Not run: limit reached."]
    assert got.document["stopped_by"] == "cost"
    assert got.document["answer"].startswith("There is no money to read for this.")
