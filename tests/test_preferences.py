"""Preferences of people and instructions of channels: stored, followed, listed and deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tool_kit
from card_kit import EVA, LUIS, again, ask_for_card, people, reaches, stored_actions
from engine_kit import Json, channel_id, opening, say, scripted_parent, turn, until, use
from fleet_kit import fleet
from pg_kit import StorePlace
from serve_kit import ASKER, Served, serve, with_rules
from test_schedule_chat import ChangingModel, tool_texts

from bot.listeners.home import DELETE
from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.slack.views import home
from bot.memory import NOT_IN_IT, PreferenceStore
from bot.storage.database import Database
from bot.tasks.ask import IN_ORDER
from config.words import phrase
from scopes.preferences import (
    MAX_PREFERENCES,
    TOO_MANY_ERROR,
    Authorship,
    Preferences,
    forget_preference,
)
from scopes.tool import ToolError

PORTUGUESE = "answer me in Portuguese"
HERE = channel_id(1)
STYLE = "Keep it to three bullets. Ask Luis about invoices."


def tool_call_model(*calls: Json) -> Responder:
    return scripted_parent(Answer(list(calls)), say("So be it."))


def remember_model(*texts: str) -> Responder:
    return tool_call_model(*(use("remember_preference", text=text) for text in texts))


def forget_model(words: str) -> Responder:
    return tool_call_model(use("forget_preference", words=words))


def instructions_model(text: str) -> Responder:
    return tool_call_model(use("set_channel_instructions", text=text))


async def ask(bot: Served, text: str, **more: Any) -> Json:
    """Ask, and return the last request to the parent model."""
    await bot.answers(bot.ask(text, **more))
    return [body for body in bot.parents() if f"REQUEST: {text}" in opening(body)][-1]


def preference_lines(body: Json) -> list[str]:
    """The lines of an opening with preferences and channel instructions."""
    lines = opening(body).splitlines()
    start = next(
        (n for n, each in enumerate(lines) if each.startswith("PREFERENCES: ")), len(lines)
    )
    listed = [each for each in lines[start:] if each.startswith("- ")]
    return listed + [each for each in lines if each.startswith("CHANNEL INSTRUCTIONS: ")]


def read_home(bot: Served, user: str) -> tuple[str, list[tuple[str, str]]]:
    """All of a Home as JSON, and each preference in it with the value of its button."""
    found = home(bot.slack.state, user)
    blocks: Sequence[Json] = found.body["blocks"] if found else ()
    pairs = [
        (block["text"]["text"], block["accessory"]["value"])
        for block in blocks
        if block.get("accessory", {}).get("action_id") == DELETE
    ]
    return json.dumps(blocks, ensure_ascii=False), pairs


def store_of(database: Database) -> PreferenceStore:
    """The store of a database, for calls that do not look up who is in a channel."""
    return PreferenceStore(database, None)  # type: ignore[arg-type]


async def stored_preferences(bot: Served, user: str = ASKER) -> list[str]:
    return [each.text for each in await store_of(bot.store.database).list_preferences(user)]


async def instructions(bot: Served) -> str:
    return await store_of(bot.store.database).instructions(HERE)


# ---- of a person


async def test_preference_applies_to_later_requests_and_after_a_restart(tmp_path: Path) -> None:
    async with serve(tmp_path, remember_model(PORTUGUESE), space=people()) as bot:
        first = await ask(bot, "From now on answer me in Portuguese.")
        assert preference_lines(first) == []
        assert tool_texts(bot)[-1] == phrase("preference.kept")
        assert await stored_actions(bot) == [], "no card is needed for the requester's own words"
        assert preference_lines(await ask(bot, "What is new?")) == [f"- {PORTUGUESE}"]
    async with serve(tmp_path, scripted_parent(say("Sim.")), space=people()) as bot:
        body = await ask(bot, "And in #support-2?")
        assert preference_lines(body) == [f"- {PORTUGUESE}"]
        lines = opening(body).splitlines()
        by = next(n for n, each in enumerate(lines) if each.startswith("ASKED BY: "))
        assert lines[by + 1] == f"PREFERENCES: {IN_ORDER}"
        await bot.answer_directly("And here?")
        assert preference_lines(bot.parents()[-1]) == [f"- {PORTUGUESE}"]


async def test_subagents_receive_no_preferences(tmp_path: Path) -> None:
    async with serve(tmp_path) as bot:
        await store_of(bot.store.database).add(PORTUGUESE, Authorship(ASKER))
        assert preference_lines(await ask(bot, "What is open in #support-2?"))
        children = [body for body in bot.model.recorded if body not in bot.parents()]
        assert children
        assert not [body for body in children if PORTUGUESE in json.dumps(body)]


async def test_preferences_are_visible_and_deletable_only_by_their_owner(tmp_path: Path) -> None:
    turning = ChangingModel(remember_model("call the customer Acme"))
    async with serve(tmp_path, turning, space=people()) as bot:
        await ask(bot, "Always call the customer Acme.")
        assert await stored_preferences(bot) == ["call the customer Acme"]
        turning.responder = scripted_parent(say("Nothing."))
        bot.slack.state.members[bot.channel][EVA] = None
        assert preference_lines(await ask(bot, "What is new?", user=EVA)) == []
        bot.slack.people.open_home(EVA)
        await until(lambda: home(bot.slack.state, EVA))
        text, pairs = read_home(bot, EVA)
        assert ("Acme" in text, pairs) == (False, [])
        bot.slack.people.open_home(ASKER)
        await until(lambda: read_home(bot, ASKER)[1])
        text, ((_, id),) = read_home(bot, ASKER)
        assert f"/archives/{bot.channel}/p" in text, "a link to the last answer"
        for user, value in ((EVA, id), (ASKER, "x"), (ASKER, "")):
            press = {"actions": [{"action_id": DELETE, "value": value}], "user": {"id": user}}
            bot.slack.put("interactive", {"type": "block_actions", **press})
        await bot.quiet()
        assert await stored_preferences(bot) == ["call the customer Acme"]
        bot.slack.people.click_home(ASKER, DELETE, id)
        await until(lambda: not read_home(bot, ASKER)[1])
        assert await stored_preferences(bot) == []


async def test_preference_can_be_deleted_in_chat(tmp_path: Path) -> None:
    turning = ChangingModel(remember_model("answer me in Portuguese", "be short"))
    async with serve(tmp_path, turning, space=people()) as bot:
        await ask(bot, "Please answer me in Portuguese, and be short.")
        turning.responder = forget_model("no such thing")
        await ask(bot, "Forget no such thing.")
        assert "No preference has (any more) these words" in tool_texts(bot)[-1]
        turning.responder = forget_model("Portuguese")
        await ask(bot, "Forget that I wanted Portuguese.")
        assert "is deleted: answer me in Portuguese" in tool_texts(bot)[-1]
        assert await stored_preferences(bot) == ["be short"]


async def test_preference_not_worded_in_the_request_needs_the_requesters_approval(
    tmp_path: Path,
) -> None:
    change = with_rules(policy={"approvers": (LUIS,)})
    async with serve(tmp_path, remember_model("Be brief"), space=people(), change=change) as bot:
        shown = await ask_for_card(bot, "You talk too much.")
        assert "Remember a preference" in shown.text
        assert "Be brief" in shown.text
        bot.slack.state.members[bot.channel][LUIS] = None
        bot.slack.people.click(LUIS, bot.channel, shown.ts, "action_approve")
        await until(lambda: bot.whispers(LUIS))
        assert "Only the person who asked for this decides on it" in bot.whispers(LUIS)[0]
        assert await stored_preferences(bot) == []
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        assert await stored_preferences(bot) == ["Be brief"]


async def test_at_most_twenty_preferences_are_kept_and_duplicates_count_once(
    tmp_path: Path,
) -> None:
    texts = [f"rule {n}" for n in range(MAX_PREFERENCES)]
    turning = ChangingModel(remember_model(*texts, texts[0]))
    async with serve(tmp_path, turning, space=people()) as bot:
        await ask(bot, f"Keep {', '.join(texts)}.")
        texts = [*texts[1:], texts[0]]
        assert await stored_preferences(bot) == texts
        for request, text in (("Keep one more.", "one more"), ("Hello.", "Be brief")):
            turning.responder = remember_model(text)
            await ask(bot, request)
            assert "20 preferences are kept already" in tool_texts(bot)[-1]
        assert (await stored_actions(bot), await stored_preferences(bot)) == ([], texts)
        bot.slack.people.open_home(ASKER)
        await until(lambda: len(read_home(bot, ASKER)[1]) == MAX_PREFERENCES)


async def test_concurrent_replicas_respect_the_preference_limit(place: StorePlace) -> None:
    async with place.stores(2) as stores:
        replicas = [store_of(store.database) for store in stores]
        adds = (
            each.add(f"rule {n} of {i}", Authorship(ASKER))
            for n in range(MAX_PREFERENCES)
            for i, each in enumerate(replicas)
        )
        done = await asyncio.gather(*adds, return_exceptions=True)
        refused = [str(each) for each in done if isinstance(each, ToolError)]
        assert len(await replicas[0].list_preferences(ASKER)) == MAX_PREFERENCES
        assert refused == [TOO_MANY_ERROR] * (len(done) - MAX_PREFERENCES)


@pytest.mark.system
async def test_request_resumed_after_a_crash_gets_the_identical_prompt(tmp_path: Path) -> None:
    with fleet(tmp_path, remember_model(PORTUGUESE), latency_s=1.0, space=people()) as bots:
        (first,) = await bots.start_bots()
        thread = bots.ask("From now on answer me in Portuguese.")
        await until(lambda: any(turn(body) for body in bots.model.recorded), 60)
        first.kill()
        bots.balancer.targets.clear()
        await bots.start_bots()
        await bots.answer(thread, 60)
        assert len({opening(body) for body in bots.model.recorded}) == 1
        assert preference_lines(bots.model.recorded[-1]) == []
        bots.ask("What is new?")
        await until(lambda: "REQUEST: What is new?" in opening(bots.model.recorded[-1]), 60)
        assert preference_lines(bots.model.recorded[-1]) == [f"- {PORTUGUESE}"]


# ---- of a channel


async def test_channel_instructions_are_shown_in_full_and_apply_to_everyone_there(
    tmp_path: Path,
) -> None:
    turning = ChangingModel(instructions_model(STYLE))
    async with serve(tmp_path, turning, space=people()) as bot:
        shown = await ask_for_card(bot, "Here always use three bullets; Luis knows invoices.")
        assert "Set the instructions of this channel" in shown.text
        assert STYLE in shown.text
        assert await instructions(bot) == ""
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        await until(lambda: "The instructions of this channel are set" in again(bot, shown).text)
        bot.slack.state.members[bot.channel][EVA] = None
        body = await ask(bot, "What are your instructions here?", user=EVA)
        assert preference_lines(body) == [f"CHANNEL INSTRUCTIONS: {STYLE}"]
        (run, *_) = await bot.store.runs(1)
        assert run.result
        assert run.result["label"]["sources"] == [bot.channel], "its members may know them"
        await bot.answer_directly("And here?", EVA)
        assert preference_lines(bot.parents()[-1]) == []


async def test_requester_who_left_the_channel_cannot_set_its_instructions(tmp_path: Path) -> None:
    async with serve(tmp_path, instructions_model(STYLE), space=people()) as bot:
        shown = await ask_for_card(bot, "Here always use three bullets.")
        del bot.slack.state.members[bot.channel][ASKER]
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        (row,) = await reaches(bot, "failed")
        assert NOT_IN_IT in str(row.outcome)
        assert await instructions(bot) == ""


# ---- stored


async def test_replayed_deletion_deletes_no_other_preference(in_file: StorePlace) -> None:
    """The words match the other one too, once the first is deleted."""
    store = await in_file.store()
    preferences = store_of(store.database)
    for text in ("be brief", "be brief in lists"):
        await preferences.add(text, Authorship(ASKER))
    fields = {"requester": ASKER, "key": "r1/p1/1/0"}
    ctx = tool_kit.context("notes", {Preferences: preferences}, {}, **fields)
    for _ in range(2):
        result = await forget_preference.run(ctx, words="be brief")
        assert result.note == "This preference is deleted: be brief"
        assert [each.text for each in await preferences.list_preferences(ASKER)] == [
            "be brief in lists"
        ]
    again = await forget_preference.run(replace(ctx, key="r1/p1/2/0"), words="be brief")
    assert again.note == "This preference is deleted: be brief in lists"
    await store.aclose()
