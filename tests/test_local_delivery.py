"""How the local Slack delivers events, as the real slack_bolt hears them."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from engine_kit import until
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient
from standins.slack import API_PATH, APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, LocalSlack
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.local.server import LocalServer
from bot.local.slack.state import BOT_USER
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


# ---- HTTP


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
