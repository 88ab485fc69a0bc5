"""A console with a store and a local Slack, and browsers that open it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from card_kit import BOSS, GUEST, people
from engine_kit import MUX
from pg_kit import with_store
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_openid import CLIENT_ID, CLIENT_SECRET, SignIn
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from bot.console.app import PATH, LoopbackAccess
from bot.console.pages import console_routes
from bot.console.signin import Administrators, SlackSignIn, TeamAccess
from bot.metrics import Metrics
from bot.policy.policy import PolicyFile
from bot.runs.store import Store
from bot.serving.observability import Health
from bot.serving.web import web_app
from bot.slack.people import People
from bot.storage.encryption import Cipher
from config.settings import Settings, load_settings
from scopes.slack_client import connect, open_session

PUBLIC = "https://console.example"
POLICY = f"policy: {{admins: [{BOSS}, {GUEST}]}}\n"


@dataclass
class Served:
    """A console with its store, settings and Slack."""

    app: Starlette
    routes: Sequence[Any]
    """All routes below the console's path."""
    slack: LocalSlack
    sign_in: SignIn
    store: Store
    settings: Settings
    cipher: Cipher
    path: Path
    """The settings file."""

    @property
    def pages(self) -> list[tuple[str, str]]:
        """Method and path of each page that only administrators may open."""
        public = ("/static", "/sign-in")
        return [
            (method, PATH + re.sub(r"{\w+}", "x", route.path))
            for route in self.routes
            if isinstance(route, Route) and not route.path.startswith(public)
            for method in sorted(route.methods or ())
        ]

    def browser(self, base: str = PUBLIC, **more: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self.app), base_url=base, follow_redirects=False, **more
        )


@asynccontextmanager
async def console(folder: Path, public: str = PUBLIC, local: bool = False) -> AsyncIterator[Served]:
    """A console that is reachable from elsewhere, or on its own machine only."""
    async with AsyncExitStack() as stack:
        slack, cipher = LocalSlack(people()), Cipher.generate()
        sign_in = SignIn(slack, f"{public}{PATH}/sign-in/back", BOSS)
        url = stack.enter_context(MUX.served_app(slack.app)) + API_PATH
        path = folder / "assistant.yaml"
        exposed = "" if local else f"public_url: {public}, "
        path.write_text(f'{POLICY}console: {{{exposed}client_id: "{CLIENT_ID}"}}\n')
        env = {"SLACK_API_URL": url, "SLACK_CLIENT_SECRET": CLIENT_SECRET}
        settings = load_settings(path, {**env, "ASSISTANT_DATA_DIR": str(folder / "state")})
        with_store(settings.data_dir)
        store = await Store.open(settings.data_dir, None, cipher)
        stack.push_async_callback(store.aclose)
        session = await stack.enter_async_context(open_session(settings.slack))
        members = People(connect(session, BOT_TOKEN, url, settings.slack))
        policy = PolicyFile(path, settings.policy)
        team = slack.state.team.id
        administrators = Administrators(team, policy, members)
        administrators_of = {team: administrators}.get
        slack_sign_in = SlackSignIn(settings, store.database, cipher, administrators_of, team)
        access = LoopbackAccess() if local else TeamAccess(slack_sign_in, team)
        pages = console_routes(store, settings, access, policy)
        mount = next(each for each in pages if isinstance(each, Mount))
        app = web_app(Health(), Metrics(), pages=pages)
        yield Served(app, mount.routes, slack, sign_in, store, settings, cipher, path)


async def to_slack(browser: httpx2.AsyncClient, page: str = f"{PATH}/schedules") -> str:
    """Begin to sign in, allow it at Slack, and return the address that Slack redirects to."""
    away = await browser.get(f"{PATH}/sign-in", params={"page": page})
    assert away.status_code == 303
    async with httpx2.AsyncClient() as outside:
        assert (await outside.get(away.headers["location"])).status_code == 200
        back = await outside.post(away.headers["location"], data={"go": "yes"})
    assert back.status_code == 302
    return str(back.headers["location"])


async def signed_in_browser(served: Served, user: str = BOSS) -> httpx2.AsyncClient:
    """A browser in which this user is signed in."""
    served.sign_in.user = user
    browser = served.browser()
    welcome = await browser.get(await to_slack(browser))
    assert (welcome.status_code, welcome.headers["location"]) == (303, f"{PUBLIC}{PATH}/schedules")
    return browser


def reason(page: httpx2.Response) -> str:
    """The sentence of an error page."""
    found = re.search(r"<h1>[A-Z][a-z ]+</h1>\s*<p>(.*?)</p>", page.text)
    return found[1] if found else ""
