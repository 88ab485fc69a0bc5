"""How the local Slack delivers events, as the real slack_bolt hears them."""

import asyncio
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from engine_kit import until
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from timing import computed_within, waited_within

from bot.local.server import LocalServer
from bot.local.slack.faults import Fault
from bot.local.slack.limits import TIERS
from bot.local.slack.server import API_PATH, APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, LocalSlack
from bot.local.slack.state import BOT_ID, BOT_USER
from bot.local.workspace import Channel, File, Team, User, Workspace

Json = dict[str, Any]

ASK = f"<@{BOT_USER}> hello"
WORKSPACE = Workspace(
    Team(),
    (User("U1", "ana", "Ana"), User("U2", "ben", "Ben")),
    (
        Channel("C1", "general", members=("U1", "U2")),
        Channel("G1", "secret", members=("U1",), is_private=True),
        Channel("C2", "shared", members=("U1",), is_ext_shared=True),
    ),
)


def local(**more: Any) -> LocalSlack:
    return LocalSlack(WORKSPACE, **{"retries_s": (0.0, 0.05), "ack_s": 0.2, **more})


@asynccontextmanager
async def served(slack: LocalSlack) -> AsyncIterator[AsyncWebClient]:
    """The workspace on loopback, and a client of the bot."""
    with LocalServer(slack.app, "slack") as server:
        async with aiohttp.ClientSession() as session:
            yield AsyncWebClient(BOT_TOKEN, server.url + API_PATH, session=session)
    slack.close()


class Heard(list[Json]):
    """What reached the app's listeners, in order."""

    def kinds(self) -> list[str]:
        return [each.get("subtype") or each["type"] for each in self]

    def one(self, kind: str) -> Json:
        (found,) = (each for each in self if (each.get("subtype") or each["type"]) == kind)
        return found


def bolt(web: AsyncWebClient) -> tuple[AsyncApp, Heard]:
    """A Bolt app that takes every event."""
    app, heard = AsyncApp(client=web, signing_secret=SIGNING_SECRET), Heard()

    @app.event(re.compile(".*"))
    async def take(event: Json) -> None:
        heard.append(event)

    @app.action(re.compile(".*"))
    async def press(ack: Any, body: Json) -> None:
        await ack()
        heard.append(body)

    @app.command(re.compile(".*"))
    async def command(ack: Any, command: Json, respond: Any) -> None:
        heard.append({"type": "command", **command})
        await ack(f"{command['command']} heard")
        await respond("and answered")

    return app, heard


@asynccontextmanager
async def connected(slack: LocalSlack, ping_s: float = 10) -> AsyncIterator[Heard]:
    """A Bolt app on one socket."""
    async with served(slack) as web:
        app, heard = bolt(web)
        handler: Any = AsyncSocketModeHandler(app, APP_TOKEN, ping_interval=ping_s)
        await handler.connect_async()
        try:
            await until(lambda: slack.sockets.count == 1)
            yield heard
        finally:
            await handler.close_async()


