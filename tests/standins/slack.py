"""Slack as the tests need it: strict about arguments, with limits, faults and a log."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.local.slack import server
from bot.local.slack.server import API_PATH, APP_TOKEN, BOT_TOKEN, arguments, token_of
from bot.local.slack.state import Call, Identity, SlackError
from bot.local.workspace import Workspace, micros
from standins import slack_files, slack_search
from standins.slack_checks import check, expire
from standins.slack_delivery import ACK_S, RETRIES_S, Carrier, Deliveries, Delivery
from standins.slack_events import Effect, effect_of, named_message, of_write
from standins.slack_faults import (
    Fault,
    StreamsRefused,
    apply_fault,
    drop_if_lost,
    empty_if_asked,
    next_fault,
    rate_limit_response,
    refusal,
    stream_refusal,
)
from standins.slack_files import upload_refusal
from standins.slack_limits import RateLimits
from standins.slack_people import People
from standins.slack_scopes import scopes_of
from standins.slack_shown import Shown, visible
from standins.slack_socket import Requests, Sockets

__all__ = ["API_PATH", "APP_TOKEN", "BOT_TOKEN", "METHODS", "SIGNING_SECRET", "LocalSlack"]

METHODS = {**server.METHODS, **slack_files.METHODS, **slack_search.METHODS}
SIGNING_SECRET = "local-secret"
UPLOAD = "upload"
"""The name of a file's upload in `calls` and faults; it is no method."""
COMPLETE = "files.completeUploadExternal"
FORM_ONLY = frozenset({"files.getUploadURLExternal"})
"""Methods that read no JSON: docs.slack.dev/reference/methods/files.getUploadURLExternal."""


class OfCompany(Deliveries):
    """The events of an app that a whole organization installed: api.slack.com/enterprise/apps.

    According to Bolt, `team` can be none: slack_bolt/request/internals.py, extract_team_id.
    """

    def __init__(self, company: str, *args: Any, **kwargs: Any) -> None:
        self._company = company
        super().__init__(*args, **kwargs)

    def put(
        self,
        kind: str,
        id: str,
        type: str,
        payload: Mapping[str, Any],
        answered: Callable[[Any], None] | None = None,
    ) -> None:
        fields: dict[str, Any]
        if kind == "events_api":
            authorizations = [
                {**each, "team_id": None, "enterprise_id": self._company}
                | {"is_enterprise_install": True}
                for each in payload["authorizations"]
            ]
            fields = {"enterprise_id": self._company, "context_enterprise_id": self._company}
            fields["authorizations"] = authorizations
        elif kind == "interactive":
            enterprise = {"id": self._company, "name": "Grid"}
            fields = {"enterprise": enterprise, "team": None, "is_enterprise_install": True}
        else:
            fields = {"enterprise_id": self._company, "is_enterprise_install": "true"}
        super().put(kind, id, type, {**payload, **fields}, answered)


