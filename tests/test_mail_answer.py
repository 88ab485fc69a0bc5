"""Mail in an answer: a subagent searches it, and a click on a card creates one draft."""

from __future__ import annotations

from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path
from typing import Any

from card_kit import cards
from engine_kit import call, opening, say, scripted_parent, turn, until, use
from mail_kit import ITEM, mail
from serve_kit import ASKER
from test_inbox_triage import with_mail

from bot.local.model.answer import Answer
from bot.local.model.server import Responder

Json = dict[str, Any]

LATE = mail(1, "The parcel of order 1001 went to the wrong address.\n", "Kim <kim@client.example>")
ASKS = {"task": "Find what Kim wrote", "scope": "email", "handles": ["mail:search"]}
OTHER = mail(2, "The margin of this offer is 40 percent.\n", "Bo <bo@inside.example>")


def search_model(query: str, then: Callable[[list[str]], Answer] | None = None) -> Responder:
    """Script one subagent that searches, does `then` with the ids, and reports a finding."""

    def child(body: Json) -> Answer:
        ids = ITEM.findall(str(body["messages"]).replace("\\n", "\n"))
        if turn(body) == 0:
            return call("search_mail", query=query)
        if then and turn(body) == 1:
            return then(ids)
        found = {"claim": "It went to the wrong address", "evidence": ids[:1]}
        return call("submit_result", text="It went to the wrong address.", findings=[found])

    answer = say("The parcel went to the wrong address [F1.1].")
    return scripted_parent(Answer([use("run_subagent", **ASKS)]), answer, children=child)


async def test_draft_that_may_contain_other_mail_is_created_once_after_approval(
    tmp_path: Path,
) -> None:
    def draft(ids: list[str]) -> Answer:
        text = "We send it again; our margin is 40 percent."
        return call("create_draft", thread=ids[-1].partition("/")[0], body=text)

    async with with_mail(tmp_path, LATE, OTHER, responder=search_model("", draft)) as (bot, google):
        channel = bot.slack.people.dm(ASKER)
        question = bot.slack.people.say(ASKER, channel, "Draft an answer to Kim")
        await bot.answers(question, channel=channel)
        await until(lambda: cards(bot, channel))
        assert google.gmail.drafts == {}
        (card,) = cards(bot, channel)
        for field in ("kim@client.example", "Re: Order 1001", "our margin is 40 percent."):
            assert field in str(card.blocks)
        for _ in range(2):
            bot.slack.people.click(ASKER, channel, card.ts, "action_approve")
        await until(lambda: google.gmail.drafts)
        await until(lambda: not bot.bench.dispatch.at_work)
    (id,) = google.gmail.drafts.values()
    message = message_from_bytes(google.gmail.messages[id].raw)
    assert (message["To"], message["Subject"]) == ("kim@client.example", "Re: Order 1001")
    assert "our margin is 40 percent." in message.get_payload()


async def test_question_about_mail_is_answered_from_the_askers_mailbox(tmp_path: Path) -> None:
    model = search_model("from:kim@client.example")
    async with with_mail(tmp_path, LATE, responder=model) as (bot, _):
        text = (await bot.answer_directly("What did Kim write about order 1001?")).text
        (first, *_rest) = bot.parents()
        await bot.answer(bot.ask("What did Kim write?", user="U0EVA"))  # who has no mailbox
    assert "MAIL: the handle mail:search" in opening(first)
    assert "mail:search" not in opening(bot.parents()[-1])
    assert "email has no tools here" in str(bot.parents()[-1])
    assert "wrong address [1]" in text
