"""A Slack workspace on loopback: the Web API methods that the product uses."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from bot.local.slack import agents as slack_agents
from bot.local.slack import chat as slack_chat
from bot.local.slack import conversations as slack_conversations
from bot.local.slack import directory as slack_directory
from bot.local.slack import files as slack_files
from bot.local.slack import streams as slack_streams
from bot.local.slack import views as slack_views
from bot.local.slack.delivery import ACK_S, RETRIES_S, Deliveries, Delivery
from bot.local.slack.events import named_message, of_write
from bot.local.slack.faults import (
    Fault,
    StreamsRefused,
    failed,
    json_response,
    lost,
    next_fault,
    ratelimited,
    refused_stream,
)
from bot.local.slack.interactions import RESPONSE_PATH
from bot.local.slack.limits import TIERS, RateLimits
from bot.local.slack.people import People
from bot.local.slack.request import Requests
from bot.local.slack.shown import Shown, visible
from bot.local.slack.socket import LINK_PATH, Sockets
from bot.local.slack.state import (
    BOT_ID,
    BOT_USER,
    USER_SCOPES,
    Call,
    Effect,
    Identity,
    SlackError,
    SlackState,
)
from bot.local.workspace import Workspace

__all__ = [
    "API_PATH",
    "BOT_TOKEN",
    "METHODS",
    "TIERS",
    "Fault",
    "LocalSlack",
    "StreamsRefused",
]

API_PATH = "/api/"
BOT_TOKEN = "xoxb-local"
"""The default bot token. `xoxp-<USERID>` is the token of a user."""
APP_TOKEN = "xapp-local"
"""The default app-level token, which only opens sockets."""
SIGNING_SECRET = "local-secret"
OPEN = "apps.connections.open"

METHODS = {
    **slack_agents.METHODS,
    **slack_chat.METHODS,
    **slack_conversations.METHODS,
    **slack_directory.METHODS,
    **slack_files.METHODS,
    **slack_streams.METHODS,
    **slack_views.METHODS,
}


class LocalSlack:
    """One workspace: its Web API, and its events. `app` is the ASGI app, with `API_PATH` in it.

    Writes change this object only and are listed in `effects`; `calls` counts the requests by
    method; `faults` are consumed in order as their methods are called. `tokens` are those that are
    taken: one that is deleted there is revoked. `people` act, and the app
    hears of it through `sockets`, or as requests to its `request_url`.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        tokens: Mapping[str, Identity] | None = None,
        limits: Mapping[str, int] | None = None,
        invite_bot: bool = True,
        now: Callable[[], float] = time.time,
        app_token: str = APP_TOKEN,
        signing_secret: str = SIGNING_SECRET,
        request_url: str | None = None,
        retries_s: Sequence[float] = RETRIES_S,
        ack_s: float = ACK_S,
        stream_ttl_s: float = 300.0,
        streams_refused: StreamsRefused | None = None,
    ) -> None:
        """`tokens` adds to the default ones or replaces them.

        `limits` maps methods to calls a minute, as `limits.TIERS` does; None = no limits.
        `invite_bot` and `now`: see SlackState. Without a `request_url` events come in Socket Mode.
        An event that is not acknowledged within `ack_s` is sent again after each of `retries_s`,
        then it is lost. `streams_refused` makes this a Slack without streams: it is how every call
        of a method that streams fails.
        """
        self.state = SlackState(workspace, invite_bot=invite_bot, now=now)
        self.state.stream_ttl_s = stream_ttl_s
        self.streams_refused = streams_refused
        self.faults: list[Fault] = []
        self.calls: Counter[str] = Counter()
        self.app = Starlette(
            routes=[
                Route(API_PATH + "{method}", self._serve, methods=["GET", "POST"]),
                Route(slack_files.FILES_PATH, self._download),
                Route(slack_files.UPLOAD_PATH, self._upload, methods=["POST"]),
                Route(RESPONSE_PATH + "{key}", self._respond, methods=["POST"]),
                WebSocketRoute(LINK_PATH, self._link),
            ]
        )
        self.tokens = {BOT_TOKEN: Identity(BOT_USER, BOT_ID), **(tokens or {})}
        self._limits = RateLimits(limits)
        self.sockets = Sockets(app_token, ack_s)
        self.requests = Requests(request_url, signing_secret, ack_s) if request_url else None
        self._events = Deliveries(self.state, self.requests or self.sockets, retries_s)
        self.people = People(self.state, self._events)

    @property
    def deliveries(self) -> list[Delivery]:
        """Every try to deliver an event so far, in order."""
        return self._events.log

    def send(
        self,
        event: Any,
        *,
        times: int = 1,
        event_id: str | None = None,
        authorizations: Iterable[Mapping[str, Any]] | None = None,
    ) -> str:
        """Deliver an event, however odd it is, and as often; its id.

        One of type "app_rate_limited" is sent as such, any other inside of an event_callback.
        """
        for _ in range(times):
            event_id = self._events.event(event, event_id=event_id, authorizations=authorizations)
        return event_id or ""

    def put(self, kind: str, payload: Mapping[str, Any]) -> str:
        """Deliver a whole payload, however odd; `kind` is one of Envelope's. Its id."""
        id = f"Ev0PUT{len(self.deliveries):06d}"
        self._events.put(kind, id, kind, payload)
        return id

    def close(self) -> None:
        """Deliver nothing more over HTTP; sockets end with their server."""
        if self.requests:
            self.requests.close()

    @property
    def effects(self) -> list[Effect]:
        """Every write so far, in order."""
        return self.state.effects

    def visible(self, channel: str, thread_ts: str | None = None) -> list[Shown]:
        """What a person sees in a channel, or in one thread of it."""
        return visible(self.state, channel, thread_ts)

    async def _serve(self, request: Request) -> Response:
        method = request.path_params["method"]
        self.calls[method] += 1
        fault = next_fault(self.faults, method)
        if fault and (failure := await failed(fault, request)):
            return failure
        if self.streams_refused and method in slack_streams.METHODS:
            return refused_stream(self.streams_refused)
        response = await self._answered(method, request)
        return Response() if await lost(fault, request) else response

    async def _answered(self, method: str, request: Request) -> Response:
        identity: Identity | None = None
        try:
            if method not in METHODS and method != OPEN:
                raise SlackError("unknown_method", req_method=method)
            args = await _arguments(request, method not in slack_files.FORM_ONLY)
            if method == OPEN:
                return self._open(request, args)
            identity, token = self._identity(request, args)
            if wait := self._limits.wait(method, token, str(args.get("channel", ""))):
                return ratelimited(wait)
            with self.state.lock:
                self.state.base_url = str(request.base_url)
                body = {"ok": True, **self._call(Call(self.state, identity, method, args))}
        except SlackError as error:
            body = {"ok": False, "error": error.code, **error.extra}
        scopes = {"x-oauth-scopes": ",".join(sorted(identity.scopes))} if identity else {}
        return json_response(body, headers=scopes)

    def _call(self, call: Call) -> dict[str, Any]:
        """Carry a call out, and let the app hear of what it wrote."""
        if not self._events.is_heard:
            return METHODS[call.method](call)
        before, written = named_message(call), len(self.effects)
        body = METHODS[call.method](call)
        for effect in self.effects[written:]:
            for event in of_write(self.state, effect, before):
                self._events.event(event)
        return body

    def _open(self, request: Request, args: dict[str, Any]) -> Response:
        """apps.connections.open."""
        token = _token(request, args)
        self.state.base_url = str(request.base_url)
        url = self.sockets.open(token, self.state.base_url.rstrip("/").replace("http", "ws", 1))
        if wait := self._limits.wait(OPEN, token):
            return ratelimited(wait)
        return json_response({"ok": True, "url": url})

    async def _link(self, websocket: WebSocket) -> None:
        await self.sockets.serve(websocket)

    async def _respond(self, request: Request) -> Response:
        """The app's answer at a `response_url`."""
        args = await _arguments(request)
        known = self.people.responses.take(request.path_params["key"], args)
        return Response("ok" if known else "invalid_url", 200 if known else 404)

    def _identity(self, request: Request, args: dict[str, Any]) -> tuple[Identity, str]:
        """Whom the token in the header, or in the arguments, stands for."""
        token = _token(request, args)
        if not token:
            raise SlackError("not_authed")
        if token.startswith("xapp-"):
            raise SlackError("not_allowed_token_type")
        if token in self.tokens:
            return self.tokens[token], token
        user = self.state.users.get(token.removeprefix("xoxp-"))
        if not token.startswith("xoxp-") or user is None or user.is_bot:
            raise SlackError("invalid_auth")
        if user.deleted:
            raise SlackError("account_inactive")
        return Identity(user.id, scopes=USER_SCOPES), token

    async def _download(self, request: Request) -> Response:
        """A file's content; the token has to be in the header, as with Slack."""
        try:
            identity, _ = self._identity(request, {})
        except SlackError:
            identity = None
        place, name = request.path_params["place"], request.path_params["name"]
        return slack_files.download(self.state, identity, place, name)

    async def _upload(self, request: Request) -> Response:
        """The bytes of a file, at the address that was given for it."""
        self.calls[slack_files.UPLOAD] += 1
        fault = next_fault(self.faults, slack_files.UPLOAD)
        if fault and (failure := await failed(fault, request)):
            return failure
        content = await request.body()
        with self.state.lock:
            response = slack_files.take(self.state, request.path_params["file"], content)
        return Response() if await lost(fault, request) else response


def _token(request: Request, args: dict[str, Any]) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    sent = str(args.pop("token", ""))
    return (token.strip() if scheme.lower() == "bearer" else "") or sent


async def _arguments(request: Request, reads_json: bool = True) -> dict[str, Any]:
    """The arguments in the query, and in a body that is a form or a JSON object."""
    args: dict[str, Any] = dict(request.query_params)
    body = await request.body()
    is_json = request.headers.get("content-type", "").startswith("application/json")
    if is_json and not reads_json:
        return args
    if not body or not is_json:
        return args | dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    try:
        sent = json.loads(body)
    except ValueError:
        raise SlackError("invalid_json") from None
    if not isinstance(sent, dict):
        raise SlackError("json_not_object")
    return args | sent
