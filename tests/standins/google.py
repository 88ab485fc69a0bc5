"""Google on loopback as the tests need it: strict, with quotas, faults, a log and more APIs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from bot.local.google import server
from bot.local.google.api import Call, GoogleRefused, Json, discovery, methods_of
from bot.local.google.mbox import Mailbox
from bot.local.google.server import (
    CHALLENGE,
    TOKEN,
    Sent,
    json_response,
    read_request,
    refusal,
)
from standins import bigquery as google_bigquery
from standins import sheets as google_sheets
from standins.bigquery import BigQueryState
from standins.connections import drop_connection
from standins.google_faults import DroppedConnection, Fault, after, before, next_fault
from standins.google_gmail import GmailState, check_call
from standins.sheets import SheetsState

__all__ = ["TOKEN", "Grant", "LocalGoogle"]

NOBODY = Mailbox("operator@local.example", ())
"""The mailbox of a Google that serves other APIs."""
SCOPES = frozenset({"mail.google.com", "bigquery", "spreadsheets"})
"""OAuth scopes of the default token: all of Gmail, BigQuery and Sheets."""
SERVICE = frozenset({"bigquery", "spreadsheets"})
"""OAuth scopes of a service account as itself."""
EVERYWHERE = frozenset({"alt"})
"""Query parameters that the client library adds to every call."""
UNITS = {
    "gmail.users.messages.list": 5,
    "gmail.users.messages.get": 20,
    "gmail.users.messages.attachments.get": 5,
    "gmail.users.messages.send": 100,
    "gmail.users.threads.list": 10,
    "gmail.users.threads.get": 40,
    "gmail.users.threads.modify": 10,
    "gmail.users.getProfile": 1,
    "gmail.users.history.list": 2,
    "gmail.users.labels.list": 1,
    "gmail.users.labels.create": 5,
    "gmail.users.drafts.list": 5,
    "gmail.users.drafts.create": 10,
}
"""Of the quota, by developers.google.com/gmail/api/reference/quota in 2026: threads.get 40,
messages.get 20; for the others by an older version of that table."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What an access token allows."""

    address: str
    scopes: frozenset[str] = SCOPES
    """The last part of each scope's name, such as `gmail.readonly`."""


@dataclass(slots=True)
class LoggedCall:
    """One call in the log."""

    method: str = ""
    """`gmail.users.threads.get`; empty where there is no such method."""
    user: str = ""
    """The address that the token stands for; empty for an unknown token."""
    units: int = 0
    """Of the quota; 0 for one that was refused before it counted."""
    status: int = 0
    """Of the answer; 0 when the connection dropped instead."""
    path: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)


class MethodSpec(NamedTuple):
    """What a method accepts, by the discovery document of its API."""

    query: frozenset[str]
    """Its parameters."""
    body: frozenset[str]
    """The fields that its body may have."""
    scopes: frozenset[str]
    """OAuth scopes of which any one suffices, the last part of their names."""


@cache
def method_spec(method: str) -> MethodSpec:
    api = {"gmail": "gmail.v1", "sheets": "sheets.v4"}.get(method.partition(".")[0], "bigquery.v2")
    document = methods_of(api)[method]
    schema = discovery(api)["schemas"].get(document.get("request", {}).get("$ref"), {})
    return MethodSpec(
        frozenset(n for n, each in document["parameters"].items() if each["location"] == "query"),
        frozenset(schema.get("properties", ())),
        frozenset(scope.removesuffix("/").rpartition("/")[2] for scope in document["scopes"]),
    )


