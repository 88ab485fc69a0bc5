"""The whole bot in a conversation: one answer, in threads and direct messages, short or long."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from engine_kit import (
    Json,
    brief,
    brief_answer,
    channel_id,
    child,
    is_child,
    line,
    opening,
    say,
    scripted_parent,
    turn,
    until,
    use,
    workspace,
)
from pdf_kit import pdf
from pdf_kit import text_object as words
from PIL import Image
from serve_kit import ASKER, Served, echo, request_in, serve, with_rules
from standins.model_faults import Fault as ModelFault
from standins.model_faults import Faults
from standins.slack_shown import Shown
from test_schedule_chat import ChangingModel

from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_USER
from bot.local.workspace import File
from bot.slack.blocks import FEEDBACK, MAX_MESSAGE, size
from bot.storage.tables import subagents

MODES = pytest.mark.parametrize("mode", ["socket", "http"])
LUIS, EVA = "U0LUIS", "U0EVA"


def one_footer(shown: list[Shown]) -> bool:
    """Return whether the last message alone has buttons."""
    return [FEEDBACK in str(m.blocks) for m in shown] == [False] * (len(shown) - 1) + [True]


# ---- channels, direct messages, the assistant pane


@MODES
async def test_a_mention_gets_one_answer_in_its_thread(tmp_path: Path, mode: str) -> None:
    async with serve(tmp_path, mode=mode) as bot:
        thread = bot.ask("What is open in #support-2?")
        shown = await bot.answer(thread)
        assert shown.thread_ts == thread
        assert "It is **open** [1](https://acme.slack.com/archives/C00000002/p" in shown.text
        assert [(row.title, row.status) for row in shown.plan] == [
            ("Channel 2 · Slack, 1 finding", "complete")
        ]
        assert one_footer([shown])
        (run,) = await bot.store.runs()
        assert (run.status, run.requester) == ("complete", ASKER)
        assert "\n1 source · messages of " in shown.text
        assert bot.slack.state.sessions[bot.channel, thread] == "active"
        processing, *_ = [e for e in bot.slack.effects if e.args.get("status") == "processing"]
        assert processing.args["initiator_user_id"] == ASKER
        assert len(bot.replies(thread)) == 1


async def test_direct_message_context_reflects_edits_and_deletions(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        people = bot.slack.people
        dm = people.dm(ASKER)
        first = people.say(ASKER, dm, "My dog is called Rex.")
        await bot.answer(first, channel=dm)
        secret = people.say(ASKER, dm, "My password is hunter2.")
        await bot.answer(secret, channel=dm)
        await bot.answer_directly("Mine is swordfish.", EVA)
        people.say(BOT_USER, dm, "Your digest.")
        people.edit(ASKER, dm, first, "My dog is called Max.")
        people.delete(ASKER, dm, secret)
        await bot.answer_directly("What is my dog called?")
        prompt = opening(bot.parents()[-1])
        assert "CONVERSATION" in prompt
        assert "My dog is called Max." in prompt
        assert "digest" not in prompt, "only requests: a report may rest on anything"
        assert "Rex" not in prompt
        assert "hunter2" not in prompt
        assert "swordfish" not in prompt
        await bot.answer(bot.ask("And in here?"))
        assert "CONVERSATION" not in opening(bot.parents()[-1])


async def test_follow_up_in_a_direct_message_reuses_the_sources_of_earlier_answers(
    tmp_path: Path,
) -> None:
    without_sources = use(
        "run_subagent", task="Find what was open in the last two months.", scope="slack"
    )
    space = workspace(4)
    private = replace(space.channels[3], members=(LUIS, BOT_USER), is_private=True)
    space = replace(space, channels=(*space.channels[:3], private))
    turning = ChangingModel(scripted_parent(say("Nothing.")))
    async with serve(tmp_path, turning, space=space) as bot:

        async def ask(text: str, *turns: Answer, user: str = ASKER) -> Json:
            """Return the last request of the parent to the model."""
            turning.responder = scripted_parent(*turns, say("That is all."))
            await bot.answer_directly(text, user)
            return bot.parents()[-1]

        await ask(f"And in <#{private.id}>?")
        await ask("What is open?", Answer([use("list_channels")]), brief_answer(1))
        request = await ask("And of the last two months?", Answer([without_sources]))
        assert line(request, "NAMED SOURCES") == f"{channel_id(1)} (#support-1)"
        child = [body for body in bot.model.recorded if is_child(body)][-1]
        assert line(child, "MAY READ") == f"{channel_id(1)} (#support-1)"
        request = await ask("And in #support-2?", Answer([without_sources]))
        named = f"{channel_id(1)} (#support-1); {channel_id(2)} (#support-2)"
        assert line(request, "NAMED SOURCES") == named
        assert line(request, "LISTS") == ""
        child = [body for body in bot.model.recorded if is_child(body)][-1]
        assert line(child, "MAY READ") == f"{channel_id(2)} (#support-2)"
        assert line(await ask("And there?", user=EVA), "NAMED SOURCES") == "none"


async def test_assistant_pane_offers_prompts_and_knows_the_open_channel(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        people, state = bot.slack.people, bot.slack.state
        dm = people.dm(ASKER)
        people.open_home(ASKER, "messages")
        await until(lambda: (dm, "") in state.prompts)
        people.look_at(ASKER, channel_id(3))
        await until(lambda: len(state.prompts[dm, ""]) == 4)
        assert f"<#{channel_id(3)}>" in state.prompts[dm, ""][0]["message"]
        await bot.bench.backfill.idle()  # history does not say what is open beside the pane
        await bot.answer_directly("What is this channel about?")
        await bot.answer_directly("And mine?", EVA)
        seen, unseen = bot.parents()
        assert f"the channel {channel_id(3)} open" in opening(seen)
        assert "open;" not in opening(unseen)
        assert bot.slack.calls["views.publish"] == 0
        await until(lambda: bot.slack.calls["assistant.threads.setTitle"] == 2)


# ---- threads


async def test_second_request_sees_the_current_thread_and_earlier_findings(
    tmp_path: Path,
) -> None:
    first_turns = [Answer([brief(2), brief(3)]), say("One [F1.1]. Two [F2.1].")]

    def model(body: Json) -> Answer:
        if is_child(body):
            return child(body)
        if "second one" not in request_in(body):
            return first_turns[min(turn(body), 1)]
        return say("The second one is this [F1002.1].")

    async with serve(tmp_path, model, change=with_rules(mention_needed=True)) as bot:
        people = bot.slack.people
        root = people.say(LUIS, bot.channel, "The printer is on fyre.")
        deleted = people.say(EVA, bot.channel, "My password is hunter2.", root)
        bot.ask("What is open in #support-2 and #support-3?", thread_ts=root)
        await bot.answer(root)
        people.edit(LUIS, bot.channel, root, "The printer is on fire.")
        people.delete(EVA, bot.channel, deleted)
        users, unknown = bot.slack.state.users, "U0UNKNOWN"
        users[unknown] = replace(users[EVA], id=unknown)
        bot.slack.state.members[bot.channel][unknown] = None
        people.say(unknown, bot.channel, "Good to know.", root)
        del users[unknown]  # Slack tells nothing about them
        bot.ask("Tell me more about the second one", thread_ts=root)
        _, second = await bot.answers(root, 2)
        prompt = opening(bot.parents()[-1])
        assert "FINDINGS OF EARLIER ANSWERS (cite them by id):" in prompt
        assert "F1002.1" in prompt
        assert "The printer is on fire." in prompt
        assert "fyre" not in prompt
        assert "hunter2" not in prompt
        assert "Good to know." in prompt
        assert "your own earlier answer" in prompt
        assert request_in(bot.parents()[-1]) == "Tell me more about the second one"
        assert f"/archives/{channel_id(3)}/p" in str(second.blocks)


# ---- buttons


async def test_stop_button_cancels_subagents_and_shows_partial_results(tmp_path: Path) -> None:
    def slow(index: int, body: Json) -> ModelFault | None:
        reads = line(body, "MAY READ")
        return ModelFault("slow") if is_child(body) and "#support-3" in reads else None

    model = scripted_parent(Answer([brief(2), brief(3)]), say("Both [F1.1]."))
    async with serve(tmp_path, model, mode="http", faults=Faults(slow)) as bot:
        thread = bot.ask("What is open in #support-2 and #support-3?")
        await until(lambda: "Channel 2: complete" in rows(bot, thread))
        assert bot.slack.state.sessions[bot.channel, thread] == "processing"
        bot.slack.people.stop(ASKER, bot.channel, thread)
        shown = await bot.answer(thread)
        assert "Stopped after 1 of 2 questions; 1 was not looked at." in shown.text
        assert "Channel 2 is read. [1](https://" in shown.text
        assert "not covered" not in shown.text
        (run,) = await bot.store.runs()
        assert run.status == "cancelled"
        assert bot.slack.state.sessions[bot.channel, thread] == "active"
        children = await bot.store.subagents(run.id)
        assert {s.result["status"] for s in children if s.result} == {"complete", "cancelled"}


def rows(bot: Served, thread: str) -> list[str]:
    """Return the rows of the plan as shown now."""
    shown = [row for m in bot.replies(thread) for row in m.plan]
    return [f"{row.title.split(' · ')[0]}: {row.status}" for row in shown]


# ---- errors


async def test_internal_error_is_reported_without_details_but_with_the_run_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The findings of an earlier answer are damaged in the database."""
    async with serve(tmp_path) as bot:
        thread = bot.ask()
        await bot.answer(thread)
        (run,) = await bot.store.runs()
        (found,) = await bot.store.subagents(run.id)
        assert found.result
        damaged = {**found.result, "findings": [{"id": "oops"}]}
        await bot.store.database.write(sa.update(subagents).values(result=damaged))
        bot.ask("And more?", thread_ts=thread)
        shown = (await bot.answers(thread, 2))[1]
        failed = (await bot.store.runs())[0]
        assert failed.status == "failed"
        assert failed.id in shown.text
        assert len(shown.text) < 200
        assert not any(word in shown.text for word in ("Traceback", "Error", "oops", "/"))
        assert "Traceback" in caplog.text
        assert bot.slack.state.sessions[bot.channel, thread] == "active"
        third = bot.ask("Still there?")
        assert (await bot.answer(third)).text


