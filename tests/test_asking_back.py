"""The parent asks its requester back: once, durably, and only the requester chooses."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
from card_kit import (
    EVA,
    LUIS,
    THERE,
    again,
    ask_for_card,
    buttons,
    card,
    cards,
    payload,
    people,
    posted_texts,
    reaches,
    stored_actions,
    until_logged,
    verdicts,
    wait_for_states,
    with_approvers,
)
from engine_kit import (
    Json,
    brief_answer,
    call,
    opening,
    say,
    scripted_parent,
    sentence,
    until,
    use,
)
from serve_kit import ASKER, Served, serve
from standins.slack_shown import Shown

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.slack.state import BOT_USER
from bot.storage.tables import actions

SECRET = sentence("q2.0")
WHICH = "Which report do you mean?"
OPTIONS = ["The weekly one", "The monthly one"]
CHOSEN = f"CHOSEN when you asked back: {WHICH} -> {OPTIONS[1]}"


def asks(*calls: Json) -> Responder:
    """A parent that asks back, and names the choice once there is one."""

    def ask(body: Json) -> Answer:
        if CHOSEN in opening(body):
            return say("You chose the monthly one.")
        return Answer(list(calls) or [use("ask_user", question=WHICH, options=OPTIONS)])

    return scripted_parent(ask, say("I need to know which report."))


def answers(bot: Served, channel: str = "") -> list[str]:
    texts = [m.text for m in bot.slack.visible(channel or bot.channel)]
    return [text for text in texts if "You chose" in text]


def choose(bot: Served, shown: Shown, option: int = 1, user: str = ASKER) -> None:
    bot.slack.people.click(user, bot.channel, shown.ts, f"action_choose_{option}")


async def test_choice_clicked_twice_answers_the_request_once(tmp_path: Path) -> None:
    async with serve(tmp_path, asks(), space=people()) as bot:
        shown = await ask_for_card(bot)
        assert WHICH in shown.text.splitlines()[0]
        assert list(buttons(shown)) == ["action_choose_0", "action_choose_1"]
        for _ in range(2):
            choose(bot, shown)
        await reaches(bot, "done")
        await until(lambda: answers(bot))
        await until(lambda: not bot.bench.dispatch.at_work)
        assert len(answers(bot)) == 1
        await until(lambda: not cards(bot))
        after = again(bot, shown)
        assert f"{OPTIONS[1]} Chosen by <@{ASKER}>" in after.text
        assert shown.thread_ts
        assert await bot.leaks() == []


async def test_findings_before_the_question_are_available_after_the_choice(tmp_path: Path) -> None:
    openings: list[str] = []

    def after(body: Json) -> Answer:
        if CHOSEN in opening(body):
            openings.append(opening(body))
            return say("It is the monthly one [F1001.1].")
        return brief_answer()

    responder = scripted_parent(
        after,
        Answer([use("ask_user", question=WHICH, options=OPTIONS)]),
        say("I need to know which."),
    )
    async with serve(tmp_path, responder, space=people()) as bot:
        choose(bot, await ask_for_card(bot))
        await until(lambda: openings)
        assert "FINDINGS OF EARLIER ANSWERS" in openings[0]
        assert "[F1001.1]" in openings[0]


async def test_only_the_requester_can_choose_and_only_an_offered_option(tmp_path: Path) -> None:
    change = with_approvers(LUIS)
    async with serve(tmp_path, asks(), space=people(), change=change) as bot:
        shown = await ask_for_card(bot)
        id = buttons(shown)["action_choose_0"]
        for user, action, rule in (
            (LUIS, "action_choose_0", "clicker"),
            (EVA, "action_choose_1", "clicker"),
            (ASKER, "action_approve", "bound"),
            (ASKER, "action_deny", "bound"),
            (ASKER, "action_edit", "bound"),
            (ASKER, "action_choose_4", "bound"),
        ):
            before = len(await verdicts(bot))
            click = payload(shown, user=user, channel=bot.channel, action=action, value=id)
            bot.slack.put("interactive", click)
            await until_logged(bot, before + 1)
            assert (await verdicts(bot))[-1] == ("refused", rule), (user, action)
        await wait_for_states(bot, "asked")
        assert answers(bot) == []


async def test_question_text_is_not_parsed_as_markup(tmp_path: Path) -> None:
    tempting = "<!channel> pay at https://evil.example/pay <@U0EVA>"
    question = use("ask_user", question=tempting, options=[tempting, "No\u202eon"])
    async with serve(tmp_path, asks(question), space=people()) as bot:
        shown = await ask_for_card(bot)
        blocks = str(shown.blocks)
        assert "'type': 'link'" not in blocks
        assert "'type': 'broadcast'" not in blocks
        assert blocks.count("'type': 'user'") == 1  # the requester
        assert "\u202e" not in blocks
        assert "mrkdwn" not in blocks


async def test_unanswered_question_expires_after_a_day(tmp_path: Path) -> None:
    async with serve(tmp_path, asks(), space=people()) as bot:
        shown = await ask_for_card(bot)
        (row,) = await stored_actions(bot, "asked")
        assert row.expires
        assert timedelta(hours=23) < row.expires - datetime.now(UTC) <= timedelta(days=1)
        late = datetime.now(UTC) - timedelta(seconds=1)
        await bot.store.database.write(sa.update(actions).values(expires=late))
        await bot.bench.approvals.tidy()
        await reaches(bot, "expired")
        assert "This has expired, so nothing was done. Please ask again." in again(bot, shown).text
        bot.slack.put("interactive", payload(shown, channel=bot.channel, action="action_choose_0"))
        await until(bot.whispers)
        assert "This has expired" in bot.whispers()[0]
        assert answers(bot) == []


async def test_request_asks_at_most_one_question(tmp_path: Path) -> None:
    second = use("ask_user", question="And which language?", options=["en", "de"])
    first = use("ask_user", question=WHICH, options=OPTIONS)
    async with serve(tmp_path, asks(first, second), space=people()) as bot:
        await ask_for_card(bot)
        assert [row.action.args["question"] for row in await stored_actions(bot)] == [WHICH]


async def test_post_to_a_channel_named_in_a_choice_still_needs_approval(tmp_path: Path) -> None:
    """The model wrote the options: what they name still needs a card."""
    tempting = ["Post it in #support-2", "Do not"]

    def ask(body: Json) -> Answer:
        if "CHOSEN when you asked back" in opening(body):
            return Answer([use("post_message", channel=THERE, text="All is open.")])
        return Answer([use("ask_user", question="Shall I post it?", options=tempting)])

    responder = scripted_parent(ask, say("That is all."))
    async with serve(tmp_path, responder, space=people()) as bot:
        choose(bot, await ask_for_card(bot, "What is open in #support-2?"), 0)
        await wait_for_states(bot, "asked", "done")
        assert posted_texts(bot) == []


async def test_private_question_text_is_not_shown_in_the_channel(tmp_path: Path) -> None:
    """Its label arrives twice: with the choice, and with the answer that asked back."""

    def read(body: Json) -> Answer:
        if found := re.search(r"CHOSEN when you asked back: (.*)\? ->", opening(body)):
            return say(found[1])
        return call("read_channel_history", channel=THERE)

    space = people()
    here, there = (
        replace(space.channels[n], is_private=True, members=(ASKER, *others, BOT_USER))
        for n, others in enumerate([(EVA,), ()])
    )
    space = replace(space, channels=(here, there, *space.channels[2:]))
    asks_back = call("ask_user", question=f"{SECRET}?", options=OPTIONS)
    responder = scripted_parent(read, asks_back, say("I need to know."))
    async with serve(tmp_path, responder, limits={"max_subagents": 0}, space=space) as bot:
        bot.ask("What is open in #support-2?")
        direct = bot.slack.people.dm(ASKER)
        shown = await card(bot, direct)
        assert SECRET in shown.text
        bot.slack.people.click(ASKER, direct, shown.ts, "action_choose_0")
        await reaches(bot, "done")
        await until(lambda: len(bot.parents()) == 4)
        await until(lambda: not bot.bench.dispatch.at_work)
        assert SECRET not in str(bot.slack.visible(bot.channel))
