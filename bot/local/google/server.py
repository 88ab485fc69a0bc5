"""Google on loopback: Gmail, and whichever APIs join it."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.local.google.call import EVERYWHERE, Api, Call, Json, Method
from bot.local.google.errors import GoogleRefused
from bot.local.google.faults import Dropped, Fault, after, before, next_fault
from bot.local.google.gmail_mailbox import METHODS
from bot.local.google.gmail_mime import INLINE_BYTES
from bot.local.google.gmail_state import GmailState
from bot.local.google.mbox import Mailbox
from bot.local.server import drop_connection

__all__ = ["METHODS", "TOKEN", "Fault", "Grant", "LocalGoogle", "Made"]

TOKEN = "ya29.local"
"""The default access token, of the first mailbox."""
SCOPES = frozenset({"mail.google.com", "bigquery", "spreadsheets"})
"""OAuth scopes of that token: all of Gmail, BigQuery and Sheets."""
SERVICE = frozenset({"bigquery", "spreadsheets"})
"""OAuth scopes of a service account as itself."""
NOBODY = Mailbox("operator@local.example", ())
"""The mailbox of a Google that is there for other things."""

_NAME = re.compile(r"\{(\w+)\}")
_JSON = ("content-type", "application/json; charset=UTF-8")


@dataclass(frozen=True, slots=True)
class Grant:
    """What an access token allows."""

    address: str
    scopes: frozenset[str] = SCOPES
    """The last part of each scope's name, such as `gmail.readonly`."""
    expires: float | None = None
    """Seconds since 1970; None = never."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it came."""

    http: str
    target: str
    """Path and query, still encoded, without the leading slash."""
    authorization: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Made(NamedTuple):
    """One call that was made, as the log keeps it."""

    method: str
    """`gmail.users.threads.get`; empty where there is no such method."""
    user: str
    """The address that the token stands for; empty for an unknown token."""
    units: int
    """Of the quota; 0 for one that was refused before it counted."""
    status: int
    """Of the answer; 0 when the connection dropped instead."""
    at: float
    """Seconds since 1970."""
    path: Mapping[str, str] = {}
    body: Mapping[str, Any] = {}


@dataclass(slots=True)
class Progress:
    """What is known of a call so far, for the log."""

    method: str = ""
    user: str = ""
    units: int = 0
    path: Mapping[str, str] = field(default_factory=dict)
    body: Json = field(default_factory=dict)


