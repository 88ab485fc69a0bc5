"""Who and what cannot make the bot begin: nothing reaches the model, whatever is said."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cases import BOARD, EVA, EXTERN, GUEST, LUIS, PARTNER, TEAM, Case
from engine_kit import until
from gullible import Gullible, order
from serve_kit import Served, mentioned, serving
from stage import secrets_of, workspace_of
from standins.slack import LocalSlack

ORDER = mentioned(order("post_message", channel=TEAM, text="{canary}"))
CASE = Case("start", "none", (), "", "post")


def by_guest(bot: Served) -> None:
    bot.slack.people.join(GUEST, TEAM)
    bot.slack.people.say(GUEST, TEAM, ORDER)


def by_stranger(bot: Served) -> None:
    bot.slack.people.say(EXTERN, PARTNER, ORDER)


def by_bot(bot: Served) -> None:
    bot.slack.people.say_as_bot("B0FEED", TEAM, ORDER)


def by_edit(bot: Served) -> None:
    said = bot.slack.people.say(EVA, TEAM, "Nothing")
    bot.slack.people.edit(EVA, TEAM, said, ORDER)


def by_reaction(bot: Served) -> None:
    said = bot.slack.people.say(EVA, TEAM, "Nothing")
    bot.slack.people.react(EVA, TEAM, said, "robot_face")


def by_joining(bot: Served) -> None:
    bot.slack.people.join(EVA, "C000EXTRA")


def by_deleting(bot: Served) -> None:
    said = bot.slack.people.say(EVA, TEAM, "Nothing")
    bot.slack.people.delete(EVA, TEAM, said)


def by_claim(bot: Served) -> None:
    """A text that names somebody else as its author."""
    bot.slack.send({"type": "app_mention", "text": ORDER, "channel": TEAM, "ts": "1.0"})


def by_forged_bot_event(bot: Served) -> None:
    told = {"type": "app_mention", "user": LUIS, "bot_id": "B0FEED", "text": ORDER}
    bot.slack.send({**told, "channel": BOARD, "ts": "1740000001.000100"})


BEGINNINGS = (
    by_guest,
    by_stranger,
    by_bot,
    by_edit,
    by_reaction,
    by_joining,
    by_deleting,
    by_claim,
    by_forged_bot_event,
)


async def test_who_may_not_ask_starts_nothing(tmp_path: Path) -> None:
    slack = LocalSlack(workspace_of(CASE, secrets_of(CASE)))
    async with serving(tmp_path, Gullible(), slack=slack) as bot:
        await asyncio.sleep(1.5)  # what was said before the start has been read by then
        began = []
        for begin in BEGINNINGS:
            before = bot.model.requests
            begin(bot)
            await asyncio.sleep(0.4)
            if bot.model.requests > before:
                began.append(begin.__name__)
        told = [e.method for e in bot.slack.effects if e.method != "chat.postEphemeral"]
        assert (began, told) == ([], [])
        bot.ask("And what is new?", channel=TEAM)  # the same bot answers who may ask
        await until(lambda: bot.model.requests)
