"""The served bot in its own process, with stand-ins for Slack and the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from standins.model import ModelServer
from standins.slack import API_PATH, APP_TOKEN, BOT_TOKEN, LocalSlack

from benchmarks.processes import cpu_s, memory_mb
from bot.local.model.answer import Answer
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, Message, Team, User, Workspace

SERVE = [sys.executable, "-m", "bot", "serve", "--port", "0"]
PEOPLE, PLACES = 20, 10
ANSWER = "The release of last week is out, and two of its three known problems are mended. " * 4
LOOK_EVERY_S = 0.002
SOCKETS = 2
"""Sockets of each replica (slack.sockets)."""
START_S = 60.0


def plain(request: dict[str, Any]) -> Answer:
    """Return the answer of a parent without subagents: four sentences at once."""
    return Answer([{"type": "text", "text": ANSWER}])


def workspace() -> Workspace:
    people = tuple(User(f"U0BENCH{k}", f"user{k}", f"User {k}") for k in range(PEOPLE))
    channels = tuple(Channel(f"C0BENCH{k}", f"bench-{k}") for k in range(PLACES))
    return Workspace(Team("T0BENCH", "Bench", "bench"), people, channels)


@dataclass
class BotProcess:
    """A running bot, and its state seen from outside."""

    slack: LocalSlack
    model: ModelServer
    process: subprocess.Popen[bytes]
    connected_s: float
    """Seconds from the start of the process to the hello of its first socket."""
    log: Path
    asked: int = 0
    peers: tuple[subprocess.Popen[bytes], ...] = ()
    """Further replicas."""

    def ask(self) -> tuple[str, str]:
        """Mention it in some channel; return channel and thread of the answer."""
        self.asked += 1
        user, channel = f"U0BENCH{self.asked % PEOPLE}", f"C0BENCH{self.asked % PLACES}"
        text = f"<@{BOT_USER}> how far is the release? ({self.asked})"
        return channel, self.slack.people.say(user, channel, text)

    def written(self) -> list[Message]:
        """Return the messages that it has written below mentions."""
        with self.slack.state.lock:
            timelines = self.slack.state.timelines.values()
            return [m for t in timelines for m in t.all() if m.user == BOT_USER and m.is_reply]

    def answered(self) -> Counter[str]:
        """Return thread -> number of finished messages of the bot."""
        return Counter(m.thread_ts for m in self.written() if m.metadata and _is_over(m))

    def wait_for_answers(self, number: int, seconds: float, every_s: float = 0.05) -> bool:
        """Wait; return whether so many threads have an answer in time."""
        deadline = time.perf_counter() + seconds
        while len(self.answered()) < number:
            if time.perf_counter() > deadline or self.process.poll() is not None:
                return False
            time.sleep(every_s)
        return True

    def cpu_s(self) -> float:
        """Return user and system time of all threads so far, of all replicas."""
        return sum(cpu_s(each.pid) for each in (self.process, *self.peers))

    def rss_mb(self) -> float:
        return memory_mb("VmRSS", self.process.pid)

    def errors(self) -> list[str]:
        """Return the lines of its log with an error."""
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return [line for line in lines if '"level": "error"' in line.lower() or "Traceback" in line]


def _is_over(message: Message) -> bool:
    return message.streaming != "in_progress"


@contextmanager
def bot_process(
    limits: Mapping[str, int] | None = None, database: str = "", replicas: int = 1
) -> Iterator[BotProcess]:
    """Run a connected bot; without `limits` (calls a minute) Slack has no rate limits.

    `database` is a Postgres database; `replicas` may be more than one only with it.
    """
    slack = LocalSlack(workspace(), limits=limits)
    model = ModelServer(plain)
    with (
        TemporaryDirectory() as folder,
        LocalServer(slack.app, "slack") as at,
        LocalServer(model.app, "model") as responders,
    ):
        log = Path(folder) / "log"
        environment = _environment(
            Path(folder), at.url + API_PATH, responders.url, paced=bool(limits)
        )
        environment["DATABASE_URL"] = database
        peers: list[subprocess.Popen[bytes]] = []
        with log.open("wb") as sink:
            began = time.perf_counter()
            process = subprocess.Popen(SERVE, env=environment, cwd=folder, stderr=sink, stdout=sink)
            try:
                while not slack.sockets.count:
                    if process.poll() is not None or time.perf_counter() - began > START_S:
                        raise RuntimeError(f"The bot did not start:\n{log.read_text()}")
                    time.sleep(LOOK_EVERY_S)
                connected_s = time.perf_counter() - began
                for number in range(1, replicas):
                    own = {**environment, "ASSISTANT_DATA_DIR": f"{folder}/data{number}"}
                    peers.append(
                        subprocess.Popen(SERVE, env=own, cwd=folder, stderr=sink, stdout=sink)
                    )
                while slack.sockets.count <= SOCKETS * (replicas - 1):  # each has at least one
                    if time.perf_counter() - began > START_S * replicas:
                        raise RuntimeError(f"A replica did not start:\n{log.read_text()}")
                    time.sleep(LOOK_EVERY_S)
                yield BotProcess(slack, model, process, connected_s, log, peers=tuple(peers))
            finally:
                for each in (process, *peers):
                    each.kill()
                    each.wait()


def _environment(folder: Path, slack: str, model: str, *, paced: bool) -> dict[str, str]:
    """Return all settings of a bot, which a real one reads from `.env` and `assistant.yaml`."""
    config = folder / "assistant.yaml"
    budgets = {"user_daily_usd": 1e6, "daily_usd": 1e6}
    config.write_text(json.dumps({"slack": {"paced": paced}, "policy": budgets}))
    return {
        **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
        "ASSISTANT_CONFIG": str(config),
        "ASSISTANT_DATA_DIR": str(folder / "data"),
        "ANTHROPIC_API_KEY": "bench",
        "ANTHROPIC_BASE_URL": model,
        "SLACK_API_URL": slack,
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_APP_TOKEN": APP_TOKEN,
        "DATABASE_URL": "",
    }
