"""How the local Slack delivers events, as the real slack_bolt hears them."""

import asyncio
import re
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
from standins.slack import API_PATH, APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, LocalSlack
from standins.slack_limits import TIERS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.local.server import LocalServer
from bot.local.slack.state import BOT_ID, BOT_USER
from bot.local.workspace import Channel, Team, User, Workspace

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
async def connected(slack: LocalSlack) -> AsyncIterator[tuple[AsyncWebClient, Heard]]:
    """A Bolt app on one socket."""
    async with served(slack) as web:
        app, heard = bolt(web)
        handler: Any = AsyncSocketModeHandler(app, APP_TOKEN, ping_interval=0.2)
        await handler.connect_async()
        try:
            await until(lambda: slack.sockets.count == 1)
            yield web, heard
        finally:
            await handler.close_async()


@asynccontextmanager
async def raw_socket(web: AsyncWebClient) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A websocket with nothing of the SDK on it, after its hello."""
    opened = await web.apps_connections_open(app_token=APP_TOKEN)
    async with aiohttp.ClientSession() as session, session.ws_connect(opened["url"]) as socket:
        assert (await socket.receive_json())["type"] == "hello"
        yield socket


# ---- Socket Mode


async def test_a_mention_arrives_as_two_events_with_one_timestamp_and_is_acked() -> None:
    slack = local()
    async with connected(slack) as (_, heard):
        ts = slack.people.say("U1", "C1", ASK)
        await until(lambda: len(heard) == 2 and all(d.acked_at for d in slack.deliveries))
    message, mention = heard.one("message"), heard.one("app_mention")
    assert {event[key] for event in heard for key in ("ts", "event_ts")} == {ts}
    assert len({delivery.event_id for delivery in slack.deliveries}) == 2
    assert message["channel_type"] == "channel"
    assert message["blocks"][0]["elements"][0]["elements"][0]["user_id"] == BOT_USER
    assert message["client_msg_id"] == mention["client_msg_id"]
    assert "channel_type" not in mention


async def test_an_event_without_an_ack_comes_again_on_schedule_and_then_no_more() -> None:
    slack = local(ack_s=0.05, retries_s=(0.0, 0.1))
    async with served(slack) as web, raw_socket(web) as socket:
        slack.people.say("U1", "C2", "hi")
        tries = [await socket.receive_json() for _ in range(3)]
        await until(lambda: slack.deliveries[-1].reason)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(socket.receive(), 0.15)
    assert [each["retry_attempt"] for each in tries] == [0, 1, 2]
    assert [each["retry_reason"] for each in tries] == ["", "timeout", "timeout"]
    assert len({each["envelope_id"] for each in tries}) == 3
    assert len({each["payload"]["event_id"] for each in tries}) == 1
    assert [each.reason for each in slack.deliveries] == ["timeout"] * 3
    first, second, third = (each.sent_at for each in slack.deliveries)
    assert second - first >= 0.05
    assert third - second >= 0.15
    payload = tries[0]["payload"]
    assert (payload["type"], payload["api_app_id"]) == ("event_callback", "A0LOCAL")
    assert payload["authorizations"][0]["user_id"] == BOT_USER
    assert payload["is_ext_shared_channel"] is True
    assert payload["event"]["assistant_thread"]["action_token"]


async def test_each_event_goes_to_one_of_at_most_ten_sockets() -> None:
    slack = local(ack_s=5)
    slack.sockets.goodbye_s = 0.0
    async with served(slack) as web:
        async with raw_socket(web) as one, raw_socket(web) as two:
            for number in range(4):
                slack.people.say("U1", "C1", f"hi {number}")
            sockets = (one, two) * 2
            got = [(await socket.receive_json())["payload"]["event_id"] for socket in sockets]
            assert sorted(got) == sorted(each.event_id for each in slack.deliveries)
        await until(lambda: slack.sockets.count == 0)
        opened = await web.apps_connections_open(app_token=APP_TOKEN)
        async with aiohttp.ClientSession() as session:
            many = [await session.ws_connect(opened["url"]) for _ in range(11)]
            said = [(await socket.receive_json()) for socket in many]
            assert [each["type"] for each in said] == ["hello"] * 10 + ["disconnect"]
            assert said[-1]["reason"] == "too_many_websockets"


async def test_an_event_that_finds_no_socket_is_tried_again_and_then_lost() -> None:
    slack = local(retries_s=(0.0, 0.05))
    slack.people.say("U1", "C1", "before the first socket")
    assert [each.reason for each in slack.deliveries] == ["no_socket"]
    async with served(slack) as web:
        async with raw_socket(web):
            pass
        await until(lambda: slack.sockets.count == 0)
        slack.people.say("U1", "C1", "hi")
        await until(lambda: len(slack.deliveries) == 4 and slack.deliveries[-1].reason)
        async with raw_socket(web) as socket:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(socket.receive(), 0.1)
    assert {each.reason for each in slack.deliveries} == {"no_socket"}


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


# ---- HTTP


class Endpoint:
    """An app's request URL that notes what it is sent, and answers as told."""

    def __init__(self, *answers: Callable[[], Response]) -> None:
        self.got: list[tuple[dict[str, str], str]] = []
        self.answers = list(answers)
        self.app = Starlette(routes=[Route("/slack/events", self.take, methods=["POST"])])

    async def take(self, request: Request) -> Response:
        self.got.append((dict(request.headers), (await request.body()).decode()))
        return self.answers.pop(0)() if self.answers else Response()


