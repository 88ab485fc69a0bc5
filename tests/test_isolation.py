"""What one subagent read reaches no other: proven from the requests that the server received."""

from __future__ import annotations

import asyncio
import json
import re

from engine_kit import (
    Engine,
    Json,
    call,
    channel_id,
    engine,
    finding,
    line,
    opening,
    prefixes,
    results,
    sentence,
    settings_for,
    submitted,
    thread_id,
    turn,
    workspace,
)

from bot.local.model.answer import Answer
from bot.local.slack.server import LocalSlack
from scopes.label import TRUSTED
from scopes.tool import Item
from subagents.audit import audit
from subagents.brief import Brief, text_block
from subagents.result import SubagentResult
from subagents.trajectory import Origin

FENCE = re.compile(r"items-[0-9a-f]{32}")


def reader(body: Json) -> Answer:
    """Reads its channel and says what it found in words of its own, with an exact quote."""
    n = int(line(body, "TASK").split()[-1])
    if turn(body) == 0:
        return call("read_channel_history", channel=channel_id(n))
    quote = " ".join(sentence(f"q{n}.0").split()[:6])
    return submitted(
        f"Channel {n} has one open point.",
        findings=[finding(f"Point {n} is open", thread_id(n, 0), quotes=[quote])],
    )


async def read_all(e: Engine, count: int) -> list[SubagentResult]:
    briefs = [e.brief(f"Read channel {n}", n) for n in range(1, count + 1)]
    return await e.fanout().run_all(briefs)


async def test_forty_at_once_leak_nothing() -> None:
    count = 40
    limits = {"cost_usd": 20.0, "seconds": 100.0}
    async with engine(reader, settings_for(limits), slack=LocalSlack(workspace(count, 1))) as e:
        got = await read_all(e, count)
    assert [r.status for r in got] == ["complete"] * count
    assert all(r.findings[0].quotes for r in got)
    report = audit(e.sink.trajectory("r1"))
    assert (report.contexts, report.leaks) == (count, ())


async def test_a_first_request_holds_prompt_tools_and_brief_and_nothing_else() -> None:
    async with engine(reader) as e:
        fanout = e.fanout()
        frozen = await fanout.freeze([e.brief(f"Read channel {n}", n) for n in (1, 2, 3)])
        handles = [await e.spawner.start(f.id, f) for f in frozen]
        await asyncio.gather(*(h.result() for h in handles))

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


# ---- planted leaks are found


async def test_a_childs_raw_tool_result_in_the_parent_is_found() -> None:
    async with engine(reader) as e:
        await read_all(e, 2)
        raw = results(next(b for b in e.requests if turn(b) == 1))[0]["content"]
        block = text_block(f"A view: {raw}")
        e.agent(contract=None, name="p1")
        e.sink.note("r1", "p1", Origin.REQUEST, block)
        e.sink.request("r1", "p1", 0, 1, {"messages": [{"role": "user", "content": [block]}]})
    found = audit(e.sink.trajectory("r1")).leaks
    assert ("p1", "content") in {(leak.context, leak.kind) for leak in found}


async def test_a_brief_with_material_is_no_leak_of_its_own() -> None:
    """Material that code placed is the subagent's own source text."""
    item = Item("C00000001/1740000000.000100", sentence("m1", 20), None, TRUSTED)

    def mind(body: Json) -> Answer:
        return submitted(
            "Judged.", findings=[finding("It is so", item.id, quotes=[sentence("m1", 4)])]
        )

    async with engine(mind) as e:
        base = e.brief("Judge the material", 1)
        made = Brief(base.draft, base.handles, base.window, TRUSTED, material=(item,))
        (got,) = await e.fanout().run_all([made])
    assert got.findings[0].evidence == [item.id]
    assert got.unsupported == []
    assert audit(e.sink.trajectory("r1")).leaks == ()
