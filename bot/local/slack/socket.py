"""Socket Mode: websockets that the app opens, and that events come in through."""

import asyncio
import json
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from bot.local.slack.delivery import ACK_S, Done, Envelope, Outcome
from bot.local.slack.state import APP_ID, SlackError

LINK_PATH = "/link/"

DEBUG = {"host": "applink-local"}


@dataclass(eq=False, slots=True)
class Socket:
    """One open websocket; its messages leave in order through `outgoing`."""

    websocket: WebSocket
    outgoing: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    """None closes the socket."""
    is_ending: bool = False

    async def write(self) -> None:
        with suppress(WebSocketDisconnect):  # the reader notices, too
            while (text := await self.outgoing.get()) is not None:
                await self.websocket.send_text(text)
            await self.websocket.close()


@dataclass(slots=True)
class _Pending:
    done: Done
    timer: asyncio.TimerHandle


class Sockets:
    """The open sockets of the app; each event goes to one of them, in turn.

    Everything happens in the event loop of the server that the app connected to; the public
    methods may be called from any thread.
    """

    def __init__(self, app_token: str, ack_s: float = ACK_S) -> None:
        self._app_token = app_token
        self._ack_s = ack_s
        self.sockets: list[Socket] = []
        self._pending: dict[str, _Pending] = {}
        self._tickets: set[str] = set()
        self._turn = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None

    @property
    def count(self) -> int:
        """Sockets that Slack sends events to."""
        return sum(not each.is_ending for each in self.sockets)

    @property
    def is_reachable(self) -> bool:
        return self._loop is not None

    def open(self, token: str, base: str) -> str:
        """apps.connections.open: the address of a new socket below `base` (ws://host:port)."""
        if not token.startswith("xapp-"):
            raise SlackError("not_allowed_token_type" if token else "not_authed")
        if token != self._app_token:
            raise SlackError("invalid_auth")
        ticket = str(uuid.uuid4())
        self._tickets.add(ticket)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        return f"{base}{LINK_PATH}?ticket={ticket}&app_id={APP_ID}"

    def carry(self, envelope: Envelope, attempt: int, reason: str, done: Done) -> None:
        if not self.do(lambda: self._send(envelope, attempt, reason, done)):
            done(Outcome("no_socket", final=True))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.do(lambda: self.in_(seconds, action))

    async def serve(self, websocket: WebSocket) -> None:
        """One websocket from handshake to end."""
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
                self._acked(message.get("text") or "")
        finally:
            self.forget(socket)
            writer.cancel()
            await asyncio.wait([writer])

    def do(self, action: Callable[[], None]) -> bool:
        """Do it in the sockets' loop, at once when this is its thread; False = there is none."""
        if self._loop is None or self._loop.is_closed():
            return False
        if threading.get_ident() == self._thread:
            action()
            return True
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # closed since
            return False
        return True

    def in_(self, seconds: float, action: Callable[[], None]) -> None:
        assert self._loop
        self._loop.call_later(seconds, action)

    def _send(self, envelope: Envelope, attempt: int, reason: str, done: Done) -> None:
        open_ = [each for each in self.sockets if not each.is_ending]
        if not open_:
            done(Outcome("no_socket"))
            return
        assert self._loop
        self._turn += 1
        id = str(uuid.uuid4())
        timer = self._loop.call_later(self._ack_s, self._late, id)
        self._pending[id] = _Pending(done, timer)
        self.post(open_[self._turn % len(open_)], _enveloped(envelope, id, attempt, reason))

    def _late(self, id: str) -> None:
        self._pending.pop(id).done(Outcome("timeout"))

    def _acked(self, text: str) -> None:
        try:
            ack = json.loads(text)
        except ValueError:
            return
        id = ack.get("envelope_id") if isinstance(ack, dict) else None
        pending = self._pending.pop(str(id), None)
        if pending:
            pending.timer.cancel()
            pending.done(Outcome(answer=ack.get("payload")))

    def admit(self, socket: Socket) -> None:
        self.sockets.append(socket)
        self.post(socket, _hello(len(self.sockets)))

    def post(self, socket: Socket, text: str) -> None:
        """Send a text behind those that were sent before."""
        socket.outgoing.put_nowait(text)

    def forget(self, socket: Socket) -> None:
        if socket in self.sockets:
            self.sockets.remove(socket)


def _hello(count: int) -> str:
    return json.dumps(
        {
            "type": "hello",
            "num_connections": count,
            "debug_info": DEBUG | {"build_number": 1, "approximate_connection_time": 18060},
            "connection_info": {"app_id": APP_ID},
        }
    )


def _enveloped(envelope: Envelope, id: str, attempt: int, reason: str) -> str:
    """The envelope as JSON, around the payload that is JSON already."""
    head: dict[str, Any] = {
        "envelope_id": id,
        "type": envelope.kind,
        "accepts_response_payload": envelope.accepts_response,
    }
    if envelope.kind == "events_api":
        # Slack names only this reason in Socket Mode
        head |= {"retry_attempt": attempt, "retry_reason": "timeout" if reason else ""}
    return f'{json.dumps(head)[:-1]}, "payload": {envelope.body}}}'
