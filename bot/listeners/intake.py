"""Receive Slack's events: store requests before the ack, and track each channel's cursor."""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from slack_bolt.adapter.starlette.async_handler import to_starlette_response
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.internals import parse_body
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import Response

from bot.approvals.cards import CardClicked, FormSubmitted
from bot.background import repeat
from bot.errors import StoreError
from bot.listeners.events import (
    ButtonClicked,
    DigestAction,
    FeedbackExplained,
    FeedbackGiven,
    HomeOpened,
    SeenMessage,
    SlackEvent,
    SlashCommand,
    StopPressed,
    ThreadChosen,
    parse_event,
    parse_message,
)
from bot.listeners.interactions import Interactions
from bot.manifest import SHORTCUTS
from bot.slack.messages import Bot, Mark, MessagePart, edited_at, first, ts_of
from bot.slack.writer import MessageWriter
from bot.storage.deletions import ForgetTarget, forget_later
from bot.storage.requests import BAD, CHOSEN, IncomingMessage, MessageEdited, RequestQueue
from config.settings import Settings
from config.words import in_language, phrase

log = logging.getLogger(__name__)

IN_ITS_LANGUAGE = "(Answer in the language of the thread.)"
"""The words that a shortcut adds to its name."""
FLUSH_S = 1.0
"""Minimum seconds between two writes of a channel's cursor."""

ChannelKey = tuple[str, str]
"""Team and channel."""


@dataclass
class Cursors:
    """Tracks each channel's newest message, and stores it when no earlier message can be lost.

    A channel's cursor does not move while one of its messages could not be stored, and no cursor
    moves between a gap and the end of the following backfill. So after a crash the stored cursor
    is ahead of missed messages by at most the time between a socket's last sign of life and the
    discovery that it is stale.
    """

    inbox: RequestQueue
    is_held: bool = False
    """Whether messages may have been missed that no backfill has read yet."""
    _newest: dict[ChannelKey, str] = field(default_factory=dict)
    _unstored: set[tuple[ChannelKey, str]] = field(default_factory=set)

    @contextmanager
    def checkpoint(self, team: str, channel: str, ts: str) -> Iterator[None]:
        """Wrap the storing of a message: its cursor moves only if that succeeds."""
        mark = ((team, channel), ts)
        self._unstored.add(mark)
        yield
        self._unstored.discard(mark)
        self._newest[team, channel] = max(ts, self._newest.get((team, channel), ""))

    async def flush(self) -> None:
        """Store the cursors that may be stored. Raises StoreError; then it keeps them all."""
        waiting = {place for place, _ in self._unstored}
        for team, channel in [] if self.is_held else [p for p in self._newest if p not in waiting]:
            ts = self._newest[team, channel]
            await self.inbox.advance(team, channel, ts)
            if self._newest[team, channel] == ts:
                del self._newest[team, channel]

    async def run(self) -> None:
        """Store cursors regularly until cancelled, then once more."""
        try:
            await repeat(self.flush, FLUSH_S, "the cursors are kept in memory for now")
        finally:
            try:
                await self.flush()
            except StoreError as error:
                log.warning("the cursors are not stored: %s", error)


STORE_S = 10.0
"""Seconds that storing may take; Slack sends the event again long before."""
AFTER_S = 60.0
"""Seconds for work after the ack, such as a Home page or a thank-you."""
NOT_READABLE = ("not_in_channel", "channel_not_found", "thread_not_found", "is_archived")
"""Errors of Slack for a thread that the bot cannot answer in."""


class Middleware(AsyncMiddleware):
    """Answers every request before Bolt parses it, except the verification of our address."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Awaitable[BoltResponse]]) -> None:
        self._answer = answer

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,
        next: Callable[[], Awaitable[BoltResponse]],
    ) -> BoltResponse | None:
        if req.body.get("type") == "url_verification":
            return await next()
        return await self._answer(req.body)


async def _nobody(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
    """Authorize nothing: every payload is answered before Bolt would ask."""
    raise NotImplementedError


class Receiver(ABC):
    """Hands the payloads of both transports to `answer`. `app` is the Bolt app of both."""

    def __init__(self, settings: Settings, token: str | None) -> None:
        """Without a signing secret, HTTP is rejected."""
        secret = settings.secrets.slack_signing_secret
        signing_secret = secret.get_secret_value() if secret else ""
        self._has_secret = bool(signing_secret)
        self.app = AsyncApp(
            name="workspace-assistant",
            logger=log,
            token=token,  # without a token it warns of the one in the environment
            authorize=None if token else _nobody,
            signing_secret=signing_secret,
            before_authorize=Middleware(self.answer),
        )

    @abstractmethod
    async def answer(self, body: Mapping[str, Any]) -> BoltResponse: ...

    async def from_socket(self, payload: Any) -> BoltResponse:
        """Return the answer to an envelope's payload, of any type; 200 = ack it."""
        return await self._dispatch("socket_mode", {}, payload if isinstance(payload, dict) else {})

    async def from_http(self, request: Request) -> Response:
        """Return the answer to Slack's POST; without Slack's signature it is a 401."""
        if not (self._has_secret and _is_checkable(request.headers)):
            refusal = BoltResponse(status=401, body={"error": "invalid request"})
            return to_starlette_response(refusal)
        raw = (await request.body()).decode("utf-8", "replace")
        body = _parse(raw, request.headers.get("content-type"))
        return to_starlette_response(await self._dispatch("http", request.headers, body, raw))

    async def _dispatch(
        self, mode: str, headers: Mapping[str, str], body: dict[str, Any], raw: str = ""
    ) -> BoltResponse:
        # the body is set afterwards: Bolt fails on some users and channels in one
        request = AsyncBoltRequest(body="", headers=dict(headers), mode=mode)
        request.raw_body, request.body = raw, body
        return await self.app.async_dispatch(request)