@asynccontextmanager
async def raw_socket(web: AsyncWebClient) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A websocket with nothing of the SDK on it."""
    opened = await web.apps_connections_open(app_token=APP_TOKEN)
    async with aiohttp.ClientSession() as session, session.ws_connect(opened["url"]) as socket:
        yield socket


# Socket Mode


async def test_a_mention_arrives_as_two_events_with_one_timestamp_and_is_acked() -> None:
    slack = local()
    async with connected(slack) as heard:
        ts = slack.people.say("U1", "C1", ASK)
        await until(lambda: len(heard) == 2 and all(d.acked_at for d in slack.deliveries))
    assert {event["type"] for event in heard} == {"message", "app_mention"}
    assert {event["ts"] for event in heard} == {event["event_ts"] for event in heard} == {ts}
    first, second = slack.deliveries
    assert (first.type, second.type) == ("message", "app_mention")
    assert first.event_id != second.event_id
    message = heard.one("message")
    assert message["channel_type"] == "channel"
    assert message["blocks"][0]["elements"][0]["elements"][0]["user_id"] == BOT_USER
    assert message["client_msg_id"] == heard.one("app_mention")["client_msg_id"]
    assert "channel_type" not in heard.one("app_mention")


async def test_a_socket_says_hello_and_brings_whole_envelopes() -> None:
    slack = local()
    async with served(slack) as web, raw_socket(web) as socket:
        hello = await socket.receive_json()
        assert hello["type"] == "hello"
        assert hello["num_connections"] == 1
        assert hello["connection_info"] == {"app_id": "A0LOCAL"}
        assert "host" in hello["debug_info"]
        slack.people.say("U1", "C2", "hi")
        envelope = await socket.receive_json()
        await socket.send_json({"envelope_id": envelope["envelope_id"]})
        await until(lambda: slack.deliveries[0].acked_at)
    assert envelope["type"] == "events_api"
    assert (envelope["retry_attempt"], envelope["retry_reason"]) == (0, "")
    assert envelope["accepts_response_payload"] is False
    payload = envelope["payload"]
    assert payload["type"] == "event_callback"
    assert payload["team_id"] == "T0LOCAL"
    assert payload["api_app_id"] == "A0LOCAL"
    assert payload["event_id"] == slack.deliveries[0].event_id
    assert payload["authorizations"][0]["user_id"] == BOT_USER
    assert payload["is_ext_shared_channel"] is True
    assert payload["event"]["assistant_thread"]["action_token"]


async def test_an_event_without_an_ack_comes_again_on_schedule_and_then_no_more() -> None:
    slack = local(ack_s=0.05, retries_s=(0.0, 0.1))
    async with served(slack) as web, raw_socket(web) as socket:
        await socket.receive_json()
        slack.people.say("U1", "C1", "hi")
        tries = [await socket.receive_json() for _ in range(3)]
        await until(lambda: slack.deliveries[-1].reason)
        await asyncio.sleep(0.15)
    assert [each["retry_attempt"] for each in tries] == [0, 1, 2]
    assert [each["retry_reason"] for each in tries] == ["", "timeout", "timeout"]
    assert len({each["envelope_id"] for each in tries}) == 3
    assert len({each["payload"]["event_id"] for each in tries}) == 1
    assert [each.reason for each in slack.deliveries] == ["timeout"] * 3
    times = [each.sent_at for each in slack.deliveries]
    assert times[1] - times[0] >= 0.05
    assert times[2] - times[1] >= 0.15


async def test_each_event_goes_to_one_of_the_sockets() -> None:
    slack = local(ack_s=5)
    async with served(slack) as web, raw_socket(web) as one, raw_socket(web) as two:
        assert (await one.receive_json())["num_connections"] == 1
        assert (await two.receive_json())["num_connections"] == 2
        for number in range(4):
            slack.people.say("U1", "C1", f"hi {number}")
        got = [(await socket.receive_json())["payload"]["event_id"] for socket in (one, two) * 2]
    assert sorted(got) == sorted(each.event_id for each in slack.deliveries)


@pytest.mark.parametrize("how", ["refresh_requested", "warning", "link_disabled"])
async def test_a_disconnect_message_makes_the_app_open_a_new_socket(how: Any) -> None:
    slack = local()
    async with connected(slack) as heard:
        slack.sockets.drop(how)
        await until(lambda: slack.calls["apps.connections.open"] == 2 and slack.sockets.count == 1)
        slack.people.say("U1", "C1", "hi")
        await until(lambda: heard)


async def test_a_disconnect_message_is_followed_by_the_end_of_the_socket() -> None:
    slack = local()
    slack.sockets.goodbye_s = 0.05
    async with served(slack) as web, raw_socket(web) as socket:
        await socket.receive_json()
        slack.sockets.drop()
        said = await socket.receive_json()
        assert (said["type"], said["reason"]) == ("disconnect", "refresh_requested")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        await until(lambda: slack.sockets.count == 0)


async def test_an_aborted_socket_is_gone_without_a_word() -> None:
    slack = local()
    async with served(slack) as web, raw_socket(web) as one, raw_socket(web) as two:
        await one.receive_json()
        await two.receive_json()
        slack.sockets.drop("abort", which=0)
        assert (await one.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        await until(lambda: slack.sockets.count == 1)
        slack.people.say("U1", "C1", "hi")
        assert (await two.receive_json())["type"] == "events_api"


async def test_a_silent_socket_swallows_events_and_pings_until_the_app_leaves_it() -> None:
    slack = local(ack_s=0.1, retries_s=(0.0, 2.0, 2.0, 2.0))
    async with connected(slack, ping_s=0.2) as heard:
        slack.sockets.drop("silent")
        slack.people.say("U1", "C1", "hi")
        await until(lambda: slack.deliveries and slack.deliveries[0].reason)
        assert not heard
        assert slack.deliveries[0].reason == "timeout"
        await until(lambda: heard)
    assert slack.deliveries[-1].acked_at


async def test_a_silent_socket_is_given_up_after_a_time() -> None:
    slack = local()
    slack.sockets.silent_s = 0.05
    async with served(slack) as web, raw_socket(web) as socket:
        await socket.receive_json()
        slack.sockets.drop("silent")
        assert slack.sockets.count == 1
        await until(lambda: slack.sockets.count == 0)


async def test_an_event_that_finds_no_socket_is_tried_again_and_then_lost() -> None:
    slack = local(retries_s=(0.0, 0.05))
    async with served(slack) as web:
        async with raw_socket(web) as socket:
            await socket.receive_json()
        await until(lambda: slack.sockets.count == 0)
        slack.people.say("U1", "C1", "hi")
        await until(lambda: len(slack.deliveries) == 3 and slack.deliveries[-1].reason)
        async with raw_socket(web) as socket:
            await socket.receive_json()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(socket.receive(), 0.1)
    assert [each.reason for each in slack.deliveries] == ["no_socket"] * 3


async def test_events_before_the_first_socket_are_lost_at_once() -> None:
    slack = local()
    slack.people.say("U1", "C1", "hi")
    assert [each.reason for each in slack.deliveries] == ["no_socket"]
    async with connected(slack) as heard:
        slack.people.say("U1", "C1", "again")
        await until(lambda: heard)
    assert [event["text"] for event in heard] == ["again"]


async def test_the_eleventh_socket_is_one_too_many() -> None:
    slack = local()
    slack.sockets.goodbye_s = 0.0
    async with served(slack) as web, aiohttp.ClientSession() as session:
        opened = await web.apps_connections_open(app_token=APP_TOKEN)
        sockets = [await session.ws_connect(opened["url"]) for _ in range(11)]
        said = [(await socket.receive_json()) for socket in sockets]
        assert [each["type"] for each in said] == ["hello"] * 10 + ["disconnect"]
        assert said[-1]["reason"] == "too_many_websockets"
        assert (await sockets[-1].receive()).type is aiohttp.WSMsgType.CLOSE
        assert slack.sockets.count == 10
        for socket in sockets:
            await socket.close()


async def test_only_the_app_token_opens_sockets_and_opens_nothing_else() -> None:
    slack = local(limits={**TIERS, "apps.connections.open": 1})
    async with served(slack) as web, aiohttp.ClientSession() as session:
        for token, code in ((BOT_TOKEN, "not_allowed_token_type"), ("xapp-x", "invalid_auth")):
            with pytest.raises(SlackApiError, match=code):
                await web.apps_connections_open(app_token=token)
        with pytest.raises(SlackApiError, match="not_allowed_token_type"):
            await web.api_call("chat.postMessage", headers={"Authorization": f"Bearer {APP_TOKEN}"})
        slack.sockets.refuse(60)
        with pytest.raises(SlackApiError, match="internal_error"):
            await web.apps_connections_open(app_token=APP_TOKEN)
        slack.sockets.refuse(0)
        opened = await web.apps_connections_open(app_token=APP_TOKEN)
        with pytest.raises(SlackApiError, match="ratelimited"):
            await web.apps_connections_open(app_token=APP_TOKEN)
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(opened["url"].replace("ticket=", "ticket=0"))


async def test_a_server_that_stops_ends_its_sockets_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    slack = local()
    server = LocalServer(slack.app, "slack")
    server.start()
    web = AsyncWebClient(BOT_TOKEN, server.url + API_PATH)
    async with raw_socket(web) as one, raw_socket(web) as two, raw_socket(web) as three:
        for socket in (one, two, three):
            await socket.receive_json()
        slack.sockets.drop("silent", which=0)
        slack.sockets.drop("warning", which=1)
        slack.people.say("U1", "C1", "hi")
        with waited_within(1.5):
            await asyncio.to_thread(server.stop)
        assert slack.sockets.count == 0
    assert "local-slack" not in [thread.name for thread in threading.enumerate()]
    slack.people.say("U1", "C1", "nobody is there")
    assert slack.deliveries[-1].reason == "no_socket"
    assert not caplog.records


async def test_many_mentions_cost_little() -> None:
    slack = local(ack_s=10)
    async with served(slack) as web, raw_socket(web) as socket:
        await socket.receive_json()
        with computed_within(3):  # 50 a second: less than half a core, both ends
            for number in range(300):
                slack.people.say("U1", "C1", f"{ASK} {number}")
            for _ in range(600):
                envelope = json.loads((await socket.receive()).data)
                await socket.send_str(f'{{"envelope_id": "{envelope["envelope_id"]}"}}')
            await until(lambda: all(each.acked_at for each in slack.deliveries))


# HTTP


class Endpoint:
    """An app's request URL that notes what it is sent, and answers as told."""

    def __init__(self, *answers: Callable[[], Response]) -> None:
        self.got: list[tuple[dict[str, str], str]] = []
        self.answers = list(answers)
        self.app = Starlette(routes=[Route("/slack/events", self.take, methods=["POST"])])

    async def take(self, request: Request) -> Response:
        self.got.append((dict(request.headers), (await request.body()).decode()))
        return self.answers.pop(0)() if self.answers else Response()


