"""Records the traffic of the bot with Slack and the model; at one moment the bot is killed."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

from standins.connections import drop_connection, read_ahead
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benchmarks.kill_model import AGAIN, call_of

Phase = Literal["asked", "done", "mid", "answered"]
"""It arrived; it took effect and its answer waits; a part of the answer was sent; it was sent."""
LAST = ("parent 3", f"{AGAIN} 3")
"""Calls of parents that write an answer."""
FIRST_WORD = "auth.test"
"""The bot's first call; earlier calls are from the killed process."""
_CARD = "action/"
"""Prefix of the key that marks the message of a card."""
CALLER: ContextVar[int] = ContextVar("caller", default=0)
"""Number of the replica whose call is being answered."""
HOLD_S = 60.0
STREAM_PAUSE_S = 0.05
"""Seconds between two events of a stream, since a model writes slowly."""


@dataclass(eq=False)
class Call:
    """One model call as seen by the stand-in."""

    name: str
    """`parent 1`, `child 7.2`."""
    body: bytes
    model: str
    life: int
    """Number of the restart in which it was made."""
    asked: float
    finished: float | None = None
    """When its whole answer was sent."""
    usage: dict[str, Any] = field(default_factory=dict)


@dataclass
class Watch:
    """Records every moment of a request. `on_moment` returns whether the bot was killed at it."""

    on_moment: Callable[[str, Phase], bool]
    team: str = ""
    """Workspace whose events are recorded; empty = there is only one."""
    log: list[tuple[float, str, Phase]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    life: int = 0
    is_starting: bool = False
    """True if the bot has been restarted and has made no call yet."""
    greeted: dict[int, float] = field(default_factory=dict)
    """Number of each process -> time of its first call."""
    holds: dict[str, threading.Event] = field(default_factory=dict)
    """Names of model calls -> event before which they are not answered."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _acks: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, phase: Phase) -> bool:
        with self._lock:
            self.log.append((time.time(), name, phase))
            if name == FIRST_WORD and phase == "answered":
                self.greeted[CALLER.get()] = time.time()
            if self.is_starting and name == FIRST_WORD:
                self.is_starting, self.life = False, self.life + 1
            return not self.is_starting and self.on_moment(name, phase)

    def end_life(self, *, is_alone: bool) -> None:
        """Record that a process was killed; if it was alone, its calls still count for its life.

        If another process continues, its calls belong to the next life at once.
        """
        self.is_starting = is_alone
        self.life += not is_alone

    def slack(self, app: ASGIApp) -> ASGIApp:
        """Wrap the local Slack with this watch."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "websocket":
                await app(scope, self._acking(receive), self._delivering(send))
                return
            body, replay = await read_ahead(receive)
            await self._passing(app, scope, replay, send, _slack_name(scope, body))

        return watched

    def model(self, app: ASGIApp) -> ASGIApp:
        """Wrap the model stand-in with this watch."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            body, replay = await read_ahead(receive)
            request = json.loads(body)
            who, turn = call_of(request)
            name = f"{who}.{turn}" if " " in who else f"{who} {turn}"
            call = Call(name, body, request["model"], self.life, time.time())
            self.calls.append(call)
            await self._passing(app, scope, replay, send, name, call)

        return watched

    async def _passing(
        self,
        app: ASGIApp,
        scope: Scope,
        receive: Receive,
        send: Send,
        name: str,
        call: Call | None = None,
    ) -> None:
        """Pass a request on and its answer back, unless the bot is killed meanwhile."""
        if self.note(name, "asked"):
            await drop_connection(scope)
            return
        if call and (hold := self.holds.get(name)):
            await asyncio.to_thread(hold.wait, HOLD_S)
        await app(scope, receive, _Answering(self, scope, send, name, call))

    def _delivering(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            name = ack = ""
            if message["type"] == "websocket.send":
                envelope = json.loads(message.get("text") or "{}")
                payload = envelope.get("payload", {})
                kind = str(payload.get("event", {}).get("type", ""))
                team = payload.get("team_id") or payload.get("team", {}).get("id")
                if self.team not in ("", team):
                    pass
                elif envelope.get("type") == "events_api" and kind == "app_mention":
                    name, ack = "event", "ack"
                elif envelope.get("type") == "interactive":
                    name, ack = "click", "click ack"
                if name:
                    self._acks[envelope["envelope_id"]] = ack
            if name and self.note(name, "asked"):
                return
            await send(message)
            if name:
                self.note(name, "answered")

        return sending

    def _acking(self, receive: Receive) -> Receive:
        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                id = json.loads(message.get("text") or "{}").get("envelope_id")
                if name := self._acks.pop(id, ""):
                    if self.note(name, "asked"):
                        return {"type": "websocket.receive", "text": "{}"}
                    asyncio.get_running_loop().call_soon(self.note, name, "answered")
            return message

        return receiving


@dataclass
class _Answering:
    """Passes an answer on until the bot is killed."""

    watch: Watch
    scope: Scope
    send: Send
    name: str
    call: Call | None
    parts: list[bytes] = field(default_factory=list)
    is_cut: bool = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._note("done")
        if self.is_cut:
            return
        await self.send(message)
        if message["type"] != "http.response.body":
            return
        self.parts.append(message.get("body", b""))
        if message.get("more_body"):
            if self.name in LAST:
                await asyncio.sleep(STREAM_PAUSE_S)
            await self._note("mid")
            return
        if self.call:
            self.call.finished, self.call.usage = time.time(), _usage(b"".join(self.parts))
        self.watch.note(self.name, "answered")

    async def _note(self, phase: Phase) -> None:
        self.is_cut = self.watch.note(self.name, phase)
        if self.is_cut:
            await drop_connection(self.scope)


def _slack_name(scope: Scope, body: bytes) -> str:
    """Return the method, some with a detail: `chat.appendStream text`; `root` begins a thread."""
    method = str(scope["path"]).rpartition("/")[2]
    try:
        args = json.loads(body) if body[:1] == b"{" else dict(parse_qsl(body.decode()))
    except ValueError:
        args = {}
    if method == "agents.sessions.setStatus":
        return f"{method} {args.get('status')}"
    if method == "chat.appendStream":
        return f"{method} {'text' if 'markdown_text' in str(args.get('chunks')) else 'plan'}"
    if method in ("chat.postMessage", "chat.update") and _CARD in str(args.get("metadata")):
        return f"{method} card"
    if method == "chat.postMessage":
        return method if args.get("thread_ts") else f"{method} root"
    if method == "chat.update":
        return f"{method} {_shows(str(args.get('blocks')))}"
    return method


def _shows(blocks: str) -> str:
    """Return the progress of the answer in these blocks."""
    if "feedback_buttons" in blocks:
        return "final"
    return "text" if "'type': 'markdown'" in blocks else "plan"


def _usage(answer: bytes) -> dict[str, Any]:
    text = answer.decode()
    if not text.startswith("event:"):
        return dict(json.loads(text).get("usage") or {})
    events = [json.loads(e.split("data: ", 1)[1]) for e in text.strip().split("\n\n")]
    last = next(e for e in events if e["type"] == "message_delta")
    return {**events[0]["message"]["usage"], **last["usage"]}
