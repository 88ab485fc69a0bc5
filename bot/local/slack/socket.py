"""Socket Mode: websockets that the app opens, and the events that come in through them.

It does not wait for acks or send again: over loopback to a bot in the same process no event is
lost.
"""

import asyncio
import itertools
import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from bot.local.slack.records import Json
from bot.local.slack.state import APP_ID, BOT_USER, SlackError, SlackState

LINK_PATH = "/link/"


@dataclass(eq=False, slots=True)
class Socket:
    """One open websocket; its messages leave in order through `outgoing`."""

    websocket: WebSocket
    outgoing: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    """None closes the socket."""

    async def write(self) -> None:
        with suppress(WebSocketDisconnect):  # the reader also notices it
            while (text := await self.outgoing.get()) is not None:
                await self.websocket.send_text(text)
            await self.websocket.close()


class Sockets:
    """The open sockets of the app; each event goes to one of them, in turn.

    Everything happens in the event loop of the server that the app connected to; the public
    methods may be called from any thread.
    """

    def __init__(self, app_token: str) -> None:
        self._app_token = app_token
        self.sockets: list[Socket] = []
        self._tickets: set[str] = set()
        self._turns = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, token: str, base: str) -> str:
        """Return the address of a new socket below `base` (ws://host:port)."""
        if not token.startswith("xapp-"):
            raise SlackError("not_allowed_token_type" if token else "not_authed")
        if token != self._app_token:
            raise SlackError("invalid_auth")
        ticket = str(uuid.uuid4())
        self._tickets.add(ticket)
        self._loop = asyncio.get_running_loop()
        return f"{base}{LINK_PATH}?ticket={ticket}&app_id={APP_ID}"

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one websocket from the handshake to its end."""
        ticket = websocket.query_params.get("ticket", "")
        if ticket not in self._tickets:
            await websocket.close()
            return
        await websocket.accept()
        socket = Socket(websocket)
        self.admit(socket)
        writer = asyncio.create_task(socket.write())
        try:
            while (message := await websocket.receive())["type"] == "websocket.receive":
                self.read_acks(message.get("text") or "")
        finally:
            self.forget(socket)
            writer.cancel()
            await asyncio.wait([writer])

    def do(self, action: Callable[[], object]) -> bool:
        """Run an action in the sockets' loop; return False if there is none."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def send(self, envelope: str) -> bool:
        """Send an envelope over the next socket in turn; return False if none is open."""
        open_ = self.listening
        if open_:
            self.post(open_[next(self._turns) % len(open_)], envelope)
        return bool(open_)

    @property
    def listening(self) -> list[Socket]:
        """Return the sockets that Slack sends events to."""
        return self.sockets

    def read_acks(self, text: str) -> None:
        """Read the acks of the app, and ignore them."""

    def admit(self, socket: Socket) -> None:
        self.sockets.append(socket)
        about = {"num_connections": len(self.sockets), "connection_info": {"app_id": APP_ID}}
        self.post(socket, json.dumps({"type": "hello", **about}))

    def post(self, socket: Socket, text: str) -> None:
        """Send a text after the earlier ones."""
        socket.outgoing.put_nowait(text)

    def forget(self, socket: Socket) -> None:
        if socket in self.sockets:
            self.sockets.remove(socket)


class Deliveries:
    """Sends events and interactions to the app, each in an envelope."""

    def __init__(self, state: SlackState, sockets: Sockets) -> None:
        self._state = state
        self._sockets = sockets
        self._numbers = itertools.count(1)

    def event(self, event: Json) -> None:
        """Deliver an event."""
        id = self.new_id()
        self.put("events_api", id, event["type"], self.callback(event, id))

    def new_id(self) -> str:
        return f"Ev0LOCAL{next(self._numbers):06d}"

    def put(self, kind: str, id: str, type: str, payload: Mapping[str, Any]) -> None:
        """Deliver a payload; returns at once.

        `kind` is "events_api", "interactive" or "slash_commands"; `type` is that of the event
        ("app_mention", "message"), "block_actions" or "slash_commands".
        """
        envelope = wrap_envelope(kind, str(uuid.uuid4()), payload)
        self._sockets.do(partial(self._sockets.send, envelope))

    def callback(self, event: Json, event_id: str) -> Json:
        """Return the payload of an event."""
        team = self._state.team.id
        return {
            "team_id": team,
            "api_app_id": APP_ID,
            "context_team_id": team,
            "context_enterprise_id": None,
            "event": event,
            "type": "event_callback",
            "event_id": event_id,
            "event_time": int(self._state.now()),
            "authorizations": [
                {"enterprise_id": None, "team_id": team, "user_id": BOT_USER, "is_bot": True}
                | {"is_enterprise_install": False}
            ],
        }


def wrap_envelope(kind: str, id: str, payload: Mapping[str, Any], attempt: int = 0) -> str:
    """Return the envelope of a payload as JSON."""
    is_event = kind == "events_api"
    body: Json = {"envelope_id": id, "type": kind, "accepts_response_payload": not is_event}
    if is_event:  # "timeout" is the only reason that Slack sends in Socket Mode
        body |= {"retry_attempt": attempt, "retry_reason": "timeout" if attempt else ""}
    return json.dumps(body | {"payload": payload})
