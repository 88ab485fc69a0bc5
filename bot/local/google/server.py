"""Gmail on loopback."""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.local.google.api import (
    Call,
    GoogleRefused,
    Json,
    MethodHandler,
    discovery,
    methods_of,
)
from bot.local.google.gmail_mailbox import METHODS
from bot.local.google.gmail_state import GmailState
from bot.local.google.mbox import Mailbox

TOKEN = "ya29.local"
"""The access token of the mailbox."""

CHALLENGE = {"www-authenticate": 'Bearer realm="local", error="invalid_token"'}
_PATH_PARAMETER = re.compile(r"\{\+?(\w+)\}")
_JSON = "application/json; charset=UTF-8"
_HTTP_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class Sent(NamedTuple):
    """A request as it was received."""

    http: str
    path: str
    """Encoded, without the leading slash."""
    query: Mapping[str, list[str]]
    token: str
    body: bytes


class LocalGoogle:
    """One Gmail mailbox for clients with its token; `app` is the ASGI app."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.methods: dict[str, MethodHandler] = {}
        self._addresses: list[tuple[str, re.Pattern[str], str]] = []
        """HTTP method and path of each method, and its name."""
        self.serve("gmail.v1", METHODS)
        self.gmail = self.state_of(mailbox)
        self.app = Starlette(routes=[Route("/{path:path}", self._single, methods=_HTTP_METHODS)])

    def serve(self, api: str, methods: Mapping[str, MethodHandler]) -> None:
        """Answer these methods of an API, as its discovery document declares them."""
        self.methods |= methods
        for name in methods:
            declared = methods_of(api)[name]
            path = discovery(api)["servicePath"] + declared["path"]
            pattern = _PATH_PARAMETER.sub(r"(?P<\1>[^/]+)", path)
            self._addresses.append((declared["httpMethod"], re.compile(pattern), name))

    def state_of(self, mailbox: Mailbox) -> GmailState:
        return GmailState(mailbox)

    async def _single(self, request: Request) -> Response:
        try:
            return json_response(self.carry_out(await read_request(request)))
        except GoogleRefused as refused:
            return refusal(refused)

    def carry_out(self, sent: Sent) -> Json:
        name, path = self.method_at(sent)
        if sent.token != TOKEN:
            raise GoogleRefused("authError", headers=CHALLENGE)
        call = Call(self.gmail, path, sent.query, json.loads(sent.body or b"{}"))
        with self.gmail.lock:
            return self.methods[name](call)

    def method_at(self, sent: Sent) -> tuple[str, dict[str, str]]:
        """Return the method and the values in its path."""
        for http, pattern, name in self._addresses:
            if http == sent.http and (found := pattern.fullmatch(sent.path)):
                return name, {key: unquote(value) for key, value in found.groupdict().items()}
        raise GoogleRefused("notFound", "Method not found.")


async def read_request(request: Request) -> Sent:
    """Return the request; a client sends a GET with a too long address as a POST of its query."""
    http, query, body = request.method, request.url.query, await request.body()
    if override := request.headers.get("x-http-method-override"):
        http, query, body = override, body.decode("ascii", "replace"), b""
    path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip() if scheme.lower() == "bearer" else ""
    asked = parse_qs(query, keep_blank_values=True)
    return Sent(http, path.decode("ascii", "replace").lstrip("/"), asked, token, body)


def json_response(body: Json) -> Response:
    return Response(json.dumps(body, ensure_ascii=False), 200, media_type=_JSON)


def refusal(refused: GoogleRefused) -> Response:
    return Response(json.dumps(refused.json), refused.code, refused.headers, _JSON)
