"""The kill matrix of two workspaces, served by one process or by replicas."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml
from slack_sdk.oauth.installation_store import Installation
from standins.connections import read_ahead
from standins.model import ModelServer
from standins.slack import API_PATH, SIGNING_SECRET, LocalSlack
from standins.slack_teams import SeveralSlacks, token_of
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.kill_books import Books
from benchmarks.kill_model import (
    CUSTOMER,
    TWINS,
    WORDS,
    is_twin,
    responder,
    twin,
    twin_workspace,
    workspace,
)
from benchmarks.kill_points import STREAMED, Point, points
from benchmarks.kill_stage import DELIVERED, LATENCY_S, SETTINGS, Lives, Stage, environment
from benchmarks.kill_watch import CALLER
from bot.local.server import LocalServer
from bot.local.slack.server import OPEN
from bot.local.slack.state import APP_ID, BOT_ID, BOT_USER, Identity
from bot.local.workspace import Team
from bot.slack.installations import Installations
from bot.storage.database import Database

ACME, BETA = "T0ACME", "T0BETA"
REPLICA = "/{replica}"
"""Path under which each process reaches Slack and the model, so that its calls are distinct."""
OF_SEVERAL: dict[str, Any] = {
    **SETTINGS,
    "slack": {**SETTINGS["slack"], "client_id": "1.2"},
    "serve": {**SETTINGS["serve"], "public_url": "https://bot.example.com"},
}
SHORT = {
    "sqlite": (
        "stored, ack lost",
        "policy answered",
        "waves: all but one of the second wave ended",
        "waves: second wave queued",
        "final write, answer withheld",
        "run ended, request not",
        "choice: choice stored",
        "preferences: both kept",
    ),
    "postgres": (
        "stored, ack lost",
        "waves: second wave queued",
        "request done, workflow not",
    ),
}
"""Points of the ordinary matrix at which one process that serves both is killed."""
OF_REPLICAS = (
    "waves: call between them sent",
    "waves: second wave's submit sent",
    "choice: second answer, final write withheld",
)
"""Points at which one or both of two replicas are killed."""


def named(names: Collection[str]) -> list[Point]:
    return [point for point in points(STREAMED) if point.name in names]


class TeamStage(Stage):
    """One of the two workspaces."""

    router: SeveralSlacks

    def filled(self, text: str) -> str:
        result = super().filled(text)
        return twin(result) if self.team == BETA else result

    def foreign(self) -> Iterator[str]:
        """Yield places with words of the other workspace."""
        other = WORDS if self.team == BETA else [TWINS[word] for word in WORDS]
        written = str([dict(effect.args) for effect in self.slack.effects])
        for where, text in (("Slack", written), ("the database", self.books.texts())):
            if found := [word for word in other if re.search(rf"\b{word}\b", text)]:
                yield f"{where} of {self.team} holds words of the other workspace: {found}"
        if lost := {method for team, method in self.router.calls if not team} - {OPEN}:
            yield f"calls with a token of no workspace: {lost}"


@contextmanager
def two_staged(folder: Path, url: str | None, replicas: int = 1) -> Iterator[list[Stage]]:
    """Yield both workspaces, installed and served by so many processes in Socket Mode.

    A trap counts only the moments of the first one.
    """
    first = LocalSlack(workspace(), **DELIVERED)
    team = Team(BETA, "Beta", "beta")
    second = LocalSlack(twin_workspace(team), **DELIVERED, sockets=first.sockets)
    slacks = {ACME: first, BETA: second}
    for team_id, slack in slacks.items():
        slack.tokens.clear()
        slack.tokens[token_of(team_id)] = Identity(BOT_USER, BOT_ID)
    env: dict[str, str] = {
        "SLACK_CLIENT_SECRET": "client-secret",
        "SLACK_SIGNING_SECRET": SIGNING_SECRET,
    }
    lives = Lives(folder, env, replicas)
    stages = [
        TeamStage(lives, slack, Books(folder / "data", url, team_id), team_id)
        for team_id, slack in slacks.items()
    ]
    watched = {stage.team: stage.watch.slack(slacks[stage.team].app) for stage in stages}
    router = SeveralSlacks(slacks, apps=watched)
    router.sockets = stages[1].watch.slack(watched[ACME])
    for stage in stages:
        stage.router = router
    server = ModelServer(responder, latency_s=LATENCY_S)
    models = [stage.watch.model(server.app) for stage in stages]
    asyncio.run(_install(folder / "data", url))
    with (
        closing(stages[0].books),
        closing(stages[1].books),
        LocalServer(_of_replica(router), "slack") as at,
        LocalServer(_of_replica(_of_team(models)), "model") as responders,
    ):
        env |= environment(folder, url, at.url + REPLICA + API_PATH, responders.url + REPLICA)
        (folder / "assistant.yaml").write_text(yaml.safe_dump(OF_SEVERAL))
        try:
            yield list(stages)
        finally:
            lives.end()


def _of_replica(app: ASGIApp) -> ASGIApp:
    """Record which process calls, by the first part of the path."""

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        number = str(scope["path"]).split("/")[1]
        CALLER.set(int(number))
        await app({**scope, "root_path": f"/{number}"}, receive, send)

    return noting


def _of_team(models: Sequence[ASGIApp]) -> ASGIApp:
    """Pass a model call on to the watch of its workspace."""

    async def passing(scope: Scope, receive: Receive, send: Send) -> None:
        body, replay = await read_ahead(receive)
        opening = str(json.loads(body)["messages"][0])
        await models[is_twin(opening)](scope, replay, send)

    return passing


async def _install(data_dir: Path, url: str | None) -> None:
    """Store both installations, as the page of the bot does."""
    database = await Database.open(data_dir, url)
    for team in (ACME, BETA):
        installation = Installation(
            app_id=APP_ID,
            team_id=team,
            user_id=CUSTOMER,
            bot_token=token_of(team),
            bot_id=BOT_ID,
            bot_user_id=BOT_USER,
        )
        await Installations(database).async_save(installation)
    await database.aclose()
