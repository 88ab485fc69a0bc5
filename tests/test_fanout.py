"""Many subagents at once: each accounted for, none able to harm another or to read of it."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence

from engine_kit import (
    Engine,
    Json,
    call,
    channel_id,
    child,
    engine,
    finding,
    line,
    opening,
    prefixes,
    results,
    sentence,
    settings_for,
    since,
    submitted,
    thread_id,
    turn,
    until,
    workspace,
)
from standins.model_faults import KINDS, Fault, Faults
from standins.slack import LocalSlack
from standins.slack_faults import Fault as SlackFault
from timing import patient

from bot.local.model.answer import Answer
from subagents.brief import Brief, SpawnedBrief, text_block
from subagents.budget import Amount
from subagents.events import Event, SubagentStarted
from subagents.fanout import Fanout, TaskSpawner
from subagents.prices import Usage
from subagents.result import SubagentResult
from subagents.run import Checkpoint

CHANNELS = 5
THREADS = 2


STOPPED_BY = frozenset(
    "none steps tokens cost time rate_limit model_error tool_error invalid_output needs_context "
    "injection user".split()
)


def number(body: Json) -> int:
    """The channel that a subagent was sent to."""
    return int(line(body, "TASK").split()[-1])


def reader(body: Json) -> Answer:
    """Reads its channel, hands in one finding on the first thread of it."""
    n = number(body)
    if not results(body) and "REMINDER: limit reached" not in since(body):
        return call("read_channel_history", channel=channel_id(n))
    root = thread_id(n, 0)
    if not any(root in r["content"] for r in results(body)):
        return submitted("Nothing was read.")
    said = sentence(f"q{n}.0")
    return submitted(f"Read channel {n}.", findings=[finding(f"Open {n}", root, quotes=[said])])


def briefs(
    e: Engine, count: int, task: str = "Read channel", *, writes: bool = False
) -> list[Brief]:
    """One brief a channel; above the number of channels they come round again."""
    return [
        e.brief(f"{task} number {n} that is {1 + n % CHANNELS}", 1 + n % CHANNELS, writes=writes)
        for n in range(count)
    ]


def assert_accounted(e: Engine, got: Sequence[SubagentResult], count: int) -> None:
    """Each has one end, in order, and together they cost what the server charged."""
    assert [r.id for r in got] == [f"s{n}" for n in range(1, count + 1)]
    assert {r.stopped_by for r in got} <= STOPPED_BY
    assert {r.status for r in got} <= {"complete", "partial", "failed", "cancelled"}
    for r in got:
        assert r.text, r.id
        assert (r.status == "complete") == (r.stopped_by == "none"), r
        assert r.reason or r.value or r.stopped_by in ("time", "user"), r
    assert e.run.budget.reserved == Amount()
    assert sum(round((r.cost_usd or 0) * 10**9) for r in got) == e.cost_nanousd()


def slack() -> LocalSlack:
    return LocalSlack(workspace(CHANNELS, THREADS))


async def test_ten_percent_of_all_calls_fail_in_every_way_and_all_are_accounted_for() -> None:
    """Every tenth subagent has a crashing tool."""
    count = 50
    crashing = set(range(0, count, 10))
    dice = random.Random(1)
    kinds = [k for k in KINDS if k != "slow"] * count
    dice.shuffle(kinds)
    fates = iter(kinds)
    struck: dict[str, list[str]] = {}

    def choose(index: int, body: Json) -> Fault | None:
        if dice.random() >= 0.1:
            return None
        kind = next(fates)
        struck.setdefault(line(body, "TASK"), []).append(kind)
        return Fault(kind, retry_after=0.01)

    def mind(body: Json) -> Answer:
        n = int(line(body, "TASK").split()[3])
        if n in crashing and len(results(body)) == 1:
            return call("lookup_user", user="Ana Ruiz")
        return reader(body)

    local = slack()
    local.faults += [SlackFault("users.info", "malformed")] * count
    limits = {"cost_usd": 10.0}
    models = {"max_attempts": 3}
    async with engine(mind, settings_for(limits, models), slack=local, faults=Faults(choose)) as e:
        got = await e.fanout().run_all(briefs(e, count, writes=True))

    assert_accounted(e, got, count)
    ends: dict[str, set[str]] = {
        "refusal": {"model_error"},
        "context_window": {"tokens"},
    }
    for n, r in enumerate(got):
        mine = struck.get(f"Read channel number {n} that is {1 + n % CHANNELS}", [])
        if not mine:
            wanted = {"tool_error"} if n in crashing else {"none"}
        elif len(mine) == 1:
            wanted = ends.get(mine[0], {"tool_error"} if n in crashing else {"none"})
        else:
            wanted = set(STOPPED_BY)
        assert r.stopped_by in wanted, (n, mine, r)
        if r.stopped_by == "none":
            assert r.findings, (n, mine)
    assert sum(r.status == "complete" for r in got) >= count * 0.7
    assert e.run.budget.spent.nanousd >= e.cost_nanousd()
    reported = [Usage(**{k: v for k, v in r.usage.items() if k != "total"}) for r in got]
    charged = [Usage.of(m["usage"]) for m in e.server.answered]
    assert sum(reported, Usage()) == sum(charged, Usage())


async def test_stop_ends_all_as_cancelled_with_what_they_have() -> None:
    def choose(index: int, body: Json) -> Fault | None:
        return Fault("slow") if turn(body) else None

    settings = settings_for({"max_concurrency": 10})
    async with engine(reader, settings, slack=slack(), faults=Faults(choose)) as e:
        fanout = e.fanout()
        task = asyncio.create_task(fanout.run_all(briefs(e, 30)))
        await until(lambda: sum(turn(b) == 1 for b in e.requests) == 10)
        e.run.stop.set()
        got = await task

    assert_accounted(e, got, 30)
    assert {(r.status, r.stopped_by) for r in got} == {("cancelled", "user")}
    assert [r.coverage["messages_read"] for r in got[:10]] == [4] * 10
    assert all("Read 4 items" in r.text for r in got[:10])
    assert len(e.requests) == 20  # the queued ones sent nothing


async def test_only_a_complete_result_is_used_again() -> None:
    faults = Faults(lambda index, body: "refusal" if index == 0 else None)
    async with engine(reader, settings_for({"max_concurrency": 1}), slack=slack(),
                      faults=faults) as e:  # fmt: skip
        fanout = e.fanout()
        (one,) = briefs(e, 1)
        twins = await fanout.run_all([one, one])
        again = await fanout.run_all([one])

    assert [r.stopped_by for r in twins] == ["model_error", "none"]
    assert [r.id for r in again] == ["s2"]


async def test_a_time_limit_leaves_the_reader_of_the_results_its_share() -> None:
    """Queued subagents start late; the fan-out as a whole still ends before the run does."""

    def slow(body: Json) -> Answer:
        if "REMINDER: limit reached" in since(body):
            return submitted("What I have.")
        return call("read_channel_history", channel=channel_id(number(body)))

    settings = settings_for({"seconds": 8.0, "max_concurrency": 1})
    async with engine(slow, settings, slack=slack(), latency_s=0.2) as e:
        await e.fanout().run_all(briefs(e, 4))
        left = e.run.budget.seconds_left()
    assert left > 0.2  # of 1.6 s


# ---- what one read reaches no other

FENCE = re.compile(r"items-[0-9a-f]{32}")


async def read_all(e: Engine, count: int) -> list[SubagentResult]:
    briefs = [e.brief(f"Read channel {n}", n) for n in range(1, count + 1)]
    return await e.fanout().run_all(briefs)


async def test_a_first_request_holds_prompt_tools_and_brief_and_nothing_else() -> None:
    async with engine(reader) as e:
        fanout = e.fanout()
        frozen = await fanout.freeze([e.brief(f"Read channel {n}", n) for n in (1, 2, 3)])
        started = [await e.spawner.start(f) for f in frozen]
        await asyncio.gather(*(joined() for joined in started))

    for one in frozen:
        first = next(b for b in e.requests if one.delimiter in json.dumps(b["messages"]))
        assert [b["text"] for b in first["system"]] == [b["text"] for b in one.system]
        assert first["tools"] == list(one.tools)
        assert first["messages"] == [
            {"role": "user", "content": [text_block(one.brief.text(one.delimiter))]}
        ]
        known = {"model", "max_tokens", "system", "tools", "messages", "cache_control"}
        assert first.keys() <= known | {"output_config", "thinking"}


async def test_siblings_share_their_beginning_to_the_byte_and_nothing_else() -> None:
    async with engine(reader, slack=LocalSlack(workspace(10))) as e:
        await read_all(e, 10)
    firsts = [b for b in e.requests if turn(b) == 0]
    assert len(firsts) == 10
    assert len(prefixes(e.requests)) == 1
    assert not FENCE.search(next(iter(prefixes(e.requests))))
    fences = [set(FENCE.findall(json.dumps(b["messages"]))) for b in firsts]
    assert all(len(found) == 1 for found in fences)
    assert len(set.union(*fences)) == 10
    for body in e.requests:
        (own,) = set(FENCE.findall(opening(body)))
        assert set(FENCE.findall(json.dumps(body))) == {own}
        assert all(r["content"].startswith(f"<{own}>") for r in results(body))
        mine = int(line(body, "TASK").split()[-1])
        said = json.dumps(body["messages"])
        others = set(range(1, 11)) - {mine}
        assert not [n for n in others if sentence(f"q{n}.0")[:30] in said]
        assert (sentence(f"q{mine}.0")[:30] in said) == bool(results(body))


# ---- what fails in one harms no other


async def test_a_result_that_cannot_be_stored_is_still_a_result() -> None:
    kept: list[str] = []

    class Faulty(Checkpoint):
        async def keep_result(self, frozen: SpawnedBrief, result: SubagentResult) -> None:
            if frozen.id == "s2":
                raise ValueError("no such column")
            kept.append(result.id)

    async with engine(child, slack=LocalSlack(workspace(3))) as e:
        e.run.checkpoint = Faulty()
        fanout = Fanout(e.run, TaskSpawner(e.run))
        got = await fanout.run_all([e.brief(f"Read {n}", n) for n in (1, 2, 3)])

    assert [r.status for r in got] == ["complete"] * 3
    assert sorted(kept) == ["s1", "s3"]
    assert [r.status for r in fanout.results.values()] == ["complete"] * 3


async def test_one_that_crashes_at_its_start_does_not_hold_up_the_rest() -> None:
    def emit(event: Event) -> None:
        if event == SubagentStarted("s1"):
            raise OSError("the terminal is gone")

    async with engine(child, slack=LocalSlack(workspace(3))) as e:
        e.run.emit = emit
        async with patient(10):
            got = await e.fanout().run_all([e.brief(f"Read {n}", n) for n in (1, 2, 3)])

    assert [(r.status, r.stopped_by) for r in got] == [
        ("failed", "tool_error"), ("complete", "none"), ("complete", "none"),
    ]  # fmt: skip
    assert (got[0].text, got[0].reason) == ("It failed.", "its run failed: OSError")
