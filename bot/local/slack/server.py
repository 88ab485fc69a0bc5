"""A Slack workspace on loopback: the Web API methods that the product uses."""

import json
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from bot.local.slack import chat, conversations, streams, views
from bot.local.slack.people import People
from bot.local.slack.socket import LINK_PATH, Deliveries, Sockets
from bot.local.slack.state import (
    BOT_ID,
    BOT_USER,
    Call,
    Identity,
    SlackError,
    SlackState,
)
from bot.local.workspace import Workspace

API_PATH = "/api/"
BOT_TOKEN = "xoxb-local"
"""The default bot token. `xoxp-<USERID>` is the token of a user."""
APP_TOKEN = "xapp-local"
"""The default app-level token, which only opens sockets."""
OPEN = "apps.connections.open"

METHODS = {**chat.METHODS, **conversations.METHODS, **streams.METHODS, **views.METHODS}


class LocalSlack:
    """One workspace: its Web API, and its events. `app` is the ASGI app, with `API_PATH` in it.

    `methods` are those of the Web API. Writes change only this object. `tokens` are the accepted
    ones. `people` act, and the app gets the events through `sockets`.
    """

    methods = METHODS

    def __init__(self, workspace: Workspace) -> None:
        self.state = SlackState(workspace)
        self.tokens = {BOT_TOKEN: Identity(BOT_USER, BOT_ID)}
        self.sockets = Sockets(APP_TOKEN)
        self.events = Deliveries(self.state, self.sockets)
        self.people = People(self.state, self.events)
        self.app = Starlette(
            routes=[
                Route(API_PATH + "{method}", self._serve, methods=["GET", "POST"]),
                Route(chat.UPLOAD_PATH, self._upload, methods=["POST"]),
                WebSocketRoute(LINK_PATH, self._link),
            ]
        )

    async def _serve(self, request: Request) -> Response:
        method = request.path_params["method"]
        try:
            if method not in self.methods and method != OPEN:
                raise SlackError("unknown_method", req_method=method)
            if method == OPEN:
                return self._open(request)
            identity, args = self.identity(request), await arguments(request)
            with self.state.lock:
                self.state.base_url = str(request.base_url)
                body = {"ok": True, **self.carry_out(Call(self.state, identity, method, args))}
        except SlackError as error:
            body = {"ok": False, "error": error.code, **error.extra}
        return json_response(body)

    def carry_out(self, call: Call) -> dict[str, Any]:
        return self.methods[call.method](call)

    def _open(self, request: Request) -> Response:
        """Answer apps.connections.open."""
        self.state.base_url = str(request.base_url)
        url = self.sockets.open(
            token_of(request), self.state.base_url.rstrip("/").replace("http", "ws", 1)
        )
        return json_response({"ok": True, "url": url})

    async def _link(self, websocket: WebSocket) -> None:
        await self.sockets.serve(websocket)

    def identity(self, request: Request) -> Identity:
        """Return the identity behind the token."""
        token = token_of(request)
        if token in self.tokens:
            return self.tokens[token]
        user = self.state.users.get(token.removeprefix("xoxp-"))
        if not token.startswith("xoxp-") or user is None or user.is_bot:
            raise SlackError("invalid_auth")
        if user.deleted:
            raise SlackError("account_inactive")
        return Identity(user.id)

    async def _upload(self, request: Request) -> Response:
        """Receive the bytes of a file, which is identified by the address alone."""
        content = await request.body()
        self.state.uploads[request.path_params["file"]].content = content
        return Response(f"OK - {len(content)}", 200, media_type="text/plain")


def token_of(request: Request) -> str:
    """Return the token in the header; Slack also takes one among the arguments."""
    return request.headers.get("authorization", "").removeprefix("Bearer ")


async def arguments(request: Request) -> dict[str, Any]:
    """Return the arguments in the query and in a body that is a form or a JSON object."""
    args: dict[str, Any] = dict(request.query_params)
    body = await request.body()
    is_json = request.headers.get("content-type", "").startswith("application/json")
    if not body or not is_json:
        return args | dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    sent: dict[str, Any] = json.loads(body)
    return args | sent


def json_response(body: Any) -> Response:
    """Return JSON in pure ASCII, as Slack sends it; this also keeps half a surrogate pair."""
    return Response(json.dumps(body), media_type="application/json; charset=utf-8")
