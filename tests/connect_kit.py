"""What the tests of connecting a mailbox stand on: Google and Slack on loopback, and browsers."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from engine_kit import MUX
from policy_kit import Asking, asking, user
from pydantic import SecretStr
from serve_kit import free_port
from standins.google_oauth import CLIENT_ID, CLIENT_SECRET, LocalGoogleOauth
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.mailbox.accounts import Credentials
from bot.mailbox.oauth import Connecting
from bot.metrics import Metrics
from bot.serving.observability import Health
from bot.serving.web import connect_routes, serve_app, web_app
from bot.storage.database import Database
from config.settings import Settings, load_settings

Json = dict[str, Any]
TEAM = "T0ACME"
ANA, MAL = "U0ANA", "U0MAL"
MAILBOX = "ana@acme.example"
TIMEOUT = aiohttp.ClientTimeout(total=10)


@dataclass
class StandIn:
    """Google: accounts, and of Gmail as much as says whose mailbox a token opens."""

    accounts: LocalGoogleOauth = field(default_factory=LocalGoogleOauth)
    url: str = ""
    profile: Response | None = None
    """An answer instead of the right one."""

    @property
    def app(self) -> Starlette:
        profile = Route("/gmail/v1/users/me/profile", self._profile)
        return Starlette(routes=[*self.accounts.routes("/oauth"), profile])

    def asked(self, path: str) -> list[Json]:
        return [sent for at, sent in self.accounts.requests if at.endswith(path)]

    async def _profile(self, request: Request) -> Response:
        if self.profile is not None:
            return self.profile
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        address = self.accounts.whose(token)
        refusal = {"error": {"code": 401, "errors": [{"reason": "authError"}]}}
        return JSONResponse(
            {"emailAddress": address} if address else refusal, 200 if address else 401
        )


@contextmanager
def google_at() -> Iterator[StandIn]:
    made = StandIn()
    with MUX.serving(made.app) as url:
        made.url = url
        yield made


def settings_at(google: StandIn, public_url: str | None = None, **more: Any) -> Settings:
    """The defaults, with an OAuth client of this Google."""
    base = load_settings(env={})
    given = {"google_client_secret": SecretStr(CLIENT_SECRET)}
    ends = {"google_oauth_endpoint": f"{google.url}/oauth", "gmail_api_endpoint": google.url}
    client = {"client_id": CLIENT_ID, "timeout_s": 5.0, **more}
    return base.model_copy(
        update={
            "google": base.google.model_copy(update=client),
            "serve": base.serve.model_copy(update={"public_url": public_url}),
            "secrets": base.secrets.model_copy(update=given),
            "endpoints": base.endpoints.model_copy(update=ends),
        }
    )


def person(id: str) -> Json:
    names = {ANA: ("ana", "Ana Ruiz"), MAL: ("mal", "Mallory <b>Jones</b>")}
    name, real_name = names.get(id, (id.lower(), id))
    return user(id, name=name, real_name=real_name)


@dataclass
class Page:
    """What a browser shows in the end."""

    status: int
    raw: str
    url: str
    headers: Any

    @property
    def text(self) -> str:
        plain = re.sub(r"<style>.*?</style>|<[^>]+>", " ", self.raw)
        return " ".join(html.unescape(plain).split())

    @property
    def code(self) -> str:
        """The code that it shows; empty where it shows none."""
        found = re.search(r'class="code">([0-9 ]+)<', self.raw)
        return found[1] if found else ""


class Browser:
    """One person's browser: it keeps its cookies to itself, and follows where it is sent."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=TIMEOUT, cookie_jar=aiohttp.CookieJar(unsafe=True)
        )

    async def get(self, url: str, **more: Any) -> Page:
        return await self._ask("GET", url, **more)

    async def press(self, url: str, **more: Any) -> Page:
        """Send in the form of the page at this address."""
        return await self._ask("POST", url, **more)

    async def through(self, link: str) -> Page:
        """Open a link, go on to Google, allow all, and come back."""
        await self.get(link)
        return await self.press(link)

    async def stopped_at_google(self, link: str) -> str:
        """The address that Google would send this browser back to."""
        await self.get(link)
        away = await self.press(link, allow_redirects=False)
        back = await self.get(away.headers["location"], allow_redirects=False)
        return str(back.headers["location"])

    async def _ask(self, method: str, url: str, **more: Any) -> Page:
        async with self._session.request(method, url, **more) as response:
            text = await response.text()
            return Page(response.status, text, str(response.url), response.headers)

    async def aclose(self) -> None:
        await self._session.close()


@dataclass
class Desk:
    """A bot that connects mailboxes."""

    connecting: Connecting
    store: Credentials
    database: Database
    google: StandIn
    slack: Asking
    url: str
    browsers: list[Browser] = field(default_factory=list)

    def browser(self) -> Browser:
        self.browsers.append(Browser())
        return self.browsers[-1]

    async def link(self, user: str = ANA) -> str:
        """The link that a user gets who presses the button."""
        return (await self.connecting.begin(user, TEAM)).link

    async def mailbox(self, user: str = ANA) -> str:
        """What is connected to a user."""
        tokens = await self.store.get(user)
        return tokens.address if tokens else ""


@asynccontextmanager
async def desk_at(database: Database) -> AsyncIterator[Desk]:
    people = {f"users.info {id}": person(id) for id in (ANA, MAL)}
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with google_at() as google:
        async with asking({**people, "views.publish": {"ok": True, "view": {}}}) as slack:
            made = settings_at(google, url)
            connecting = Connecting(made, database, slack.web, "https://acme.slack.com/")
            pages = connect_routes(lambda state: connecting)
            desk = Desk(connecting, Credentials(database), database, google, slack, url)
            async with serve_app(web_app(Health(), Metrics(), pages=pages), "127.0.0.1", port):
                try:
                    yield desk
                finally:
                    for browser in desk.browsers:
                        await browser.aclose()