# ---- length and links


async def test_long_answer_is_split_into_several_messages_with_one_footer(tmp_path: Path) -> None:
    text = "\n".join(f"{n}. " + f"word{n} " * 12 for n in range(1, 330))
    model, roles = scripted_parent(say(text)), {"parent": {"max_tokens": 20_000}}
    async with serve(tmp_path, model, roles=roles) as bot:
        thread = bot.ask("Tell me all")
        shown = await bot.answers(thread, 3)
        assert len(shown) >= 3
        assert all(
            len(m.blocks) <= 50 and size([dict(b) for b in m.blocks]) <= MAX_MESSAGE for m in shown
        )
        assert one_footer(shown)
        shown_text = "\n".join(m.text for m in shown)
        at = [shown_text.index(f"word{n} ") for n in range(1, 330)]
        assert at == sorted(at)
        assert len(bot.replies(thread)) == len(shown)


async def test_answer_mentions_only_its_requester_and_links_only_addresses_of_the_request(
    tmp_path: Path,
) -> None:
    text = f"<@{ASKER}>: https://asked.example/a?b=1&c=2, not https://evil.example/x, <!channel>"
    async with serve(tmp_path, scripted_parent(say(f"{text} @here <@U0LUIS>"))) as bot:
        shown = await bot.answer(bot.ask("Is <https://asked.example/a?b=1&amp;c=2> up?"))
        expected = f"<@{ASKER}>: https://asked.example/a?b=1&c=2, not evil[.]example/x, @channel"
        assert f"{expected} @here @U0LUIS" in shown.text
        links = re.findall(r"'type': 'link', 'url': '([^']*)'", str(shown.blocks))
        assert links == ["https://asked.example/a?b=1&c=2"]
        assert not re.search(r"'type': '(broadcast|markdown)'|<!", str(shown.blocks))


