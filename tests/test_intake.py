"""What is heard of Slack's events, that it is stored before it is acked, and that all are acked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any

import pytest
import sqlalchemy as sa
from slack_bolt.async_app import AsyncBoltRequest
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from timing import patient

from bot.approvals.cards import CardClicked, FormSubmitted
from bot.approvals.service import After
from bot.listeners.events import (
    ButtonClicked,
    DigestAction,
    FeedbackGiven,
    HomeOpened,
    MessageEdited,
    Seen,
    SlashCommand,
    Stopped,
    parse_event,
)
from bot.listeners.intake import THANKS, Cursors, Intake
from bot.listeners.interactions import Interactions
from bot.listeners.socket_mode import Sockets
from bot.local.server import LocalServer
from bot.local.slack.server import API_PATH, LocalSlack
from bot.local.slack.state import BOT_ID, BOT_USER
from bot.local.workspace import Channel, Team, User, Workspace
from bot.slack.blocks import FEEDBACK
from bot.slack.messages import MAX_TEXT, Bot
from bot.slack.writer import MessageWriter
from bot.storage.database import Database
from bot.storage.requests import Incoming, RequestQueue, StoredRequest
from bot.storage.tables import cursors as cursor_table
from bot.storage.tables import feedback as feedback_table
from bot.storage.tables import inbox as inbox_table
from config.settings import load_settings

BOT = Bot("U0BOT", "B0BOT", "T0ACME")
AT = "<@U0BOT> what is new?"
TS, ROOT, LATER = "1741564800.000100", "1741564700.000100", "1741564900.000100"
SECRET = "shh"
KEY = f"T0ACME/C0SUPPORT/{TS}"
ZERO_WIDTH, RTL = "\u200b", "\u202e"


def message(**fields: Any) -> dict[str, Any]:
    """A message in a channel; a field that is None is left out."""
    event = {
        **{"type": "message", "channel": "C0SUPPORT", "channel_type": "channel", "ts": TS},
        **{"user": "U0ANA", "text": "hello", "team": "T0ACME", "event_ts": TS},
        **fields,
    }
    return {name: value for name, value in event.items() if value is not None}


def mention(**fields: Any) -> dict[str, Any]:
    return message(**{"type": "app_mention", "text": AT, "channel_type": None, **fields})


def dm(**fields: Any) -> dict[str, Any]:
    return message(**{"channel": "D0ANA", "channel_type": "im", **fields})


def edit(text: Any = "new", **inside: Any) -> dict[str, Any]:
    now = {"ts": TS, "user": "U0ANA", "text": text, "edited": {"user": "U0ANA", "ts": LATER}}
    before = {"ts": TS, "user": "U0ANA", "text": "old"}
    return message(
        subtype="message_changed",
        hidden=True,
        ts=LATER,
        user=None,
        text=None,
        message=now | inside,
        previous_message=before,
    )


def envelope(event: Any, **fields: Any) -> dict[str, Any]:
    granted = [{"team_id": "T0ACME", "user_id": "U0BOT", "is_bot": True}]
    return {
        **{"type": "event_callback", "team_id": "T0ACME", "event_id": "Ev1", "event": event},
        **{"authorizations": granted, **fields},
    }


def click(value: Any = f"good:{KEY}", action_id: Any = FEEDBACK, **fields: Any) -> dict[str, Any]:
    return {
        **{"type": "block_actions", "user": {"id": "U0ANA"}, "channel": {"id": "C0SUPPORT"}},
        "message": {"ts": LATER, "thread_ts": TS},
        "actions": [{"action_id": action_id, "value": value, "type": "feedback_buttons"}],
        **fields,
    }


def slash(text: Any, user: Any = "U0BOSS") -> dict[str, Any]:
    place = {"team_id": "T0ACME", "channel_id": "C0SUPPORT"}
    return {"command": "/assistant", "text": text, "user_id": user, **place}


def asked(kind: str, event: Mapping[str, Any], **fields: str) -> Incoming:
    place = {"team": "T0ACME", "channel": str(event["channel"]), "ts": str(event["ts"])}
    thread_ts = str(event.get("thread_ts") or event["ts"])
    found: dict[str, Any] = {
        **place,
        "thread_ts": thread_ts,
        "user": "U0ANA",
        "kind": kind,
        **fields,
    }
    return Incoming(**found, event=event)


SPOKEN: list[dict[str, Any]] = [
    mention(),
    mention(thread_ts=ROOT),
    mention(files=[{"id": "F1"}]),
    mention(text=f"{ZERO_WIDTH}<@U0BOT>{ZERO_WIDTH} hi"),
    mention(text=f"{RTL}<@U0BOT> مرحبا"),
    mention(user="W0GRID"),
    mention(channel="G0PRIVATE"),
    message(text=AT),
    message(text="hi <@U0BOT|assistant>!"),
    message(text=f"{RTL}\u2067<@U0BOT>\u2069 שלום"),
    message(text=f"x{ZERO_WIDTH}<@U0BOT>{ZERO_WIDTH}y"),
    message(text=AT, subtype="file_share", files=[{"id": "F1"}]),
    message(text=AT, subtype="thread_broadcast", thread_ts=ROOT),
    message(text=AT, subtype=""),
    message(text=AT, thread_ts=ROOT),
    message(text=AT, channel="G0MANY", channel_type="mpim"),
    message(text=AT, some_future_field={"deep": [1, 2]}),
    message(text=AT, user_team="T0OTHER", source_team="T0OTHER"),
]
DIRECT: list[dict[str, Any]] = [
    dm(),
    dm(text=AT),
    dm(thread_ts=ROOT),
    dm(text="", subtype="file_share", files=[{"id": "F1"}]),
    dm(text=None, attachments=[{"text": "forwarded"}]),
    dm(channel_type=None),
    dm(assistant_thread={"action_token": "1.2"}, thread_ts=ROOT),
    dm(text="\u202eabc"),
]


@pytest.mark.parametrize("event", SPOKEN, ids=range(len(SPOKEN)))
def test_a_mention_is_a_request_whichever_event_tells_of_it(event: dict[str, Any]) -> None:
    user = event["user"]
    assert parse_event(envelope(event), BOT) == asked("mention", event, user=user)


@pytest.mark.parametrize("event", DIRECT, ids=range(len(DIRECT)))
def test_a_direct_message_is_a_request(event: dict[str, Any]) -> None:
    assert parse_event(envelope(event), BOT) == asked("dm", event)


def test_a_reply_in_a_thread_may_be_a_follow_up() -> None:
    file: dict[str, Any] = {"subtype": "file_share", "text": "", "files": [{"id": "F1"}]}
    for fields in ({}, file):
        event = message(thread_ts=ROOT, **fields)
        assert parse_event(envelope(event), BOT) == asked("follow_up", event)


SILENT: list[dict[str, Any]] = [
    message(),
    message(text=""),
    message(text=None),
    message(text=["<@U0BOT>"]),
    message(text=5),
    message(text="<@U0OTHER> hi"),
    message(text="<@U0BOTX> hi"),
    message(text="@assistant hi"),
    message(text="&lt;@U0BOT&gt; hi"),
    message(text=f"<@{ZERO_WIDTH}U0BOT> hi"),
    message(text=f"<{ZERO_WIDTH}@U0BOT> hi"),
    message(text="<@u0bot> hi"),
    message(text="<@U0\u202eBOT> hi"),
    message(text=AT, bot_id="B0OTHER"),
    message(text=AT, bot_id="B0BOT", user="U0BOT"),
    message(text=AT, user="U0BOT"),
    message(text=AT, user="USLACKBOT"),
    message(text=AT, bot_profile={"id": "B1"}),
    message(text=AT, hidden=True),
    message(text=AT, edited={"user": "U0ANA", "ts": LATER}),
    message(text=AT, user=None),
    message(text=AT, user=["U0ANA"]),
    message(text=AT, user="not an id"),
    message(text=AT, subtype="bot_message", username="flow"),
    message(text=AT, subtype="channel_join"),
    message(text=AT, subtype="channel_topic"),
    message(text=AT, subtype="message_replied"),
    message(text=AT, subtype="assistant_app_thread"),
    message(text=AT, subtype="invented_in_2031"),
    message(text=AT, subtype=["file_share"]),
    message(text=AT, subtype={"a": 1}),
    message(thread_ts=TS),
    message(thread_ts=5),
    message(text=ZERO_WIDTH, thread_ts=ROOT),
    dm(text=""),
    dm(text=f" {ZERO_WIDTH}\u2060 "),
    dm(text=None),
    dm(bot_id="B0OTHER"),
    dm(subtype="assistant_app_thread"),
    dm(subtype="channel_join"),
    mention(bot_id="B0OTHER"),
    mention(edited={"user": "U0ANA", "ts": LATER}),
    mention(text={"a": 1}),
    mention(user=None),
]
ODD: list[Any] = [
    None,
    5,
    "text",
    [],
    [1, 2],
    {},
    {"event": None},
    {"type": "event_callback"},
    {"type": None, "event": mention()},
    {"type": "app_rate_limited", "team_id": "T0ACME", "minute_rate_limited": 1},
    {"type": "unheard_of", "event": mention()},
    {"type": ["event_callback"], "event": mention()},
    {"type": "url_verification_x", "challenge": "c"},
    {"type": "view_submission", "view": {"callback_id": "x"}},
    {"type": "view_closed", "view": 5},
    {"type": "block_suggestion", "action_id": "x"},
    {"type": "shortcut", "callback_id": "x"},
    {"type": "message_action", "callback_id": "x"},
    {"type": "block_actions"},
    {"type": "block_actions", "actions": {}},
    {"type": "block_actions", "actions": [None]},
    {"type": "block_actions", "actions": []},
    click(value=None),
    click(value=["good"]),
    click(value="good:"),
    click(value="good:T0ACME/C0SUPPORT"),
    click(value=f"great:{KEY}"),
    click(value=f"good:{KEY}; drop table"),
    click(action_id=5),
    click(user=None),
    click(user="U0ANA"),
    {"command": "/assistant"},
    slash("pause", user=5),
    envelope(None),
    envelope(5),
    envelope("event"),
    envelope([]),
    envelope([mention()]),
    envelope({}),
    envelope({"type": None}),
    envelope({"type": ["app_mention"]}),
    envelope({"type": {"a": 1}}),
    envelope({"type": "reaction_added", "user": "U0ANA", "item": {"ts": TS}}),
    envelope({"type": "member_joined_channel", "user": "U0BOT", "channel": "C0SUPPORT"}),
    envelope({"type": "channel_rename", "channel": {"id": "C0SUPPORT"}}),
    envelope({"type": "file_shared", "file_id": "F1"}),
    envelope({"type": "tokens_revoked", "tokens": {"bot": ["U0BOT"]}}),
    envelope({"type": "app_uninstalled"}),
    envelope(mention(channel=None)),
    envelope(mention(channel=5)),
    envelope(mention(channel={"id": "C0SUPPORT"})),
    envelope(mention(channel="C0/../X")),
    envelope(mention(channel="#general")),
    envelope(mention(ts=None)),
    envelope(mention(ts=1741564800.0001)),
    envelope(mention(ts="soon")),
    envelope(mention(ts="\u0661741564800.000100")),
    envelope(mention(ts="99999999999999.000100")),
    envelope(edit(text=None)),
    envelope(edit(user="U0BOT")),
    envelope(edit(bot_id="B0OTHER")),
    envelope(edit(edited=None)),
    envelope(edit(ts=None) | {"previous_message": None}),
    envelope(message(subtype="message_changed", message=None)),
    envelope(message(subtype="message_changed", message=["x"])),
    envelope(message(subtype="message_deleted", deleted_ts=5)),
    envelope({"type": "agent_session_stopped"}),
    envelope({"type": "agent_session_stopped", "channel": "C0SUPPORT", "thread_ts": 5}),
    envelope({"type": "app_home_opened"}),
    envelope({"type": "app_home_opened", "user": "U0ANA", "tab": ["home"]}),
    envelope({"type": "assistant_thread_started", "assistant_thread": {}}),
]


@pytest.mark.parametrize("event", SILENT, ids=range(len(SILENT)))
def test_a_message_that_asks_nothing_moves_the_cursor_only(event: dict[str, Any]) -> None:
    assert parse_event(envelope(event), BOT) == Seen("T0ACME", event["channel"], TS)


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_what_is_odd_or_foreign_means_nothing(body: Any) -> None:
    assert parse_event(body, BOT) is None


def test_edits_and_deletions_of_what_people_wrote_are_heard() -> None:
    assert parse_event(envelope(edit("<b>")), BOT) == MessageEdited(
        "T0ACME", "C0SUPPORT", TS, "<b>"
    )
    gone = MessageEdited("T0ACME", "C0SUPPORT", TS, None)
    assert parse_event(envelope(edit(subtype="tombstone")), BOT) == gone
    deleted = message(subtype="message_deleted", deleted_ts=TS, ts=LATER, text=None, user=None)
    assert parse_event(envelope(deleted), BOT) == gone
    before = {"ts": TS, "user": "U0ANA", "text": AT}
    assert parse_event(envelope(deleted | {"previous_message": before}), BOT) == gone
    ours = {"ts": TS, "user": "U0BOT", "bot_id": "B0BOT"}
    assert parse_event(envelope(deleted | {"previous_message": ours}), BOT) is None


def test_stop_home_pane_and_command_are_heard() -> None:
    stop: dict[str, Any] = {"type": "agent_session_stopped", "channel": "D0ANA", "thread_ts": ROOT}
    stop |= {"user": "U0ANA", "streaming_message_ts": [LATER]}
    assert parse_event(envelope(stop), BOT) == Stopped("T0ACME", "D0ANA", ROOT, "U0ANA")
    for tab in ("home", "messages"):
        home = {"type": "app_home_opened", "user": "U0ANA", "channel": "D0ANA", "tab": tab}
        assert parse_event(envelope(home), BOT) == HomeOpened("T0ACME", "U0ANA", "D0ANA", tab, home)
    context = {"type": "app_context_changed", "user": "U0ANA", "context": {"entities": []}}
    assert parse_event(envelope(context), BOT) == HomeOpened("T0ACME", "U0ANA", "", "", context)
    pressed = click(action_id="home_pause", team={"id": "T0OTHER"})
    assert parse_event(pressed, BOT) == ButtonClicked("T0OTHER", "U0ANA", "home_pause")
    assert parse_event(slash("  PAUSE now "), BOT) == SlashCommand("U0BOSS", "pause")
    assert parse_event(slash(None), BOT) == SlashCommand("U0BOSS", "")


def test_a_click_names_the_request_and_the_verdict() -> None:
    assert parse_event(click(), BOT) == FeedbackGiven(KEY, "U0ANA", "good", "C0SUPPORT", TS)
    assert parse_event(click(f"bad:{KEY}", message=None), BOT) == FeedbackGiven(
        KEY, "U0ANA", "bad", "C0SUPPORT", ""
    )


@pytest.mark.parametrize(
    ("fields", "team"),
    [
        ({"team_id": "T0THEIRS"}, "T0ACME"),
        ({"team_id": "T0THEIRS", "authorizations": []}, "T0THEIRS"),
        ({"team_id": "T0THEIRS", "authorizations": 5}, "T0THEIRS"),
        ({"team_id": "T0THEIRS", "authorizations": [{"team_id": "T0NEW"}]}, "T0NEW"),
        ({"authorizations": [{"team_id": None}], "context_team_id": "T0CONTEXT"}, "T0CONTEXT"),
        ({"authorizations": None, "team_id": None}, "T0ACME"),
        ({"authorizations": [{"team_id": "a/b"}], "team_id": "E0GRID"}, "E0GRID"),
    ],
)
def test_a_request_belongs_to_the_workspace_that_it_was_sent_for(
    fields: dict[str, Any], team: str
) -> None:
    found = parse_event(envelope(mention(), **fields), BOT)
    assert isinstance(found, Incoming)
    assert found.key == f"{team}/C0SUPPORT/{TS}"


def test_what_no_database_takes_is_taken_out_of_an_event() -> None:
    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    event = mention(text=f"{AT}\0" + "x" * 1_000_000, a=float("nan"), b=deep, c={"\0d": "\0"})
    found = parse_event(envelope(event), BOT)
    assert isinstance(found, Incoming)
    assert len(found.text) == MAX_TEXT - 1
    assert json.loads(json.dumps(found.event, allow_nan=False))["c"] == {"d": ""}


@dataclass
class Shown(Interactions):
    """Notes what it is asked for; its Home cannot be had."""

    seen: list[HomeOpened] = field(default_factory=list)
    touched: list[ButtonClicked] = field(default_factory=list)
    named: list[str] = field(default_factory=list)

    def with_context(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**event, "app_context": {"entities": []}}

    async def follow(self, found: HomeOpened | ButtonClicked | DigestAction) -> None:
        if isinstance(found, ButtonClicked):
            self.touched.append(found)
        elif isinstance(found, HomeOpened):
            self.seen.append(found)
            if found.tab == "home":
                raise RuntimeError("no home page today")
        else:
            raise AssertionError("no digest is shown here")

    async def clicked(self, click: CardClicked | FormSubmitted) -> After:
        raise AssertionError("no card is shown here")

    async def entitle(self, request: Incoming) -> None:
        self.named.append(request.key)

    async def is_admin(self, user: str) -> bool:
        return user == "U0BOSS"


@dataclass
class Ears:
    """An intake over a real inbox, and what it led to."""

    inbox: RequestQueue
    cursors: Cursors
    intake: Intake
    woken: list[None] = field(default_factory=list)
    face: Shown = field(default_factory=Shown)
    whispered: list[dict[str, Any]] = field(default_factory=list)

    async def hear(self, body: Any) -> int:
        return (await self.intake.from_socket(body)).status

    async def request(self, ts: str = TS, channel: str = "C0SUPPORT") -> StoredRequest | None:
        return await self.inbox.request(f"T0ACME/{channel}/{ts}")

    async def rows(self, table: sa.Table) -> list[dict[str, Any]]:
        return [row._asdict() for row in await self.inbox.database.read(sa.select(table))]


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[Ears]:
    whispered: list[dict[str, Any]] = []

    async def take(request: Request) -> Response:
        whispered.append(await request.json())
        return JSONResponse({"ok": True, "message_ts": LATER})

    slack = Starlette(routes=[Route("/chat.postEphemeral", take, methods=["POST"])])
    with LocalServer(slack, "slack") as server:
        database = await Database.open(folder)
        web = AsyncWebClient("xoxb-local", base_url=server.url + "/")
        inbox = RequestQueue(database)
        cursors = Cursors(inbox)
        woken: list[None] = []
        face = Shown()
        intake = Intake(
            inbox,
            cursors,
            MessageWriter(web, load_settings(env={}).slack),
            web,
            BOT,
            face,
            signing_secret=SECRET,
            on_request=lambda: woken.append(None),
        )
        ears = Ears(inbox, cursors, intake, woken, face, whispered)
        try:
            yield ears
        finally:
            await intake.aclose()
            await database.aclose()


@asynccontextmanager
async def connected(ears: Ears, **how: Any) -> AsyncIterator[LocalSlack]:
    """A local Slack that the intake hears by a real socket."""
    workspace = Workspace(
        Team("T0ACME", "Acme", "acme"),
        (User("U0ANA", "ana", "Ana Ruiz"),),
        (Channel("C0SUPPORT", "support", (), ("U0ANA",)),),
    )
    slack = LocalSlack(workspace, **how)
    ears.intake.bot = Bot(BOT_USER, BOT_ID, "T0ACME")
    settings = load_settings(env={}).slack.model_copy(update={"sockets": 1})
    with LocalServer(slack.app, "slack") as server:
        url = server.url + API_PATH
        sockets = Sockets(ears.intake.from_socket, "xapp-local", settings, base_url=url)
        running = asyncio.create_task(sockets.run())
        try:
            await sockets.connected.wait()
            yield slack
        finally:
            sockets.close()
            await running


async def until(condition: Callable[[], bool]) -> None:
    async with patient(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_two_events_and_their_retries_for_one_message_are_one_request(
    data_dir: Path,
) -> None:
    async with listening(data_dir) as ears:
        for _ in range(3):
            assert await ears.hear(envelope(mention())) == 200
            assert await ears.hear(envelope(message(text=AT))) == 200
        stored = await ears.request()
        assert stored
        assert (stored.kind, stored.state, stored.text) == ("mention", "new", AT)
        assert len(ears.woken) == 1
        assert len(await ears.rows(inbox_table)) == 1


async def test_a_plain_bolt_request_takes_the_same_way(data_dir: Path) -> None:
    async with listening(data_dir) as ears:
        request = AsyncBoltRequest(mode="socket_mode", body=envelope(mention()))
        assert (await ears.intake.app.async_dispatch(request)).status == 200
        assert await ears.request()


async def test_all_that_is_odd_is_acked_and_nothing_of_it_is_a_request(data_dir: Path) -> None:
    async with listening(data_dir) as ears:
        bodies = [*ODD, *(envelope(event) for event in SILENT)]
        assert len(bodies) >= 75
        for body in bodies:
            assert await ears.hear(body) == 200, body
            signed = await ears.intake.from_http(post(json.dumps(body)))
            assert signed.status_code == 200, body
        assert await ears.rows(inbox_table) == []
        assert ears.woken == []


ODD_BESIDE_A_REQUEST: list[dict[str, Any]] = [
    {"authorizations": 5},
    {"authorizations": ["x"]},
    {"enterprise": 5},
    {"team": 5},
    {"user": 5},
    {"channel": 5},
    {"view": []},
    {"response_urls": 5},
    {"is_ext_shared_channel": True},
    {"ssl_check": "0"},
    {"event_id": None},
    {"some_future_field": [[[]]]},
]


@pytest.mark.parametrize("fields", ODD_BESIDE_A_REQUEST, ids=str)
async def test_an_odd_envelope_does_not_hide_the_request_in_it(
    fields: dict[str, Any], data_dir: Path
) -> None:
    async with listening(data_dir) as ears:
        assert await ears.hear(envelope(mention(user_team=5), **fields)) == 200
        assert await ears.request()


async def test_an_event_that_cannot_be_stored_is_left_to_come_again(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(data_dir) as ears:
        drop, back = "ALTER TABLE inbox RENAME TO away", "ALTER TABLE away RENAME TO inbox"
        await ears.inbox.database.change(lambda c: c.execute(sa.text(drop)))
        assert await ears.hear(envelope(mention())) == 503
        by_http = await ears.intake.from_http(post(json.dumps(envelope(mention()))))
        assert by_http.status_code == 503
        assert await ears.hear(envelope(message(ts=LATER))) == 200  # nothing to be stored in it
        await ears.cursors.flush()
        assert await ears.rows(cursor_table) == []  # or a crash now would lose the mention
        await ears.inbox.database.change(lambda c: c.execute(sa.text(back)))
        assert await ears.hear(envelope(mention())) == 200
        assert await ears.request()
        await ears.cursors.flush()
        assert [row["ts"] for row in await ears.rows(cursor_table)] == [LATER]
        assert ears.intake.counts["unstored"] == 2
    assert "could not be stored" in caplog.text


async def test_slack_sends_again_what_could_not_be_stored(data_dir: Path) -> None:
    async with listening(data_dir) as ears:
        how: dict[str, Any] = {"retries_s": (0.1,) * 9, "ack_s": 0.2}
        async with connected(ears, **how) as slack:
            change = ears.inbox.database.change
            await change(lambda c: c.execute(sa.text("ALTER TABLE inbox RENAME TO away")))
            ts = slack.people.say("U0ANA", "C0SUPPORT", f"<@{BOT_USER}> hello")
            await until(lambda: any(d.attempt == 2 for d in slack.deliveries))
            assert not any(d.acked_at for d in slack.deliveries)
            await change(lambda c: c.execute(sa.text("ALTER TABLE away RENAME TO inbox")))
            ids = {d.event_id for d in slack.deliveries}
            assert len(ids) == 2  # app_mention and message
            await until(lambda: {d.event_id for d in slack.deliveries if d.acked_at} == ids)
            assert await ears.request(ts)
            assert len(ears.woken) == 1


async def test_what_people_do_in_slack_is_heard_as_what_it_is(data_dir: Path) -> None:
    async with listening(data_dir) as ears, connected(ears) as slack:
        people, direct = slack.people, slack.people.dm("U0ANA")

        async def heard_all() -> None:
            await until(lambda: all(d.acked_at for d in slack.deliveries))

        asked_at = people.say("U0ANA", "C0SUPPORT", f"<@{BOT_USER}> hello")
        private = people.say("U0ANA", direct, "hello")
        people.say("U0ANA", "C0SUPPORT", "among people")
        people.open_home("U0ANA")
        await heard_all()
        people.edit("U0ANA", "C0SUPPORT", asked_at, f"<@{BOT_USER}> hello!")
        follow_up = people.say("U0ANA", "C0SUPPORT", "and?", thread_ts=asked_at)
        people.react("U0ANA", "C0SUPPORT", asked_at, "eyes")
        people.stop("U0ANA", direct, private)
        people.delete("U0ANA", direct, private)
        people.slash("U0ANA", "C0SUPPORT", "/assistant", "status")
        await heard_all()
        rows = {row["ts"]: row for row in await ears.rows(inbox_table)}
        kinds = {ts: (row["kind"], row["state"]) for ts, row in rows.items()}
        assert kinds == {
            asked_at: ("mention", "new"),
            follow_up: ("follow_up", "new"),
            private: ("dm", "ignored"),
        }
        assert rows[asked_at]["event"]["text"] == f"<@{BOT_USER}> hello!"
        assert ears.intake.counts["stopped"] == ears.intake.counts["slashcommand"] == 1
        await until(lambda: [o.tab for o in ears.face.seen] == ["home"])


async def test_a_reply_without_a_mention_counts_where_the_bot_was_asked_before(
    data_dir: Path,
) -> None:
    async with listening(data_dir) as ears:
        reply = message(thread_ts=ROOT)
        await ears.hear(envelope(reply))
        assert await ears.request() is None
        await ears.hear(envelope(mention(ts=ROOT)))
        await ears.hear(envelope(reply))
        await ears.hear(envelope(message(thread_ts=ROOT, ts=LATER, bot_id="B0OTHER")))
        stored = await ears.request()
        assert stored
        assert (stored.kind, stored.thread_ts) == ("follow_up", ROOT)
        assert len(ears.woken) == 2


async def test_an_edit_reaches_a_request_that_waits_and_a_deletion_takes_it_back(
    data_dir: Path,
) -> None:
    async with listening(data_dir) as ears:
        await ears.hear(envelope(mention()))
        await ears.hear(envelope(edit("<@U0BOT> something else")))
        stored = await ears.request()
        assert stored
        assert stored.text == "<@U0BOT> something else"
        await ears.hear(envelope(message(subtype="message_deleted", deleted_ts=TS, ts=LATER)))
        stored = await ears.request()
        assert stored
        assert stored.state == "ignored"


async def test_feedback_is_stored_before_the_thanks(data_dir: Path) -> None:
    async with listening(data_dir) as ears:
        assert await ears.hear(click()) == 200
        assert await ears.hear(click(f"bad:{KEY}")) == 200
        (row,) = await ears.rows(feedback_table)
        assert (row["request"], row["user"], row["value"]) == (KEY, "U0ANA", "bad")
        await until(lambda: len(ears.whispered) == 2)
        assert {w["text"] for w in ears.whispered} == {THANKS}
        assert {(w["user"], w["thread_ts"]) for w in ears.whispered} == {("U0ANA", TS)}


async def test_a_direct_message_is_stored_with_what_its_user_looks_at(data_dir: Path) -> None:
    async with listening(data_dir) as ears:
        for _ in range(2):
            assert await ears.hear(envelope(dm())) == 200
        assert await ears.hear(envelope(mention())) == 200
        direct, public = await ears.request(channel="D0ANA"), await ears.request()
        assert direct
        assert public
        assert direct.event["app_context"] == {"entities": []}
        assert "app_context" not in public.event
        await until(lambda: ears.face.named == [direct.key])


async def test_home_and_pane_are_shown_after_the_ack_and_may_fail(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(data_dir) as ears:
        for tab in ("home", "messages"):
            home = {"type": "app_home_opened", "user": "U0ANA", "channel": "D0ANA", "tab": tab}
            assert await ears.hear(envelope(home)) == 200
        assert await ears.hear(click(action_id="home_pause")) == 200
        await until(lambda: len(ears.face.seen) == 2 and len(ears.face.touched) == 1)
    assert "no home page today" in caplog.text


async def test_only_an_administrator_pauses_and_resumes(data_dir: Path) -> None:
    async def says(ears: Ears, text: str, user: str = "U0BOSS") -> str:
        return str((await ears.intake.from_socket(slash(text, user))).body)

    async with listening(data_dir) as ears:
        assert await says(ears, "status") == "The assistant is running."
        assert "administrator" in await says(ears, "pause", "U0ANA")
        assert await ears.inbox.paused_by() is None
        assert "paused by <@U0BOSS>" in await says(ears, "pause")
        assert "paused by <@U0BOSS>" in await says(ears, "status", "U0ANA")
        assert "administrator" in await says(ears, "resume", "U0ANA")
        assert await says(ears, "resume") == "The assistant is running."
        assert await ears.inbox.paused_by() is None
        assert "/assistant pause" in await says(ears, "")


def post(body: str, secret: str = SECRET, kind: str = "application/json") -> Request:
    raw, at = body.encode(), str(int(time()))
    signature = SignatureVerifier(secret).generate_signature(timestamp=at, body=raw) or ""
    signed = {"x-slack-request-timestamp": at, "x-slack-signature": signature, "content-type": kind}
    headers = [(name.encode(), value.encode()) for name, value in signed.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": raw, "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/slack/events", "headers": headers}
    return Request(scope | {"query_string": b""}, receive)


async def test_by_http_only_what_slack_signed_counts(data_dir: Path) -> None:
    async with listening(data_dir) as ears:
        take = ears.intake.from_http
        assert (await take(post(json.dumps(envelope(mention())), "guess"))).status_code == 401
        assert (await take(post(json.dumps(envelope(mention())), " x"))).status_code == 401
        assert await ears.request() is None
        assert (await take(post(json.dumps(envelope(mention()))))).status_code == 200
        assert await ears.request()
        for broken in ("{", "[]", '"x"', "5", "payload=%7B", "payload=5", "", "[" * 100_000):
            assert (await take(post(broken))).status_code == 200, broken[:20]
        probe = json.dumps({"type": "url_verification", "challenge": "c4"})
        assert b"c4" in (await take(post(probe))).body
        form = "command=%2Fassistant&text=status&user_id=U0ANA&team_id=T0ACME"
        answer = await take(post(form, kind="application/x-www-form-urlencoded"))
        assert answer.body == b"The assistant is running."


async def test_the_cursor_is_stored_at_intervals_and_never_goes_back(data_dir: Path) -> None:
    async with listening(data_dir) as ears:
        for ts in (LATER, TS, ROOT):
            await ears.hear(envelope(message(ts=ts)))
        await ears.hear(envelope(message(ts="9999999999.000000")))  # a clock gone mad
        assert await ears.rows(cursor_table) == []
        await ears.cursors.flush()
        (row,) = await ears.rows(cursor_table)
        assert (row["channel"], row["ts"]) == ("C0SUPPORT", LATER)


async def test_from_a_gap_on_no_cursor_moves_before_its_channel_was_read(data_dir: Path) -> None:
    async with listening(data_dir) as ears:

        async def stored() -> set[str]:
            await ears.cursors.flush()
            return {row["channel"] for row in await ears.rows(cursor_table)}

        first = ears.cursors.gap()
        await ears.hear(envelope(message()))
        await ears.hear(envelope(message(channel="C0OTHER")))
        await ears.hear(envelope(message(channel="C0SECRET")))
        assert await stored() == set()
        ears.cursors.read("C0SUPPORT", first)
        assert await stored() == {"C0SUPPORT"}
        second = ears.cursors.gap()
        ears.cursors.read_all(first, set())
        assert await stored() == {"C0SUPPORT"}
        ears.cursors.read_all(second, {"C0SECRET"})
        assert await stored() == {"C0SUPPORT", "C0OTHER"}
