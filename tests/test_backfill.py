"""Messages that the bot missed are found once, in order, within Slack's rate limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from engine_kit import until
from pg_kit import with_store
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault
from standins.slack_scopes import BOT_SCOPES, Identity
from timing import patient

from bot.listeners.backfill import CHANNEL_TYPES, Backfill
from bot.listeners.intake import Cursors, Intake
from bot.listeners.interactions import Interactions
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_ID, BOT_USER
from bot.local.workspace import Channel, Message, Team, User, Workspace
from bot.slack.messages import Bot
from bot.slack.writer import MessageWriter
from bot.storage.database import Database
from bot.storage.requests import IncomingMessage, RequestQueue
from bot.storage.tables import cursors as cursors_table
from bot.storage.tables import inbox as inbox_table
from config.settings import load_settings
from scopes.slack_client import connect, open_session

NOW = int(time.time())
HOUR = 3600
AT = f"<@{BOT_USER}> what is new?"
SUPPORT, SECRET, OTHER = "C0SUPPORT", "C0SECRET", "C0OTHER"


def ts(hours: float, number: int = 1) -> str:
    """So many hours ago."""
    return f"{int(NOW - hours * HOUR)}.{number:06d}"


def message_at(
    hours: float, text: str = AT, root: float | None = None, user: str = "U0ANA"
) -> Message:
    bot = BOT_ID if user == BOT_USER else ""
    thread = "" if root is None else ts(root)
    return Message(ts(hours), text, user, thread_ts=thread, bot_id=bot)


def place(*messages: Message, id: str = SUPPORT, private: bool = False) -> Channel:
    members = ("U0ANA", BOT_USER) if private else ("U0ANA",)
    return Channel(id, id.lower(), messages, members, is_private=private)


@dataclass
class Past:
    """A backfill over a local Slack and a real inbox."""

    slack: LocalSlack
    inbox: RequestQueue
    cursors: Cursors
    intake: Intake
    backfill: Backfill
    found: list[int]
    """How many new requests each pass has found."""

    async def look(self) -> list[tuple[str, str]]:
        """Let it read what was missed; return (kind, ts) of all requests so far."""
        self.backfill.ask()
        async with patient(10):
            await self.backfill.idle()
        await self.cursors.flush()
        rows = await self.inbox.database.read(sa.select(inbox_table).order_by("received", "ts"))
        return [(row.kind, row.ts) for row in rows]

    async def hear(self, **fields: Any) -> int:
        """Send the event of a message; return the status of the answer."""
        event = {"type": "message", "channel": SUPPORT, "user": "U0ANA", "text": AT, **fields}
        body = {"type": "event_callback", "team_id": "T0ACME", "event": event}
        return (await self.intake.from_socket(body)).status

    async def stored_cursors(self) -> dict[str, str]:
        await self.cursors.flush()
        return dict(await self.inbox.cursors("T0ACME"))

    async def advance_cursor(self, hours: float, channel: str = SUPPORT) -> None:
        await self.inbox.advance("T0ACME", channel, ts(hours))


class NoClicks(Interactions):
    """Nobody opens or clicks anything."""

    def __init__(self) -> None: ...

    async def entitle(self, request: IncomingMessage) -> None: ...


@asynccontextmanager
async def running_backfill(
    folder: Path,
    *channels: Channel,
    page_size: int = 200,
    **slack_settings: Any,
) -> AsyncIterator[Past]:
    people = (User("U0ANA", "ana", "Ana Ruiz"), User("U0LUIS", "luis", "Luis Gil"))
    slack = LocalSlack(
        Workspace(Team("T0ACME", "Acme", "acme"), people, channels),
        tokens={BOT_TOKEN: Identity(BOT_USER, BOT_ID, BOT_SCOPES)},
    )
    settings = load_settings(env={}).slack.model_copy(
        update={"page_size": page_size, "retry_attempts": 0, "timeout_s": 5, **slack_settings}
    )
    with_store(folder)
    database = await Database.open(folder)
    with LocalServer(slack.app, "slack") as server:
        async with open_session(settings) as session:
            client = connect(session, BOT_TOKEN, server.url + API_PATH, settings)
            inbox = RequestQueue(database)
            cursors = Cursors(inbox)
            writer = MessageWriter(client.web, settings)
            bot = Bot(BOT_USER, BOT_ID, "T0ACME")
            intake = Intake(cursors, writer, client.web, bot, NoClicks(), load_settings(env={}))
            backfill = Backfill(intake, cursors, client, settings)
            found = list[int]()
            backfill.on_found = found.append
            running = asyncio.create_task(backfill.run())
            try:
                yield Past(slack, inbox, cursors, intake, backfill, found)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await intake.aclose()
                await database.aclose()


@pytest.mark.parametrize("page_size", [1, 200])
async def test_requests_missed_in_a_gap_are_found_in_channels_threads_and_dms(
    page_size: int, data_dir: Path
) -> None:
    messages = (
        message_at(9, "an old thread"),
        message_at(1.9, root=9),
        message_at(8, "another, heard before"),
        message_at(7.5, root=8),
        message_at(2, "begun in the gap"),
        message_at(1.8, root=2),
        message_at(1.7),
        message_at(1.6, "nothing for the bot"),
    )
    secret = place(message_at(1.5), id=SECRET, private=True)
    async with running_backfill(data_dir, place(*messages), secret, page_size=page_size) as past:
        direct = past.slack.people.dm("U0ANA")
        dm_ts = past.slack.people.say("U0ANA", direct, "and here")
        for channel in (SUPPORT, SECRET, direct):
            await past.advance_cursor(3, channel)
        found = await past.look()
        assert sorted(found) == sorted(
            [*(("mention", ts(h)) for h in (1.9, 1.8, 1.7, 1.5)), ("dm", dm_ts)]
        )
        assert await past.inbox.cursors("T0ACME") == {
            SUPPORT: ts(1.6),
            SECRET: ts(1.5),
            direct: dm_ts,
        }
        stored = await past.inbox.request(f"T0ACME/{SUPPORT}/{ts(1.9)}")
        assert stored
        assert (stored.thread_ts, stored.user, stored.text) == (ts(9), "U0ANA", AT)
        assert past.found == [5]
        assert await past.look() == found  # nothing twice
        assert past.found == [5, 0]


async def test_backfill_reads_only_the_configured_hours_and_nothing_for_zero(
    data_dir: Path,
) -> None:
    talk = place(
        message_at(30), message_at(20), message_at(31, "old thread"), message_at(19, root=31)
    )
    async with running_backfill(data_dir, talk, backfill_hours=0) as past:
        assert await past.look() == []
        assert past.slack.calls["users.conversations"] == 0
    async with running_backfill(data_dir, talk) as past:
        assert await past.look() == [("mention", ts(20)), ("mention", ts(19))]


async def test_old_thread_is_backfilled_if_the_bot_was_recently_asked_in_it(data_dir: Path) -> None:
    """Its root is older than `backfill_hours`, and newer messages fill the page above it."""
    newer = [message_at(40 - n / 10, "x") for n in range(5)]
    ours = (
        message_at(300, "old"),
        message_at(290, root=300),
        message_at(289, "an answer", root=300, user=BOT_USER),
    )
    missed = (message_at(1.5, "and the second one?", root=300), message_at(1.4, root=300))
    foreign = (message_at(200, "not ours"), message_at(1.3, "a reply", root=200))
    talk = place(*ours, *missed, *foreign, *newer)
    async with running_backfill(data_dir, talk, page_size=2) as past:
        assert await past.look() == []
        direct = past.slack.people.dm("U0ANA")
        for channel, root, at in ((SUPPORT, ts(300), ts(290)), (direct, ts(280), ts(280))):
            assert await past.hear(channel=channel, ts=at, thread_ts=root) == 200
        await past.inbox.database.write(sa.delete(cursors_table))
        await past.advance_cursor(3)
        before = past.slack.calls["conversations.replies"]
        beside = past.slack.people.say("U0ANA", direct, "and here")  # the thread there is gone
        found = await past.look()
        assert sorted(found) == sorted(
            [
                *(("mention", ts(290)), ("dm", ts(280)), ("dm", beside)),
                *(("follow_up", ts(1.5)), ("mention", ts(1.4))),
            ]
        )
        assert past.slack.calls["conversations.replies"] == before + 3  # one of two pages


async def test_pages_after_an_empty_one_are_read(data_dir: Path) -> None:
    """Slack may return fewer messages than asked for, even none, before the last page."""
    messages = (message_at(2), message_at(1, "no request"))
    async with running_backfill(data_dir, place(*messages), page_size=1) as past:
        past.slack.faults.append(Fault("conversations.history", "empty"))
        assert await past.look() == [("mention", ts(2))]


async def test_edit_in_the_gap_updates_the_waiting_request(data_dir: Path) -> None:
    async with running_backfill(data_dir, place(message_at(1))) as past:
        await past.look()
        past.slack.people.edit("U0ANA", SUPPORT, ts(1), f"{AT} I mean today")
        await past.advance_cursor(1)
        await past.look()
        stored = await past.inbox.request(f"T0ACME/{SUPPORT}/{ts(1)}")
        assert stored
        assert stored.text == f"{AT} I mean today"


async def test_no_cursor_moves_before_every_channel_was_read(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_backfill(
        data_dir, place(message_at(1)), place(message_at(1), id=OTHER)
    ) as past:
        await past.advance_cursor(3, SUPPORT)
        await past.advance_cursor(2, OTHER)  # read first: its cursor is newer
        past.slack.faults.append(Fault("conversations.history", "500"))
        found = await past.look()
        assert found == [("mention", ts(1))]
        (warning,) = [r.getMessage() for r in caplog.records if "not looked at" in r.getMessage()]
        assert "looked at 1 channels" in warning
        assert str({OTHER: "no proper answer"}) in warning
        assert await past.hear(channel=OTHER, ts=ts(0.1), text="x") == 200
        assert await past.stored_cursors() == {SUPPORT: ts(3), OTHER: ts(2)}
        assert len(await past.look()) == 2
        assert await past.inbox.cursors("T0ACME") == {SUPPORT: ts(1), OTHER: ts(0.1)}


async def test_gaps_during_a_pass_cause_one_more_pass(data_dir: Path) -> None:
    async with running_backfill(data_dir, place(message_at(1))) as past:
        past.slack.faults.append(Fault("conversations.history", "slow", 0.3))
        past.backfill.ask()
        await until(lambda: past.slack.calls["conversations.history"])
        for _ in range(5):
            past.backfill.ask()
        await past.backfill.idle()
        assert past.slack.calls["users.conversations"] == 2 * len(CHANNEL_TYPES)


# ---- cursors of events


async def test_a_cursor_never_goes_back(data_dir: Path) -> None:
    async with running_backfill(data_dir, place()) as past:
        for hours in (1, 3, 2):
            assert await past.hear(ts=ts(hours), text="x") == 200
        assert await past.stored_cursors() == {SUPPORT: ts(1)}


async def test_no_cursor_passes_a_message_that_could_not_be_stored(data_dir: Path) -> None:
    async with running_backfill(data_dir, place()) as past:
        change = past.inbox.database.change
        await change(lambda c: c.execute(sa.text("ALTER TABLE inbox RENAME TO away")))
        assert await past.hear(ts=ts(2)) == 503
        assert await past.hear(ts=ts(1), text="x") == 200, "nothing to be stored in it"
        assert await past.stored_cursors() == {}, "or a crash now would lose the mention"
        await change(lambda c: c.execute(sa.text("ALTER TABLE away RENAME TO inbox")))
        assert await past.hear(ts=ts(2)) == 200
        assert await past.stored_cursors() == {SUPPORT: ts(1)}
