"""A web page on the local Slack: choose a person, ask a question, and watch the answer arrive.

The local Slack's own server serves it on loopback. It can see and do only what a person in Slack
could.
"""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bot.local.slack.server import LocalSlack
from bot.local.slack.state import BOT_USER, SlackError
from bot.local.slack.views import home, modal
from bot.local.workspace import SLACKBOT, Channel, Message, User, micros

LOOK_S = 0.25
"""Seconds between two checks for visible changes."""
MOST_SHOWN = 200
"""Top-level messages of a channel that are sent; the page says how many came before."""
_PING_LOOKS = 60
_STREAMING_STATE = "in_progress"

Json = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]

_OWN_SITES = ("none", "same-origin")
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_AT_BOT = re.compile(r"(?<![\w@])@assistant\b", re.IGNORECASE)


def page_routes(slack: LocalSlack, prompts: Sequence[str] = ()) -> list[Route]:
    """Return the routes of the page for `slack.app`; direct messages suggest `prompts`."""
    page = _Page(slack, prompts)
    return [
        Route("/", _guard(page.html)),
        Route("/page/workspace", _guard(page.workspace)),
        Route("/page/live", _guard(page.live)),
        Route("/page/{act}", _guard(page.act), methods=["POST"]),
    ]


Ts = Annotated[str, Field(pattern=r"^([0-9]{1,12}\.[0-9]{6})?$")]


class Act(BaseModel):
    """An action of a person, or what they look at; the fields that count depend on it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    user: str
    channel: str = ""
    """Empty = the assistant's home."""
    ts: Ts = ""
    thread: Ts = ""
    """Root of the thread; empty = not in a thread."""
    text: str = ""
    action: str = ""
    value: str | None = None
    view: str = ""
    typed: Mapping[str, str] = {}
    """Block id of a form's field -> the typed text or the chosen value."""


class Impossible(Exception):
    """A request that the page never makes; the sender gets the text as the reason."""


