"""Bots as processes, which tests replicate and kill; Slack and the model run in the test."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from engine_kit import Json, is_child, until, workspace
from fork_server import Fork
from serve_kit import CENTURY_DAYS, Room, free_port
from standins.model import ModelServer, Responder
from standins.model_faults import Faults
from standins.slack import API_PATH, APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, LocalSlack
from standins.slack_shown import Shown
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from timing import Patience

from bot.local.server import LocalServer
from bot.local.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
EVENTS = "/slack/events"
OUTSIDE = ("ANTHROPIC_", "SLACK_", "ASSISTANT_", "DATABASE_URL")


@dataclass
class Balancer:
    """Passes what Slack sends on to `targets`, to each as often as `times` says."""

    targets: list[str] = field(default_factory=list)
    times: int = 1
    acks: list[int] = field(default_factory=list)

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route(EVENTS, self._pass_on, methods=["POST"])])

    async def _pass_on(self, request: Request) -> Response:
        body = await request.body()
        headers = {k: v for k, v in request.headers.items() if k not in ("host", "content-length")}
        async with aiohttp.ClientSession() as session:

            async def post(target: str) -> int:
                try:
                    async with session.post(
                        target + EVENTS, data=body, headers=headers
                    ) as response:
                        return response.status
                except aiohttp.ClientError:
                    return 503

            each = self.targets * self.times
            statuses = await asyncio.gather(*(post(target) for target in each))
        self.acks += statuses
        return Response(status_code=200 if 200 in statuses else 503)


@dataclass
class Bot:
    """One process of `assistant serve`."""

    url: str
    process: Fork
    log: Path

    def unready(self) -> str:
        """Why it is not ready yet; nothing when it is."""
        try:
            urllib.request.urlopen(f"{self.url}/readyz", timeout=2).close()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError as error:
            return str(error)
        return ""

    def at_work(self) -> int:
        """How many requests it works on, by its metrics."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=2) as response:
            lines = response.read().decode().splitlines()
        (found,) = [line for line in lines if line.startswith("assistant_requests_at_work ")]
        return int(float(found.split()[1]))

    def kill(self) -> None:
        """Kill it without notice, as a power failure does."""
        self.process.kill()

    def log_records(self) -> list[Json]:
        lines = self.log.read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def tracebacks(self) -> list[Json]:
        return [line for line in self.log_records() if "Traceback" in line.get("error", "")]


@dataclass
class Fleet(Room):
    """Bots over one workspace, one model and one database."""

    folder: Path
    slack: LocalSlack
    model: ModelServer
    balancer: Balancer
    env: dict[str, str]
    bots: list[Bot] = field(default_factory=list)

    def start(self) -> Bot:
        """Start one more process, and return at once."""
        port = free_port()
        log = self.folder / f"bot-{len(self.bots)}.log"
        words = ("serve", "--port", str(port))
        process = Fork("bot", *words, env=self.env, folder=self.folder, log=log)
        self.bots.append(Bot(f"http://127.0.0.1:{port}", process, log))
        return self.bots[-1]

    def run(self, *words: str) -> None:
        """Run a command, as somebody does in a terminal while the bots serve."""
        log = self.folder / "command.log"
        process = Fork("bot", *words, env=self.env, folder=self.folder, log=log)
        assert process.wait() == 0, process.read_output()

    async def start_bots(self, count: int = 1) -> list[Bot]:
        """Start so many more processes, and wait until they are ready."""
        bots = [self.start() for _ in range(count)]
        for bot in bots:
            patience = Patience(60)
            while why := await asyncio.to_thread(bot.unready):
                assert bot.process.poll() is None, bot.log.read_text("utf-8")
                assert not patience.over, why + bot.log.read_text("utf-8")
                await asyncio.sleep(0.05)
        self.balancer.targets += [bot.url for bot in bots]
        return bots

    async def answer(self, thread: str, seconds: float = 30.0) -> Shown:
        """The one answer; a moment later it is still the only one."""
        try:
            await until(lambda: self.finished_messages(thread), seconds)
        except AssertionError:
            logs = [b.log.read_text("utf-8")[-3_000:] for b in self.bots]
            raise AssertionError(
                "\n".join(["no answer", str(self.replies(thread)), *logs])
            ) from None
        await asyncio.sleep(0.5)
        (only,) = self.replies(thread)
        return only

    def count_repeated_calls(self) -> int:
        """Calls of the model that were made more than once."""
        counted = Counter(json.dumps(b, sort_keys=True) for b in self.model.recorded)
        return sum(n - 1 for n in counted.values())

    def calls(self, *, of_children: bool) -> list[Json]:
        return [b for b in self.model.recorded if is_child(b) == of_children]