async def test_bolt_takes_signed_events_over_http() -> None:
    answering: list[AsyncSlackRequestHandler] = []

    async def endpoint(request: Request) -> Response:
        return await answering[0].handle(request)

    app = Starlette(routes=[Route("/slack/events", endpoint, methods=["POST"])])
    with LocalServer(app, "bot") as bot:
        slack = local(request_url=bot.url + "/slack/events", ack_s=3)
        async with served(slack) as web:
            web.session = None  # Bolt runs in the loop of the other server
            listening, heard = bolt(web)
            answering.append(AsyncSlackRequestHandler(listening))
            assert slack.requests
            assert await asyncio.to_thread(slack.requests.verify)
            ts = slack.people.say("U1", "C1", ASK)
            await until(lambda: len(heard) == 2 and all(d.acked_at for d in slack.deliveries))
            assert {event["ts"] for event in heard} == {ts}
            shown = await web.chat_postMessage(channel="C1", text="Press", blocks=BUTTONS)
            slack.people.click("U1", "C1", shown["ts"], "go")
            slack.people.slash("U1", "C1", "/assistant", "pause")
            await until(lambda: len(heard) == 4 and len(slack.state.whispers) == 2)
            assert heard.one("block_actions")["actions"][0]["value"] == "yes"
            assert heard.one("command")["text"] == "pause"
            slack.send({"type": "app_rate_limited", "minute_rate_limited": 1})
            await until(lambda: slack.deliveries[-1].type == "app_rate_limited")


