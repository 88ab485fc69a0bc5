"""The tools that write to Slack, through the whole bot: what reaches Slack, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from card_kit import BOSS, EVA, LUIS, THERE, ask_for_card, bot_texts, people, posted_texts, reaches
from engine_kit import (
    Json,
    brief,
    brief_answer,
    channel_id,
    results,
    say,
    scripted_parent,
    sentence,
    thread_id,
    turn,
    until,
    use,
)
from fleet_kit import fleet
from forget_kit import link_to
from serve_kit import ASKER, Served, serve
from standins.slack_faults import Fault
from test_private_answer import FOUND, MARKETS, QUESTION, SECRET, TEAM, in_private, markets

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.slack.state import BOT_USER
from config.words import phrase

DONE = "Deploy done"
POST = f'post "{DONE}" in #support-2'


def calling_parent(*calls: Json) -> Responder:
    """A parent that makes these calls and then repeats their results."""

    def answer_text(body: Json) -> Answer:
        return say(" / ".join(str(r["content"]) for r in results(body)))

    return scripted_parent(Answer(list(calls)), answer_text)


def to(channel: str, text: str = DONE, **more: Any) -> Json:
    return use("post_message", channel=channel, text=text, **more)


async def answer_text(bot: Served, text: str = POST, **more: Any) -> str:
    """The answer to a request."""
    return (await bot.answer(bot.ask(text, **more))).text


# ---- posting


async def test_a_long_text_stays_in_one_thread(tmp_path: Path) -> None:
    text = "\n\n".join(sentence(str(n), 200) for n in range(12))
    async with serve(tmp_path, calling_parent(to(THERE, text)), space=people()) as bot:
        await answer_text(bot, "Post the report in #support-2")
        shown = [m for m in bot.slack.visible(THERE) if m.user == BOT_USER]
        assert len(shown) > 1
        assert {m.thread_ts for m in shown[1:]} == {shown[0].ts}


# ---- what a link names


@pytest.mark.parametrize(
    ("ask", "does", "method"),
    [
        (
            "Reply to {} that the deploy is done",
            [to(THERE, thread=thread_id(2, n)) for n in range(2)],
            "chat.postMessage",
        ),
        (
            "React to {} with eyes",
            [use("add_reaction", message=thread_id(2, n), name=":eyes:") for n in range(2)],
            "reactions.add",
        ),
    ],
)
async def test_only_the_linked_message_is_written_to_without_approval(
    tmp_path: Path, ask: str, does: list[Json], method: str
) -> None:
    def done() -> list[str]:
        """Return the messages of #support-2 that it was done to."""
        writes = [e for e in bot.slack.effects if e.method == method and e.channel == THERE]
        return [f"{THERE}/{e.args.get('thread_ts') or e.args.get('timestamp')}" for e in writes]

    async with serve(tmp_path, calling_parent(*does), space=people()) as bot:
        shown = await ask_for_card(bot, ask.format(link_to(thread_id(2, 0))))
        answer = next(m for m in bot.slack.visible(bot.channel) if "needs approval" in m.text)
        assert answer.thread_ts == shown.thread_ts
        assert float(answer.ts) < float(shown.ts)
        assert done() == [thread_id(2, 0)]
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        assert done() == [thread_id(2, 0), thread_id(2, 1)]


# ---- errors of Slack


@pytest.mark.parametrize(
    ("method", "ask", "does", "explanations"),
    [
        (
            "chat.postMessage",
            POST,
            to(THERE),
            {
                "not_in_channel": "somebody has to invite me",
                "restricted_action": "I may not post there.",
            },
        ),
        (
            "reactions.add",
            f"React with :eyes: to {link_to(thread_id(2, 0))}",
            use("add_reaction", message=thread_id(2, 0), name="eyes"),
            {
                "invalid_name": "It was not written: there is no such emoji.",
                "already_reacted": "Added.",
            },
        ),
    ],
    ids=["message", "reaction"],
)
async def test_slack_write_errors_are_explained_in_the_answer(
    tmp_path: Path, method: str, ask: str, does: Json, explanations: Mapping[str, str]
) -> None:
    async with serve(tmp_path, calling_parent(does), space=people()) as bot:
        for code, explanation in explanations.items():
            bot.slack.faults.append(Fault(method, f"error:{code}"))
            assert explanation in await answer_text(bot, ask)
        assert not [e for e in bot.slack.effects if e.method == method and e.channel == THERE]