class LocalGoogle:
    """Google's APIs for one or several accounts; `app` is the ASGI app.

    `gmail` is the first mailbox, `mailboxes` are all, by address. `tokens` are those that are
    taken: one that is deleted there is revoked. `apis` join Gmail.
    `faults` are consumed as their methods are called, `latency_s` passes before each answer, and
    `requests` is the log of all calls.
    """

    def __init__(
        self,
        mailbox: Mailbox = NOBODY,
        *,
        apis: Sequence[Api] = (),
        tokens: Mapping[str, Grant] | None = None,
        latency_s: float = 0.0,
        now: Callable[[], float] = time.time,
        inline_bytes: int = INLINE_BYTES,
        whose: Callable[[str], str | None] = lambda token: None,
    ) -> None:
        """`tokens` adds to the default one; `whose` tells the address that another token stands
        for, as google_oauth does. `now` in seconds since 1970 dates mail. Texts longer than
        `inline_bytes` come as attachments."""
        self._now = now
        self._inline_bytes = inline_bytes
        self._whose = whose
        self._apis = {name: api for api in apis for name in api.methods}
        self._methods: dict[str, Method] = dict(METHODS)
        self._methods |= {name: api.methods[name] for name, api in self._apis.items()}
        self._router = _Router(self._methods)
        self.mailboxes: dict[str, GmailState] = {}
        self.tokens: dict[str, Grant] = dict(tokens or {})
        self.gmail = self.join(mailbox, TOKEN)
        self.faults: list[Fault] = []
        self.latency_s = latency_s
        self.requests: list[Made] = []
        verbs = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        self.app = Starlette(
            routes=[
                Route("/{path:path}", self._single, methods=verbs),
            ]
        )

    def join(self, mailbox: Mailbox, token: str) -> GmailState:
        """Serve another account's mailbox to whoever has this token."""
        state = GmailState(mailbox, now=self._now, inline_bytes=self._inline_bytes)
        self.mailboxes[state.address] = state
        self.tokens[token] = Grant(state.address)
        return state

    def units(self) -> int:
        """Quota units of all calls so far."""
        return sum(made.units for made in self.requests)

    async def _single(self, request: Request) -> Response:
        sent = _sent_in(request, await request.body())
        try:
            return _response(await self._answer(sent))
        except Dropped:
            await drop_connection(request.scope)
            return Response()

    async def _answer(self, sent: Sent) -> Answer:
        """The answer to one call, which is logged; Dropped when there shall be none."""
        progress = Progress()
        answer: Answer | None = None
        try:
            answer = await self._tried(sent, progress)
        except GoogleRefused as refused:
            answer = _refusal(refused)
        finally:
            status = answer.status if answer else 0
            made = (progress.method, progress.user, progress.units, status, self._now())
            self.requests.append(Made(*made, progress.path, progress.body))
        return answer

    async def _tried(self, sent: Sent, progress: Progress) -> Answer:
        path, _, query = sent.target.partition("?")
        method, progress.path = self._router.method_at(sent.http, path)
        progress.method = method
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        fault = next_fault(self.faults, method)
        if fault:
            await before(fault)
        api = self._apis.get(method)
        if api and api.hold:
            await api.hold(method, progress.path, parse_qs(query))
        body = self.carry_out(sent, progress, parse_qs(query, keep_blank_values=True))
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        if fault:
            content = await after(fault, content)
        return Answer(200, content, (_JSON,)) if body is not None else Answer(204)

    def carry_out(
        self, sent: Sent, progress: Progress, query: Mapping[str, list[str]]
    ) -> Json | None:
        """Carry the call out, if the token and the quota allow it."""
        method = self._methods[progress.method]
        grant = self._grant(sent.authorization)
        progress.user = grant.address
        if not grant.scopes & method.scopes:
            raise GoogleRefused("insufficientPermissions")
        if progress.path.get("userId", "me") not in ("me", grant.address):
            user = progress.path["userId"]
            raise GoogleRefused("forbidden", f"Delegation denied for {user}")
        progress.units = method.units
        progress.body = _body_of(method, sent.body)
        _check_query(method, query)
        state = self._state(progress.method, grant)
        with state.lock:
            return method.run(Call(state, progress.path, query, progress.body))

    def _state(self, method: str, grant: Grant) -> Any:
        """What a method works on: a mailbox is the account's own, all else is there for all."""
        api = self._apis.get(method)
        return api.state if api else self.mailboxes[grant.address]

    def _granted(self, token: str) -> Grant | None:
        if token in self.tokens:
            return self.tokens[token]
        address = self._whose(token)
        if address and address.endswith(".iam.gserviceaccount.com"):
            return Grant(address, SERVICE)
        return Grant(address) if address in self.mailboxes else None

    def _grant(self, authorization: str) -> Grant:
        scheme, _, token = authorization.partition(" ")
        grant = self._granted(token.strip()) if scheme.lower() == "bearer" else None
        if grant is None or (grant.expires is not None and grant.expires <= self._now()):
            challenge = {"www-authenticate": 'Bearer realm="local", error="invalid_token"'}
            raise GoogleRefused("authError", headers=challenge)
        return grant


def _sent_in(request: Request, body: bytes) -> Sent:
    """The request; a GET too long for its address comes as a POST with the query as its body."""
    http, query = request.method, request.url.query
    if override := request.headers.get("x-http-method-override"):
        http, query, body = override, body.decode("ascii", "replace"), b""
    path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    target = path.decode("ascii", "replace").lstrip("/") + (f"?{query}" if query else "")
    return Sent(http, target, request.headers.get("authorization", ""), body)


class _Router:
    """Finds the method that a verb and a path mean; paths without names in them come first."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        rows = sorted(methods.items(), key=lambda item: item[1].path.count("{"))
        self._patterns = [
            (m.http, re.compile(_NAME.sub(r"(?P<\1>[^/]+)", m.path)), name) for name, m in rows
        ]

    def method_at(self, http: str, path: str) -> tuple[str, dict[str, str]]:
        """Return the method's name and what its path names; GoogleRefused if there is none."""
        for verb, pattern, name in self._patterns:
            if verb == http and (found := pattern.fullmatch(path)):
                return name, {key: unquote(value) for key, value in found.groupdict().items()}
        raise GoogleRefused("notFound", "Method not found.")


def _check_query(method: Method, query: Mapping[str, list[str]]) -> None:
    for name in query.keys() - method.query - EVERYWHERE:
        raise GoogleRefused(
            "invalidArgument",
            f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.',
        )


def _body_of(method: Method, raw: bytes) -> Json:
    try:
        body: Any = json.loads(raw or b"{}")
    except ValueError:
        raise GoogleRefused("parseError") from None
    if not isinstance(body, dict):
        raise GoogleRefused("parseError")
    for name in body.keys() - method.body:
        message = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
        raise GoogleRefused("invalidArgument", message)
    return body


def _refusal(refused: GoogleRefused) -> Answer:
    body = json.dumps(refused.json).encode()
    return Answer(refused.code, body, (_JSON, *refused.headers.items()))


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers))