# ---- files


async def test_attached_files_are_read_or_named_as_unread(tmp_path: Path) -> None:
    image = io.BytesIO()
    Image.new("RGB", (30, 20)).save(image, "PNG")
    contents = {
        "notes.txt": ("text/plain", "Le café est fermé".encode()),
        "sales.csv": ("text/csv", b"month,sum\nMay,12"),
        "invoice.pdf": ("application/pdf", pdf(words("Invoice 4711"))),
        "photo.png": ("image/png", image.getvalue()),
        "stuff.zip": ("application/zip", b"PK\x03\x04"),
        "late.txt": ("text/plain", b"one too many"),
    }
    files = [
        File(f"F000{number}", name, name, kind, size=len(content), content=content)
        for number, (name, (kind, content)) in enumerate(contents.items())
    ]
    async with serve(tmp_path, scripted_parent(say("Read."))) as bot:
        shown = await bot.answer(bot.ask("What is in these?", files=files))
        (body,) = bot.parents()
        prompt = opening(body)
        for each in ("Le café est fermé", "May,12", "Invoice 4711"):
            assert each in prompt
        assert "one too many" not in prompt
        (picture,) = [b for b in body["messages"][0]["content"] if b["type"] == "image"]
        assert picture["source"]["media_type"] == "image/png"
        assert "stuff[.]zip" in shown.text
        assert " and 1 more · " in shown.text
        assert "notes.txt" not in shown.text
        (run,) = await bot.store.runs()
        assert run.result
        label = run.result["label"]
        assert (label["untrusted"], label["outside"], label["sources"]) == (
            True,
            True,
            [bot.channel],
        )