async def test_http_events_carry_a_signature_and_the_number_of_the_retry() -> None:
    endpoint = Endpoint(lambda: Response(status_code=500), lambda: Response(status_code=503))
    with LocalServer(endpoint.app, "bot") as bot:
        slack = local(request_url=bot.url + "/slack/events")
        slack.people.say("U1", "C1", "hi")
        await until(lambda: slack.deliveries[-1].acked_at)
        slack.close()
    verifier = SignatureVerifier(SIGNING_SECRET)
    for headers, body in endpoint.got:
        assert headers["content-type"] == "application/json"
        assert verifier.is_valid_request(body, headers)
    assert [headers.get("x-slack-retry-num") for headers, _ in endpoint.got] == [None, "1", "2"]
    assert endpoint.got[1][0]["x-slack-retry-reason"] == "http_error"
    assert [each.reason for each in slack.deliveries] == ["http_error", "http_error", ""]


async def test_an_app_can_forbid_the_retry() -> None:
    endpoint = Endpoint(lambda: Response(status_code=500, headers={"x-slack-no-retry": "1"}))
    with LocalServer(endpoint.app, "bot") as bot:
        slack = local(request_url=bot.url + "/slack/events")
        slack.people.say("U1", "C1", "hi")
        await until(lambda: slack.deliveries[-1].reason)
        await asyncio.sleep(0.1)
    assert len(slack.deliveries) == 1


