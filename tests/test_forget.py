"""No table holds what was deleted at its source or was to be forgotten."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from bot_kit import (
    Shell,
    delegating_model,
    finding_model,
    model_at,
    refusal_text,
    small_export,
)
from engine_kit import channel_id, come, scripted_parent, until
from forget_kit import (
    NOW,
    RunToStore,
    ask,
    columns,
    finding,
    item,
    propose,
    result,
    spawned_brief,
    tables_with,
)
from pg_kit import StorePlace
from serve_kit import ASKER, Served, echo, serve
from test_store import decision, record
from test_store import result as ended

from bot.mailbox.accounts import Credentials
from bot.mailbox.oauth import OauthStates
from bot.memory import NoteStore, ResourceStore
from bot.privacy import Forget, Forgotten, forget_pending, note_changes, tidy
from bot.runs.checkpoint import RunLog
from bot.runs.store import Store
from bot.schedules.store import ScheduleStore
from bot.storage import tables
from bot.storage.database import Database
from bot.storage.deletions import ForgetTarget
from bot.storage.requests import MessageEdited, RequestQueue
from bot.storage.run_index import Names
from bot.storage.tables import actions, flags, notes, preferences, quoted, resources, runs
from config.schedules import Schedule
from config.sections import RetentionSettings
from config.settings import load_settings
from scopes.google.auth import MailboxTokens
from scopes.label import TRUSTED_LABEL, Label
from scopes.notes import NewNote
from scopes.resources import NewFile, space_of_run
from subagents.overlap import audit

CARD, BILL, PRINT = "C0ES/1700000001.000100", "C0ES/1700000002.000100", "C0EN/1700000003.000100"
ASKED = "C0HOME/1700000009.000100"
CARD_TEXT = "my card 4242 is refused since the last update of the shop"
BILL_TEXT = "the invoice of march came twice with two different totals"
PRINT_TEXT = "our receipt printer stopped in the middle of a busy day"
TOKENS = MailboxTokens.model_validate({"access_token": "t", "refresh_token": "r"})
ITEMS = [item(CARD, CARD_TEXT), item(BILL, BILL_TEXT, "U0EVA"), item(PRINT, PRINT_TEXT, "U0TOM")]


def run_with_findings(id: str = "r1", **fields: Any) -> RunToStore:
    """Return a run with findings from three messages in two channels."""
    found = [
        finding("F1.1", "A customer cannot pay", CARD, quotes=[CARD_TEXT]),
        finding("F1.2", "Payment and invoices fail", CARD, BILL, quotes=[BILL_TEXT]),
        finding("F1.3", "A printer stopped", PRINT),
    ]
    subagent = result("s1", f"Somebody wrote: {CARD_TEXT}.", found, "C0ES", "C0EN")
    return replace(RunToStore(id, ITEMS, [subagent], "One cannot pay at all [F1.1]."), **fields)


@asynccontextmanager
async def store_with_runs(place: StorePlace, *runs: RunToStore) -> AsyncIterator[Store]:
    store = await place.store()
    for run in runs:
        await run.store(store)
    yield store
    await store.aclose()


async def amend_message(inbox: RequestQueue, id: str, text: str | None) -> None:
    """Report that Slack edited a message, or deleted it where `text` is None."""
    channel, _, ts = id.partition("/")
    await inbox.amend(MessageEdited("T1", channel, ts, text))


async def forget(store: Store, kind: str, id: str) -> Forgotten:
    return await Forget(store.database)(ForgetTarget(kind, id))


async def is_empty(store: Store, id: str) -> bool:
    """Return whether nothing but numbers is left of a run."""
    run = await store.run(id)
    texts = (run.question, run.result, run.error, await store.subagents(id))
    items = await store.database.read(sa.select(quoted).where(quoted.c.run == id))
    return texts == ("", None, None, []) and not items and not (await store.trajectory(id)).entries


async def test_runs_that_read_a_forgotten_message_are_emptied(place: StorePlace) -> None:
    async with store_with_runs(
        place, run_with_findings(), RunToStore("r2", [ITEMS[2]], answer="Printers.")
    ) as store:
        await propose(store.database, "r1", "All is well.")
        other = await propose(store.database, "r2", "All is well.")
        counts = await forget(store, "item", CARD)

        assert counts == Forgotten(items=1, runs=1, actions=1)
        assert await tables_with(store.database, [CARD_TEXT, BILL_TEXT, "A printer stopped"]) == []
        assert await is_empty(store, "r1")
        first, second = await store.run("r1"), await store.run("r2")
        assert (first.kind, first.status, first.cost_usd) == ("ask", "complete", 0.01)
        assert (second.result or {})["answer"] == "Printers."
        assert audit(await store.trajectory("r2")).contexts == 1
        remaining = await store.database.read(sa.select(actions.c.id))
        assert [row.id for row in remaining] == [other.id]


async def test_dry_run_predicts_the_counts_and_forgetting_twice_changes_nothing(
    in_file: StorePlace,
) -> None:
    async with store_with_runs(in_file, run_with_findings()) as store:
        await ask(RequestQueue(store.database), ASKED, "Who?", "U0ANA")
        before = await columns(store.database)
        preview = await Forget(store.database, dry_run=True)(ForgetTarget("user", "U0ANA"))
        assert await columns(store.database) == before

        counts = await forget(store, "user", "U0ANA")
        assert preview == counts == Forgotten(items=1, runs=1, requests=1)
        after = await columns(store.database)
        for kind, id in (("user", "U0ANA"), ("item", CARD), ("user", "U0NOBODY")):
            assert await forget(store, kind, id) == Forgotten()
        assert await columns(store.database) == after


BILL_MAIL = "18f0a1b2c3d4e5f6/m1"
MAIL_TEXT = "Please pay 300 euros"


@pytest.mark.parametrize(
    ("target", "items", "text", "names"),
    [
        (ForgetTarget("channel", "C0ES"), 2, BILL_TEXT, ["U0ANA"]),
        (ForgetTarget("author", "U0ANA"), 1, CARD_TEXT, ["C0ES", "U0ANA"]),
        (ForgetTarget("user", "U0ANA"), 1, CARD_TEXT, ["C0ES"]),
        (ForgetTarget("user", "BO@acme.example"), 1, MAIL_TEXT, ["C0ES", "U0ANA"]),
        (ForgetTarget.source("mail:18f0a1b2c3d4e5f6"), 1, MAIL_TEXT, ["C0ES", "U0ANA"]),
    ],
)
async def test_forgetting_a_source_or_person_empties_runs_that_read_it(
    in_file: StorePlace, target: ForgetTarget, items: int, text: str, names: list[str]
) -> None:
    mails = [item(BILL_MAIL, MAIL_TEXT, '"Bo Olsen" <Bo@Acme.example>')]
    mine = RunToStore("r2", [ITEMS[2]], question="how are we doing", requester="U0EVE")
    async with store_with_runs(in_file, run_with_findings(read=[*ITEMS, *mails]), mine) as store:
        for id in ("C0ES", "U0ANA"):
            await Names(store.database).save(id, f"Name of {id}")
        preview = await Forget(store.database, dry_run=True)(target)
        counts = await Forget(store.database)(target)

        assert preview == counts
        assert (counts.items, counts.runs, counts.names) == (items, 1, 2 - len(names))
        assert await tables_with(store.database, [text]) == []
        assert await is_empty(store, "r1")
        assert sorted(await Names(store.database).find_names(["C0ES", "U0ANA"])) == names
        assert (await store.run("r2")).question == "how are we doing"
        assert audit(await store.trajectory("r2")).contexts == 1


async def test_shared_blocks_stay_until_the_last_run_using_them_is_forgotten(
    in_file: StorePlace,
) -> None:
    other = RunToStore("r2", [item(PRINT, PRINT_TEXT)])
    async with store_with_runs(
        in_file, other, RunToStore("r3", [item(PRINT, PRINT_TEXT), *ITEMS])
    ) as store:
        await forget(store, "item", CARD)
        assert await tables_with(store.database, [CARD_TEXT]) == []
        assert audit(await store.trajectory("r2")).contexts == 1
        await forget(store, "item", PRINT)
        assert await tables_with(store.database, [PRINT_TEXT]) == []


async def test_forgetting_a_user_deletes_their_requests_actions_feedback_and_credentials(
    place: StorePlace,
) -> None:
    ana = RunToStore(
        "r2", [ITEMS[2]], question="a secret question", requester="U0ANA", request="T1/x/1"
    )
    eva = run_with_findings(request=f"T1/{ASKED}", requester="U0EVA", question="what of it")
    async with store_with_runs(place, eva, ana) as store:
        inbox, credentials = RequestQueue(store.database), Credentials(store.database)
        key = await ask(inbox, ASKED, "what about my secret request", "U0ANA")
        await ask(inbox, BILL, "somebody else asks this here", "U0EVA")
        for user in ("U0ANA", "U0EVA"):
            await inbox.feedback(key, user, "good")
            await credentials.put(user, TOKENS)
            await propose(store.database, "r1", f"words of {user}", user)
            await OauthStates(store.database).begin(user, "T1")
        counts = await forget(store, "user", "U0ANA")

        assert (counts.runs, counts.requests, counts.actions) == (2, 1, 2)
        assert (counts.feedback, counts.credentials) == (1, 1)
        secrets = [CARD_TEXT, "secret question", "my secret request", "words of U0ANA"]
        assert await tables_with(store.database, secrets) == []
        assert set(await tables_with(store.database, ["somebody else asks this here"])) == {"inbox"}
        assert await is_empty(store, "r1")
        assert await is_empty(store, "r2")
        assert (await store.run("r2")).cost_usd == 0.01
        assert await credentials.accounts() == ["U0EVA"]
        pending = await store.database.read(sa.select(tables.oauth_states.c.account))
        assert [row.account for row in pending] == ["U0EVA"]
        assert await store.database.read(sa.select(actions)) == []


async def test_forgetting_a_message_blanks_the_requests_that_contain_it(
    in_file: StorePlace,
) -> None:
    question = "why does the payroll of Marta Gil show nothing"
    run = run_with_findings(question=question, request=f"T1/{ASKED}", requester="U0ANA")
    other = f"{ASKED[:-1]}1"
    other_run = run_with_findings("r2", request=f"T1/{other}", requester="U0EVA")
    async with store_with_runs(in_file, run, other_run) as store:
        inbox = RequestQueue(store.database)
        await ask(inbox, ASKED, question)
        key = await ask(inbox, other, f"what of {CARD_TEXT}", "U0EVA")
        await inbox.feedback(key, "U0TOM", "bad")
        await inbox.explain(key, "U0TOM", "missing", f"It says: {CARD_TEXT}.")
        await forget(store, "item", ASKED)
        assert await tables_with(store.database, ["payroll of Marta"]) == []
        assert await is_empty(store, "r1")
        assert (await forget(store, "item", CARD)).requests == 1
        assert await tables_with(store.database, [CARD_TEXT]) == []
        (rating,) = await inbox.ratings(5)
        assert (rating.value, rating.reason) == ("bad", "missing")


async def test_forgetting_a_running_run_waits_until_it_ends(in_file: StorePlace) -> None:
    async with store_with_runs(in_file) as store:
        inbox, database = RequestQueue(store.database), store.database
        key = await ask(inbox, ASKED, "what is open here today then", state="running")
        request = await inbox.request(key)
        assert request
        assert request.run
        run = run_with_findings(request.run, request=key)
        await run.store(store, ended=False)
        await amend_message(inbox, CARD, None)
        before = await columns(database)

        assert await forget_pending(database, timedelta()) == 1
        assert await columns(database) == before
        assert (await forget(store, "user", "U0ANA")).later == 1
        unanswered = await inbox.request(key)
        assert unanswered
        assert unanswered.event == request.event
        await store.finish_run(run.id, "complete", result=run.document)
        await inbox.finish(key, "done")
        assert await inbox.again(key, run.id, [CARD_TEXT])  # with a look-up that was approved
        assert await forget_pending(database, timedelta()) == 0

        assert await tables_with(database, [CARD_TEXT]) == []
        assert await database.read(sa.select(flags).where(flags.c.name.like("forget/%"))) == []


async def test_edited_message_is_forgotten_only_in_runs_that_read_the_old_text(
    in_file: StorePlace,
) -> None:
    async with store_with_runs(in_file, run_with_findings()) as store:
        inbox = RequestQueue(store.database)
        await amend_message(inbox, CARD, "my card works")
        await RunToStore("r2", [item(CARD, "my card works again after all of that")]).store(store)
        assert await forget_pending(store.database, timedelta()) == 0

        assert await tables_with(store.database, [CARD_TEXT]) == []
        assert audit(await store.trajectory("r1")).contexts == 0
        assert audit(await store.trajectory("r2")).contexts == 1


async def test_edit_found_in_a_later_listing_is_forgotten_like_a_reported_one(
    in_file: StorePlace,
) -> None:
    channel, _, ts = CARD.partition("/")
    async with store_with_runs(in_file, run_with_findings()) as store:
        edited = {"user": "U0ANA", "ts": f"{datetime.now(UTC).timestamp():.6f}"}
        listed = {"ts": ts, "text": "my card works", "edited": edited}
        await note_changes(store.database, channel, [{**listed, "bot_id": "B0BOT"}])
        assert await forget_pending(store.database, timedelta()) == 0
        assert await tables_with(store.database, [CARD_TEXT]) != [], "a bot has edited it"
        await note_changes(store.database, channel, [listed])
        assert await forget_pending(store.database, timedelta()) == 0
        assert await tables_with(store.database, [CARD_TEXT]) == []


# ---- notes, files and preferences


MINE, HIS, SALES = "user:U0ANA", "user:U0BEN", "channel:C0SALES"
SPACES: dict[str, tuple[str, Label]] = {
    "own": (MINE, TRUSTED_LABEL),
    "read in sales": (MINE, Label(True, sources=frozenset({"C0SALES"}))),
    "of a mail": (MINE, Label(True, frozenset({"U0ANA"}), frozenset({"mail:t1"}))),
    "his": (HIS, Label(True, sources=frozenset({"data:shop"}))),
    "of sales": (SALES, TRUSTED_LABEL),
}
"""Titles with their space and label; of each a note, a file and a preference is stored."""


async def remember(database: Database, title: str, run: str, **more: Any) -> None:
    space, label = SPACES[title]
    fields: dict[str, Any] = {"space": space, "run": run, "label": label}
    await NoteStore(database).save(NewNote(key=title, title=title, text="about pricing", **fields))
    file = NewFile(key=title, name=title, kind="text/csv", content=b"1", **fields)
    await ResourceStore(database).save(file)
    row = {**fields, "label": label.to_json(), "text": title, "by": "U0BEN", "at": NOW, **more}
    await database.write(sa.insert(preferences).values(row))


async def remaining_titles(database: Database) -> list[list[str]]:
    """Titles of the notes, the files and the preferences that are left."""
    columns = (notes.c.title, resources.c.name, preferences.c.text)
    return [sorted(row[0] for row in await database.read(sa.select(each))) for each in columns]


@pytest.mark.parametrize(
    ("target", "titles"),
    [
        (ForgetTarget("user", "U0ANA"), ["his", "of sales"]),
        (ForgetTarget("channel", "C0SALES"), ["his", "of a mail", "own"]),
        (ForgetTarget.source("mail:t1"), ["his", "of sales", "own", "read in sales"]),
        (ForgetTarget.source("data:shop"), ["of a mail", "of sales", "own", "read in sales"]),
        (ForgetTarget("channel", "C0X"), sorted(SPACES)),
    ],
)
async def test_forgetting_a_target_deletes_its_notes_files_and_preferences(
    in_file: StorePlace, target: ForgetTarget, titles: list[str]
) -> None:
    store = await in_file.store("r2")
    for title in SPACES:
        await remember(store.database, title, "r2", by="U0ANA" if title == "his" else "U0BEN")
    preview = await Forget(store.database, dry_run=True)(target)
    counts = await Forget(store.database)(target)
    n = len(SPACES) - len(titles)
    of_ana = target.id == "U0ANA"  # what she set for others belongs to her, too
    assert preview == counts == Forgotten(notes=n, files=n, preferences=n + of_ana)
    preference_titles = [title for title in titles if not (of_ana and title == "his")]
    assert await remaining_titles(store.database) == [titles, titles, preference_titles]
    await store.aclose()


async def test_forgetting_a_channel_deletes_schedules_whose_words_may_come_from_it(
    in_file: StorePlace,
) -> None:
    store, read_in_sales = await in_file.store(), SPACES["read in sales"][1]
    schedules = ScheduleStore(store.database)
    common: dict[str, Any] = {"cron": "0 9 * * mon", "owner": "U0ANA"}
    text = Schedule(kind="reminder", text=CARD_TEXT, to="dm", **common)
    for id, spec, label in (
        ("own words", text, TRUSTED_LABEL),
        ("words of sales", text, read_in_sales),
        (
            "no words",
            Schedule(kind="sweep", channels=("sales",), to="#sales", **common),
            read_in_sales,
        ),
    ):
        await schedules.create(id, spec, "chat", NOW, label)
    target = ForgetTarget("channel", "C0SALES")
    preview = await Forget(store.database, dry_run=True)(target)
    assert preview == await Forget(store.database)(target) == Forgotten(schedules=1)
    assert [each.id for each in await schedules.all()] == ["no words", "own words"]
    await store.aclose()


async def test_notes_files_and_preferences_of_a_run_are_forgotten_and_expire(
    in_file: StorePlace,
) -> None:
    store, long_ago = await in_file.store("r1", "r2"), NOW - timedelta(days=800)
    database = store.database
    row = {"item": PRINT, "run": "r1", "channel": "C0EN", "author": "U0EVE"}
    await database.write(sa.insert(quoted).values(row))
    await remember(database, "own", "r1", by="U0ANA")
    await remember(database, "his", "r2")
    of_run = NewFile(space_of_run("r1"), "k", "a.csv", "text/csv", b"1", TRUSTED_LABEL, "r1")
    await ResourceStore(database).save(of_run)
    await database.write(sa.update(runs).values(status="complete", started=long_ago))
    for table in (notes, resources, preferences):
        await database.write(sa.update(table).values(at=long_ago))
    retention = load_settings(env={}).retention
    for files in (2, 1):  # the file of the run expires with its results
        for target in (ForgetTarget("item", PRINT), ForgetTarget("author", "U0EVE")):
            preview = await Forget(database, dry_run=True)(target)
            assert (preview.notes, preview.files, preview.preferences) == (1, files, 1)
        await tidy(database, retention)
    await Forget(database)(target)
    assert await remaining_titles(database) == [["his"]] * 3
    await tidy(database, retention.model_copy(update={"notes_days": 700}))
    assert await remaining_titles(database) == [[]] * 3
    await store.aclose()


# ---- the bot


async def read_by(bot: Served, source: str) -> list[str]:
    """Return the items of a source that stored runs hold."""
    query = sa.select(quoted.c.item).where(quoted.c.channel == source).distinct()
    return sorted(row.item for row in await bot.store.database.read(query))


async def test_message_deleted_in_slack_is_deleted_from_the_store(tmp_path: Path) -> None:
    async with serve(tmp_path) as bot:
        question = bot.ask()
        await bot.answer(question)
        source = channel_id(2)
        first = (await read_by(bot, source))[0]
        channel, _, ts = first.partition("/")
        (message,) = [m for m in bot.slack.state.channels[source].messages if m.ts == ts]
        assert await tables_with(bot.store.database, [message.text]) != []

        bot.slack.people.delete(message.user, channel, ts)

        async def is_deleted() -> bool:
            return await tables_with(bot.store.database, [message.text]) == []

        await come(is_deleted)
        assert first not in await read_by(bot, source)
        (run,) = await bot.store.runs()
        assert (run.status, run.question) == ("complete", "")


async def test_question_deleted_in_slack_is_deleted_with_the_follow_ups_that_read_it(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        root = bot.ask("What of Marta Gil?")
        await bot.answer(root)
        bot.ask("And since when?", thread_ts=root)
        await bot.answers(root, 2)
        assert await tables_with(bot.store.database, ["Marta Gil"]) != []
        bot.slack.people.delete(ASKER, bot.channel, root)

        async def is_deleted() -> bool:
            return await tables_with(bot.store.database, ["Marta Gil"]) == []

        await come(is_deleted)


async def test_deleted_channels_files_and_accounts_are_queued_for_forgetting(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        here = bot.channel
        user = {"id": "U0LUIS", "deleted": True}
        for event in (
            {"type": "channel_deleted", "channel": here},
            {"type": "group_deleted", "channel": "G0OLD"},
            {"type": "file_deleted", "file_id": "F0OLD"},
            {"type": "user_change", "user": user},
            {"type": "user_change", "user": {**user, "id": "U0EVA", "deleted": False}},
            {"type": "user_change", "user": "U0EVA"},
            {"type": "file_deleted", "file_id": 5},
        ):
            bot.slack.send(event)
        await until(lambda: all(d.acked_at for d in bot.slack.deliveries))
        kinds = {f"channel/{here}", "channel/G0OLD", "source/F0OLD", "author/U0LUIS"}
        names = sa.select(flags.c.name).where(flags.c.name.like("forget/%"))

        async def has_all_flags() -> bool:
            found = {row.name for row in await bot.store.database.read(names)}
            return found == {f"forget/{each}" for each in kinds}

        await come(has_all_flags)


# ---- the command


def test_forget_command_empties_the_command_line_runs_that_read_a_source(
    shell: Shell, tmp_path: Path, data_dir: Path
) -> None:
    zip_file = small_export(tmp_path)
    document = shell.sweep(zip_file)
    findings = [f for s in document["subagents"] for f in s["findings"]]
    (one,) = [f for f in findings if "pagar" in str(f["quotes"])]
    preview = shell("forget", "--source", one["links"][0], "--dry-run")
    assert (preview.code, "Would be forgotten" in preview.out) == (0, True)

    reply = shell("forget", "--source", one["links"][0], "--json")

    assert (reply.code, reply.json["runs"], reply.json["files"]) == (0, 1, 0)
    assert reply.json["source"] == one["evidence"][0]
    after = shell("show", document["run_id"], "--json").out
    assert "pagar" not in after
    assert "export button" not in after
    assert shell("audit", document["run_id"]).code == 1
    again = shell("forget", "--source", one["links"][0])
    assert (again.code, "Nothing is stored" in again.out) == (0, True)


def test_forget_command_accepts_names_of_databases_folders_and_files(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgotten(source: str, *more: str) -> int:
        runs: int = shell("forget", "--source", source, *more, "--json").json["runs"]
        return runs

    folder = tmp_path / "book"
    folder.mkdir()
    (folder / "a.toml").write_text('version = "1.2.3"\n')
    (folder / "stock.csv").write_text("city\nLisbon\n")
    query, question = "SELECT city FROM stock", "What is the version in a.toml?"
    reader = finding_model("search_files", folder="files:book", pattern="version")
    model = delegating_model((question, "files", "files:book"), readers={question: reader})
    asked = shell("ask", query, "--database", folder, "--model", "offline", "--json").json
    for source in ("book:a.toml", "files:book"):
        with model_at(monkeypatch, model):
            read = shell("ask", question, "--folder", folder, "--model", "claude", "--json").json
        assert "1.2.3" in str(read)
        assert forgotten(source) == 1
        assert "1.2.3" not in shell("show", read["run_id"], "--json").out

    assert forgotten("data:gone") == 0
    assert forgotten("data:book", "--dry-run") == 1
    assert "Lisbon" in shell("show", asked["run_id"], "--json").out
    assert forgotten("data:book") == 1
    assert "Lisbon" not in shell("show", asked["run_id"], "--json").out
    for wrong in ((), ("--user", "U1", "--channel", "C1"), ("--user", " ")):
        refusal_text(shell("forget", *wrong, "--json"), "forget_what")
    assert "Give the id" in shell("forget", "--channel", "support-es").out
    assert "Give the id" not in shell("forget", "--user", "ana@x.example").out


def test_forgotten_review_of_a_file_leaves_no_trace_of_the_file(
    shell: Shell, tmp_path: Path, data_dir: Path
) -> None:
    file = tmp_path / "notice-of-zyxwen.md"
    file.write_text("Zyxwen pays within three days.\n")
    run = shell("review", file, "--model", "offline", "--json").json["run_id"]
    assert shell("forget", "--source", file.name, "--json").json["runs"] == 1
    assert "zyxwen" not in shell("show", run, "--json").out.lower()
    for each in data_dir.glob("*.sqlite*"):
        assert b"zyxwen" not in each.read_bytes().lower()
    again = shell("review", "--resume", run, "--model", "offline", "--json")
    assert "is deleted" in refusal_text(again, "deleted")


# ---- each class of data expires on its own; costs and times of runs stay


def for_days(**days: int) -> RetentionSettings:
    forever = dict.fromkeys(("trajectories_days", "results_days", "actions_days", "notes_days"))
    return RetentionSettings(workflows_days=14, **{**forever, **days})


def ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def store_full_run(store: Store, run: str, days: float) -> None:
    """Store a run of `days` ago with every kind of data that a run can have."""
    await store.start_run(run, "ask", f"What of {run}?", "offline", {"since": "30d"})
    sink = RunLog(store, run)
    record(sink, run, words=run)
    record(sink, run, words="shared")
    await sink.flush()
    await store.save_subagent(run, spawned_brief("s1"), ended("s1"))
    await store.finish_run(run, "complete", result={"answer": run}, cost_usd=0.5)
    await store.database.write(sa.insert(quoted).values(item=f"i-{run}", run=run, channel="C1"))
    ids = ("tool", "requester", "digest", "body")
    row = {"id": f"a-{run}", "run": run, "state": "done", "made": ago(days)}
    await store.database.write(sa.insert(actions).values(row | dict.fromkeys(ids, "x")))
    change = sa.update(tables.runs).where(tables.runs.c.id == run)
    await store.database.write(change.values(started=ago(days)))


async def remaining(store: Store, column: sa.ColumnElement[str]) -> set[str]:
    return {row[0] for row in await store.database.read(sa.select(column))}


async def test_old_texts_and_unused_names_expire_and_costs_and_decisions_stay(
    in_file: StorePlace,
) -> None:
    store = await in_file.store()
    ages = {"new": 29, "read": 31, "r1": 366, **{f"old{n}": 366 for n in range(45)}}
    for run, days in ages.items():  # more of the old than fit in one transaction
        await store_full_run(store, run, days)
    sink = RunLog(store, "r1")
    sink.log_decision(decision())
    await sink.flush()
    for id in ("U1", "U2"):
        await Names(store.database).save(id, f"Name of {id}")
    unused = sa.update(tables.names).where(tables.names.c.id == "U1").values(at=ago(366))
    await store.database.write(unused)
    only_a_file = sa.update(tables.runs).where(tables.runs.c.id == "old0").values(question="")
    await store.database.write(only_a_file)
    before = await store.run("r1")
    for _ in range(2):
        await tidy(
            store.database, for_days(trajectories_days=30, results_days=365, actions_days=90)
        )

    blocks = (await store.trajectory("new")).blocks.values()
    texts = {json.loads(body).get("text") for body in blocks}
    assert {"new", "shared"} <= texts
    assert "read" not in texts
    assert not (await store.trajectory("read")).entries
    assert (await store.run("read")).result == {"answer": "read"}
    assert len(await store.subagents("read")) == 1
    assert await remaining(store, actions.c.id) == {"a-new", "a-read"}
    assert await remaining(store, tables.names.c.id) == {"U2"}
    assert await remaining(store, quoted.c.run) == {"new", "read"}
    assert await remaining(store, tables.runs.c.id) == ages.keys()
    assert await is_empty(store, "r1")
    assert await is_empty(store, "old0"), "a message without text asked for it"
    old = await store.run("r1")
    fields = ("id", "kind", "status", "model", "started", "finished", "cost_usd", "requester")
    assert [getattr(old, n) for n in fields] == [getattr(before, n) for n in fields]
    assert await store.decisions("r1") == [decision()]
    await store.aclose()