async def test_bolt_takes_signed_events_clicks_and_commands_over_http() -> None:
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
            slack.people.say("U1", "C1", ASK)
            await until(lambda: len(heard) == 2 and all(d.acked_at for d in slack.deliveries))
            shown = await web.chat_postMessage(channel="C1", text="Press", blocks=BUTTONS)
            slack.people.click("U1", "C1", shown["ts"], "go")
            slack.people.slash("U1", "C1", "/assistant", "pause")
            await until(lambda: len(heard) == 4 and len(slack.state.whispers) == 2)
    assert heard.one("block_actions")["actions"][0]["value"] == "yes"
    assert (heard.one("command")["text"], heard.one("command")["user_name"]) == ("pause", "ana")
    said = {(each.user, each.channel, each.text) for each in slack.state.whispers}
    assert said == {("U1", "C1", "/assistant heard"), ("U1", "C1", "and answered")}


async def test_http_events_carry_a_signature_and_the_number_of_the_retry() -> None:
    never = {"x-slack-no-retry": "1"}
    answers = (Response(status_code=500), Response(status_code=503, headers=never))
    endpoint = Endpoint(*(lambda answer=answer: answer for answer in answers))
    with LocalServer(endpoint.app, "bot") as bot:
        slack = local(request_url=bot.url + "/slack/events")
        assert slack.requests
        slack.people.say("U1", "C1", "hi")
        await until(lambda: len(slack.deliveries) == 2 and slack.deliveries[-1].reason)
        await asyncio.sleep(0.1)  # the second answer forbids a third try
        assert not await asyncio.to_thread(slack.requests.verify)
        slack.close()
    for headers, body in endpoint.got:
        assert headers["content-type"] == "application/json"
        assert SignatureVerifier(SIGNING_SECRET).is_valid_request(body, headers)
    assert [headers.get("x-slack-retry-num") for headers, _ in endpoint.got] == [None, "1", None]
    assert endpoint.got[1][0]["x-slack-retry-reason"] == "http_error"
    assert [each.reason for each in slack.deliveries] == ["http_error"] * 2


# ---- what people do


def button(text: str, value: str, **more: str) -> Json:
    return {"text": {"type": "plain_text", "text": text}, "value": value, **more}


BUTTONS: list[Json] = [
    {
        "type": "actions",
        "block_id": "a1",
        "elements": [button("Go", "yes", type="button", action_id="go")],
    },
    {
        "type": "context_actions",
        "block_id": "f1",
        "elements": [
            {
                "type": "feedback_buttons",
                "action_id": "feedback",
                "positive_button": button("Good", "good"),
                "negative_button": button("Bad", "bad"),
            }
        ],
    },
]


