"""A Slack workspace on loopback: the Web API methods that the product uses."""

import asyncio
import json
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.local import slack_chat, slack_conversations, slack_directory
from bot.local.server import drop_connection
from bot.local.slack_state import (
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

API_PATH = "/api/"
BOT_TOKEN = "xoxb-local"
"""The default bot token. `xoxp-<USERID>` is the token of a user."""

METHODS = {**slack_conversations.METHODS, **slack_chat.METHODS, **slack_directory.METHODS}

TIERS: Mapping[str, int] = {
    "conversations.list": 20,
    "conversations.info": 50,
    "conversations.members": 100,
    "conversations.history": 50,
    "conversations.replies": 50,
    "users.info": 100,
    "users.list": 20,
    "search.messages": 20,
    "slackLists.items.list": 20,
    "chat.postMessage": 60,
    "chat.update": 50,
    "reactions.add": 50,
}
"""Calls a minute that Slack allows an app in a workspace (rate limit tiers 2 to 4)."""

_WINDOW_S = 60.0


class Fault(NamedTuple):
    """One scripted failure: the next call of `method` ("*" = of any) fails in this way."""

    method: str
    kind: str
    """"429", "500", "drop" (the connection), "slow" (answers late), "malformed" (cut JSON)."""
    seconds: float = 1.0
    """Retry-After of a 429, delay of "slow"."""


class LocalSlack:
    """The Web API of one workspace. `app` is the ASGI app; it serves under `API_PATH`.

    Writes change this object only and are listed in `effects`; `calls` counts the requests by
    method; `faults` are consumed in order as their methods are called.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        tokens: Mapping[str, Identity] | None = None,
        limits: Mapping[str, int] | None = None,
        invite_bot: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`tokens` adds to the default ones or replaces them.

        `limits` maps methods to calls a minute, as `TIERS` does; None = no limits. `invite_bot`
        and `now`: see SlackState.
        """
        self.state = SlackState(workspace, invite_bot=invite_bot, now=now)
        self.faults: list[Fault] = []
        self.calls: Counter[str] = Counter()
        self.app = Starlette(
            routes=[Route(API_PATH + "{method}", self._serve, methods=["GET", "POST"])]
        )
        self._tokens = {BOT_TOKEN: Identity(BOT_USER, BOT_ID), **(tokens or {})}
        self._limits = limits or {}
        self._recent: dict[tuple[str, str], deque[float]] = {}

    @property
    def effects(self) -> list[Effect]:
        """Every write so far, in order."""
        return self.state.effects

    async def _serve(self, request: Request) -> Response:
        method = request.path_params["method"]
        self.calls[method] += 1
        fault = self._next_fault(method)
        if fault and (failure := await _failed(fault, request)):
            return failure
        identity: Identity | None = None
        try:
            if method not in METHODS:
                raise SlackError("unknown_method", req_method=method)
            args = await _arguments(request)
            identity, token = self._identity(request, args)
            if wait := self._wait(method, token):
                return _ratelimited(wait)
            body = {"ok": True, **METHODS[method](Call(self.state, identity, method, args))}
        except SlackError as error:
            body = {"ok": False, "error": error.code, **error.extra}
        scopes = {"x-oauth-scopes": ",".join(sorted(identity.scopes))} if identity else {}
        return _json(body, headers=scopes)

    def _identity(self, request: Request, args: dict[str, Any]) -> tuple[Identity, str]:
        """Whom the token in the header, or in the arguments, stands for."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        token = token or str(args.pop("token", ""))
        if not token:
            raise SlackError("not_authed")
        if token in self._tokens:
            return self._tokens[token], token
        user = self.state.users.get(token.removeprefix("xoxp-"))
        if not token.startswith("xoxp-") or user is None or user.is_bot:
            raise SlackError("invalid_auth")
        if user.deleted:
            raise SlackError("account_inactive")
        return Identity(user.id, scopes=USER_SCOPES), token

    def _wait(self, method: str, token: str) -> int:
        """Whole seconds until the method may be called again; 0 = it may be now."""
        if method not in self._limits:
            return 0
        now = time.monotonic()
        recent = self._recent.setdefault((method, token), deque())
        while recent and now - recent[0] >= _WINDOW_S:
            recent.popleft()
        if len(recent) >= self._limits[method]:
            return max(1, math.ceil(recent[0] + _WINDOW_S - now))
        recent.append(now)
        return 0

    def _next_fault(self, method: str) -> Fault | None:
        for number, fault in enumerate(self.faults):
            if fault.method in (method, "*"):
                return self.faults.pop(number)
        return None


async def _arguments(request: Request) -> dict[str, Any]:
    """The arguments in the query, and in a body that is a form or a JSON object."""
    args: dict[str, Any] = dict(request.query_params)
    body = await request.body()
    is_json = request.headers.get("content-type", "").startswith("application/json")
    if not body or not is_json:
        return args | dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    try:
        sent = json.loads(body)
    except ValueError:
        raise SlackError("invalid_json") from None
    if not isinstance(sent, dict):
        raise SlackError("json_not_object")
    return args | sent


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in pure ASCII, as Slack sends it; so half a surrogate pair gets through, too."""
    return Response(json.dumps(body), status, headers, "application/json; charset=utf-8")


def _ratelimited(seconds: float) -> Response:
    headers = {"retry-after": str(math.ceil(seconds))}
    return _json({"ok": False, "error": "ratelimited"}, 429, headers)


async def _failed(fault: Fault, request: Request) -> Response | None:
    """Carry a fault out; None when the call is to be answered after all."""
    match fault.kind:
        case "429":
            return _ratelimited(fault.seconds)
        case "500":
            return Response("Internal Server Error", 500, media_type="text/plain")
        case "malformed":
            return Response('{"ok": true, "mess', media_type="application/json")
        case "drop":
            await drop_connection(request.scope)
            return Response()
        case "slow":
            await asyncio.sleep(fault.seconds)
            return None
    raise ValueError(f"There is no fault {fault.kind!r}.")
