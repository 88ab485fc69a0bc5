"""The buttons below an answer: its details, and ratings with their reasons."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from engine_kit import brief_answer, scripted_parent, until
from serve_kit import ASKER, Served, echo, serve
from standins.slack_shown import Shown, flat
from test_private_answer import FOUND, LUIS, TEAM, in_private, markets

from bot.reports.frame import DETAILS
from bot.slack.blocks import FEEDBACK
from bot.storage.tables import feedback, runs
from config.words import phrase

GONE, NOT_READABLE = phrase("answer.details_gone"), phrase("answer.details_hidden")
THANKS = phrase("feedback.thanks")


async def open_details(
    bot: Served, user: str, channel: str, shown: Shown, run: str | None = None
) -> str:
    """Return the text of the modal that the button opens; `run` is a forged button value."""
    bot.slack.state.views.clear()
    bot.slack.people.click(user, channel, shown.ts, DETAILS, run)
    await until(lambda: bot.slack.state.views)
    (view,) = bot.slack.state.views.values()
    assert view.user == user
    return "\n".join(map(flat, view.body["blocks"]))


async def test_details_open_only_for_people_who_may_read_the_sources(tmp_path: Path) -> None:
    responder = scripted_parent(brief_answer(5), FOUND)
    async with serve(tmp_path, responder, space=in_private(markets())) as bot:
        dm = bot.slack.people.dm(ASKER)
        ts = bot.slack.people.say(ASKER, dm, "What is open in #support-5?")
        shown = await bot.answer(ts, channel=dm)
        (run,) = await bot.store.runs()
        assert run.id not in shown.text
        details = await open_details(bot, ASKER, dm, shown)
        assert details.startswith("*Sources*\n<https://acme.slack.com/archives/C00000005/")
        assert details.endswith(f"Reference: {run.id}")
        open_to_all = await bot.answer(bot.ask("What is open here?", channel=TEAM), channel=TEAM)
        assert await open_details(bot, LUIS, TEAM, open_to_all, run.id) == NOT_READABLE
        await bot.store.database.write(sa.update(runs).values(result=None))
        assert await open_details(bot, ASKER, dm, shown) == GONE


async def test_small_talk_takes_one_model_call_and_shows_no_plan_or_buttons(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        shown = await bot.answer(bot.ask("Thanks!"))
        assert shown.text == "You asked: Thanks!"
        assert [block["type"] for block in shown.blocks] == ["rich_text"]
        assert FEEDBACK not in str(shown.blocks)
        assert len(bot.model.recorded) == 1
        plans = [e for e in bot.slack.effects if "task_update" in str(e.args)]
        assert plans == []


async def read_ratings(bot: Served) -> dict[tuple[str, str], tuple[str, str | None, str | None]]:
    rows = await bot.store.database.read(sa.select(feedback))
    return {(r.request, r.user): (r.value, r.reason, r.comment) for r in rows}


async def test_a_rating_is_stored_and_a_bad_one_asks_why(tmp_path: Path) -> None:
    async with serve(tmp_path, mode="http") as bot:
        ts = bot.ask("What is open in #support-2?")
        shown = await bot.answer(ts)
        key = f"T0ACME/{bot.channel}/{ts}"

        def rate(user: str, value: str) -> None:
            bot.slack.people.click(user, bot.channel, shown.ts, FEEDBACK, f"{value}:{key}")

        rate(ASKER, "good")
        await until(lambda: bot.whispers() == [THANKS])
        for user in (ASKER, LUIS):
            rate(user, "bad")
            await until(lambda u=user: _form(bot, u))  # type: ignore[misc]
        assert await read_ratings(bot) == {
            (key, ASKER): ("bad", None, None),
            (key, LUIS): ("bad", None, None),
        }
        typed = {"reason": "missing", "comment": "Nothing of #support-3.\nReally."}
        bot.slack.people.submit(LUIS, _form(bot, LUIS), typed)
        bot.slack.people.submit(ASKER, _form(bot, ASKER), {})
        await until(lambda: _metric(bot, 'bad_answers_total{reason="missing"} 1.0'))
        rate(LUIS, "bad")
        await until(lambda: _form(bot, LUIS))
        assert await read_ratings(bot) == {
            (key, ASKER): ("bad", None, None),
            (key, LUIS): ("bad", *typed.values()),
        }, "another click asks again and deletes nothing"
        late = _form(bot, LUIS)
        rate(LUIS, "good")
        await until(lambda: THANKS in bot.whispers(LUIS))
        bot.slack.people.submit(LUIS, late, {"reason": "wrong"})
        await until(lambda: all(d.acked_at for d in bot.slack.deliveries))
        assert (await read_ratings(bot))[key, LUIS] == ("good", None, None), "it is no longer bad"
        for line in ('feedback_total{value="good"} 2.0', 'feedback_total{value="bad"} 2.0'):
            assert _metric(bot, line)


def _form(bot: Served, user: str) -> str:
    """Return the id of this person's open form; empty if there is none."""
    views = bot.slack.state.views.items()
    return next((id for id, view in views if view.user == user), "")


def _metric(bot: Served, line: str) -> bool:
    return f"assistant_{line}\n" in bot.bench.metrics.render().decode()