class LocalSlack(server.LocalSlack):
    """A local Slack that refuses what Slack refuses, and fails where a test wants it.

    Writes are listed in `effects`; `calls` counts the requests by method; `faults` are consumed in
    order as their methods are called. A token that is deleted from `tokens` is revoked. The app
    gets events through `sockets`, or as requests to its `request_url`.
    """

    methods = METHODS

    def __init__(
        self,
        workspace: Workspace,
        *,
        tokens: Mapping[str, Identity] | None = None,
        limits: Mapping[str, int] | None = None,
        now: Callable[[], float] = time.time,
        app_token: str = APP_TOKEN,
        request_url: str | None = None,
        retries_s: Sequence[float] = RETRIES_S,
        ack_s: float = ACK_S,
        stream_ttl_s: float = 300.0,
        streams_refused: StreamsRefused | None = None,
        sockets: Sockets | None = None,
        company: str = "",
    ) -> None:
        """Serve a workspace; `tokens` adds to the default ones or replaces them.

        `limits` maps methods to calls a minute, as `limits.TIERS` does; None = no limits.
        Without a `request_url` events come in Socket Mode. An event that is not acknowledged
        within `ack_s` is sent again after each of `retries_s`, then it is lost. A stream ends
        `stream_ttl_s` after its start (github.com/slackapi/python-slack-sdk/issues/1859).
        `streams_refused` makes this a Slack without streams: it says how each call of a streaming
        method fails. `sockets` are those of the app, if it also serves another workspace.
        `company` is the Enterprise Grid organization that installed the app.
        """
        super().__init__(workspace)
        self.state.now = now
        self.effects: list[Effect] = []
        """Every write so far, in order."""
        self.app.router.routes.append(Route(slack_files.FILES_PATH, self._download))
        self.tokens |= tokens or {}
        self.calls: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.unshared = 0
        """How many of the next files are accepted but never shown: paradigmxyz/centaur#311."""
        self.streams_refused = streams_refused
        self._app_token = app_token
        self._stream_ttl_s = stream_ttl_s
        self._limits = RateLimits(limits)
        self.sockets: Sockets = sockets or Sockets(app_token, ack_s)
        self.requests = Requests(request_url, SIGNING_SECRET, ack_s) if request_url else None
        carrier: Carrier = self.requests or self.sockets
        deliveries = partial(OfCompany, company) if company else Deliveries
        self.events: Deliveries = deliveries(self.state, carrier, retries_s)
        self.people: People = People(self.state, self.events)

    @property
    def deliveries(self) -> list[Delivery]:
        """Every try to deliver an event so far, in order."""
        return self.events.log

    def visible(self, channel: str, thread_ts: str | None = None) -> list[Shown]:
        """What a person sees in a channel, or in one thread of it."""
        with self.state.lock:
            expire(self.state, self._stream_ttl_s)
            return visible(self.state, channel, thread_ts)

    def send(
        self,
        event: Any,
        *,
        times: int = 1,
        event_id: str | None = None,
        authorizations: Iterable[Mapping[str, Any]] | None = None,
    ) -> str:
        """Deliver an event, valid or not, some `times`; return its id.

        One of type "app_rate_limited" is sent as such, any other inside of an event_callback.
        """
        for _ in range(times):
            event_id = event_id or self.events.new_id()
            kind = str(event.get("type", "")) if isinstance(event, dict) else ""
            place = event.get("channel") if isinstance(event, dict) else None
            base = {"channel": place} if isinstance(place, str) else {}
            payload = self.events.callback(base, event_id) | {"event": event}
            if kind == "app_rate_limited":
                payload = {k: payload[k] for k in ("team_id", "api_app_id")} | event
            elif authorizations is not None:
                payload["authorizations"] = list(authorizations)
            self.events.put("events_api", event_id, kind, payload)
        return event_id or ""

    def put(self, kind: str, payload: Mapping[str, Any]) -> str:
        """Deliver a whole payload, valid or not; `kind` is one of Envelope's. Return its id."""
        id = f"Ev0PUT{len(self.deliveries):06d}"
        self.events.put(kind, id, kind, payload)
        return id

    def close(self) -> None:
        """Deliver nothing more over HTTP; sockets end with their server."""
        if self.requests:
            self.requests.close()

    def carry_out(self, call: Call) -> dict[str, Any]:
        """Carry a call out if Slack would, and send the app the events of what it wrote."""
        expire(self.state, self._stream_ttl_s)
        call = check(call)
        before = named_message(call)
        body = super().carry_out(call)
        effect = effect_of(call, body)
        if effect is None:
            return body
        self.effects.append(effect)
        if self.events.is_heard:
            for event in of_write(self.state, effect, before):
                self.events.event(event)
        if call.method == COMPLETE and self.unshared:
            self.unshared -= 1
            self.effects.pop()
            self.state.timelines[effect.channel].remove(micros(effect.ts))
        return body

    async def _serve(self, request: Request) -> Response:
        method = request.path_params["method"]
        self.calls[method] += 1
        fault = next_fault(self.faults, method)
        if fault and (failure := await apply_fault(fault, request)):
            return failure
        if self.streams_refused and method.endswith("Stream"):
            return stream_refusal(self.streams_refused)
        response = await self._refuse_call(method, request) or await super()._serve(request)
        response = empty_if_asked(fault, response)
        if identity := self._whose(request):
            response.headers["x-oauth-scopes"] = ",".join(sorted(scopes_of(identity)))
        return Response() if await drop_if_lost(fault, request) else response

    def _whose(self, request: Request) -> Identity | None:
        try:
            return self.identity(request)
        except SlackError:
            return None

    def identity(self, request: Request) -> Identity:
        """The identity behind a token; an app's token only opens sockets."""
        token = token_of(request)
        if not token:
            raise SlackError("not_authed")
        if token.startswith("xapp-"):
            raise SlackError("not_allowed_token_type")
        return super().identity(request)

    async def _download(self, request: Request) -> Response:
        """A file's content; the token has to be in the header, as with Slack."""
        place, name = request.path_params["place"], request.path_params["name"]
        reader = self._whose(request)
        allowed = reader if reader and "files:read" in scopes_of(reader) else None
        return slack_files.download(self.state, allowed, place, name)

    async def _refuse_call(self, method: str, request: Request) -> Response | None:
        """Refuse a call that comes too early, or in a form that its method does not read."""
        args, token = await arguments(request), token_of(request)
        if method in METHODS:
            if not (identity := self._whose(request)):
                return None
            is_json = "json" in request.headers.get("content-type", "")
            if method in FORM_ONLY and is_json and "files:write" in scopes_of(identity):
                return refusal("invalid_arguments")
        elif token != self._app_token or self.sockets.refuses:
            return None
        wait = self._limits.wait(method, token, str(args.get("channel", "")))
        return rate_limit_response(wait) if wait else None

    async def _upload(self, request: Request) -> Response:
        self.calls[UPLOAD] += 1
        fault = next_fault(self.faults, UPLOAD)
        if fault and (failure := await apply_fault(fault, request)):
            return failure
        refused = upload_refusal(self.state, request.path_params["file"], await request.body())
        response = refused or await super()._upload(request)
        return Response() if await drop_if_lost(fault, request) else response
