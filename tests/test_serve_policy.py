"""The whole bot and its rules: who is refused and how, what stops it, what Home shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_kit import led_by, until, workspace
from serve_kit import ASKER, Served, echo, ruled, serving

from bot.local.slack.views import home
from bot.local.workspace import Channel, User, Workspace

LUIS, BOSS, GUEST, STRANGER = "U0LUIS", "U0BOSS", "U0GUEST", "U0OTHER"
SHARED = "C0SHARED"


def mixed() -> Workspace:
    """With a guest, somebody of another company, an admin, and a channel shared with others."""
    base = workspace(3)
    people = (
        User(BOSS, "boss", "Ida Boss"),
        User(GUEST, "guest", "Gus Guest", is_restricted=True),
        User(STRANGER, "other", "Olga Other", is_stranger=True, team_id="T0OTHER"),
        User("U0APP", "app", "Another app", is_bot=True),
    )
    shared = Channel(SHARED, "shared", (), (ASKER, STRANGER), is_ext_shared=True)
    return replace(base, users=(*base.users, *people), channels=(*base.channels, shared))


def home_text(bot: Served, user: str) -> str:
    """All that one's App Home says now."""
    shown = home(bot.slack.state, user)
    return str(shown.body) if shown else ""


def nothing_public(bot: Served, thread: str, channel: str = "") -> bool:
    return bot.replies(thread, channel) == []


async def test_who_may_not_ask_is_told_why_and_nobody_else_is(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo), space=mixed()) as bot:
        for user, channel, reason in (
            (GUEST, "", "Guests may not ask me here."),
            (STRANGER, "", "People of other companies may not ask me here."),
            (ASKER, SHARED, "This channel is shared with another company"),
        ):
            bot.slack.state.members[channel or bot.channel][user] = None
            asked = bot.ask("Hello?", user=user, channel=channel)
            await until(lambda u=user: bot.whispers(u))  # type: ignore[misc]
            assert reason in bot.whispers(user)[0]
            assert nothing_public(bot, asked, channel)
        dm = bot.slack.people.dm(GUEST)
        told = bot.slack.people.say(GUEST, dm, "Hello?")
        await until(lambda: len(bot.slack.visible(dm)) == 2)
        assert "Guests may not ask me" in bot.slack.visible(dm)[1].text
        assert bot.slack.visible(dm)[0].ts == told
        await until(lambda: not bot.bench.dispatch.at_work)
        assert {r.status for r in await bot.store.runs()} == {"refused"}
        assert bot.model.recorded == []
        assert bot.slack.calls["chat.startStream"] == 0


async def test_a_day_s_budget_that_is_used_up_is_said_privately(tmp_path: Path) -> None:
    change = ruled(policy={"user_daily_usd": 0.5})
    async with serving(tmp_path, space=mixed(), change=change) as bot:
        await bot.answer(bot.ask())
        (run,) = await bot.store.runs()
        await bot.store.finish_run(run.id, "complete", cost_usd=0.495)  # as if it had cost that
        asked = bot.ask()
        await until(bot.whispers)
        assert "You have spent $0.49 of the $0.50 for today." in bot.whispers()[0]
        assert "Please ask again in " in bot.whispers()[0]
        assert nothing_public(bot, asked)
        assert "It is **open**" in (await bot.answer(bot.ask(user=LUIS))).text
        bot.slack.people.open_home(ASKER)
        await until(lambda: home_text(bot, ASKER))
        assert "You have spent $0.49 of $0.50 today." in home_text(bot, ASKER)


@pytest.mark.parametrize("scopes", [("web",), ("email",)])
async def test_a_parent_is_offered_the_scopes_that_a_rule_allows_and_no_others(
    tmp_path: Path, scopes: tuple[str, ...]
) -> None:
    async with serving(tmp_path, led_by(echo), change=ruled(scopes=scopes)) as bot:
        await bot.answer(bot.ask())
        offered = {tool["name"]: tool["input_schema"] for tool in bot.parents()[0]["tools"]}
    possible = [name for name in scopes if name != "email"]  # there is no mailbox
    if possible:
        assert offered["run_subagent"]["properties"]["scope"]["enum"] == possible
    else:
        assert "run_subagent" not in offered


# ---- pause


async def test_a_pause_holds_all_new_work_and_loses_nothing(tmp_path: Path) -> None:
    change = ruled(policy={"admins": (BOSS,)})
    async with serving(tmp_path, led_by(echo), space=mixed(), mode="http", change=change) as bot:
        people = bot.slack.people
        people.slash(LUIS, bot.channel, "/assistant", "pause")
        await until(lambda: bot.whispers(LUIS))
        assert "Only an administrator" in bot.whispers(LUIS)[0]
        people.slash(BOSS, bot.channel, "/assistant", "pause")
        await until(lambda: bot.whispers(BOSS))
        assert bot.whispers(BOSS)[0] == f"All new work is paused by <@{BOSS}>."
        asked = bot.ask("Hello?")
        await bot.stored(asked)
        await bot.bench.dispatch.look()
        assert nothing_public(bot, asked)
        people.open_home(ASKER)
        await until(lambda: "Paused by" in home_text(bot, ASKER))
        people.slash(LUIS, bot.channel, "/assistant", "status")
        await until(lambda: len(bot.whispers(LUIS)) == 2)
        assert "paused by" in bot.whispers(LUIS)[1]
        people.slash(LUIS, bot.channel, "/assistant", "")
        await until(lambda: len(bot.whispers(LUIS)) == 3)
        assert "/assistant pause" in bot.whispers(LUIS)[2]
        people.slash(BOSS, bot.channel, "/assistant", "resume")
        assert "Hello?" in (await bot.answer(asked)).text
        assert bot.whispers(BOSS)[1] == "The assistant is running."
        await bot.inbox.pause("the command line")
        later = bot.ask("Later?")
        await bot.stored(later)
        await bot.bench.dispatch.look()
        assert nothing_public(bot, later)
        await bot.inbox.resume()
        assert "Later?" in (await bot.answer(later)).text