async def test_edits_and_deletions_arrive_with_what_was_there_before() -> None:
    slack = local()
    async with connected(slack) as (_, heard):
        ts = slack.people.say("U1", "C1", "first")
        slack.people.edit("U1", "C1", ts, ASK)
        await until(lambda: len(heard) == 3)
        slack.people.delete("U1", "C1", ts)
        await until(lambda: len(heard) == 4)
        changed, deleted = heard.one("message_changed"), heard.one("message_deleted")
        assert heard.one("app_mention")["edited"]
        heard.clear()
        root = slack.people.say("U1", "C1", "root")
        slack.people.say("U2", "C1", "reply", root)
        slack.people.delete("U1", "C1", root)
        await until(lambda: len(heard) == 3)
    assert (changed["message"]["text"], changed["previous_message"]["text"]) == (ASK, "first")
    assert changed["message"]["edited"]["user"] == "U1"
    assert changed["hidden"] is True
    assert changed["ts"] != ts == changed["message"]["ts"]
    assert (deleted["deleted_ts"], deleted["previous_message"]["text"]) == (ts, ASK)
    (reply,) = (event for event in heard if event.get("text") == "reply")
    assert (reply["thread_ts"], reply["parent_user_id"]) == (root, "U1")
    assert heard.one("message_changed")["message"]["subtype"] == "tombstone"


async def test_the_app_hears_only_of_channels_that_its_bot_is_in_and_of_direct_messages() -> None:
    slack = local()
    async with connected(slack) as (_, heard):
        slack.people.say("U1", "G1", ASK)
        assert not slack.deliveries
        slack.people.join(BOT_USER, "G1", inviter="U1")
        slack.people.say("U1", "G1", "now")
        with pytest.raises(KeyError):
            slack.people.say("U2", "G1", "let me in")
        await until(lambda: len(heard) == 2)
        assert heard.one("member_joined_channel")["inviter"] == "U1"
        assert heard.one("message")["channel_type"] == "group"
        heard.clear()
        viewed = {"type": "slack#/types/channel_id", "value": "C1", "team_id": "T0LOCAL"}
        slack.people.say("U1", slack.people.dm("U1"), ASK, context=[viewed])
        await until(lambda: heard)
        await asyncio.sleep(0.05)
    (direct,) = heard
    assert (direct["type"], direct["channel_type"]) == ("message", "im")
    assert direct["app_context"]["entities"] == [viewed]


async def test_the_app_hears_of_its_own_messages() -> None:
    slack = local()
    async with served(slack) as web, raw_socket(web) as socket:
        sent = await web.chat_postMessage(channel="C1", text=ASK)
        await web.chat_update(channel="C1", ts=sent["ts"], text="changed")
        await web.reactions_add(channel="C1", timestamp=sent["ts"], name="eyes")
        await web.chat_delete(channel="C1", ts=sent["ts"])
        events = [(await socket.receive_json())["payload"]["event"] for _ in range(5)]
    message, mention, changed, reaction, deleted = events
    assert (message["type"], mention["type"]) == ("message", "app_mention")
    assert {message["bot_id"], mention["bot_id"]} == {BOT_ID}
    assert "client_msg_id" not in message
    assert changed["message"]["text"] == "changed"
    assert changed["previous_message"]["text"] == ASK
    assert (reaction["user"], reaction["reaction"]) == (BOT_USER, "eyes")
    assert deleted["subtype"] == "message_deleted"


async def test_clicks_carry_the_button_and_its_message_or_home() -> None:
    slack = local(ack_s=3)
    async with connected(slack) as (web, heard):
        root = slack.people.say("U1", "C1", "hi")
        shown = await web.chat_postMessage(
            channel="C1", thread_ts=root, text="Press", blocks=BUTTONS
        )
        with pytest.raises(KeyError):
            slack.people.click("U1", "C1", shown["ts"], "no_such_button")
        with pytest.raises(KeyError):
            slack.people.click("U1", "C1", shown["ts"], "feedback", "so so")
        with pytest.raises(KeyError):
            slack.people.click_home("U1", "go")
        slack.people.click("U1", "C1", shown["ts"], "feedback", "bad")
        await until(lambda: "block_actions" in [event["type"] for event in heard])
        clicked = heard.one("block_actions")
        heard.clear()
        await web.views_publish(user_id="U1", view={"type": "home", "blocks": BUTTONS[:1]})
        slack.people.click_home("U1", "go")
        slack.people.open_home("U1")
        await until(lambda: len(heard) == 2)
    action = clicked["actions"][0]
    assert (action["type"], action["value"]) == ("feedback_buttons", "bad")
    assert clicked["container"]["thread_ts"] == root
    assert (clicked["message"]["ts"], clicked["user"]["id"]) == (shown["ts"], "U1")
    assert heard.one("block_actions")["view"]["type"] == "home"
    assert heard.one("app_home_opened")["view"]["blocks"][0]["type"] == "actions"
