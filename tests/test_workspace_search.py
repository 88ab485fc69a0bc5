"""A search of all public channels, with the token that comes with a request."""

from __future__ import annotations

from pathlib import Path

from card_kit import GUEST, people
from engine_kit import (
    Json,
    call,
    is_child,
    line,
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


SEARCH = with_sections(slack={"search": True, "backfill_hours": 0})
"""Without backfill: a request from the history has no token."""


class SearchModel:
    """A parent that searches the workspace and reads what was found; it keeps both results."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.read: list[str] = []

    def __call__(self, body: Json) -> Answer:
        if is_child(body):
            return self._child(body)
        waves = (brief("slack:search"), brief("F1.1"))
        return scripted_parent(*waves, Answer([words("Here it is [F1.1].")]))(body)

    def _child(self, body: Json) -> Answer:
        source, outputs = line(body, "MAY READ"), [str(each["content"]) for each in results(body)]
        if "slack:search" not in source:
            self.read = outputs
            return submission("Read.") if outputs else call("read_thread", thread=source)
        self.found = outputs
        if not outputs:
            return call("search_messages", query=WORD)
        ids = [part[1:].partition("]")[0] for part in outputs[0].split() if part[:2] == "[C"]
        claims = [{"claim": "It is closed", "evidence": ids[:1]}] if ids else []
        return submission("Searched.", findings=claims)


def brief(handle: str) -> Answer:
    return Answer([use("run_subagent", task="Find it", scope="slack", handles=[handle])])


async def ask_port_question(bot: Served, user: str = ASKER) -> str:
    """Ask a question whose only source is a channel without the bot; return the answer."""
    bot.slack.people.say(ASKER, AWAY, FOUND)
    bot.slack.people.leave(BOT_USER, AWAY)
    bot.slack.people.join(GUEST, bot.channel)
    return (await bot.answer(bot.ask("Is the port open?", user=user))).text


async def test_public_channel_without_the_bot_can_be_searched_but_not_read(tmp_path: Path) -> None:
    model = SearchModel()
    async with serve(tmp_path, model, space=people(), change=SEARCH) as bot:
        await ask_port_question(bot)
        assert FOUND in model.found[0]
        assert "/invite" in model.read[0]
        (run,) = await bot.store.runs(5)
        subagent, _ = await bot.store.subagents(run.id)
        (finding,) = (subagent.result or {})["findings"]
        assert finding["evidence"][0].startswith(f"{AWAY}/")
        assert "/archives/" in finding["links"][0]
        assert await bot.leaks() == []


async def test_a_guest_finds_nothing_outside_of_their_channels(tmp_path: Path) -> None:
    model = SearchModel()
    change = with_rules(ask=("members", "guests"))
    async with serve(tmp_path, model, space=people(), change=lambda s: change(SEARCH(s))) as bot:
        await ask_port_question(bot, GUEST)
        assert model.found
        assert FOUND not in model.found[0]
