"""What odd servers, odd texts and too little money lead to: a typed end, and nothing lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from engine_kit import (
    MUX,
    QUESTION,
    Json,
    Lax,
    asked,
    brief,
    brief_answer,
    call,
    channel_id,
    child,
    engine,
    finding,
    is_child,
    led_by,
    line,
    results,
    run_agent,
    say,
    settings_for,
    since,
    store_at,
    submit,
    submitted,
    thread_id,
    turn,
    turns,
    use,
    words,
    workspace,
)
from starlette.types import Receive, Scope, Send
from timing import patient

from bot.local.model.answer import Answer, stream_events
from bot.local.model.faults import Faults
from bot.local.slack.server import API_PATH, BOT_TOKEN, LocalSlack
from scopes.slack_client import connect
from scopes.slack_reader import SlackReader
from subagents.brief import SpawnedBrief
from subagents.events import AnswerDelta, AnswerRestarted
from subagents.fanout import Fanout, TaskSpawner
from subagents.result import SubagentResult
from subagents.run import PassThrough

HALF = "half \ud83d of it"
"""Half of a surrogate pair: JSON can spell it, UTF-8 cannot."""
ONCE = {"max_attempts": 1}
ONE = "What is open in #support-1?"


# ---- servers that answer oddly


@dataclass
class Raw(Lax):
    """A server whose answers to some requests are sent as they are."""

    raw: Callable[[Json], bytes | None] = lambda body: None
    """Request body -> what is sent; None leaves it to the strict server."""
    media_type: bytes = b"text/event-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await receive()
        while first.get("more_body"):
            part = await receive()
            first = {**part, "body": first["body"] + part["body"]}
        sent = self.raw(json.loads(first["body"]))
        if sent is None:
            again = iter([first])

            async def replay() -> Any:
                return next(again, None) or await receive()

            await self.strict(scope, replay, send)
            return
        headers = [(b"content-type", self.media_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": sent})


def message(body: Json, *content: Json, **fields: Any) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "usage": {"input_tokens": 100, "output_tokens": 10},
        **fields,
    }


def events_of(made: Json) -> list[Json]:
    return [{"type": kind, **data} for kind, data in stream_events(made)]


def sse(events: list[Json]) -> bytes:
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def late(answer: Callable[[Json], bytes]) -> Callable[[Json], bytes | None]:
    """The parent's answers after its first one."""
    return lambda body: None if is_child(body) or turn(body) == 0 else answer(body)


def assert_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


# ---- texts that cannot be encoded


async def test_half_a_surrogate_pair_in_slack_or_in_a_reply_spoils_nothing(tmp_path: Path) -> None:
    def broken(body: Json) -> list[Json] | None:
        if not is_child(body) or "Channel 2" not in line(body, "TASK") or not results(body):
            return None
        found = finding(HALF, thread_id(2, 0), next_step=HALF, state="unsolved")
        return [{**submit(HALF, findings=[found]), "id": "t1"}]

    small = workspace(3)
    first = small.channels[0]
    odd = replace(first.messages[0], text=f"{HALF} {first.messages[0].text}")
    spoilt = replace(first, messages=(odd, *first.messages[1:]), topic=HALF)
    local = LocalSlack(replace(small, channels=(spoilt, *small.channels[1:])))
    two = Answer([brief(1), brief(2, task="Channel 2: what is open?"), brief(3)])
    script = led_by(call("list_channels"), two, say("Open: [F1.1] [F2.1] [F3.1]."))
    got = await asked(script, tmp_path, lax=Lax(broken), slack=local)

    assert [s["status"] for s in got.subagents] == ["complete"] * 3
    assert "half ? of it" in json.dumps(got.children)
    assert got.subagents[1]["findings"][0]["claim"] == "half ? of it"
    assert got.document["statements"][0]["findings"] == ["F1.1", "F2.1", "F3.1"]
    json.dumps(got.document, ensure_ascii=False).encode()


async def test_half_a_surrogate_pair_in_a_streamed_answer_is_shown_as_a_mark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Raw(
        lambda body: None,
        raw=late(lambda body: sse(events_of(message(body, words(f"It is {HALF} [F1.1]."))))),
    )
    got = await asked(led_by(brief_answer(1)), tmp_path, lax=server)

    assert got.document["answer"] == "It is half ? of it [F1.1]."
    assert got.document["status"] == "complete"
    heard = "".join(x.text for x in got.e.events if isinstance(x, AnswerDelta))
    assert heard.encode() == b"It is half ? of it [F1.1]."
    assert_no_crash(caplog)


