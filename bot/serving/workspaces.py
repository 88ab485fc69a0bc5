"""Serve every workspace that installed the app, each with its own parts and database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import SecretStr
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError
from starlette.routing import BaseRoute

from bot.background import in_background, repeat
from bot.console.pages import routes_by_workspace
from bot.console.signin import Administrators, SlackSignIn
from bot.errors import SetupError, StoreError
from bot.listeners.events import installed_team
from bot.listeners.intake import STORE_S, Receiver
from bot.log import about
from bot.mailbox.oauth import MailboxConnector
from bot.manifest import INSTALL_EVENTS
from bot.metrics import time_calls
from bot.runs.durable import Durable
from bot.serving.observability import Health, watch_process
from bot.serving.serve import (
    Process,
    Server,
    assemble,
    collect_when_idle,
    sockets_of,
)
from bot.serving.web import connect_routes, install_routes, serve_app, web_app
from bot.slack.installations import Installations
from bot.slack.messages import mapping
from bot.storage.database import Database, only_process
from bot.storage.encryption import cipher_of
from config.settings import Settings, SettingsError, check_common, for_team
from scopes.slack_client import web_client
from subagents.model import ModelClient

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""Seconds between checks for installations on other replicas."""
RETRY_S = 30.0
"""Pause before the next attempt for a workspace that cannot be served."""


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)
    is_company: bool


@dataclass
class ServedWorkspace:
    """A workspace that is being served."""

    token: Token
    closing: asyncio.Event
    """Set to stop serving it."""
    attempted: asyncio.Event
    """Set when it is served, or its first attempt has failed."""
    task: asyncio.Task[None] = field(init=False)
    server: Server | None = None
    fault: str = ""


class Workspaces(Receiver):
    """The workspaces of one process; each event goes to the one that Slack sent it for."""

    def __init__(self, settings: Settings, process: Process, database: Database) -> None:
        super().__init__(settings, None)
        self.url = ""
        self.opened: dict[str, ServedWorkspace] = {}
        self.installations = Installations(database)
        self._settings, self.process = settings, process
        self._web = web_client(settings.endpoints.slack_api_url, timeout=settings.slack.timeout_s)
        self._woken = asyncio.Event()
        self._is_loaded = False
        self._teams_of: dict[str, list[str]] = {}

    @property
    def servers(self) -> dict[str, Server]:
        return {team: each.server for team, each in self.opened.items() if each.server}

    @property
    def running(self) -> int:
        return sum(server.running for server in self.servers.values())

    async def drain(self, seconds: float) -> bool:
        return all(await asyncio.gather(*(s.drain(seconds) for s in self.servers.values())))

    def is_idle(self) -> bool:
        return all(server.is_idle() for server in self.servers.values())

    def wake(self) -> None:
        """Check for a new installation at once."""
        self._woken.set()

    def backfill(self) -> None:
        for server in self.servers.values():
            server.backfill.ask()

    def find_connecting(self, state: str) -> MailboxConnector | None:
        """Return where connecting a mailbox continues; the attempt's state begins with the team."""
        server = self.servers.get(state.partition(".")[0])
        return server.connecting if server else None

    def administrators(self, team: str) -> Administrators | None:
        server = self.servers.get(team)
        return server.administrators if server else None

    def console(self, team: str) -> Sequence[BaseRoute] | None:
        """Return the routes of the console of a workspace; None = it is not served."""
        server = self.servers.get(team)
        return server.console if server else None

    def check(self) -> str | None:
        """Return a sentence if an installed workspace has not been tried yet; else None."""
        waiting = sum(not each.attempted.is_set() for each in self.opened.values())
        if self._is_loaded and not waiting:
            return None
        return f"{waiting} workspaces are being opened." if waiting else "It is starting."

    def faults(self) -> str | None:
        """Return why some workspaces cannot be served."""
        sentences = [f"{team}: {each.fault}" for team, each in self.opened.items() if each.fault]
        return " ".join(sentences) or None

    async def answer(self, body: Mapping[str, Any]) -> BoltResponse:
        """Pass the payload to its workspace; ack and drop it if that has not installed the app."""
        team = installed_team(body)
        try:
            if mapping(body.get("event")).get("type") in INSTALL_EVENTS:
                await self._end(body, team)
                return BoltResponse(status=200, body="")
            workspace = self.opened.get(team)
            if workspace is None and await self._is_installed(team):
                return BoltResponse(
                    status=503, body=""
                )  # the workspace is being opened: Slack sends it again
        except StoreError as error:
            log.error("%s", error)
            return BoltResponse(status=503, body="")
        if workspace is None:
            log.warning("an event came for %s, which has not installed the app", team or "nobody")
            return BoltResponse(status=200, body="")
        with suppress(TimeoutError):
            async with asyncio.timeout(STORE_S):
                await workspace.attempted.wait()
        if workspace.server is None:
            return BoltResponse(status=503, body="")
        with about(team=team):
            return await workspace.server.intake.answer(body)

    async def _is_installed(self, team: str) -> bool:
        """Return whether a workspace that is not served here is installed, and will be served."""
        found = team in await self._load_tokens()
        if found:
            self._woken.set()
        return found

    async def _end(self, body: Mapping[str, Any], team: str) -> None:
        """Stop serving a workspace that removed the app; its data stays until it is forgotten.

        A late event does not end a newer installation.
        """
        event, at = mapping(body.get("event")), body.get("event_time")
        if event.get("type") == "tokens_revoked" and not mapping(event.get("tokens")).get("bot"):
            return
        before = datetime.fromtimestamp(at + 1, UTC) if type(at) is int else datetime.now(UTC)
        whole = mapping((body.get("authorizations") or [{}])[0]).get("is_enterprise_install")
        id = str(body.get("enterprise_id")) if whole else team
        if await self.installations.remove(id, before):
            log.info("%s has removed the app", id)
        self._woken.set()

    async def run(self) -> None:
        """Serve all installed workspaces until cancelled; then close everything."""
        try:
            fault = "what is installed is not known"
            await repeat(self._follow, LOOK_EVERY_S, fault, woken=self._woken)
        finally:
            await asyncio.gather(*(self._close(team) for team in list(self.opened)))

    async def _follow(self) -> None:
        tokens = await self._load_tokens()
        ended = [
            team
            for team, each in self.opened.items()
            if tokens.get(team) != each.token or each.task.done()
        ]
        await asyncio.gather(*map(self._close, ended))
        for team, token in tokens.items():
            if team not in self.opened:
                workspace = ServedWorkspace(token, asyncio.Event(), asyncio.Event())
                workspace.task = asyncio.create_task(self._serve(team, workspace), name=team)
                self.opened[team] = workspace
        self._is_loaded = True

    async def _close(self, team: str) -> None:
        workspace = self.opened[team]
        workspace.closing.set()
        await asyncio.wait([workspace.task])
        self.opened.pop(team, None)

    async def _load_tokens(self) -> dict[str, Token]:
        """Return the token of each workspace; its own installation comes before its company's."""
        tokens: dict[str, Token] = {}
        for each in await self.installations.all():
            token = Token(str(each.bot_token), bool(each.is_enterprise_install))
            if token.is_company:
                teams = await self._of_company(str(each.enterprise_id), token.text)
                tokens = dict.fromkeys(teams, token) | tokens
            else:
                tokens[str(each.team_id)] = token
        return tokens

    async def _of_company(self, id: str, token: str) -> list[str]:
        """Return the workspaces in which a company's installation is approved."""
        teams: list[str] = []
        try:
            async for page in await self._web.auth_teams_list(token=token, limit=100):
                teams += [str(each["id"]) for each in page.get("teams") or ()]
        except (SlackApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("Slack does not list the workspaces of %s: %s", id, error)
            return self._teams_of.get(id, [])
        self._teams_of[id] = teams
        return teams

    async def _serve(self, team: str, workspace: ServedWorkspace) -> None:
        """Serve one workspace until it is closed. After a fault, it is retried later."""
        with about(team=team):
            try:
                await self._serve_until_closed(team, workspace)
            except* (SetupError, SettingsError) as errors:
                workspace.fault = str(errors.exceptions[0])
                log.error("%s cannot be served: %s", team, workspace.fault)
            except* Exception:  # top-level boundary: one workspace
                workspace.fault = "It failed; the log says how."
                log.exception("%s cannot be served", team)
            workspace.attempted.set()
            if workspace.fault:
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S):
                        await workspace.closing.wait()

    async def _serve_until_closed(self, team: str, workspace: ServedWorkspace) -> None:
        settings = for_team(self._settings, team, self.process.policy_path)
        token = {"slack_bot_token": SecretStr(workspace.token.text)}
        secrets = settings.secrets.model_copy(update=token)
        bound = {"secrets": secrets, "is_company_token": workspace.token.is_company}
        settings = settings.model_copy(update=bound)
        async with AsyncExitStack() as stack:
            if not settings.database_url:
                stack.enter_context(only_process(settings.data_dir))
            durable = Durable(self.process.workflows, team)
            server = await assemble(stack, settings, self.process, durable)
            try:
                async with in_background(server.tasks):
                    workspace.server = server
                    workspace.attempted.set()
                    await workspace.closing.wait()
            finally:
                workspace.server = None


