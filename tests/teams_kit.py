"""One Slack with two workspaces, whose people and channels have the same ids, and one model."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from engine_kit import until, workspace
from fleet_kit import clean_environment
from serve_kit import Room, echo, events_url, free_port, serve_settings
from standins.model import ModelServer, Responder
from standins.model_faults import Faults
from standins.slack import API_PATH, SIGNING_SECRET, LocalSlack
from standins.slack_scopes import Identity
from standins.slack_shown import Shown
from standins.slack_teams import CLIENT_ID, CLIENT_SECRET, COMPANY, SeveralSlacks, token_of
from timing import WAIT_S

from bot.local.server import LocalServer
from bot.local.slack.state import BOT_ID, BOT_USER
from bot.local.workspace import Team
from bot.serving.workspaces import Workspaces, run_workspaces
from config.settings import Settings
from subagents.model import ModelClient

ACME, BETA = "T0ACME", "T0BETA"
PUBLIC = "https://bot.example.com"


@dataclass
class Place(Room):
    """One of the workspaces."""

    team: str
    slack: LocalSlack

    async def answer(self, thread: str) -> Shown:
        await until(lambda: self.finished_messages(thread), WAIT_S)
        (only,) = self.finished_messages(thread)
        return only

    def texts(self) -> str:
        """Return everything written here: messages, whispers, modals and Home pages."""
        return json.dumps([dict(each.args) for each in self.slack.effects], default=str) + str(
            self.slack.state.whispers
        )


@dataclass
class TwoWorkspaces:
    """Two workspaces, and the process or processes that serve both."""

    folder: Path
    router: SeveralSlacks
    model: ModelServer
    settings: Settings
    acme: Place
    beta: Place
    url: str
    """The address of the pages and of the events."""
    serving: Workspaces | None = None

    async def visit(self, path: str, cookie: str = "") -> tuple[int, str, Mapping[str, str]]:
        """Return status, text and headers of a page."""
        headers = {"cookie": cookie, "accept-language": "en"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.url + path, headers=headers, allow_redirects=False) as page,
        ):
            return page.status, await page.text(), page.headers

    async def state(self) -> tuple[str, str]:
        """Return a new OAuth state and the cookie of its browser."""
        status, _, headers = await self.visit("/slack/install")
        assert status == 302
        found = re.search(r"[?&]state=([\w-]+)", headers["location"])
        assert found
        return found[1], headers["set-cookie"].split(";")[0]

    async def install(self, team: str) -> None:
        state, cookie = await self.state()
        path = f"/slack/oauth_redirect?code=code-of-{team}&state={state}"
        status, text, _ = await self.visit(path, cookie)
        assert (status, "The assistant is installed" in text) == (200, True), text
        serving = self.serving
        if serving and team != COMPANY:
            await until(lambda: team in serving.servers, WAIT_S)


@contextmanager
def two_slacks(
    folder: Path,
    responder: Responder = echo,
    *,
    teams: Mapping[str, Mapping[str, Any]] | None = None,
    mode: str = "http",
    company: str = "",
    faults: Faults | None = None,
    **sections: Any,
) -> Iterator[TwoWorkspaces]:
    """Without a serving process. `teams` are the settings of each.

    In `mode` "socket" the events of both come through the sockets of the first; `company` owns
    both.
    """
    port = free_port()
    space = workspace(2)
    spaces = {ACME: space, BETA: replace(space, team=Team(BETA, "Beta", "beta"))}
    slacks: dict[str, LocalSlack] = {}
    for team, each in spaces.items():
        slacks[team] = LocalSlack(
            each,
            retries_s=(0.0, 0.3, 1.0, 2.0, 4.0),
            request_url=events_url(port) if mode == "http" else None,
            sockets=slacks[ACME].sockets if slacks else None,
            company=company,
        )
        slacks[team].tokens.clear()
        slacks[team].tokens[token_of(company or team)] = Identity(BOT_USER, BOT_ID)
    router = SeveralSlacks(slacks)
    model = ModelServer(responder, record=True, faults=faults)
    for team, own in (teams or {}).items():
        (folder / "teams").mkdir(exist_ok=True)
        (folder / "teams" / f"{team}.yaml").write_text(yaml.safe_dump(dict(own)), "utf-8")
    with LocalServer(router, "slack") as slack, LocalServer(model.app, "model") as model_server:
        sections["slack"] = {"client_id": CLIENT_ID, **sections.get("slack", {})}
        sections["serve"] = {"public_url": PUBLIC, **sections.get("serve", {})}
        options: dict[str, Any] = {"mode": mode, "port": port, **sections}
        settings = serve_settings(folder / "data", slack.url + API_PATH, **options)
        secret = {"slack_bot_token": None, "slack_client_secret": CLIENT_SECRET}
        secrets = type(settings.secrets)(**{**dict(settings.secrets), **secret})
        endpoints = settings.endpoints.model_copy(update={"anthropic_base_url": model_server.url})
        settings = settings.model_copy(update={"secrets": secrets, "endpoints": endpoints})
        acme, beta = (Place(team, slacks[team]) for team in spaces)
        url = f"http://127.0.0.1:{port}"
        yield TwoWorkspaces(folder, router, model, settings, acme, beta, url)
        for place in (acme, beta):
            place.slack.close()


@asynccontextmanager
async def two_teams(
    folder: Path, responder: Responder = echo, **options: Any
) -> AsyncIterator[TwoWorkspaces]:
    """Both workspaces, served by this process and installed."""
    with two_slacks(folder, responder, **options) as two:
        async with served_workspaces(two):
            for team in (ACME, BETA):
                await two.install(team)
            yield two


@asynccontextmanager
async def served_workspaces(two: TwoWorkspaces) -> AsyncIterator[Workspaces]:
    model = ModelClient(two.settings.models, "k", two.settings.endpoints.anthropic_base_url)
    path = two.folder / "assistant.yaml"
    try:
        async with run_workspaces(two.settings, path, model, "claude") as serving:
            two.serving = serving
            yield serving
            assert await serving.drain(WAIT_S)
    finally:
        two.serving = None
        await model.aclose()


def environment(two: TwoWorkspaces) -> dict[str, str]:
    """The environment of a command for both; writes its assistant.yaml."""
    own = {"slack": {"mode": "http", "client_id": CLIENT_ID}, "serve": {"public_url": PUBLIC}}
    (two.folder / "assistant.yaml").write_text(yaml.safe_dump(own), "utf-8")
    settings = two.settings
    return clean_environment(
        SLACK_CLIENT_SECRET=CLIENT_SECRET,
        SLACK_SIGNING_SECRET=SIGNING_SECRET,
        SLACK_API_URL=settings.endpoints.slack_api_url,
        ANTHROPIC_BASE_URL=settings.endpoints.anthropic_base_url,
        ASSISTANT_DATA_DIR=str(settings.data_dir),
    )