class LocalGoogle(server.LocalGoogle):
    """Google's APIs, as strict as Google.

    `tokens` are the accepted ones; to delete one revokes it. BigQuery and Sheets are served beside
    Gmail; their projects and tables are there for all accounts. `faults` are consumed
    as their methods are called, `latency_s` passes before each answer, and `requests` is the log
    of all calls.
    """

    gmail: GmailState

    def __init__(
        self,
        mailbox: Mailbox = NOBODY,
        *,
        bigquery: BigQueryState | None = None,
        sheets: SheetsState | None = None,
        latency_s: float = 0.0,
        now: Callable[[], float] = time.time,
        whose: Callable[[str], str | None] = lambda token: None,
    ) -> None:
        """Serve a mailbox; `now` in seconds since 1970 dates mail."""
        self._now = now
        self.bigquery = bigquery
        self.sheets = sheets or SheetsState()
        self.tokens: dict[str, Grant] = {TOKEN: Grant(mailbox.address)}
        self.faults: list[Fault] = []
        self.latency_s = latency_s
        self.requests: list[LoggedCall] = []
        self.whose = whose
        super().__init__(mailbox)
        self.serve("sheets.v4", google_sheets.METHODS)
        self._states: dict[str, Any] = dict.fromkeys(google_sheets.METHODS, self.sheets)
        if bigquery:
            self.serve("bigquery.v2", google_bigquery.METHODS)
            self._states |= dict.fromkeys(google_bigquery.METHODS, bigquery)

    def state_of(self, mailbox: Mailbox) -> GmailState:
        return GmailState(mailbox, self._now)

    async def _single(self, request: Request) -> Response:
        sent = await read_request(request)
        logged = LoggedCall()
        response: Response | None = None
        try:
            response = await self._answer(sent, logged)
        except GoogleRefused as refused:
            response = refusal(refused)
        except DroppedConnection:
            pass
        finally:
            logged.status = response.status_code if response else 0
            self.requests.append(logged)
        if response is None:
            await drop_connection(request.scope)
        return response or Response()

    async def _answer(self, sent: Sent, logged: LoggedCall) -> Response:
        logged.method, logged.path = self.method_at(sent)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        fault = next_fault(self.faults, logged.method)
        if fault:
            await before(fault)
        response = json_response(self.execute(sent, logged))
        if fault:
            response.body = await after(fault, bytes(response.body))
            response.headers["content-length"] = str(len(response.body))
        return response

    def execute(self, sent: Sent, logged: LoggedCall) -> Json:
        """Execute the call, if the token and the API allow it."""
        spec, grant = method_spec(logged.method), self._grant(sent.token)
        logged.user = grant.address
        if not grant.scopes & spec.scopes:
            raise GoogleRefused("insufficientPermissions")
        if (user := logged.path.get("userId", "me")) not in ("me", grant.address):
            raise GoogleRefused("forbidden", f"Delegation denied for {user}")
        logged.units = UNITS.get(logged.method, 0)
        logged.body = body_of(sent)
        _refuse_unknown(logged.body.keys() - spec.body, "Cannot find field.")
        _refuse_unknown(sent.query.keys() - spec.query - EVERYWHERE, "Cannot bind query parameter.")
        state = self._states.get(logged.method) or self.gmail
        call = Call(state, logged.path, sent.query, dict(logged.body))
        with state.lock:
            return dict(self.methods[logged.method](check_call(logged.method, call)))

    def _grant(self, token: str) -> Grant:
        grant, address = self.tokens.get(token), self.whose(token)
        if grant is None and address and address.endswith(".iam.gserviceaccount.com"):
            grant = Grant(address, SERVICE)
        elif grant is None and address == self.gmail.address:
            grant = Grant(address)
        if grant is None:
            raise GoogleRefused("authError", headers=CHALLENGE)
        return grant


def remove_message(state: GmailState, id: str) -> None:
    """Delete a message for good."""
    with state.lock:
        message = state.messages[id]
        state.count_change(message)
        del state.messages[id]
        state.threads[message.thread].remove(id)
        if not state.threads[message.thread]:
            del state.threads[message.thread]


def forget_history(state: GmailState) -> None:
    """Make every history id that was given so far too old, as Gmail does after a week or so."""
    with state.lock:
        state.history_id += 1
        state.oldest_history = state.history_id
        state.history.clear()


def body_of(sent: Sent) -> Json:
    try:
        body: Any = json.loads(sent.body or b"{}")
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise GoogleRefused("parseError")
    return body


def _refuse_unknown(names: set[str], why: str) -> None:
    for name in names:
        message = f'Invalid JSON payload received. Unknown name "{name}": {why}'
        raise GoogleRefused("invalidArgument", message)
