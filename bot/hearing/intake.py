"""Slack's events as they arrive: stored first, then acked.

All of it happens in one middleware in front of Bolt's own authorisation and listeners: those run
after the ack, leave events without a matching listener (and `app_rate_limited`) unacked, and
stumble over payloads of odd shapes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from slack_bolt.adapter.starlette.async_handler import to_starlette_response
from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import Response

from bot.approval.clicking import After
from bot.approval.clicks import Clicked, Submitted
from bot.erasure.gone import Gone, edited_at
from bot.erasure.targets import forget_later
from bot.errors import StoreError
from bot.hearing.cursors import Cursors
from bot.hearing.ear import Ear, bolt_request, is_checkable, parsed_body
from bot.hearing.heard import (
    Acted,
    Amended,
    Bot,
    Commanded,
    Heard,
    Opened,
    Pressed,
    Rated,
    Seen,
    Stopped,
    asked,
    heard,
)
from bot.replies.outbox import Outbox
from bot.requests.inbox import Inbox, Incoming
from bot.serving.clock import Clock

log = logging.getLogger(__name__)

STORE_S = 10.0
"""Seconds that storing may take; Slack has sent the event again long before."""
AFTER_S = 60.0
"""Seconds for what is done after the ack: a home page, a word of thanks."""
THANKS = "Thank you, that is noted."
_HELP = "Use `/assistant pause`, `/assistant resume` or `/assistant status`."
_NOT_ALLOWED = "Only an administrator of the assistant may do that."


class Face(Protocol):
    """What the bot shows beside its answers; what is awaited is called after the ack."""

    def looked(self, opened: Opened) -> None: ...
    def folded(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """The event of a new direct message as it is to be stored."""

    async def opened(self, opened: Opened) -> None: ...
    async def pressed(self, pressed: Pressed) -> None:
        """A button that is not for feedback."""

    async def acted(self, acted: Acted) -> None:
        """A button below a thread of a digest."""

    async def clicked(self, click: Clicked | Submitted) -> After:
        """A card was clicked, or its form sent in: decided and stored before the ack."""

    async def begun(self, request: Incoming) -> None:
        """A direct message was stored as a request."""

    async def is_admin(self, user: str) -> bool:
        """Called before the ack."""


class Intake:
    """What is heard, stored and answered at once. `app` is the Bolt app of both transports."""

    def __init__(
        self,
        inbox: Inbox,
        cursors: Cursors,
        outbox: Outbox,
        web: AsyncWebClient,
        bot: Bot,
        *,
        signing_secret: str | None = None,
        on_request: Callable[[], object] = lambda: None,
        face: Face | None = None,
    ) -> None:
        """`on_request` is called after each new request; without a secret nothing by HTTP counts.

        Without a `face` nobody is an admin.
        """
        self.bot = bot
        self.heard: Counter[str] = Counter()
        """How many of which kind, for the metrics; `unstored` were left to come again."""
        self._inbox, self._cursors, self._outbox = inbox, cursors, outbox
        self._on_request, self._face = on_request, face
        self._signed = bool(signing_secret)
        self._clock = Clock(signing_secret or "")
        self._later: set[asyncio.Task[None]] = set()
        self.app = AsyncApp(
            name="workspace-assistant",
            logger=log,
            token=web.token,  # with a client instead it warns of the token in the environment
            signing_secret=signing_secret or "",
            before_authorize=Ear(self.answer),
        )

    async def from_socket(self, payload: Any) -> BoltResponse:
        """The answer to an envelope's payload, of whatever type that is; 200 = ack it."""
        request = bolt_request("socket_mode", {})
        request.body = payload if isinstance(payload, dict) else {}
        return await self.app.async_dispatch(request)

    async def from_http(self, request: Request) -> Response:
        """The answer to a POST of Slack's; one that is not signed by Slack gets a 401."""
        bolt = bolt_request("http", request.headers)
        bolt.raw_body = (await request.body()).decode("utf-8", "replace")
        bolt.body = parsed_body(bolt.raw_body, bolt.content_type)
        refusal = BoltResponse(status=401, body={"error": "invalid request"})
        checkable = self._signed and is_checkable(request.headers)
        answer = await self.app.async_dispatch(bolt) if checkable else refusal
        if answer.status == 401:
            self._clock.look(request.headers, bolt.raw_body)
        return to_starlette_response(answer)

    async def answer(self, body: Mapping[str, Any]) -> BoltResponse:
        """200 once all that this says is stored, 503 where that failed: Slack then sends it again.

        Never raises.
        """
        try:
            found = heard(body, self.bot)
        except Exception:
            log.exception("an event was not understood")
            found = None
        self.heard[type(found).__name__.lower() if found else "other"] += 1
        if found is None and body.get("type") == "app_rate_limited":
            log.warning("Slack holds events back: the app gets more than 30,000 an hour")
        try:
            async with asyncio.timeout(STORE_S):
                text = await self._store(found)
        except Exception as error:
            known = isinstance(error, StoreError)
            what = "an event could not be stored; Slack will send it again: %s"
            log.error(what, error or type(error).__name__, exc_info=not known)
            self.heard["unstored"] += 1
            return BoltResponse(status=503, body="")
        if isinstance(found, Opened) and self._face:
            self._face.looked(found)
        if isinstance(found, Rated | Opened | Pressed | Acted):
            self._do_later(self._follow(found))
        return BoltResponse(status=200, body=text)

    async def take_old(
        self, event: Mapping[str, Any], in_thread: bool, heard_before: bool = False
    ) -> bool:
        """A message out of the history; whether it is a new request.

        `in_thread`: we were in its thread before it. `heard_before`: it was heard as it was first,
        so it is no new request. Raises what storing raises.
        """
        found = asked(event, self.bot.team, self.bot, late=True)
        if isinstance(found, Incoming) and found.kind == "follow_up" and not in_thread:
            found = Seen(found.team, found.channel, found.ts)
        new = False
        if isinstance(found, Incoming | Seen) and not heard_before:
            new = await self._message(found)
        if isinstance(found, Incoming) and not new and event.get("edited"):
            at = edited_at(event)
            await self._inbox.amend(found.team, found.channel, found.ts, found.text, at)
        return new

    async def aclose(self) -> None:
        """Give up what is still done after acks; none of it is a request."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)

    async def _store(self, found: Heard | None) -> str:
        """Store what is to be stored; returns what the user is told at once."""
        inbox = self._inbox
        match found:
            case Incoming() | Seen():
                await self._message(found)
            case Amended(team, channel, ts, text):
                await inbox.amend(team, channel, ts, text)
            case Gone(target):
                await forget_later(inbox.database, target)
            case Stopped(team, channel, thread_ts, user):
                await inbox.stop(team, channel, thread_ts, user)
            case Rated():
                await inbox.feedback(found.key, found.user, found.value)
            case Clicked() | Submitted() if self._face:
                self._do_later((await self._face.clicked(found))())
            case Commanded():
                return await self._obey(found)
        return ""

    async def _message(self, found: Incoming | Seen) -> bool:
        """Whether it is a new request. The cursor moves on only when it is stored."""
        team, channel, ts = found.team, found.channel, found.ts
        with self._cursors.passing(team, channel, ts):
            if isinstance(found, Seen):
                return False
            if found.kind == "follow_up" and not await self._inbox.has_answered(
                team, channel, found.thread_ts
            ):
                return False
            direct = self._face if found.kind == "dm" else None
            if direct:
                found = replace(found, event=direct.folded(found.event))
            new = await self._inbox.add(found)
        self.heard["new" if new else "again"] += 1
        if new:
            self._on_request()
        if new and direct:
            self._do_later(direct.begun(found))
        return new

    async def _obey(self, command: Commanded) -> str:
        inbox = self._inbox
        if command.word not in ("pause", "resume", "status"):
            return _HELP
        if command.word != "status" and not await self._may_command(command.user):
            return _NOT_ALLOWED
        if command.word == "pause":
            await inbox.pause(f"<@{command.user}>")
        if command.word == "resume":
            await inbox.resume()
        by = await inbox.paused()
        return f"All new work is paused by {by}." if by else "The assistant is at work."

    async def _may_command(self, user: str) -> bool:
        return self._face is not None and await self._face.is_admin(user)

    async def _follow(self, found: Rated | Opened | Pressed | Acted) -> None:
        """What may be seen of an event after its ack."""
        if isinstance(found, Rated):
            if found.channel:
                thread_ts = found.thread_ts or None
                await self._outbox.whisper(found.channel, found.user, THANKS, thread_ts)
        elif self._face and isinstance(found, Opened):
            await self._face.opened(found)
        elif self._face and isinstance(found, Pressed):
            await self._face.pressed(found)
        elif self._face and isinstance(found, Acted):
            await self._face.acted(found)

    def _do_later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_in_time(work))
        self._later.add(task)
        task.add_done_callback(self._later.discard)


async def _in_time(work: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(AFTER_S):
            await work
    except Exception:
        log.exception("something that follows an event failed")
