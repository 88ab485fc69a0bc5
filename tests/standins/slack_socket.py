"""Sockets that break in the ways in which Slack's do."""

import json
import time
from functools import partial
from typing import Literal

from starlette.websockets import WebSocket

from bot.local.slack import socket
from bot.local.slack.delivery import ACK_S
from bot.local.slack.socket import DEBUG, Socket
from bot.local.slack.state import SlackError
from standins.connections import mute_connection, sever_connection

Ending = Literal["refresh_requested", "warning", "link_disabled", "abort", "silent"]


MAX_SOCKETS = 10
"""Of one app at a time: docs.slack.dev/apis/events-api/using-socket-mode."""


class Sockets(socket.Sockets):
    """The open sockets of the app, which end as a test says."""

    def __init__(self, app_token: str, ack_s: float = ACK_S) -> None:
        super().__init__(app_token, ack_s)
        self.warning_s = 10.0
        """From a "warning" to the end of the socket, on which events still come in."""
        self.goodbye_s = 0.5
        """The same for the other reasons; no events come in any more."""
        self.silent_s = 60.0
        """A silent socket is given up after this time."""
        self._refused_until = 0.0
        self._silent: list[Socket] = []

    @property
    def refuses(self) -> bool:
        """Whether new sockets are refused now."""
        return time.monotonic() < self._refused_until

    def refuse(self, seconds: float) -> None:
        """No new sockets for a while; those that are open stay."""
        self._refused_until = time.monotonic() + seconds

    def drop(self, how: Ending = "refresh_requested", which: int | None = None) -> None:
        """End the sockets, or the one with this number (0 = the oldest), in this way."""
        self.do(lambda: self._drop(how, which))

    def open(self, token: str, base: str) -> str:
        url = super().open(token, base)
        if self.refuses:
            raise SlackError("internal_error")
        return url

    async def serve(self, websocket: WebSocket) -> None:
        if self.refuses:
            await websocket.close()
        else:
            await super().serve(websocket)

    def admit(self, socket: Socket) -> None:
        if len(self.sockets) < MAX_SOCKETS:
            super().admit(socket)
        else:
            self.end(socket, "too_many_websockets")

    def post(self, socket: Socket, text: str) -> None:
        if socket not in self._silent:
            super().post(socket, text)

    def end(self, socket: Socket, reason: str) -> None:
        """Say that the socket ends, and end it a moment later."""
        told = {"type": "disconnect", "reason": reason, "debug_info": DEBUG}
        self.post(socket, json.dumps(told))
        socket.is_ending = reason != "warning"
        wait = self.goodbye_s if socket.is_ending else self.warning_s
        self.in_(wait, partial(socket.outgoing.put_nowait, None))

    def _drop(self, how: Ending, which: int | None) -> None:
        chosen = list(self.sockets) if which is None else self.sockets[which : which + 1]
        for each in chosen:
            match how:
                case "abort":
                    self._give_up(each)
                case "silent":
                    self._silent.append(each)
                    mute_connection(each.websocket.scope)
                    self.in_(self.silent_s, partial(self._give_up, each))
                case _:
                    self.end(each, how)

    def _give_up(self, socket: Socket) -> None:
        self.forget(socket)
        sever_connection(socket.websocket.scope)