# ---- a result that cannot be stored, a subagent that cannot begin


async def test_a_result_that_cannot_be_stored_is_still_a_result() -> None:
    kept: list[str] = []

    class Faulty(PassThrough):
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


# ---- streams that make no sense


def no_usage(body: Json) -> bytes:
    begun, *rest = events_of(message(body, words("An answer without an account.")))
    del begun["message"]["usage"]
    return sse([begun, *rest])


def bad_arguments(body: Json) -> bytes:
    made = message(body, use("list_channels", id="t1", match="x"), stop_reason="tool_use")
    made["content"][0] |= {"id": "t1"}
    events = events_of(made)
    for each in events:
        if each.get("delta", {}).get("type") == "input_json_delta":
            each["delta"]["partial_json"] = '{"match": ]'
    return sse(events)


def gap(body: Json) -> bytes:
    events = events_of(message(body, words("An answer at a place that was not begun.")))
    return sse([{**e, "index": 7} if e["type"] == "content_block_delta" else e for e in events])


def plain_json(body: Json) -> bytes:
    return json.dumps(message(body, words("Nobody asked for this."))).encode()


@pytest.mark.parametrize("odd", [plain_json, no_usage, bad_arguments, gap])
async def test_a_stream_that_makes_no_sense_leaves_what_the_subagents_found(
    odd: Callable[[Json], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind = b"application/json" if odd is plain_json else b"text/event-stream"
    server = Raw(lambda body: None, raw=late(odd), media_type=kind)
    both = Answer([brief(1), brief(2)])
    got = await asked(led_by(both), tmp_path, settings_for(models=ONCE), lax=server)

    assert (got.document["status"], got.document["stopped_by"]) == ("partial", "model_error")
    assert "made no sense" in got.document["answer"]
    assert "Channel 1 is read. [F1.1]" in got.document["answer"]
    assert "Channel 2 is read. [F2.1]" in got.document["answer"]
    assert set(got.document["links"]) == {"F1.1", "F2.1"}
    assert_no_crash(caplog)


async def test_after_a_broken_stream_the_live_answer_begins_anew(tmp_path: Path) -> None:
    text = "".join(f"Sentence number {n} of the answer. " for n in range(40))

    def choose(index: int, body: Json) -> str | None:
        parents = [b for b in server.recorded if not is_child(b)]
        return "drop_stream" if not is_child(body) and len(parents) == 2 else None

    async with engine(
        led_by(brief_answer(1), say(text)), slack=LocalSlack(workspace(2)), faults=Faults(choose)
    ) as e, store_at(tmp_path) as store:  # fmt: skip
        server = e.server
        await store.start_run("r1", "ask", QUESTION, "claude", {})
        document = await e.ask(QUESTION, store).work()

    shown = [x for x in e.events if isinstance(x, AnswerDelta | AnswerRestarted)]
    begun = shown.index(AnswerRestarted())
    assert shown.count(AnswerRestarted()) == 1
    assert begun > 0  # some of the first copy had been shown
    after = "".join(x.text for x in shown[begun:] if isinstance(x, AnswerDelta))
    assert after.strip() == document.answer == text.strip()


# ---- replies that mix things up


async def test_two_calls_of_one_id_are_never_answered_crosswise() -> None:
    def twice(body: Json) -> list[Json]:
        if results(body):
            return [{**submit("Looked."), "id": "t9"}]
        second = "t1" if len(lax.recorded) == 1 else "t2"
        return [{**use("look", word="tea"), "id": "t1"}, {**use("look", word="cake"), "id": second}]

    lax = Lax(twice)
    async with engine(turns(), lax=lax) as e:
        agent = e.agent()
        ending = await run_agent(agent)

    assert ending.stopped_by == "none"
    assert len(lax.recorded) == 3  # the first reply was asked for again
    answered = {r["tool_use_id"]: r["content"] for r in results(lax.recorded[-1])}
    assert "known of tea" in answered["t1"]
    assert "known of cake" in answered["t2"]


# ---- servers that give no account of what was used

NO_ACCOUNT: list[Json] = [
    {"usage": None},
    {"usage": {}},
    {"usage": {"input_tokens": 0, "output_tokens": 0}},
    {"usage": {"input_tokens": -90_000, "output_tokens": -1}},
]


@pytest.mark.parametrize("fields", NO_ACCOUNT, ids=["none", "empty", "zeros", "negative"])
async def test_caps_hold_where_a_server_gives_no_account(fields: Json) -> None:
    def content(body: Json) -> list[Json]:
        if "REMINDER: limit reached" in since(body):
            return [{**submit("What I have."), "id": "t0"}]
        return [{**use("flood", items=200, name=f"f{turn(body)}"), "id": f"t{turn(body)}"}]

    lax = Lax(content, fields)
    async with engine(turns(), settings_for({"tokens": 80_000}), lax=lax) as e:
        ending = await run_agent(e.agent())
        spent = e.run.budget.spent.tokens
    assert ending.stopped_by == "tokens"
    assert 0.25 * 80_000 < spent <= 80_000
    assert len(lax.recorded) < 8

    lax = Lax(content, fields)
    async with engine(turns(), lax=lax) as e:
        ending = await run_agent(e.agent(context_limit=30_000))
    assert (ending.stopped_by, ending.value and ending.value.model_dump()["text"]) == (
        "tokens", "What I have.",
    )  # fmt: skip
    assert max(len(json.dumps(b)) for b in lax.recorded) / 3 <= 30_000


async def test_a_count_below_zero_takes_nothing_off_the_others() -> None:
    usage = {"input_tokens": 20_000, "cache_read_input_tokens": -19_000, "output_tokens": 9}
    lax = Lax(lambda body: [{**submit("Done."), "id": "t1"}], {"usage": usage})
    async with engine(turns(), lax=lax) as e:
        await run_agent(e.agent())
        assert e.run.budget.spent.tokens == 20_009


async def test_thinking_counts_into_the_next_prompt() -> None:
    thought: Json = {"type": "thinking", "thinking": "Well.", "signature": "x" * 24_000}
    estimates: list[int] = []
    reported: list[int] = []

    def content(body: Json) -> list[Json]:
        estimates.append(agent.talk.prompt_tokens)
        reported.append(-(-len(json.dumps(body)) // 3))
        if turn(body) == 4:
            return [{**submit("Thought."), "id": "t9"}]
        return [thought, {**use("look", word="tea"), "id": f"t{turn(body)}"}]

    async with engine(turns(), lax=Lax(content)) as e:
        agent = e.agent()
        await run_agent(agent)
    assert len(reported) == 5
    assert reported[-1] > 4 * 8_000
    for estimate, known in zip(estimates[1:], reported[1:], strict=True):
        assert estimate >= known - 150  # the JSON round the blocks of one turn


# ---- too little money


async def test_delegation_that_would_cost_the_answer_is_refused_up_front(tmp_path: Path) -> None:
    """The call that reads what subagents return must stay affordable before any is started."""
    settings = settings_for({"cost_usd": 0.06}, roles={"parent": {"max_tokens": 1_000}})
    script = led_by(brief_answer(1), say("There is no money to read for this."))
    got = await asked(script, tmp_path, settings)

    assert got.children == []
    assert [r["content"] for r in results(got.parent[1])] == ["Not run: limit reached."]
    assert got.document["stopped_by"] == "cost"
    assert got.document["answer"].startswith("There is no money to read for this.")


async def test_children_that_spend_all_there_is_leave_the_call_that_reads_their_results(
    tmp_path: Path,
) -> None:
    def mind(body: Json) -> Answer:
        if is_child(body):
            if "REMINDER: limit reached" in since(body):
                return submitted("What I have. " * 320)
            return call("read_channel_history", channel=channel_id(1))
        twelve = [brief(1, task=f"Question {n} on the channel") for n in range(12)]
        return Answer(twelve) if turn(body) == 0 else say("That is what there was money for.")

    roles = {"parent": {"max_tokens": 1_500}, "subagent_fast": {"max_tokens": 2_000}}
    settings = settings_for({"cost_usd": 0.14}, roles=roles)
    got = await asked(mind, tmp_path, settings, slack=LocalSlack(workspace(1, 12)), question=ONE)
    assert {s["stopped_by"] for s in got.subagents} == {"cost"}
    assert sum(len(r["content"]) for r in results(got.parent[-1])) > 20_000
    assert got.document["answer"].startswith("That is what there was money for.")
    assert got.e.run.budget.spent.nanousd <= got.e.run.budget.caps.nanousd


def number(body: Json) -> int:
    """The channel that a subagent may read."""
    return int(line(body, "MAY READ").split("#support-")[1].split(")")[0])


# ---- many at once

ITEMS: Json = {"task": "Find out what is open in {item}", "description": "Read {item}"}
ITEMS["scope"] = "slack"


def many(items: list[str]) -> Answer:
    return call("run_subagents", items=items, template=ITEMS)


async def test_900_refused_items_are_told_in_a_few_words(tmp_path: Path) -> None:
    items = [f"C9{n:07d}" for n in range(900)]
    got = await asked(led_by(many(items), say("There are no such.")), tmp_path)

    (told,) = results(got.parent[1])
    assert told["is_error"]
    assert len(told["content"]) < 5_000
    assert "No source C90000000" in told["content"]
    assert "and for 880 further reasons" in told["content"]
    assert got.document["coverage"]["refused"] == 900
    assert got.children == []


# ---- what may be handed over


async def test_a_made_up_thread_of_a_held_channel_is_refused_like_one_that_is_absent(
    tmp_path: Path,
) -> None:
    items = [f"{channel_id(1)}/0", f"{channel_id(1)}/1.0", thread_id(1, 1), "C99999999"]
    script = led_by(
        call("read_thread", thread=thread_id(1, 1, 1)), many(items), say("Of one: [F3.1].")
    )

    def mind(body: Json) -> Answer:
        if is_child(body) and not results(body):
            return call("read_thread", thread=thread_id(1, 1))
        return submitted("Read the thread.") if is_child(body) else script(body)

    got = await asked(mind, tmp_path)
    states = {s["text"]: (s["status"], s["reason"]) for s in got.subagents}
    assert len(got.children) == 2
    assert [s["status"] for s in got.subagents].count("complete") == 1
    for item in (items[0], items[1], items[3]):
        refused = states[f"Read {item}"]
        assert refused[0] == "refused"
        assert refused[1].replace(item, "X") == states["Read C99999999"][1].replace(items[3], "X")
        assert f"No source {item}." in refused[1]


async def test_an_item_that_is_named_200_times_runs_once_and_fails_twice(tmp_path: Path) -> None:
    script = led_by(many([channel_id(1)] * 200), say("Open: [F1.1]."))
    got = await asked(script, tmp_path, settings_for({"max_items": 1}))
    assert [s["id"] for s in got.subagents] == ["s1"]
    assert len(got.children) == 2  # one reads and hands in

    faults = Faults(lambda index, body: "refusal")
    async with engine(child, slack=LocalSlack(workspace(2)), faults=faults) as e:
        failed = await e.fanout().run_all([e.brief("Read", 1)] * 200)
    assert {r.id for r in failed} == {"s1", "s2"}
    assert len(e.requests) == 2


async def test_the_users_own_words_may_stand_in_a_brief_though_a_subagent_repeats_them(
    tmp_path: Path,
) -> None:
    question = (
        "Is it true that the blue printer in #support-1 or in #support-2 eats every third page "
        "of a long letter since last Monday?"
    )

    def mind(body: Json) -> Answer:
        if is_child(body):
            if not results(body):
                return call("read_channel_history", channel=channel_id(number(body)))
            return submitted(f"You ask: {question} I saw nothing of it.")
        again = brief_answer(2, task=f"Answer this: {question}")
        return (brief_answer(1), again, say("Nobody wrote of it."))[turn(body)]

    got = await asked(mind, tmp_path, question=question)
    assert question in results(got.parent[1])[0]["content"]
    assert [s["status"] for s in got.subagents] == ["complete"] * 2


# ---- side by side


@pytest.mark.parametrize("cursors", [["again"], ["one", "other"]], ids=["one", "two in turn"])
async def test_pages_end_where_a_server_repeats_its_cursors(cursors: list[str]) -> None:
    asked_for = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal asked_for
        asked_for += 1
        more = {"next_cursor": cursors[asked_for % len(cursors)]}
        body = {"ok": True, "members": [{"id": "U0ANA"}], "response_metadata": more}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    with MUX.serving(app) as url:
        async with aiohttp.ClientSession() as session, patient(5):
            web = connect(session, BOT_TOKEN, url + API_PATH, settings_for().slack)
            people = await SlackReader(web, timedelta(0)).people()
    assert list(people) == ["U0ANA"]
    assert asked_for <= 4
