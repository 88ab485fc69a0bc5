"""Mail in an answer: searched by a subagent, sent by a click on its card, in each case once."""

from __future__ import annotations

from email import message_from_bytes
from pathlib import Path
from typing import Any

from card_kit import cards
from engine_kit import call, is_child, led_by, opening, say, turn, until, use
from mail_kit import ITEM, mail
from serve_kit import ASKER, Served
from test_inbox_triage import with_mail

from bot.local.model.answer import Answer

Json = dict[str, Any]

LATE = mail(1, "The parcel of order 1001 went to the wrong address.\n", "Kim <kim@client.example>")
ASKS = {
    "task": "Find what Kim wrote about order 1001",
    "description": "Read Kim's mail",
    "scope": "email",
    "handles": ["mail:search"],
}


def searching(*then: Json) -> Any:
    """A parent with one subagent that searches, does `then`, and tells what it read."""

    def child(body: Json) -> Answer:
        if turn(body) == 0:
            return call("search_mail", query="from:kim@client.example")
        if then and turn(body) == 1:
            return Answer([dict(each) for each in then])
        ids = ITEM.findall(str(body["messages"]).replace("\\n", "\n"))
        found = {"claim": "It went to the wrong address", "evidence": ids[:1]}
        return call("submit_result", text="It went to the wrong address.", findings=[found])

    def mind(body: Json) -> Answer:
        return child(body) if is_child(body) else parent(body)

    parent = led_by(
        Answer([use("run_subagent", **ASKS)]), say("The parcel went to the wrong address [F1.1].")
    )
    return mind


OTHER = mail(2, "The margin of this offer is 40 percent.\n", "Bo <bo@inside.example>")


def drafting(query: str, body: str) -> Any:
    """A subagent that searches, and drafts an answer to Kim."""

    def child(said: Json) -> Answer:
        if turn(said) == 0:
            return call("search_mail", query=query)
        ids = ITEM.findall(str(said["messages"]).replace("\\n", "\n"))
        if turn(said) == 1:
            return call("create_draft", thread=ids[-1].partition("/")[0], body=body)
        found = {"claim": "A draft was asked for", "evidence": ids[:1]}
        return call("submit_result", text="A draft was asked for.", findings=[found])

    parent = led_by(Answer([use("run_subagent", **ASKS)]), say("Look at your drafts [F1.1]."))
    return lambda said: child(said) if is_child(said) else parent(said)


async def test_a_draft_that_rests_on_its_own_thread_needs_no_card(tmp_path: Path) -> None:
    mind = drafting("from:kim@client.example", "We send it again.")
    async with with_mail(tmp_path, LATE, OTHER, mind=mind) as (bot, google):
        await asked_in_private(bot, "Draft an answer to Kim")
        assert len(google.gmail.drafts) == 1
        assert cards(bot, bot.slack.people.dm(ASKER)) == []


async def test_a_draft_that_may_hold_other_mail_is_made_by_a_click_and_once(
    tmp_path: Path,
) -> None:
    mind = drafting("", "We send it again; our margin is 40 percent.")
    async with with_mail(tmp_path, LATE, OTHER, mind=mind) as (bot, google):
        channel = bot.slack.people.dm(ASKER)
        await asked_in_private(bot, "Draft an answer to Kim")
        await until(lambda: cards(bot, channel))
        assert google.gmail.drafts == {}
        (card,) = cards(bot, channel)
        for shown in ("kim@client.example", "Re: Order 1001", "our margin is 40 percent."):
            assert shown in str(card.blocks)
        for _ in range(2):
            bot.slack.people.click(ASKER, channel, card.ts, "action_approve")
        await until(lambda: google.gmail.drafts)
        await until(lambda: not bot.bench.dispatch.at_work)
    (made,) = google.gmail.drafts.values()
    told = message_from_bytes(google.gmail.messages[made.message].raw)
    assert (told["To"], told["Subject"]) == ("kim@client.example", "Re: Order 1001")
    assert "our margin is 40 percent." in told.get_payload()


async def asked_in_private(bot: Served, text: str) -> str:
    channel = bot.slack.people.dm(ASKER)
    said = bot.slack.people.say(ASKER, channel, text)
    return (await bot.answers(said, channel=channel))[0].text


async def test_a_question_about_ones_mail_is_answered_from_it(tmp_path: Path) -> None:
    async with with_mail(tmp_path, LATE, mind=searching()) as (bot, _):
        text = await asked_in_private(bot, "What did Kim write about order 1001?")
        (first, *_rest) = bot.parents()
    assert "MAIL: the handle mail:search" in opening(first)
    assert "wrong address" in text
    assert "mail.google.com" in text or "[1]" in text


async def test_without_a_mailbox_no_mail_is_offered(tmp_path: Path) -> None:
    async with with_mail(tmp_path, LATE, mind=searching()) as (bot, _):
        await bot.answer(bot.ask("What did Kim write about order 1001?", user="U0EVA"))
        (first, *_rest) = bot.parents()
    assert "mail:search" not in opening(first)


async def test_a_mail_is_sent_by_a_click_on_its_card_and_once(tmp_path: Path) -> None:
    wants = use(
        "send_mail",
        to=["kim@client.example"],
        subject="Your parcel",
        body="We send it again today.",
    )
    async with with_mail(tmp_path, LATE, mind=searching(wants)) as (bot, google):
        channel = bot.slack.people.dm(ASKER)
        await asked_in_private(bot, "Write to Kim that we send order 1001 again today")
        await until(lambda: cards(bot, channel))
        assert google.gmail.sent == []
        (card,) = cards(bot, channel)
        assert "kim@client.example" in str(card.blocks)
        assert "We send it again today." in str(card.blocks)
        for _ in range(2):
            bot.slack.people.click(ASKER, channel, card.ts, "action_approve")
        await until(lambda: google.gmail.sent)
        await until(lambda: not bot.bench.dispatch.at_work)
    (sent,) = google.gmail.sent
    made = message_from_bytes(google.gmail.messages[sent].raw)
    assert made["To"] == "kim@client.example"
    assert made["Subject"] == "Your parcel"