async def test_a_slow_and_an_absent_app_get_the_event_again() -> None:
    async def slow(request: Request) -> Response:
        await asyncio.sleep(0.2)
        return Response()

    app = Starlette(routes=[Route("/", slow, methods=["POST"])])
    with LocalServer(app, "bot") as bot:
        slack = local(request_url=bot.url, ack_s=0.05, retries_s=())
        slack.people.say("U1", "C1", "hi")
        await until(lambda: slack.deliveries[-1].reason == "http_timeout")
    slack.people.say("U1", "C1", "hi")
    await until(lambda: slack.deliveries[-1].reason == "connection_failed")


async def test_the_challenge_is_answered_as_json_or_as_text_or_not() -> None:
    wrong = Endpoint()
    with LocalServer(wrong.app, "bot") as bot:
        slack = local(request_url=bot.url + "/slack/events")
        assert slack.requests
        assert not await asyncio.to_thread(slack.requests.verify)
        challenge = json.loads(wrong.got[0][1])["challenge"]
        wrong.answers = [lambda: JSONResponse({"challenge": challenge})]
        assert not await asyncio.to_thread(slack.requests.verify)  # an old one


# What people do

BUTTONS: list[Json] = [
    {
        "type": "actions",
        "block_id": "a1",
        "elements": [
            {
                "type": "button",
                "action_id": "go",
                "value": "yes",
                "text": {"type": "plain_text", "text": "Go"},
            }
        ],
    },
    {
        "type": "context_actions",
        "block_id": "f1",
        "elements": [
            {
                "type": "feedback_buttons",
                "action_id": "feedback",
                "positive_button": {
                    "text": {"type": "plain_text", "text": "Good"},
                    "value": "good",
                },
                "negative_button": {
                    "text": {"type": "plain_text", "text": "Bad"},
                    "value": "bad",
                },
            }
        ],
    },
]


async def test_an_edit_and_a_deletion_arrive_with_what_was_there_before() -> None:
    slack = local()
    async with connected(slack) as heard:
        ts = slack.people.say("U1", "C1", "first")
        slack.people.edit("U1", "C1", ts, ASK)
        await until(lambda: len(heard) == 3)
        slack.people.delete("U1", "C1", ts)
        await until(lambda: len(heard) == 4)
    changed, deleted = heard.one("message_changed"), heard.one("message_deleted")
    assert changed["message"]["text"] == ASK
    assert changed["message"]["edited"]["user"] == "U1"
    assert changed["previous_message"]["text"] == "first"
    assert changed["hidden"] is True
    assert changed["ts"] != ts == changed["message"]["ts"]
    assert heard.one("app_mention")["edited"]
    assert (deleted["deleted_ts"], deleted["previous_message"]["text"]) == (ts, ASK)


async def test_a_deleted_root_becomes_a_tombstone_above_its_replies() -> None:
    slack = local()
    async with connected(slack) as heard:
        root = slack.people.say("U1", "C1", "root")
        slack.people.say("U2", "C1", "reply", root)
        slack.people.delete("U1", "C1", root)
        await until(lambda: len(heard) == 3)
    (reply,) = (event for event in heard if event.get("text") == "reply")
    assert (reply["thread_ts"], reply["parent_user_id"]) == (root, "U1")
    assert heard.one("message_changed")["message"]["subtype"] == "tombstone"


async def test_the_app_hears_only_of_channels_that_its_bot_is_in() -> None:
    slack = local()
    async with connected(slack) as heard:
        slack.people.say("U1", "G1", ASK)
        assert not slack.deliveries
        slack.people.join(BOT_USER, "G1", inviter="U1")
        slack.people.say("U1", "G1", "now")
        await until(lambda: len(heard) == 2)
        with pytest.raises(KeyError):
            slack.people.say("U2", "G1", "let me in")
    assert heard.one("member_joined_channel")["inviter"] == "U1"
    assert heard.one("message")["channel_type"] == "group"


