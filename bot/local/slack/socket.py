"""Socket Mode: websockets that the app opens, and that events come in through."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from starlette.websockets import WebSocket, WebSocketDisconnect

from bot.local.server import mute_connection, sever_connection
from bot.local.slack.delivery import ACK_S, Done, Envelope, Outcome
from bot.local.slack.state import APP_ID, SlackError

MAX_SOCKETS = 10
"""Of one app at a time: docs.slack.dev/apis/events-api/using-socket-mode."""
LINK_PATH = "/link/"

Ending = Literal["refresh_requested", "warning", "link_disabled", "abort", "silent"]

_DEBUG = {"host": "applink-local"}


@dataclass(eq=False, slots=True)
class _Socket:
    """One open websocket; its messages leave in order through `outgoing`."""

    websocket: WebSocket
    outgoing: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    """None closes the socket."""
    is_silent: bool = False
    """The network swallows everything, and neither side has noticed yet."""
    is_ending: bool = False

    def send(self, text: str) -> None:
        if not self.is_silent:
            self.outgoing.put_nowait(text)

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
        self.warning_s = 10.0
        """From a "warning" to the end of the socket, on which events still come in."""
        self.goodbye_s = 0.5
        """The same for the other reasons; no events come in any more."""
        self.silent_s = 60.0
        """A silent socket is given up after this time."""
        self._app_token = app_token
        self._ack_s = ack_s
        self._sockets: list[_Socket] = []
        self._pending: dict[str, _Pending] = {}
        self._tickets: set[str] = set()
        self._turn = 0
        self._refused_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None

    @property
    def count(self) -> int:
        """Sockets that Slack sends events to; also a silent one, until it is given up."""
        return sum(not each.is_ending for each in self._sockets)

    @property
    def is_reachable(self) -> bool:
        return self._loop is not None

    def refuse(self, seconds: float) -> None:
        """No new sockets for a while; those that are open stay."""
        self._refused_until = time.monotonic() + seconds

    def drop(self, how: Ending = "refresh_requested", which: int | None = None) -> None:
        """End the sockets, or the one with this number (0 = the oldest), in this way."""
        self._do(lambda: self._drop(how, which))

    def open(self, token: str, base: str) -> str:
        """apps.connections.open: the address of a new socket below `base` (ws://host:port)."""
        if not token.startswith("xapp-"):
            raise SlackError("not_allowed_token_type" if token else "not_authed")
        if token != self._app_token:
            raise SlackError("invalid_auth")
        if time.monotonic() < self._refused_until:
            raise SlackError("internal_error")
        ticket = str(uuid.uuid4())
        self._tickets.add(ticket)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        return f"{base}{LINK_PATH}?ticket={ticket}&app_id={APP_ID}"

    def carry(self, envelope: Envelope, attempt: int, reason: str, done: Done) -> None:
        if not self._do(lambda: self._send(envelope, attempt, reason, done)):
            done(Outcome("no_socket", final=True))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._do(lambda: self._in(seconds, action))

    async def serve(self, websocket: WebSocket) -> None:
        """One websocket from handshake to end."""
        ticket = websocket.query_params.get("ticket", "")
        if ticket not in self._tickets or time.monotonic() < self._refused_until:
            await websocket.close()
            return
        await websocket.accept()
        socket = _Socket(websocket)
        if len(self._sockets) < MAX_SOCKETS:
            self._sockets.append(socket)
            socket.send(_hello(len(self._sockets)))
        else:
            self._end(socket, "too_many_websockets")
        writer = asyncio.create_task(socket.write())
        try:
            while (message := await websocket.receive())["type"] == "websocket.receive":
                self._acked(message.get("text") or "")
        finally:
            self._forget(socket)
            writer.cancel()
            await asyncio.wait([writer])

    def _do(self, action: Callable[[], None]) -> bool:
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

    def _in(self, seconds: float, action: Callable[[], None]) -> None:
        assert self._loop
        self._loop.call_later(seconds, action)

    def _send(self, envelope: Envelope, attempt: int, reason: str, done: Done) -> None:
        open_ = [each for each in self._sockets if not each.is_ending]
        if not open_:
            done(Outcome("no_socket"))
            return
        assert self._loop
        self._turn += 1
        id = str(uuid.uuid4())
        timer = self._loop.call_later(self._ack_s, self._late, id)
        self._pending[id] = _Pending(done, timer)
        open_[self._turn % len(open_)].send(_enveloped(envelope, id, attempt, reason))

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

    def _drop(self, how: Ending, which: int | None) -> None:
        chosen = list(self._sockets) if which is None else self._sockets[which : which + 1]
        for socket in chosen:
            match how:
                case "abort":
                    self._give_up(socket)
                case "silent":
                    socket.is_silent = True
                    mute_connection(socket.websocket.scope)
                    self._in(self.silent_s, partial(self._give_up, socket))
                case _:
                    self._end(socket, how)

    def _end(self, socket: _Socket, reason: str) -> None:
        socket.send(_disconnect(reason))
        socket.is_ending = reason != "warning"
        wait = self.goodbye_s if socket.is_ending else self.warning_s
        self._in(wait, partial(socket.outgoing.put_nowait, None))

    def _give_up(self, socket: _Socket) -> None:
        self._forget(socket)
        sever_connection(socket.websocket.scope)

    def _forget(self, socket: _Socket) -> None:
        if socket in self._sockets:
            self._sockets.remove(socket)


def _hello(count: int) -> str:
    return json.dumps(
        {
            "type": "hello",
            "num_connections": count,
            "debug_info": _DEBUG | {"build_number": 1, "approximate_connection_time": 18060},
            "connection_info": {"app_id": APP_ID},
        }
    )


def _disconnect(reason: str) -> str:
    return json.dumps({"type": "disconnect", "reason": reason, "debug_info": _DEBUG})


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
