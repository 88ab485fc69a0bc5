"""Helpers for tests of the policy: a Slack on loopback with scripted answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_kit import MUX
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.local.slack.server import arguments
from bot.slack.people import People
from config.sections import Policy
from config.settings import load_policy, load_settings
from scopes.members import Members
from scopes.slack_client import connect, open_session

Json = dict[str, Any]
TEAM = "T0ACME"


def user(id: str, **more: Any) -> Json:
    return {"ok": True, "user": {"id": id, "team_id": TEAM, "deleted": False} | more}


def channel(id: str, **more: Any) -> Json:
    facts = {"name": id.lower(), "is_private": False, "is_ext_shared": False}
    return {"ok": True, "channel": {"id": id, **facts, **more}}


def policy(text: str = "") -> Policy:
    """Return the policy of a settings file with this `policy` section."""
    path = Path("policy-under-test.yaml")
    path.write_text(text and f"policy:\n{text}", "utf-8")
    return load_policy(path)


@dataclass
class SaidSlack:
    """Answers each method from `answers`: by "method argument", else by "method"."""

    answers: dict[str, Json | int | str] = field(default_factory=dict)
    """A body, the status of an error, or text that is no JSON."""
    calls: list[tuple[str, Json]] = field(default_factory=list)

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/api/{method}", self._serve, methods=["GET", "POST"])])

    def sent_arguments(self, method: str) -> list[Json]:
        return [sent for called, sent in self.calls if called == method]

    async def _serve(self, request: Request) -> Response:
        method = request.path_params["method"]
        sent = await arguments(request)
        self.calls.append((method, sent))
        subject = next((str(v) for k, v in sent.items() if k in _SUBJECTS), "")
        answer = self.answers.get(f"{method} {subject}", self.answers.get(method, _UNKNOWN))
        if isinstance(answer, int):
            return Response("oh no", answer)
        return Response(answer) if isinstance(answer, str) else JSONResponse(answer)


_SUBJECTS = ("user", "channel", "usergroup")
_UNKNOWN: Json = {"ok": False, "error": "unknown_method"}


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Asking:
    slack: SaidSlack
    people: People
    web: AsyncWebClient
    clock: Clock
    members: Members


@asynccontextmanager
async def scripted_slack(
    answers: dict[str, Json | int | str] | None = None,
) -> AsyncIterator[Asking]:
    """People and members as read from a scripted Slack."""
    slack, clock = SaidSlack({} if answers is None else answers), Clock()
    limits = load_settings(env={}).slack.model_copy(update={"retry_attempts": 0, "timeout_s": 1})
    with MUX.served_app(slack.app) as url:
        async with open_session(limits) as session:
            client = connect(session, "xoxb-t", f"{url}/api/", limits)
            people = People(client, clock=clock)
            members = Members(client, clock=clock)
            yield Asking(slack, people, client.web, clock, members)
            await members.aclose()
            await people.aclose()