async def test_a_direct_message_is_no_mention() -> None:
    slack = local()
    async with connected(slack) as heard:
        channel = slack.people.dm("U1")
        assert slack.people.dm("U1") == channel
        viewed = {"type": "slack#/types/channel_id", "value": "C1", "team_id": "T0LOCAL"}
        slack.people.say("U1", channel, ASK, context=[viewed])
        await until(lambda: heard)
        await asyncio.sleep(0.05)
    assert heard.kinds() == ["message"]
    assert heard[0]["channel_type"] == "im"
    assert heard[0]["app_context"]["entities"] == [viewed]


async def test_a_message_with_files_names_them() -> None:
    slack = local()
    file = File("F1", "a.txt", mimetype="text/plain", filetype="text", size=2, content=b"hi")
    async with connected(slack) as heard:
        slack.people.say("U1", "C1", ASK, files=[file])
        await until(lambda: len(heard) == 2)
    assert heard.one("file_share")["files"][0]["id"] == "F1"
    assert "subtype" not in heard.one("app_mention")
    assert heard.one("app_mention")["files"][0]["url_private"]


async def test_broadcasts_and_other_bots_are_told_as_such() -> None:
    slack = local()
    async with connected(slack) as heard:
        root = slack.people.say("U1", "C1", "root")
        slack.people.say("U1", "C1", "for all", root, broadcast=True)
        slack.people.say_as_bot("B2", "C1", ASK, root)
        await until(lambda: len(heard) == 4)
    assert heard.one("thread_broadcast")["root"]["ts"] == root
    assert heard.one("bot_message")["bot_id"] == "B2"
    assert heard.one("bot_message")["thread_ts"] == root
    assert "user" not in heard.one("bot_message")
    assert heard.one("app_mention")["bot_id"] == "B2"


async def test_home_context_reactions_and_the_stop_button_are_told() -> None:
    slack = local()
    async with connected(slack) as heard:
        ts = slack.people.say("U1", "C1", "hi")
        slack.people.react("U2", "C1", ts, "eyes")
        slack.people.open_home("U1")
        slack.people.open_home("U1", tab="messages")
        slack.people.look_at("U1", "C1")
        slack.people.stop("U1", "C1", ts)
        await until(lambda: len(heard) == 6)
    assert heard.one("reaction_added")["item"] == {"type": "message", "channel": "C1", "ts": ts}
    homes = [event for event in heard if event["type"] == "app_home_opened"]
    assert {event["tab"] for event in homes} == {"home", "messages"}
    assert heard.one("app_context_changed")["context"]["entities"][0]["value"] == "C1"
    stopped = heard.one("agent_session_stopped")
    assert (stopped["channel"], stopped["thread_ts"]) == ("C1", ts)
    assert stopped["streaming_message_ts"] == []


async def test_the_stop_button_names_the_streams_that_it_ended() -> None:
    slack = local()
    async with served(slack) as web, raw_socket(web) as socket:
        await socket.receive_json()
        ts = slack.people.say("U1", "C1", "hi")
        await socket.receive_json()
        stream = await web.chat_startStream(
            channel="C1", thread_ts=ts, recipient_team_id="T0LOCAL", recipient_user_id="U1"
        )
        assert (await socket.receive_json())["payload"]["event"]["bot_id"] == BOT_ID
        slack.people.stop("U1", "C1", ts)
        event = (await socket.receive_json())["payload"]["event"]
    assert event["streaming_message_ts"] == [stream["ts"]]


async def test_the_app_hears_of_its_own_messages() -> None:
    slack = local()
    async with served(slack) as web, raw_socket(web) as socket:
        await socket.receive_json()
        sent = await web.chat_postMessage(channel="C1", text=ASK)
        events = [(await socket.receive_json())["payload"]["event"] for _ in range(2)]
        await web.chat_update(channel="C1", ts=sent["ts"], text="changed")
        changed = (await socket.receive_json())["payload"]["event"]
        await web.reactions_add(channel="C1", timestamp=sent["ts"], name="eyes")
        reaction = (await socket.receive_json())["payload"]["event"]
        await web.chat_delete(channel="C1", ts=sent["ts"])
        deleted = (await socket.receive_json())["payload"]["event"]
    assert [event["type"] for event in events] == ["message", "app_mention"]
    assert {event["bot_id"] for event in events} == {BOT_ID}
    assert "client_msg_id" not in events[0]
    assert changed["message"]["text"] == "changed"
    assert changed["previous_message"]["text"] == ASK
    assert (reaction["user"], reaction["reaction"]) == (BOT_USER, "eyes")
    assert deleted["subtype"] == "message_deleted"


