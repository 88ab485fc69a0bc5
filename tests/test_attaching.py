"""The files of a request are attached in its thread: once each, and only for its readers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from engine_kit import (
    Json,
    brief,
    child,
    is_child,
    line,
    results,
    say,
    submission,
    turn,
    until,
    use,
    workspace,
)
from serve_kit import ASKER, Served, request_in, serve
from standins.slack_faults import Fault

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, File, Workspace
from bot.storage import tables
from bot.storage.requests import StoredReply, StoredRequest
from scopes.intent import Intent
from subagents.directory import Obstacle

DONE = "files.completeUploadExternal"
LUIS, TEAM = "U0LUIS", "C0TEAM"
SECRET = "the quokka signed for Harbour Line on the ninth of March"


def saving_model(*calls: Json) -> Responder:
    """A parent whose first subagent saves files, and whose second one reads the first of them."""

    def child(body: Json) -> Answer:
        if "second" in line(body, "TASK"):
            read = use("read_resource", name=calls[0]["input"]["name"])
            return submission("Read.") if results(body) else Answer([read])
        done = len(results(body))
        return Answer([calls[done]]) if done < len(calls) else submission("Kept.")

    def responder(body: Json) -> Answer:
        if is_child(body):
            return child(body)
        if turn(body) < 2:
            task = ("first: keep the files", "second: read the file")[turn(body)]
            return Answer([brief(task=task, scope="notes", handles=["notes:own"])])
        return say(f"Here they are, as you asked: {request_in(body)}")

    return responder


def save_call(name: str, text: str = SECRET) -> Json:
    return use("save_resource", name=name, text=text)


def files(bot: Served, channel: str, thread: str) -> list[File]:
    return [f for m in bot.slack.visible(channel, thread) for f in m.files]


async def wait_until_settled(bot: Served, condition: Any) -> None:
    await until(lambda: condition() and not bot.bench.dispatch.at_work, 20)


async def test_saved_files_are_attached_below_the_answer(tmp_path: Path) -> None:
    responder = saving_model(
        save_call("plan.md", "a draft"), save_call("plan.md"), save_call("notes.txt", "more")
    )
    async with serve(tmp_path, responder) as bot:
        thread = bot.ask("Write the plan")
        await wait_until_settled(bot, lambda: len(files(bot, bot.channel, thread)) == 2)
        shown = files(bot, bot.channel, thread)
        assert [(f.name, f.content) for f in shown] == [
            ("notes.txt", b"more"),
            ("plan.md", SECRET.encode()),
        ]
        first, *_ = bot.replies(thread)
        assert "Here they are" in first.text, "the answer is above its files"
        (read,) = (b for b in bot.model.recorded if "second" in line(b, "TASK") and results(b))
        assert SECRET in str(results(read)), "the second subagent read the last version"
        (run,) = await bot.store.runs(5)
        document = (await bot.store.run(run.id)).result
        assert document
        assert document["files"] == [
            {"name": "notes.txt", "kind": "text/plain", "bytes": 4, "version": 1},
            {"name": "plan.md", "kind": "text/markdown", "bytes": len(SECRET), "version": 2},
        ]


def apart() -> Workspace:
    """#team, with Luis, and a channel that only the asker reads."""
    base = workspace(1)
    own = replace(base.channels[0], is_private=True, members=(ASKER, BOT_USER))
    return replace(base, channels=(own, Channel(TEAM, "team", (), (ASKER, LUIS, BOT_USER))))


async def test_request_resumed_after_a_fault_uploads_its_file_once(tmp_path: Path) -> None:
    async with serve(tmp_path, saving_model(save_call("plan.md"))) as bot:
        bot.slack.faults += [Fault(DONE, "lost", 1.0), Fault("upload", "drop", 1.0)]
        thread = bot.ask("Write the plan")
        await wait_until_settled(bot, lambda: len(files(bot, bot.channel, thread)) == 1)
        (run,) = await bot.store.runs(5)
        request = await bot.inbox.request((await bot.store.run(run.id)).request or "")
        assert request
        for _ in range(2):
            await again(bot, request, run.id)
            assert len(files(bot, bot.channel, thread)) == 1
        lost = tables.steps.c.key.endswith("/shown")  # killed before that was stored
        assert await bot.store.database.write(sa.delete(tables.steps).where(lost)) == 1
        await again(bot, request, run.id)
        withheld = (Obstacle("C0", "#board", "not everyone is a member"),)
        await again(bot, request, run.id, StoredReply(withheld=withheld))
        assert len(files(bot, bot.channel, thread)) == 1, "an answer that nobody got has no files"


async def again(
    bot: Served, request: StoredRequest, run: str, done: StoredReply | None = None
) -> None:
    """Attach as the resumed workflow does."""
    async with bot.bench.dispatch.runs.at_work(run) as live:
        ctx = live.run.context(intent=Intent(home=request.channel))
        await bot.bench.approvals.delivery.attach(request, live, ctx, done or StoredReply())


async def test_answer_published_after_a_grant_includes_its_file(tmp_path: Path) -> None:
    """The parent had read a private channel before the file was saved."""
    writing = saving_model(save_call("plan.md"))

    def responder(body: Json) -> Answer:
        if is_child(body) and "MAY READ: notes" in str(body["messages"][0]):
            return writing(body)
        if is_child(body):
            return child(body)
        turns = (brief(1), brief(task="first: keep", scope="notes", handles=["notes:own"]))
        return Answer([turns[turn(body)]]) if turn(body) < 2 else say("It is so [F1.1].")

    async with serve(tmp_path, responder, space=apart()) as bot:
        thread = bot.ask("What is open in #support-1? Keep it.", channel=TEAM)
        dm = bot.slack.people.dm(ASKER)
        await wait_until_settled(bot, lambda: any(m.files for m in bot.slack.visible(dm)))
        (run,) = await bot.store.runs(5)
        approvals = bot.bench.approvals
        assert not await approvals.delivery.publish(run.id)
        assert files(bot, TEAM, thread) == []
        await approvals.grants.add(["C00000001"], TEAM, "U0BOSS", "g1")
        for _ in range(2):  # as after a crash
            assert await approvals.delivery.publish(run.id)
            assert [f.name for f in files(bot, TEAM, thread)] == ["plan.md"]