@asynccontextmanager
async def run_workspaces(
    settings: Settings, policy_path: Path | None, model: ModelClient, name: str
) -> AsyncIterator[Workspaces]:
    """Serve all workspaces inside the context. Raises SetupError if it cannot start."""
    try:
        check_common(settings)
    except SettingsError as error:
        raise SetupError("one_workspace", str(error), "") from None
    async with AsyncExitStack() as stack:
        process = Process.create(settings, policy_path, model, name)
        await process.start(stack, settings)
        cipher = cipher_of(settings)
        database = await Database.open(settings.data_dir, settings.database_url, cipher)
        stack.push_async_callback(database.aclose)
        workspaces, health = Workspaces(settings, process, database), Health()
        console: list[BaseRoute] = []
        if settings.console.public_url:
            sign_in = SlackSignIn(settings, database, cipher, workspaces.administrators)
            workspaces.process = replace(process, sign_in=sign_in)
            console = routes_by_workspace(sign_in, workspaces.console)
        handler = time_calls(workspaces.from_socket, process.metrics.ack)
        sockets = sockets_of(settings, handler, workspaces.backfill)
        health.add("workspaces", workspaces.check)
        health.add("faults", workspaces.faults, "noted")
        pages = [
            *connect_routes(workspaces.find_connecting),
            *install_routes(settings, database, workspaces.wake),
            *console,
        ]
        events = time_calls(workspaces.from_http, process.metrics.ack)
        app = web_app(health, process.metrics, None if sockets else events, pages=pages)
        served = serve_app(app, settings.serve.host, settings.serve.port)
        workspaces.url = await stack.enter_async_context(served)
        work = [
            workspaces.run(),
            *process.tasks(settings.retention),
            collect_when_idle(workspaces.is_idle),
            watch_process(health, process.metrics, database, sockets),
            *([sockets.run()] if sockets else []),
        ]
        async with in_background(work):
            yield workspaces