class Intake(Receiver):
    """Receives, stores and acknowledges the events of one workspace."""

    def __init__(
        self,
        cursors: Cursors,
        writer: MessageWriter,
        web: AsyncWebClient,
        bot: Bot,
        interactions: Interactions,
        settings: Settings,
    ) -> None:
        super().__init__(settings, web.token)
        self.bot = bot
        self._inbox, self._cursors, self._writer, self._web = cursors.inbox, cursors, writer, web
        shortcuts = {id: f"{name} {IN_ITS_LANGUAGE}" for id, name in SHORTCUTS.items()}
        self._texts = {**settings.slack.reactions, **shortcuts}
        self._interactions = interactions
        self.on_request: Callable[[], object] = lambda: None
        """Called after each new request."""
        self.on_repeat: Callable[[], object] = lambda: None
        """Called after a request that Slack sent again although it was stored."""
        self.on_feedback: Callable[[str, str], object] = lambda value, reason: None
        """Called after a new rating, and again with the reason for a bad one."""
        self._later: set[asyncio.Task[None]] = set()

    async def answer(self, body: Mapping[str, Any]) -> BoltResponse:
        """Return 200 once everything is stored, or 503 if that failed: Slack then sends it again.

        Never raises.
        """
        try:
            found = parse_event(body, self.bot)
        except Exception:
            log.exception("an event was not understood")
            found = None
        if found is None and body.get("type") == "app_rate_limited":
            log.warning("Slack holds events back: the app gets more than 30,000 an hour")
        try:
            async with asyncio.timeout(STORE_S):
                text = await self._store(found)
        except Exception as error:
            is_store_error = isinstance(error, StoreError)
            what = "an event could not be stored; Slack will send it again: %s"
            log.error(what, error or type(error).__name__, exc_info=not is_store_error)
            return BoltResponse(status=503, body="")
        if isinstance(found, HomeOpened | ButtonClicked | DigestAction):
            self._after_ack(self._interactions.follow(found))
        return BoltResponse(status=200, body=text)

    async def take_from_history(self, event: Mapping[str, Any], known_before: bool = False) -> bool:
        """Process a message from the history; return whether it is a new request.

        `known_before`: its first version was already processed, so it is no new request. Raises
        the errors of storing.
        """
        found = parse_message(event, self.bot.team, self.bot, late=True)
        new = False
        if isinstance(found, IncomingMessage | SeenMessage) and not known_before:
            new = await self._message(found)
        if isinstance(found, IncomingMessage) and not new and event.get("edited"):
            at = edited_at(event)
            edit = MessageEdited(found.team, found.channel, found.ts, found.text)
            await self._inbox.amend(edit, at)
        return new

    async def aclose(self) -> None:
        """Cancel the work after acks; it includes no request."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)

    async def _store(self, found: SlackEvent | None) -> str:
        """Store an event; return the immediate reply to the user."""
        inbox = self._inbox
        match found:
            case IncomingMessage() | SeenMessage():
                await self._message(found)
            case ThreadChosen():
                await self._choose(found)
            case MessageEdited():
                await inbox.amend(found)
            case ForgetTarget():
                await forget_later(inbox.database, found)
            case StopPressed(team, channel, thread_ts, user):
                await inbox.stop(team, channel, thread_ts, user)
            case FeedbackGiven() | FeedbackExplained():
                await self._rate(found)
            case CardClicked() | FormSubmitted():
                self._after_ack(await self._interactions.approvals.on_click(found))
            case SlashCommand():
                return await self._command(found)
        return ""

    async def _message(self, found: IncomingMessage | SeenMessage) -> bool:
        """Store a message; return whether it is a new request. Only then does the cursor move."""
        team, channel, ts = found.team, found.channel, found.ts
        with self._cursors.checkpoint(team, channel, ts):
            if isinstance(found, SeenMessage):
                return False
            if found.kind == "follow_up" and not await self._inbox.has_answered(
                team, channel, found.thread_ts, before=ts
            ):
                return False
            new = await self._add(found)
        if new and found.kind == "dm":
            self._after_ack(self._interactions.entitle(found))
        return new

    async def _add(self, request: IncomingMessage) -> bool:
        """Store a request; return whether it is a new one."""
        new = await self._inbox.add(request)
        (self.on_request if new else self.on_repeat)()
        return new

    async def _choose(self, choice: ThreadChosen) -> None:
        """Store the request of a reaction or a shortcut in the thread of its message.

        There is no separate message for it, so it moves no cursor.
        """
        words = self._texts.get(choice.by)
        if not words:
            return
        try:
            root = await self._root(choice)
        except SlackApiError as error:
            code = error.response.get("error")
            if code not in NOT_READABLE:
                raise
            log.info("the thread that %s chose cannot be read: %s", choice.user, code)
            if choice.by in SHORTCUTS:
                self._after_ack(self._tell_invite(choice))
            return
        kind = "dm" if choice.channel.startswith("D") else "mention"
        event = {"text": words, "user": choice.user, "ts": choice.at, "thread_ts": root}
        event |= {CHOSEN: choice.by}
        place = (choice.team, choice.channel, choice.at, root)
        await self._add(IncomingMessage(*place, choice.user, kind, event))

    async def _root(self, choice: ThreadChosen) -> str:
        """Return the root of the thread of a message. Raises SlackApiError, also for a thread
        that cannot be read although Slack named its root.
        """
        ts = choice.thread_ts or choice.ts
        found = await self._web.conversations_replies(channel=choice.channel, ts=ts, limit=1)
        return ts_of(first(found.get("messages")).get("thread_ts")) or ts

    async def _tell_invite(self, choice: ThreadChosen) -> None:
        place, bot = f"<#{choice.channel}>", f"<@{self.bot.user}>"
        is_direct = choice.channel.startswith("D")  # between two people; nobody else can join
        with in_language(await self._interactions.language(choice.user)):
            key = "invite.not_direct" if is_direct else "invite.channel"
            text = phrase(key, channel=place, bot=bot)
        channel = await self._writer.direct(choice.user)
        mark = Mark(f"invite/{choice.channel}/{choice.at}")
        await self._writer.post(mark, channel, None, MessagePart(text))

    async def _command(self, command: SlashCommand) -> str:
        inbox, word, user = self._inbox, command.word, command.user
        with in_language(await self._interactions.language(user)):
            if word not in ("pause", "resume", "status"):
                return phrase("command.help")
            admins = await self._interactions.admission.file.admins()
            if word != "status" and user not in admins:
                return phrase("command.not_allowed")
            if word == "pause":
                await inbox.pause(f"<@{user}>")
            if word == "resume":
                await inbox.resume()
            by = await inbox.paused_by()
            return phrase("command.paused", by=by) if by else phrase("command.running")

    async def _rate(self, feedback: FeedbackGiven | FeedbackExplained) -> None:
        if isinstance(feedback, FeedbackGiven):
            if await self._inbox.feedback(feedback.key, feedback.user, feedback.value):
                self.on_feedback(feedback.value, "")
            self._after_ack(self._respond(feedback))
        elif feedback.reason or feedback.comment:
            why = (feedback.reason, feedback.comment)
            if await self._inbox.explain(feedback.key, feedback.user, *why):
                self.on_feedback(BAD, feedback.reason or "other")

    async def _respond(self, feedback: FeedbackGiven) -> None:
        """Ask why an answer is bad; say thank you if it is good or the form cannot be opened."""
        if feedback.value == BAD and await self._interactions.ask_why(feedback):
            return
        if feedback.channel:
            with in_language(await self._interactions.language(feedback.user, feedback.channel)):
                thanks = phrase("feedback.thanks")
            await self._writer.whisper(
                feedback.channel, feedback.user, thanks, feedback.thread_ts or None
            )

    def _after_ack(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_within_time(work))
        self._later.add(task)
        task.add_done_callback(self._later.discard)


async def _within_time(work: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(AFTER_S):
            await work
    except Exception:
        log.exception("something that follows an event failed")


def _is_checkable(headers: Mapping[str, str]) -> bool:
    """Return whether a signature can be verified: the SDK raises on malformed headers."""
    at, signature = (headers.get(f"x-slack-{n}", "") for n in ("request-timestamp", "signature"))
    return re.fullmatch("[0-9]{1,12}", at) is not None and signature.isascii()


def _parse(raw: str, content_type: str | None) -> dict[str, Any]:
    try:
        found = parse_body(raw, content_type)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