class _Page:
    def __init__(self, slack: LocalSlack, prompts: Sequence[str]) -> None:
        self._slack, self._state, self._prompts = slack, slack.state, prompts
        self._html = (files("bot.local") / "page.html").read_text("utf-8")
        self._policy = _content_policy(self._html)
        people = slack.people
        self._acts: Mapping[str, Callable[[Act], Json | None]] = {
            "say": self._say,
            "click": self._click,
            "submit": lambda act: people.submit(act.user, act.view, act.typed),
            "close": lambda act: people.close_modal(act.user, act.view),
            "stop": lambda act: people.stop(act.user, act.channel, act.thread),
            "dm": lambda act: {"channel": people.dm(act.user)},
            "home": lambda act: people.open_home(act.user),
        }

    async def html(self, request: Request) -> Response:
        headers = {
            "content-security-policy": self._policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store",
        }
        return Response(self._html, 200, headers, "text/html")

    async def workspace(self, request: Request) -> Response:
        """Return all people and, for the requesting person, the conversations that they see."""
        with self._state.lock:
            everybody = [_user_json(user) for user in self._state.users.values()]
            user = request.query_params.get("user", "")
            channels = [
                _channel_json(channel)
                for channel in self._state.channels.values()
                if not channel.is_im and self._state.may_see(user, channel)
            ]
        team = {"name": self._state.team.name, "domain": self._state.team.domain}
        return JSONResponse(
            {
                "team": team,
                "bot": BOT_USER,
                "users": everybody,
                "channels": channels,
                "now": self._state.now(),
                "prompts": list(self._prompts),
            }
        )

    async def live(self, request: Request) -> Response:
        """Send the visible content as a server-sent event, and again after each change."""
        try:
            place = self._check(Act.model_validate(dict(request.query_params)))
        except (Impossible, ValidationError) as error:
            return _refuse(str(error))
        headers = {"cache-control": "no-store"}
        return StreamingResponse(self._changes(place), 200, headers, "text/event-stream")

    async def act(self, request: Request) -> Response:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return _refuse("Send JSON.", 415)
        do = self._acts.get(request.path_params["act"])
        if do is None:
            return _refuse("There is no such act.", 404)
        try:
            act = self._check(Act.model_validate_json(await request.body()))
            return JSONResponse(await asyncio.to_thread(do, act) or {})
        except (Impossible, SlackError, ValidationError) as error:
            return _refuse(str(error))
        except KeyError:
            return _refuse("This is not there, or no longer.", 404)

    def _check(self, act: Act) -> Act:
        """Return the action of a person here, in a channel that they see; else raise Impossible."""
        user = self._state.users.get(act.user)
        if user is None or not _is_person(user):
            raise Impossible("Nobody here has this user id.")
        channel = self._state.channels.get(act.channel)
        if act.channel and (channel is None or not self._state.may_see(act.user, channel)):
            raise Impossible("This person sees no such channel.")
        return act

    def _say(self, act: Act) -> Json:
        if not act.text.strip():
            raise Impossible("There is nothing to say.")
        text = _as_sent(act.text)
        return {"ts": self._slack.people.say(act.user, act.channel, text, thread_ts=act.thread)}

    def _click(self, act: Act) -> None:
        """Press a button of a message or, without a channel, of the assistant's home."""
        people = self._slack.people
        if act.channel:
            people.click(act.user, act.channel, act.ts, act.action, act.value)
        else:
            people.click_home(act.user, act.action, act.value)

    # ---- the visible content

    async def _changes(self, place: Act) -> AsyncIterator[str]:
        """Yield a server-sent event after each change, until the client disconnects."""
        before, quiet = "", 0
        while True:
            now = json.dumps(self._seen(place.user, place.channel, place.thread))
            if now != before:
                yield f"data: {now}\n\n"
                before, quiet = now, 0
            elif (quiet := quiet + 1) % _PING_LOOKS == 0:
                yield ": still here\n\n"
            await asyncio.sleep(LOOK_S)

    def _seen(self, user: str, channel: str, thread: str) -> Json:
        with self._state.lock:
            form = modal(self._state, user)
            open_form = form and {"submit": None, "close": None, **form.body, "id": form.id}
            if not channel:
                view = home(self._state, user)
                return {"modal": open_form, "home": view and list(view.body["blocks"])}
            timeline = self._state.timelines[channel]
            every = sorted(timeline.all(), key=lambda each: micros(each.ts))
            top = [each for each in every if not each.is_reply]
            inside = [each for each in every if thread and thread in (each.ts, each.thread_ts)]
            return {
                "modal": open_form,
                "earlier": max(0, len(top) - MOST_SHOWN),
                "messages": [self._message(channel, each) for each in top[-MOST_SHOWN:]],
                "thread": [self._message(channel, each) for each in inside],
                "whispers": self._whispers(user, channel),
                "working": self._is_working(channel, thread, inside),
                "prompts": [dict(each) for each in self._state.prompts.get((channel, ""), ())],
            }

    def _message(self, channel: str, message: Message) -> Json:
        timeline = self._state.timelines[channel]
        replies = [timeline[at] for at in timeline.replies(micros(message.ts))]
        return {
            "ts": message.ts,
            "user": message.user or message.bot_id,
            "name": message.username,
            "text": message.text,
            "blocks": list(message.blocks),
            "streaming": message.streaming == _STREAMING_STATE,
            "subtype": message.subtype,
            "files": [file.name or file.title or file.id for file in message.files],
            "reactions": [[reaction.name, reaction.count] for reaction in message.reactions],
            "replies": len(replies),
            "repliers": list(dict.fromkeys(reply.user or reply.bot_id for reply in replies))[:4],
            "latest": replies[-1].ts if replies else "",
        }

    def _whispers(self, user: str, channel: str) -> list[Json]:
        return [
            {"ts": each.ts, "thread": each.thread_ts, "text": each.text, "blocks": [*each.blocks]}
            for each in self._state.whispers
            if (each.user, each.channel) == (user, channel)
        ]

    def _is_working(self, channel: str, thread: str, messages: list[Message]) -> bool:
        """Return whether the assistant is working in the thread, so that it can be stopped."""
        processing = self._state.sessions.get((channel, thread)) == "processing"
        return processing or any(each.streaming == _STREAMING_STATE for each in messages)


def _content_policy(html: str) -> str:
    """Allow only the script and style in the file, and load nothing from elsewhere."""

    def hash_tag(tag: str) -> str:
        found = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert found
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        return f"'sha256-{digest}'"

    return (
        f"default-src 'none'; script-src {hash_tag('script')}; style-src {hash_tag('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _guard(handler: Handler) -> Handler:
    """Wrap the handler so that it refuses requests that do not come from the page itself."""

    async def handle_own(request: Request) -> Response:
        return _foreign(request) or await handler(request)

    return handle_own


def _foreign(request: Request) -> Response | None:
    """Refuse a request that another site's page sends through the person's browser."""
    host = request.headers.get("host", "").rpartition(":")
    if (host[0] or host[2]) not in _HOSTS:
        return _refuse("Open this page at 127.0.0.1.", 403)
    is_navigation = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
    if not is_navigation and request.headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        return _refuse("This may only be asked by the page itself.", 403)
    return None


def _refuse(why: str, status: int = 400) -> Response:
    return JSONResponse({"error": why}, status)


def _as_sent(text: str) -> str:
    """Return what a person typed in the form that Slack's clients send."""
    escaped = text.strip().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _AT_BOT.sub(f"<@{BOT_USER}>", escaped)


def _user_json(user: User) -> Json:
    name = user.display_name or user.real_name or user.name or user.id
    return {"id": user.id, "name": name, "title": user.title, "person": _is_person(user)}


def _is_person(user: User) -> bool:
    return not (user.is_bot or user.deleted or user.id == SLACKBOT)


def _channel_json(channel: Channel) -> Json:
    return {
        "id": channel.id,
        "name": channel.name,
        "topic": channel.topic,
        "private": channel.kind != "public_channel",
        "archived": channel.is_archived,
    }