async def at_work_first(bots: Fleet) -> list[Bot]:
    """Return the replica that works on the one request, and the other one.

    Metrics lag behind, so wait until one of them shows the request.
    """
    patience = Patience(20)
    while True:
        counted = [(await asyncio.to_thread(bot.at_work), bot) for bot in bots.bots]
        numbers = sorted(number for number, _ in counted)
        if numbers == [0, 1]:
            break
        assert not patience.over, numbers
        await asyncio.sleep(0.05)
    return [bot for _, bot in sorted(counted, key=lambda pair: -pair[0])]


def clean_environment(**variables: str | None) -> dict[str, str]:
    """The environment of a bot, without the settings of this process."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith(OUTSIDE)}
    ours = {"PYTHONPATH": str(ROOT), "ANTHROPIC_API_KEY": "k", **variables}
    return outside | {name: value for name, value in ours.items() if value}


@contextmanager
def fleet(
    folder: Path,
    model: Responder,
    *,
    url: str | None = None,
    mode: str = "http",
    space: Workspace | None = None,
    latency_s: float = 0.0,
    faults: Faults | None = None,
    **sections: dict[str, Any],
) -> Iterator[Fleet]:
    """No process yet: `start_bots` starts them. `sections` override the short waits here."""
    defaults: dict[str, dict[str, Any]] = {
        "slack": {"mode": mode, "timeout_s": 5, "backfill_hours": 1},
        "reply": {"since_days": CENTURY_DAYS, "update_s": 0.2},
        "limits": {"max_subagents": 100, "cost_usd": 50.0},
        "policy": {"user_daily_usd": None, "daily_usd": None},
    }
    merged = {
        name: {**defaults.get(name, {}), **sections.get(name, {})}
        for name in {**defaults, **sections}
    }
    (folder / "assistant.yaml").write_text(yaml.safe_dump(merged), "utf-8")
    balancer = Balancer()
    model_server = ModelServer(model, latency_s=latency_s, faults=faults, record=True)
    with ExitStack() as stack:
        front = stack.enter_context(LocalServer(balancer.app, "balancer"))
        slack = LocalSlack(
            space or workspace(6),
            retries_s=(0.0, 0.5, 2.0, 4.0, 8.0),
            request_url=front.url + EVENTS if mode == "http" else None,
        )
        at = stack.enter_context(LocalServer(slack.app, "slack"))
        api = stack.enter_context(LocalServer(model_server.app, "model"))
        env = clean_environment(
            SLACK_BOT_TOKEN=BOT_TOKEN,
            SLACK_APP_TOKEN=APP_TOKEN,
            SLACK_SIGNING_SECRET=SIGNING_SECRET,
            SLACK_API_URL=at.url + API_PATH,
            ANTHROPIC_BASE_URL=api.url,
            ASSISTANT_DATA_DIR=str(folder / "data"),
            DATABASE_URL=url,
        )
        bots = Fleet(folder, slack, model_server, balancer, env)
        try:
            yield bots
        finally:
            for bot in bots.bots:
                bot.kill()
