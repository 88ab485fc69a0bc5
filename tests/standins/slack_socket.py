"""Delivery of events to an app: over sockets that break as Slack's do, or signed over HTTP."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from slack_sdk.signature import SignatureVerifier
from starlette.websockets import WebSocket

from bot.local.slack import socket
from bot.local.slack.socket import Socket, wrap_envelope
from bot.local.slack.state import SlackError
from standins.connections import mute_connection, sever_connection
from standins.slack_delivery import ACK_S, Done, Envelope, Outcome

_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"


class Requests:
    """Sends each event in its own short-lived thread, so that a slow app delays no other."""

    def __init__(self, url: str, signing_secret: str, ack_s: float = ACK_S) -> None:
        """`url` gets events, interactivity and slash commands alike."""
        self._url = urlsplit(url)
        self._verifier = SignatureVerifier(signing_secret)
        self._ack_s = ack_s
        self._closed = threading.Event()

    @property
    def is_reachable(self) -> bool:
        return not self._closed.is_set()

    def close(self) -> None:
        """Send nothing more."""
        self._closed.set()

    def carry(self, envelope: Envelope, attempt: int, reason: str, done: Done) -> None:
        headers = {}
        if attempt:
            headers = {"x-slack-retry-num": str(attempt), "x-slack-retry-reason": reason}
        body, kind = _body(envelope)
        self._start(lambda: done(self._post(body, kind, headers)))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        def wait() -> None:
            if not self._closed.wait(seconds):
                action()

        self._start(wait)

    def _start(self, action: Callable[[], None]) -> None:
        threading.Thread(target=action, name="local-slack-request", daemon=True).start()

    def _post(self, body: str, kind: str, headers: dict[str, str]) -> Outcome:
        connection = HTTPConnection(
            self._url.hostname or "", self._url.port, timeout=max(self._ack_s, 0.001)
        )
        try:
            connection.request(
                "POST",
                self._url.path,
                body.encode(),
                {"content-type": kind, **self._signature_headers(body), **headers},
            )
            response = connection.getresponse()
            return _outcome(response, response.read())
        except TimeoutError:
            return Outcome("http_timeout")
        except (OSError, HTTPException):
            return Outcome("connection_failed")
        finally:
            connection.close()

    def _signature_headers(self, body: str) -> dict[str, str]:
        """docs.slack.dev/authentication/verifying-requests-from-slack."""
        at = str(int(time.time()))
        signature = self._verifier.generate_signature(timestamp=at, body=body) or ""
        return {"x-slack-request-timestamp": at, "x-slack-signature": signature}


def _body(envelope: Envelope) -> tuple[str, str]:
    match envelope.kind:
        case "events_api":
            return json.dumps(envelope.payload), _JSON
        case "interactive":
            return urlencode({"payload": json.dumps(envelope.payload)}), _FORM
    return urlencode(envelope.payload), _FORM


def _outcome(response: HTTPResponse, body: bytes) -> Outcome:
    if 200 <= response.status < 300:
        return Outcome(answer=_answer(response, body))
    return Outcome("http_error", final=response.headers.get("x-slack-no-retry") == "1")


def _answer(response: HTTPResponse, body: bytes) -> Any:
    is_json = response.headers.get("content-type", "").startswith(_JSON)
    return json.loads(body) if body and is_json else body.decode() or None


Ending = Literal["refresh_requested", "warning", "link_disabled", "abort", "silent"]


MAX_SOCKETS = 10
"""Of one app at a time: docs.slack.dev/apis/events-api/using-socket-mode."""


@dataclass(slots=True)
class _Pending:
    done: Done
    timer: asyncio.TimerHandle


class Sockets(socket.Sockets):
    """The open sockets of the app, which a test can end; each sent event waits for its ack.

    Everything happens in the sockets' event loop, as in the base class.
    """

    def __init__(self, app_token: str, ack_s: float = ACK_S) -> None:
        super().__init__(app_token)
        self._ack_s = ack_s
        self._pending: dict[str, _Pending] = {}
        self.warning_s = 10.0
        """Seconds from a "warning" to the end of the socket, which still gets events."""
        self.goodbye_s = 0.5
        """The same for the other reasons; the socket gets no more events."""
        self.silent_s = 60.0
        """Seconds until a silent socket is severed."""
        self._refused_until = 0.0
        self._silent: list[Socket] = []
        self._ending: list[Socket] = []

    @property
    def is_reachable(self) -> bool:
        return self._loop is not None

    @property
    def refuses(self) -> bool:
        """Return whether new sockets are refused now."""
        return time.monotonic() < self._refused_until

    @property
    def count(self) -> int:
        """Sockets that Slack sends events to."""
        return len(self.listening)

    @property
    def listening(self) -> list[Socket]:
        return [each for each in self.sockets if each not in self._ending]

    def carry(self, envelope: Envelope, attempt: int, reason: str, done: Done) -> None:
        """Try once to deliver an event to the app."""
        if not self.do(lambda: self._carry(envelope, attempt, done)):
            done(Outcome("no_socket", final=True))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.do(lambda: self.in_(seconds, action))

    def in_(self, seconds: float, action: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, action)

    def _carry(self, envelope: Envelope, attempt: int, done: Done) -> None:
        id = str(uuid.uuid4())
        if not self.send(wrap_envelope(envelope.kind, id, envelope.payload, attempt)):
            done(Outcome("no_socket"))
            return
        timer = asyncio.get_running_loop().call_later(self._ack_s, self._late, id)
        self._pending[id] = _Pending(done, timer)

    def _late(self, id: str) -> None:
        self._pending.pop(id).done(Outcome("timeout"))

    def read_acks(self, text: str) -> None:
        ack = json.loads(text)
        if pending := self._pending.pop(ack.get("envelope_id"), None):
            pending.timer.cancel()
            pending.done(Outcome(answer=ack.get("payload")))

    def refuse(self, seconds: float) -> None:
        """Refuse new sockets for a while; open ones stay."""
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
        """Announce the end of a socket, and end it a moment later."""
        message = {"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-local"}}
        self.post(socket, json.dumps(message))
        if reason != "warning":
            self._ending.append(socket)
        wait = self.warning_s if reason == "warning" else self.goodbye_s
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
