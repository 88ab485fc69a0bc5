"""An answer is posted where it was requested only if everyone there may read its sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine_kit import (
    Json,
    brief,
    brief_answer,
    call,
    channel_id,
    is_child,
    opening,
    results,
    say,
    scripted_parent,
    sentence,
    until,
    workspace,
)
from serve_kit import ASKER, Served, request_in, serve

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, User, Workspace
from config.words import phrase

LUIS, BOSS, GUEST = "U0LUIS", "U0BOSS", "U0GUEST"
TEAM, TOWN = "C0TEAM", "C0TOWN"
MARKETS = range(1, 6)
QUESTION = "What is open in " + " ".join(f"#support-{n}" for n in MARKETS) + "?"


def markets(*others: str) -> Workspace:
    """Five private channels of the asker, and #team, which Luis is in, too."""
    base = workspace(5)
    private = tuple(
        replace(c, is_private=True, members=(ASKER, BOT_USER, *others)) for c in base.channels
    )
    team = Channel(TEAM, "team", (), (ASKER, LUIS, BOT_USER))
    people = (User(BOSS, "boss", "Ida Boss"), User(GUEST, "gus", "Gus Guest", is_restricted=True))
    return replace(base, channels=(*private, team), users=(*base.users, *people))


def in_private(space: Workspace) -> Workspace:
    last = space.channels[-1]
    return replace(space, channels=(*space.channels[:-1], replace(last, is_private=True)))


SECRET = sentence("q1.0").split()[0]
"""A word of the first thread of #support-1."""


READ = Answer([brief(n) for n in MARKETS])
FOUND = say(f"It is {SECRET} [F1.1].")
SWEEP = scripted_parent(READ, say(f"It is {SECRET} [F1.1] [F2.1] [F3.1] [F4.1] [F5.1]."))


def direct(bot: Served, user: str = ASKER) -> list[str]:
    """All direct messages of the bot to this person."""
    return [
        f"{m.text} {m.blocks}"
        for c in bot.slack.state.channels.values()
        if c.is_im and user in bot.slack.state.members[c.id]
        for m in bot.slack.visible(c.id)
        if m.user == BOT_USER
    ]


def channel_text(bot: Served, channel: str) -> str:
    """All that was ever written into this channel, also what was replaced later."""
    return str([dict(e.args) for e in bot.slack.effects if e.channel == channel])


async def ask_in_team(bot: Served) -> str:
    """Ask in #team; return the answer that everybody there sees, which is without the secret."""
    public = await bot.answer(bot.ask(QUESTION, channel=TEAM), channel=TEAM)
    assert SECRET not in channel_text(bot, TEAM)
    return public.text


async def wait_until_answered(bot: Served, found: Callable[[], object]) -> None:
    await until(lambda: found() and not bot.bench.dispatch.at_work, 20)


async def test_answer_from_private_channels_goes_only_to_its_requester(tmp_path: Path) -> None:
    async with serve(tmp_path, SWEEP, space=in_private(markets())) as bot:
        assert phrase("reply.sent_in_private") in await ask_in_team(bot)
        private = " ".join(direct(bot))
        assert SECRET in private
        for n in MARKETS:
            assert f"#support-{n}" in private, "the obstacle is named, in private"
        assert direct(bot, LUIS) == []


async def test_answer_is_withheld_when_an_outsider_joins_during_the_run(tmp_path: Path) -> None:
    def joins(body: object) -> Answer:
        bot.slack.state.members[TEAM]["U0EVA"] = None
        return FOUND

    model = scripted_parent(READ, joins)
    async with serve(tmp_path, model, space=in_private(markets(LUIS))) as bot:
        assert phrase("reply.sent_in_private") in await ask_in_team(bot)


async def test_requester_who_loses_access_gets_no_answer_in_private(tmp_path: Path) -> None:
    """The requester leaves the private channels while the subagents read."""
    space = in_private(markets())

    def leaves(body: object) -> Answer:
        for n in MARKETS:
            bot.slack.state.members[channel_id(n)].pop(ASKER, None)
        return FOUND

    async with serve(tmp_path, scripted_parent(READ, leaves), space=space) as bot:
        assert (await ask_in_team(bot)).startswith(phrase("reply.held_back"))
        assert SECRET not in " ".join(direct(bot))


# ---- follow-ups


FIRST = scripted_parent(READ, FOUND)


def then(word: str, second: Responder, first: Responder = FIRST) -> Responder:
    """A parent that answers requests with this word as `second`, and others as `first`."""

    def model(body: Json) -> Answer:
        return second(body) if not is_child(body) and word in request_in(body) else first(body)

    return model


async def test_a_follow_up_on_a_withheld_answer_streams_nothing_of_it(tmp_path: Path) -> None:
    """The parent begins with what the earlier answer holds: its first words are private."""
    again = scripted_parent(say(f"As I said, it is {SECRET} [F1001.1]. " * 20))
    async with serve(tmp_path, then("and who", again), space=in_private(markets())) as bot:
        root = bot.ask(QUESTION, channel=TEAM)
        await bot.answer(root, channel=TEAM)
        bot.ask("and who is the owner?", channel=TEAM, thread_ts=root)
        await bot.answers(root, 2, channel=TEAM)
        assert phrase("reply.sent_in_private") in channel_text(bot, TEAM)
        assert SECRET not in channel_text(bot, TEAM)


async def test_private_answer_is_not_posted_elsewhere_in_the_next_turn(tmp_path: Path) -> None:
    """A reply in the thread of the private answer, which asks to post it elsewhere."""
    seen: list[str] = []

    def posts(body: Json) -> Answer:
        seen.append(opening(body))
        if not results(body):
            return call("post_message", channel=TOWN, text=f"It is {SECRET}")
        return say("Done.")

    town = Channel(TOWN, "town", (), (ASKER, LUIS, BOT_USER))
    space = in_private(markets())
    space = replace(space, channels=(*space.channels, town))
    async with serve(tmp_path, then("post", posts), space=space) as bot:
        await ask_in_team(bot)
        dm = bot.slack.people.dm(ASKER)
        root = bot.slack.visible(dm)[0].ts
        bot.slack.people.say(ASKER, dm, "post a summary in #town", thread_ts=root)
        await wait_until_answered(bot, lambda: seen)
        assert SECRET in seen[0], "the model received it"
        assert SECRET not in channel_text(bot, TOWN)


async def test_follow_up_omits_an_earlier_answer_the_requester_may_no_longer_read(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    def knows_nothing(body: Json) -> Answer:
        seen.append(opening(body))
        return say("I do not know.")

    model = then("again", knows_nothing, scripted_parent(brief_answer(1), FOUND))
    space = markets()
    async with serve(tmp_path, model, space=space) as bot:
        dm = bot.slack.people.dm(ASKER)
        root = bot.slack.people.say(ASKER, dm, "What is open in #support-1?")
        await wait_until_answered(bot, lambda: any(SECRET in each for each in direct(bot)))
        del bot.slack.state.members[space.channels[0].id][ASKER]
        bot.slack.people.say(ASKER, dm, "again: what was it?", thread_ts=root)
        await wait_until_answered(bot, lambda: seen)
        assert SECRET not in seen[0]
