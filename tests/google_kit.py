"""A Google on loopback with scripted answers, which records requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from standins.connections import drop_connection
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.local.server import LocalServer
from config.sections import GoogleSettings as Limits
from config.settings import load_settings
from scopes.google.auth import GoogleAccess, token_credentials
from scopes.google.client import GoogleClient, Quota

TOKEN = "ya29.a-token-that-nobody-may-see"
PROFILE = {"emailAddress": "ana@acme.example", "historyId": "7"}

Answer = Response | Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class GoogleRequest:
    """A request that reached Google."""

    path: str
    token: str
    form: Mapping[str, str]


def error_response(
    code: int,
    reason: str = "",
    message: str = "No.",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """An error in Google's form."""
    errors = [{"domain": "global", "reason": reason, "message": message}] if reason else []
    body = {"error": {"code": code, "message": message, "errors": errors, **more}}
    return JSONResponse(body, code, headers=headers)


async def break_connection(request: Request) -> Response:
    """Break the connection, so that the client does not know whether the call was done."""
    await drop_connection(request.scope)
    return Response()


async def close_connection(request: Request) -> Response:
    """Close the connection in order, without an answer."""
    for connection in request.scope["extensions"]["local.connections"]():
        if connection.client == request.scope["client"]:
            connection.transport.close()
    return Response()


async def silent(request: Request) -> Response:
    """Give no answer until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()


class ScriptedGoogle:
    """Gmail and the token service. Calls take the next answer; after the last, they succeed."""

    def __init__(self, *answers: Answer, tokens: tuple[Answer, ...] = ()) -> None:
        self.asked: list[GoogleRequest] = []
        self.token_asked: list[GoogleRequest] = []
        self.valid: set[str] | None = None
        """Tokens that are accepted; None = all."""
        self._answers, self._tokens = list(answers), list(tokens)
        self.app = Starlette(
            routes=[
                Route("/token", self._token, methods=["POST"]),
                Route("/{path:path}", self._gmail, methods=["GET", "POST", "DELETE"]),
            ]
        )

    async def _gmail(self, request: Request) -> Response:
        recorded = await _parse_request(request)
        self.asked.append(recorded)
        if self.valid is not None and recorded.token not in self.valid:
            return error_response(401, "authError", "Invalid Credentials")
        return await _next_answer(request, self._answers, JSONResponse(PROFILE))

    async def _token(self, request: Request) -> Response:
        self.token_asked.append(await _parse_request(request))
        number = len(self.token_asked)
        tokens = {"access_token": f"ya29.renewed-{number}", "expires_in": 3600}
        return await _next_answer(request, self._tokens, JSONResponse(tokens))


async def _parse_request(request: Request) -> GoogleRequest:
    kind = request.headers.get("content-type", "")
    form = dict(parse_qsl((await request.body()).decode())) if "form" in kind else {}
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    return GoogleRequest(request.url.path, token, form)


async def _next_answer(request: Request, answers: list[Answer], otherwise: Response) -> Response:
    answer = answers.pop(0) if answers else otherwise
    return answer if isinstance(answer, Response) else await answer(request)


class Pauses(list[float]):
    """Replaces sleep, and records how long it would have been."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


class Clock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.now += seconds


def limits(**changes: Any) -> Limits:
    return load_settings(env={}).google.model_copy(update=changes)


@contextmanager
def served_stand(stand: ScriptedGoogle) -> Iterator[str]:
    with LocalServer(stand.app, "google") as server:
        yield server.url


@asynccontextmanager
async def google_client(
    stand: ScriptedGoogle,
    access: Callable[[str], GoogleAccess] = lambda url: token_credentials(TOKEN),
    pauses: Pauses | None = None,
    clock: Clock | None = None,
    **changes: Any,
) -> AsyncIterator[GoogleClient]:
    """A client with the access to the stand's URL; `changes` are to the settings."""
    settings, clock = limits(**changes), clock or Clock()
    with served_stand(stand) as url:
        google = GoogleClient(
            access(url),
            settings,
            url,
            Quota(settings.units_per_minute, clock, clock.sleep),
            sleep=pauses if pauses is not None else Pauses(),
        )
        try:
            yield google
        finally:
            await google.aclose()


async def read(google: GoogleClient, **more: Any) -> dict[str, Any]:
    return await google.call(google.gmail().getProfile(userId="me"), **more)


async def send(google: GoogleClient) -> dict[str, Any]:
    """A call that must not happen twice."""
    message = google.gmail().messages().send(userId="me", body={"raw": "SGk="})
    return await google.call(message, repeat=False)
