"""The model client: what it sends, retries, pays for and records."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest
from engine_kit import Engine, Json, always, call, engine, say, settings_for, turns, until, words
from standins.model_faults import ANSWER_KINDS, KINDS, STATUS_KINDS, WIRE_KINDS, Fault, Faults

from subagents.budget import Budget, Caps
from subagents.conversation import Spec
from subagents.errors import BudgetExceeded, ModelFailed, ModelMisconfigured
from subagents.model import ModelCall, ModelReply

TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {}}}


def a_call(e: Engine, **fields: Any) -> ModelCall:
    spec: Json = {
        "run": e.run.id,
        "context": "s1",
        "role": "subagent_fast",
        "system": [words("Be brief.")],
        "tools": [TOOL],
        "opening": [],
        "max_steps": 1,
        "context_limit": 10_000,
        "seconds": 60.0,
    }
    call: Json = {"messages": [{"role": "user", "content": [words("Hello.")]}], "seq": 0}
    own = fields.keys() & {each.name for each in dataclasses.fields(ModelCall)}
    call |= {name: fields.pop(name) for name in own}
    return ModelCall(Spec(**{**spec, **fields}), prompt_tokens=200, **call)


async def complete(e: Engine, **fields: Any) -> ModelReply:
    return await e.run.model.complete(a_call(e, **fields), e.run)


# ---- what is sent


async def test_compatible_server_gets_only_standard_fields() -> None:
    models = {"cache": False, "strict_tools": False}
    roles = {"subagent_fast": {"effort": None, "thinking": None}}
    async with engine(turns(say("Hi.")), settings_for(models=models, roles=roles)) as e:
        await complete(e, effort="high")
    assert e.requests[0].keys() == {"model", "max_tokens", "system", "messages", "tools"}
    assert "cache_control" not in json.dumps(e.requests[0])


async def test_shared_prefix_is_marked_for_caching_and_read_from_the_cache() -> None:
    system = [words("All siblings share these words. " * 200)]
    async with engine(turns(say("Hi."))) as e:
        for n in range(2):
            messages = [{"role": "user", "content": [words(f"Question {n}.")]}]
            reply = await complete(e, context=f"s{n}", system=system, messages=messages)

    assert e.requests[0]["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert e.requests[0]["cache_control"] == {"type": "ephemeral"}
    assert reply.usage.cache_read > 2000
    assert reply.usage.input + reply.usage.cache_write < 100
    assert "cache_control" not in json.dumps(system)


# ---- retries

LOST = {*WIRE_KINDS, "drop"} - {"sse_error"}
"""A reply may have been on its way."""
RETRIED = [k for k in KINDS if k not in ANSWER_KINDS and k != "slow"]


async def each(kinds: Iterable[str], probe: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """Probe all kinds of fault concurrently, since most of the time goes into waits."""
    async with asyncio.TaskGroup() as group:
        for kind in kinds:
            group.create_task(probe(kind), name=kind)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
async def test_temporary_fault_is_retried(streams: bool) -> None:
    async def probe(kind: str) -> None:
        texts: list[str] = []
        faults = Faults([Fault(kind, retry_after=0)])
        async with engine(turns(say("All is well. " * 20)), faults=faults) as e:
            reply = await complete(e, on_text=texts.append if streams else None)

        assert not streams or "".join(texts).endswith("All is well. " * 20), kind
        assert reply.content[0]["text"] == "All is well. " * 20, kind
        assert reply.attempts == 2
        assert e.requests[0] == e.requests[1]
        assert e.run.budget.spent.nanousd >= e.cost_nanousd()
        assert reply.cost_usd
        paid = round(reply.cost_usd * 10**9) * (2 if kind in LOST else 1)
        assert e.run.budget.spent.nanousd >= paid, f"{kind}: a lost reply may have been paid for"
        assert e.run.budget.reserved.nanousd == 0
        replies = e.sink.trajectory("r1").replies
        assert [r.attempt for r in replies] == [1, 2]
        assert replies[0].outcome["error"]
        assert not replies[0].blocks

    await each(RETRIED, probe)


async def test_persistent_fault_fails_with_its_kind() -> None:
    async def probe(kind: str) -> None:
        async with engine(turns(say("Hi.")), faults=always(kind)) as e:
            with pytest.raises(ModelFailed) as failed:
                await complete(e)

        limited = kind in ("http_429", "http_529", "sse_error")
        assert failed.value.kind == ("rate_limit" if limited else "model_error"), kind
        assert failed.value.attempts == 2
        assert len(e.requests) == 2
        assert e.run.budget.reserved.nanousd == 0
        assert kind not in STATUS_KINDS or e.run.budget.spent.nanousd == 0, kind

    await each(RETRIED, probe)


async def test_silent_server_times_out_and_the_call_is_retried() -> None:
    models = {"timeout_s": 0.3}
    async with engine(turns(say("Hi.")), settings_for(models=models), faults=Faults(["slow"])) as e:
        reply = await complete(e)

    assert reply.attempts == 2
    assert e.run.budget.spent.nanousd > 2 * e.cost_nanousd()  # it may have been paid for


async def test_permanent_errors_are_not_retried() -> None:
    async with engine(turns(say("Hi."))) as e:
        with pytest.raises(ModelFailed, match="invalid_request_error 400") as failed:
            await complete(e, messages=[{"role": "assistant", "content": "I begin."}])
    assert (failed.value.kind, len(e.requests)) == ("model_error", 1)
    assert e.run.budget.spent.nanousd == 0
    async with engine(turns(say("Hi.")), settings_for(models={"fast": "claude-nothing"})) as e:
        with pytest.raises(ModelMisconfigured, match="claude-nothing"):
            await complete(e)
    assert len(e.requests) == 1
    assert e.run.budget.spent.nanousd == 0
    for kind in ANSWER_KINDS:
        async with engine(turns(call("look")), faults=Faults([kind])) as e:
            reply = await complete(e)
        assert (reply.attempts, len(e.requests)) == (1, 1), kind


# ---- the budget


async def test_unknown_outcome_counts_as_paid_and_can_prevent_a_retry() -> None:
    faults = always("drop")
    async with engine(turns(say("Hi.")), settings_for({"cost_usd": 0.006}), faults=faults) as e:
        with pytest.raises(BudgetExceeded):
            await complete(e)
    assert len(e.requests) == 1
    assert 0.004 < e.run.budget.spent.usd <= 0.006


async def test_kept_reservation_pays_only_for_its_own_call() -> None:
    async with engine(turns(say("Hi."))) as e:
        worst = e.run.model.worst("subagent_fast", 500)
        tight = Budget(Caps(worst.nanousd, worst.tokens, 1, 30.0), asyncio.get_running_loop().time)
        e.run.budget = tight
        await tight.keep("r1/s1/final", worst)
        with pytest.raises(BudgetExceeded):
            await complete(e)
        reply = await complete(e, seq=1, reservation="r1/s1/final")
    assert reply.stop_reason == "end_turn"
    assert tight.reserved.nanousd == 0
    assert tight.spent.nanousd == e.cost_nanousd()


async def test_a_cancelled_call_leaves_no_reservation() -> None:
    async with engine(turns(say("Hi.")), faults=Faults(["slow"])) as e:
        task = asyncio.create_task(complete(e))
        await until(lambda: e.requests)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert e.run.budget.reserved.nanousd == 0
        assert e.run.budget.spent.nanousd > 0
        assert e.run.rate_limiter.limit("claude-haiku-5-5").in_flight == 0
    (reply,) = e.sink.trajectory("r1").replies
    assert reply.outcome["error"] == "cancelled"
