"""A search of all public channels, by the token that comes with a request."""

from __future__ import annotations

from pathlib import Path

from card_kit import GUEST, people
from engine_kit import (
    Json,
    call,
    is_child,
    line,
    opening,
    results,
    scripted_parent,
    submission,
    use,
    words,
)
from serve_kit import ASKER, Served, serve, with_rules, with_sections

from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_USER

WORD = "harbour"
FOUND = f"The {WORD} is closed until Friday."
AWAY = "C00000003"
"""A public channel without the bot."""


SEARCHING = with_sections(slack={"search": True, "backfill_hours": 0})
"""A request that is found in the history has no token."""


class Mind:
    """A parent that has the workspace searched, then what was found read; keeps what was shown."""

    def __init__(self) -> None:
        self.held = ""
        self.found: list[str] = []
        self.read: list[str] = []

    def __call__(self, body: Json) -> Answer:
        if is_child(body):
            return self._child(body)
        self.held = opening(body)
        waves = (brief("slack:search"), brief("F1.1"))
        return scripted_parent(*waves, Answer([words("Here it is [F1.1].")]))(body)

    def _child(self, body: Json) -> Answer:
        source, told = line(body, "MAY READ"), [str(each["content"]) for each in results(body)]
        if "slack:search" not in source:
            self.read = told
            return submission("Read.") if told else call("read_thread", thread=source)
        self.found = told
        if not told:
            return call("search_messages", query=WORD)
        ids = [part[1:].partition("]")[0] for part in told[0].split() if part[:2] == "[C"]
        claims = [{"claim": "It is closed", "evidence": ids[:1]}] if ids else []
        return submission("Searched.", findings=claims)


def brief(handle: str) -> Answer:
    return Answer([use("run_subagent", task="Find it", scope="slack", handles=[handle])])


async def ask_port_question(bot: Served, user: str = ASKER) -> str:
    """The answer to a question whose only source is a channel without the bot."""
    bot.slack.people.say(ASKER, AWAY, FOUND)
    bot.slack.people.leave(BOT_USER, AWAY)
    bot.slack.people.join(GUEST, bot.channel)
    return (await bot.answer(bot.ask("Is the port open?", user=user))).text


async def test_public_channel_without_the_bot_can_be_searched_but_not_read(tmp_path: Path) -> None:
    mind = Mind()
    async with serve(tmp_path, mind, space=people(), change=SEARCHING) as bot:
        await ask_port_question(bot)
        assert FOUND in mind.found[0]
        assert "/invite" in mind.read[0]
        (run,) = await bot.store.runs(5)
        subagent, _ = await bot.store.subagents(run.id)
        (finding,) = (subagent.result or {})["findings"]
        assert finding["evidence"][0].startswith(f"{AWAY}/")
        assert "/archives/" in finding["links"][0]
        assert await bot.leaks() == []


async def test_a_guest_finds_nothing_outside_of_their_channels(tmp_path: Path) -> None:
    mind = Mind()
    change = with_rules(ask=("members", "guests"))
    async with serve(tmp_path, mind, space=people(), change=lambda s: change(SEARCHING(s))) as bot:
        await ask_port_question(bot, GUEST)
        assert mind.found
        assert FOUND not in mind.found[0]