async def test_clicks_carry_the_button_and_its_message() -> None:
    slack = local(ack_s=3)
    async with served(slack) as web:
        app, heard = bolt(web)
        handler: Any = AsyncSocketModeHandler(app, APP_TOKEN)
        await handler.connect_async()
        root = slack.people.say("U1", "C1", "hi")
        shown = await web.chat_postMessage(
            channel="C1", thread_ts=root, text="Press", blocks=BUTTONS
        )
        slack.people.click("U1", "C1", shown["ts"], "feedback", "bad")
        await until(lambda: "block_actions" in heard.kinds() and slack.deliveries[-1].acked_at)
        with pytest.raises(KeyError):
            slack.people.click("U1", "C1", shown["ts"], "no_such_button")
        with pytest.raises(KeyError):
            slack.people.click("U1", "C1", shown["ts"], "feedback", "so so")
        await handler.close_async()
    body = heard.one("block_actions")
    assert body["actions"][0]["value"] == "bad"
    assert body["actions"][0]["type"] == "feedback_buttons"
    assert body["container"]["thread_ts"] == root
    assert body["message"]["ts"] == shown["ts"]
    assert body["user"]["id"] == "U1"
    assert slack.deliveries[-1].type == "block_actions"


async def test_a_button_of_app_home_can_be_pressed() -> None:
    slack = local()
    async with connected(slack) as heard, served(slack) as web:
        with pytest.raises(KeyError):
            slack.people.click_home("U1", "go")
        await web.views_publish(user_id="U1", view={"type": "home", "blocks": BUTTONS[:1]})
        slack.people.click_home("U1", "go")
        slack.people.open_home("U1")
        await until(lambda: len(heard) == 2)
    assert heard.one("block_actions")["view"]["type"] == "home"
    assert heard.one("app_home_opened")["view"]["blocks"][0]["type"] == "actions"


async def test_a_slash_command_is_answered_in_its_ack_and_at_its_address() -> None:
    slack = local()
    async with connected(slack) as heard:
        slack.people.slash("U1", "C1", "/assistant", "pause")
        await until(lambda: len(slack.state.whispers) == 2)
    assert heard.one("command")["user_name"] == "ana"
    said = {(each.user, each.channel, each.text) for each in slack.state.whispers}
    assert said == {("U1", "C1", "/assistant heard"), ("U1", "C1", "and answered")}


async def test_a_raw_event_is_delivered_as_it_is_and_as_often_as_asked() -> None:
    slack = local(ack_s=5)
    async with served(slack) as web, raw_socket(web) as socket:
        await socket.receive_json()
        slack.send({"type": "message", "text": 7}, times=2, event_id="Ev1", authorizations=[])
        got = [(await socket.receive_json())["payload"] for _ in range(2)]
        slack.send(["no", "object"])
        odd = (await socket.receive_json())["payload"]
        slack.send({"type": "app_rate_limited", "minute_rate_limited": 1})
        limited = (await socket.receive_json())["payload"]
    assert [each["event_id"] for each in got] == ["Ev1", "Ev1"]
    assert got[0]["event"] == {"type": "message", "text": 7}
    assert got[0]["authorizations"] == []
    assert odd["event"] == ["no", "object"]
    assert limited["type"] == "app_rate_limited"
    assert limited["minute_rate_limited"] == 1
    assert "event" not in limited


# Faults


async def test_a_lost_answer_leaves_the_message_there() -> None:
    slack = local()
    async with served(slack) as web:
        web.retry_handlers.clear()
        slack.faults.append(Fault("chat.postMessage", "lost"))
        with pytest.raises(aiohttp.ClientError):
            await web.chat_postMessage(channel="C1", text="hello")
    assert [shown.text for shown in slack.visible("C1")] == ["hello"]


async def test_any_error_of_slack_can_be_asked_for() -> None:
    slack = local()
    async with served(slack) as web:
        slack.faults += [Fault("*", "error:fatal_error"), Fault("*", "missing_scope")]
        for code in ("fatal_error", "missing_scope"):
            with pytest.raises(SlackApiError, match=code):
                await web.chat_postMessage(channel="C1", text="hello")
    assert not slack.effects