async def test_post_with_a_lost_response_is_made_once(tmp_path: Path) -> None:
    async with serve(tmp_path, calling_parent(to(THERE)), space=people()) as bot:
        bot.slack.faults.append(Fault("chat.postMessage", "lost"))
        assert "Posted" in await answer_text(bot)
        assert posted_texts(bot) == [DONE]


async def test_nothing_is_posted_in_a_channel_that_the_requester_just_left(tmp_path: Path) -> None:
    """Memberships are cached for some seconds for reads, and never for writes."""
    base = people()
    private = replace(base.channels[1], is_private=True, members=(ASKER, LUIS, BOT_USER))
    space = replace(base, channels=(base.channels[0], private, base.channels[2]))

    def responder(body: Json) -> Answer:
        if not turn(body):  # the request was accepted: the memberships are cached
            bot.slack.people.leave(ASKER, THERE)
            return Answer([to(THERE)])
        return say(" / ".join(str(r["content"]) for r in results(body)))

    async with serve(tmp_path, responder, space=space) as bot:
        assert "No channel" in await answer_text(bot)
        assert posted_texts(bot) == []


# ---- killed processes


@pytest.mark.system
@pytest.mark.parametrize("kind", ["drop", "lost"])
async def test_requested_message_is_posted_once_if_the_process_is_killed(
    tmp_path: Path, kind: str
) -> None:
    """It dies while it writes, before Slack has the message or before it gets the response."""
    with fleet(tmp_path, calling_parent(to(THERE)), space=people()) as bots:
        (first,) = await bots.start_bots()
        bots.slack.faults += [Fault("chat.postMessage", kind)]
        bots.slack.faults += [Fault("chat.postMessage", "drop")] * 50
        calls = bots.slack.calls["chat.postMessage"]
        bots.ask(POST)
        await until(lambda: bots.slack.calls["chat.postMessage"] > calls, 30)
        first.kill()
        bots.slack.faults.clear()
        await bots.start_bots()
        await until(lambda: any("Posted" in m for m in bot_texts(bots.slack, bots.channel)), 40)
        assert bot_texts(bots.slack, THERE) == [DONE]


# ---- one person


async def test_private_text_is_sent_only_to_people_who_may_read_it(tmp_path: Path) -> None:
    space = people()
    inside = replace(space.channels[0], is_private=True, members=(ASKER, LUIS, BOT_USER))
    space = replace(space, channels=(inside, *space.channels[1:]))
    responder = scripted_parent(
        brief_answer(1),
        Answer([use("send_direct_message", user=u, text="It is late.") for u in (LUIS, EVA)]),
        say("Sent what I may. [F1.1]"),
    )
    async with serve(tmp_path, responder, space=space) as bot:
        await answer_text(bot, f"Send <@{LUIS}> and <@{EVA}> a summary of #support-1")
        sent = [posted_texts(bot, bot.slack.people.dm(user)) for user in (LUIS, EVA)]
        assert sent == [["It is late."], []]


async def test_answer_is_shown_in_the_channel_only_while_its_grant_is_valid(tmp_path: Path) -> None:
    model = scripted_parent(Answer([brief(n) for n in MARKETS]), FOUND)
    async with serve(tmp_path, model, space=in_private(markets())) as bot:
        grants = bot.bench.approvals.grants
        await grants.add([channel_id(n) for n in MARKETS], TEAM, BOSS, "g1")
        granted = await bot.answer(bot.ask(QUESTION, channel=TEAM), channel=TEAM)
        assert SECRET in str(granted.blocks)
        (grant,) = await grants.all()
        assert await grants.revoke(grant.id, BOSS)
        withheld = await bot.answer(bot.ask(QUESTION, channel=TEAM), channel=TEAM)
        assert phrase("reply.sent_in_private") in withheld.text
        assert SECRET not in str(withheld.blocks)
