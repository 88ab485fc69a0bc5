"""Stored conversations: who finds them again, and how they are deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from engine_kit import Json, brief, call, is_child, line, results, say, scripted_parent, submission
from forget_kit import RunToStore, finding, item, result, tables_with
from serve_kit import ASKER, request_in, serve
from test_directory import ANA, EVA, GUEST, LUIS, world
from test_private_answer import LUIS as COLLEAGUE
from test_private_answer import MARKETS, QUESTION, SECRET, TEAM, in_private, markets
from tool_kit import context, done, use

from bot.local.model.answer import Answer
from bot.memory import ConversationStore
from bot.privacy import Forget
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.deletions import ForgetTarget
from bot.storage.tables import conversations
from scopes.effects import OPEN_NOTES
from scopes.intent import EMPTY_INTENT
from scopes.label import TRUSTED_LABEL, Label
from scopes.notes import MAX_TALKS, Conversations
from scopes.slack_client import Absent
from scopes.slack_reader import SlackReader
from scopes.tool import ToolResult
from subagents.directory import Directory
from subagents.gate import Deny


@pytest.fixture
def store(database_in_file: Database) -> Store:
    return Store(database_in_file)


async def store_answered_run(
    store: Store,
    run: str,
    place: str = "CTEAM",
    user: str | None = ANA,
    question: str = "When does Harbour Line renew?",
    answer: str = "It renews in March.",
    label: Label = TRUSTED_LABEL,
    private: bool = False,
    **more: Any,
) -> None:
    """Store a finished run: of `serve`, or without a user of the command line."""
    request = f"T1/{place}/1.000100" if user else None
    fields = {"kind": "mention" if user else "ask", "args": {}, "status": "complete", **more}
    await store.start_run(
        run, fields["kind"], question, "offline", fields["args"], requester=user, request=request
    )
    document = {"answer": answer, "label": label.to_json()}
    await store.finish_run(run, fields["status"], result=document, private=private)


async def talks(store: Store, user: str | None, query: str = "") -> list[str]:
    found = await ConversationStore(store.database).search(user, query, 20, ())
    return [talk.run for talk in found]


class Reader(SlackReader):
    """A reader that knows only the address of Slack."""

    def __init__(self) -> None:
        return None

    async def team_url(self) -> str:
        return "https://harbour.example.com/"

    async def label(self, channel: str) -> Label:
        raise Absent(channel)


async def look(store: Store, directory: Directory, who: str, query: str = "") -> ToolResult:
    clients = {Conversations: ConversationStore(store.database), SlackReader: Reader()}
    fields = {"run": "r9", "requester": who, "intent": EMPTY_INTENT}
    ctx = context("notes", clients, {OPEN_NOTES: ""}, **fields)
    return await done(ctx, "search_conversations", directory, query=query)


async def visible_ids(store: Store, directory: Directory, who: str, query: str = "") -> list[str]:
    found = await look(store, directory, who, query)
    return [each.id for each in found.items]


async def test_conversations_are_found_by_words_of_question_and_answer(store: Store) -> None:
    await store_answered_run(store, "r1")
    await store_answered_run(store, "r2", question="What of the invoices?", answer="Two are late.")
    assert await talks(store, ANA, "harbour") == ["r1"]
    assert await talks(store, ANA, "March renewal") == ["r1"]
    assert await talks(store, ANA, "late invoice") == ["r2"]
    assert await talks(store, ANA) == ["r2", "r1"]
    (talk,) = await ConversationStore(store.database).search(EVA, "harbour", 5, ())
    assert (talk.place, talk.question) == ("CTEAM", "When does Harbour Line renew?")


async def test_private_conversations_are_found_only_by_their_requester(store: Store) -> None:
    await store_answered_run(store, "r1", place="D0ANA")
    await store_answered_run(store, "r2", private=True)
    await store_answered_run(store, "r3", user=None)
    for query in ("harbour", ""):
        assert sorted(await talks(store, ANA, query)) == ["r1", "r2"]
        assert await talks(store, EVA, query) == []
        assert await talks(store, None, query) == ["r3"]


@pytest.mark.parametrize(
    ("user", "more"),
    [
        (None, {"kind": "sweep"}),
        (None, {"kind": "ask", "args": {"as_user": "U0ANA"}}),  # somebody of an export
        (ANA, {"status": "failed"}),
        (ANA, {"answer": ""}),
    ],
)
async def test_sweeps_impersonated_and_unanswered_runs_are_not_kept_as_conversations(
    store: Store, user: str | None, more: Json
) -> None:
    await store_answered_run(store, "r1", user=user, **more)
    assert await store.database.read(sa.select(conversations)) == []


async def test_only_channel_members_find_conversations_despite_many_inaccessible_hits(
    store: Store,
) -> None:
    await store_answered_run(store, "r0", place="CGEN")
    for k in range(1, 60):  # newer, and better matches
        await store_answered_run(
            store, f"r{k}", place="CBOARD", question="Harbour Line", answer="harbour"
        )
    async with world() as there:
        assert await visible_ids(store, there.directory, EVA, "harbour") == ["talk/r0"]
        of_board = await look(store, there.directory, LUIS, "harbour")
        assert len(of_board.items) == MAX_TALKS
        assert of_board.truncated
        assert of_board.items[0].label.readers == frozenset({LUIS})  # no client knows others
        assert await visible_ids(store, there.directory, GUEST, "harbour") == []


async def test_last_channels_that_a_search_checks_stay_closed_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopes.notes.ROUNDS", 1)  # else it takes 800 channels
    await store_answered_run(store, "r1", place="CBOARD")
    async with world() as there:
        assert (await look(store, there.directory, LUIS, "harbour")).note == "1 conversations."
        hidden = await look(store, there.directory, EVA, "harbour")
        assert (hidden.items, hidden.note) == ((), "No conversation has these words.")


async def test_answer_is_not_found_without_access_to_its_sources(store: Store) -> None:
    board = Label(True, frozenset({ANA}), frozenset({"CBOARD"}))
    await store_answered_run(store, "r1", place="CTEAM", label=board)
    async with world() as there:
        assert await visible_ids(store, there.directory, ANA, "harbour") == ["talk/r1"]
        assert await visible_ids(store, there.directory, EVA, "harbour") == []


async def test_found_answer_is_untrusted_and_truncated_and_search_requires_a_handle(
    store: Store,
) -> None:
    await store_answered_run(store, "r1", place="DANA", answer="word " * 9_000)
    async with world() as there:
        found = await look(store, there.directory, ANA)
        (only,) = found.items
        assert only.label.untrusted
        assert only.label.readers == frozenset({ANA})
        assert only.notes == ("beginning",)
        assert len(only.text) < 3 * 8000
        assert isinstance(
            await use(context("notes", {}, {}), "search_conversations", there.directory), Deny
        )


MESSAGE = "our receipt printer stopped in the middle of a busy day"


@pytest.mark.parametrize(
    ("kind", "id", "words"),
    [
        ("item", "C0ES/1700000001.000100", MESSAGE),
        ("item", "C0HOME/1700000009.000100", "quokka"),
        ("user", ANA, "quokka"),
        ("channel", "C0HOME", "quokka"),
    ],
)
async def test_forgetting_a_message_user_or_channel_deletes_its_conversations(
    store: Store, kind: str, id: str, words: str
) -> None:
    """The run was asked in #home, and read a message of #es."""
    message = item("C0ES/1700000001.000100", MESSAGE)
    run = RunToStore(
        "r1",
        [message],
        [result("s1", "A printer.", [finding("F1.1", "It stopped", message.id)], "C0ES")],
        f"Somebody wrote: {MESSAGE}. All else is well.",
        question="Which quokka is broken?",
        request="T1/C0HOME/1700000009.000100",
        requester=ANA,
    )
    await run.store(store)
    label = Label(True, sources=frozenset({"C0ES"})).to_json()
    await store.finish_run(run.id, "complete", result={**run.document, "label": label})
    assert await talks(store, ANA, "printer quokka") == ["r1"]
    preview = await Forget(store.database, dry_run=True)(ForgetTarget(kind, id))
    deleted = await Forget(store.database)(ForgetTarget(kind, id))
    assert preview.conversations == deleted.conversations == 1
    assert await tables_with(store.database, [words]) == []
    for query in ("receipt busy middle", "quokka"):
        assert await talks(store, ANA, query) == []


async def test_later_request_finds_an_answer_only_for_its_reader(tmp_path: Path) -> None:
    found: list[str] = []
    sweep = scripted_parent(Answer([brief(n) for n in MARKETS]), say(f"It is {SECRET} [F1.1]."))

    def responder(body: Json) -> Answer:
        if not is_child(body):
            asks = scripted_parent(
                Answer([brief(1, scope="notes", handles=[OPEN_NOTES])]), say("Done.")
            )
            return sweep(body) if QUESTION in request_in(body) else asks(body)
        if OPEN_NOTES not in line(body, "MAY READ"):
            return sweep(body)
        if not results(body):
            return call("search_conversations", query="open support")
        found.append(str(results(body)[-1]))
        return submission("looked")

    space = in_private(markets())
    async with serve(tmp_path, responder, space=space) as bot:
        for text, user in ((QUESTION, ASKER), ("What was that?", ASKER), ("And that?", COLLEAGUE)):
            await bot.answer(bot.ask(text, channel=TEAM, user=user), channel=TEAM)
    hers, his = found
    assert SECRET in hers
    assert "talk/" in hers
    assert SECRET not in his
