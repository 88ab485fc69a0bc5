"""The bot in its own process, with Slack and the model in this one: started, asked, killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from fork_server import Fork
from standins.model import ModelServer
from standins.slack import API_PATH, APP_TOKEN, BOT_TOKEN, LocalSlack
from standins.slack_faults import StreamsRefused
from standins.slack_shown import Shown

from benchmarks.kill_books import Books
from benchmarks.kill_model import CUSTOMER, OFFICE, asker, responder, workspace
from benchmarks.kill_points import Kill
from benchmarks.kill_scenarios import CHANNELS_READ, Scenario
from benchmarks.kill_watch import CALLER, Phase, Watch
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_USER

LATENCY_S = 0.1
CAP_USD = 1.0
"""Budget of a request; each kill costs the maximum of the calls in progress."""
SETTINGS: dict[str, Any] = {
    "limits": {"cost_usd": CAP_USD},
    "slack": {"timeout_s": 5},
    "serve": {"port": 0, "log_format": "text"},
    "reply": {"update_s": 0.3},
    "policy": {"user_daily_usd": None, "daily_usd": None},
}
UNPACED = {**SETTINGS, "slack": {"timeout_s": 5, "paced": False}}
"""Every update of the message is sent, so that each point is reached; Slack's rate for chat.update
would skip most of them."""
OUTSIDE = ("ANTHROPIC_", "SLACK_", "ASSISTANT_", "DATABASE_URL")
SOCKETS = 2
"""Sockets of a process: the default of `slack.sockets`."""
DELIVERED: dict[str, Any] = {"ack_s": 1.0, "retries_s": (0.1, 1.0, 2.0, 4.0)}
"""How Slack delivers events."""
STEP_S = 0.0005
"""Seconds that the process may run between two looks at its database."""
PATIENCE_S = 120.0
LOOK_S = 0.1
PRESS_EVERY_S = 1.0
"""Seconds between clicks: Slack does not repeat one, so people press again if nothing happens."""


class NotReached(Exception):
    """The expected event did not happen."""


class Lives:
    """The process of the bot, or its replicas, over their restarts."""

    def __init__(self, folder: Path, env: Mapping[str, str], replicas: int = 1) -> None:
        """`env` overrides the environment; `{replica}` in it is the number of the process."""
        self.folder, self.replicas = folder, replicas
        self.log = folder / "bot.log"
        self.kills_all = True
        """Whether a kill ends every replica, not only the one whose call it waited for."""
        self._env = env
        self._processes: dict[int, Fork] = {}
        self.started: dict[int, float] = {}
        """Number of each process -> its start time."""

    @property
    def alive(self) -> dict[int, Fork]:
        """Return the running processes by number."""
        return {n: each for n, each in self._processes.items() if each.poll() is None}

    @property
    def is_whole(self) -> bool:
        return len(self.alive) == self.replicas

    def start(self) -> None:
        """Start every process that does not run; returns at once."""
        for replica in range(self.replicas):
            if replica not in self.alive:
                self.started[replica] = time.time()
                with self.log.open("a") as log_file:
                    log_file.write(f"--- {replica} started at {time.time():.3f}\n")
                self._processes[replica] = self.command("serve", replica=replica)

    def command(self, *words: str, replica: int = 0) -> Fork:
        outside = {k: v for k, v in os.environ.items() if not k.startswith(OUTSIDE)}
        env = {name: value.format(replica=replica) for name, value in self._env.items()}
        return Fork("bot", *words, env={**outside, **env}, folder=self.folder, log=self.log)

    def victims(self) -> list[Fork]:
        """Return the processes to kill at a call of the one that is being answered."""
        alive = self.alive
        return list(alive.values()) if self.kills_all else [alive[CALLER.get()]]

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()


@dataclass
class Trap:
    """Kills the process at one point."""

    kill: Kill
    lives: Lives
    books: Books
    is_counting: bool = False
    seen: int = 0
    at: float | None = None
    """Time of the kill, in seconds since 1970."""
    stepping: float | None = None
    """Time from which it ran step by step."""

    def __post_init__(self) -> None:
        self.is_counting = not self.kill.after

    def moment(self, name: str, phase: Phase) -> bool:
        """Handle a moment; return whether the process was killed at it."""
        if phase == "answered" and fnmatchcase(name, self.kill.after):
            self.is_counting = True
        if not (self.is_counting and self.kill.matches(name, phase)):
            return False
        self.seen += 1
        if self.seen != self.kill.nth:
            return False
        victims = self.lives.victims()
        if self.kill.stored:
            threading.Thread(target=self._step_by_step, args=[victims], daemon=True).start()
            return False
        self._strike(victims)
        return True

    def _strike(self, victims: Sequence[Fork]) -> None:
        at = time.time()
        for process in victims:
            process.send_signal(signal.SIGKILL)
        for process in victims:
            process.wait()
        self.at = at

    def _step_by_step(self, victims: Sequence[Fork]) -> None:
        """Look at the database while the process is stopped, so that it runs no further."""
        self.stepping = time.time()
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and all(each.poll() is None for each in victims):
            for process in victims:
                process.send_signal(signal.SIGSTOP)
            if self.books.holds(self.kill.stored):
                self._strike(victims)
                return
            for process in victims:
                process.send_signal(signal.SIGCONT)
            time.sleep(STEP_S)


class Stage:
    """A workspace in Slack with its stored data, and the bot over its restarts."""

    def __init__(self, lives: Lives, slack: LocalSlack, books: Books, team: str = "") -> None:
        """`team` is the workspace if the bot serves several."""
        self.lives, self.slack, self.books, self.team = lives, slack, books, team
        self.watch = Watch(self._moment, team)
        self.trap: Trap | None = None
        self.asked = 0
        self.scenario = CHANNELS_READ
        self.thread = ""
        """Timestamp of the thread of the latest request, or of the request itself."""
        self._known: set[str] = set()
        """Runs before it."""
        self._pressed = 0.0
        self._has_run_schedule = False
        self.stepped_s = 0.0
        """Longest time that the process ran step by step, in which it reads answers late."""

    @property
    def is_alive(self) -> bool:
        return bool(self.lives.alive)

    def ready(self) -> None:
        """Start the bot if it does not run; return when it is connected and idle."""
        lives, sockets = self.lives, self.slack.sockets
        self.watch.is_starting = False
        if not lives.is_whole:
            until(lambda: sockets.count == SOCKETS * len(lives.alive), "the old sockets to close")
            lives.start()
        wanted = SOCKETS * lives.replicas
        until(
            lambda: (self._is_greeted() and sockets.count == wanted) or not lives.is_whole,
            "the bot to connect",
        )
        if not lives.is_whole:
            raise NotReached("the bot ended by itself")
        until(lambda: self.books.idle() and self._quiet(0.3), "the bot to come to rest")

    def ask(self, scenario: Scenario) -> None:
        """Let a person unknown to it mention it, in a thread or not."""
        people, self.scenario = self.slack.people, scenario
        self.asked += 1
        self.watch.log.clear()
        self.watch.calls.clear()
        self.watch.life = 0
        self._known = set(self.books.runs())
        self._pressed, self._has_run_schedule, self.stepped_s = 0.0, False, 0.0
        text, root = f"<@{BOT_USER}> {self.filled(scenario.text)}", None
        if scenario.in_thread:
            look = self.filled("Somebody should look at all support channels.")
            root = people.say(CUSTOMER, OFFICE, look)
        ts = people.say(self.asker, OFFICE, text, root)
        self.thread = root or ts

    @property
    def asker(self) -> str:
        return asker(self.asked)

    def filled(self, text: str) -> str:
        """Put the number of the request, its requester and its schedule into a text."""
        schedule = self.scenario.schedule.replace("{n}", str(self.asked))
        return text.format(n=self.asked, user=self.asker, schedule=schedule)

    def set_trap(self, kill: Kill) -> None:
        if kill.hold:
            self.watch.holds[kill.hold] = threading.Event()
        self.trap = Trap(kill, self.lives, self.books)

    def killed(self) -> float:
        """Wait until the trap has killed the process; return the time. Raises NotReached."""
        trap = self.trap
        assert trap
        what = f"the {trap.kill.nth}. {trap.kill.at} {trap.kill.phase}"
        self._until(lambda: trap.at is not None or not self.is_alive, what)
        until(lambda: trap.at is not None, f"{what}: the bot ended by itself", 1.0)
        assert trap.at
        self.trap = None
        self.stepped_s = max(self.stepped_s, trap.at - (trap.stepping or trap.at))
        for hold in self.watch.holds.values():
            hold.set()
        self.watch.holds.clear()
        return trap.at

    def foreign(self) -> Iterator[str]:
        """Yield places with words of another workspace; there is none here."""
        yield from ()

    def told(self) -> list[Shown]:
        """Return the bot's messages since the request: in the channel, then to the requester."""
        places = (OFFICE, self.slack.people.dm(self.asker))
        shown = [m for place in places for m in self.slack.visible(place)]
        return [m for m in shown if m.user == BOT_USER and m.ts > self.thread]

    def runs(self) -> list[str]:
        """Return the runs since the request, by time."""
        return [run for run in self.books.runs() if run not in self._known]

    @property
    def is_done(self) -> bool:
        """Return whether the latest request is answered."""
        _, state = self.books.latest()
        return state == "done"

    @property
    def is_shown_at_work(self) -> bool:
        return self.slack.state.sessions.get((OFFICE, self.thread)) == "processing"

    def answered(self) -> float:
        """Wait for all expected results; return the time. Raises NotReached."""

        def finished() -> bool:
            messages, scenario = self.told(), self.scenario
            return len(messages) >= len(scenario.messages) and self.is_done and not self._waiting()

        self._until(lambda: finished() or not self.is_alive, "all messages")
        at = time.time()
        self._until(lambda: self.books.idle() or not self.is_alive, "the work to end")
        if not self.is_alive:
            raise NotReached("the bot ended by itself")
        return at

    def said(self) -> str:
        return self.lives.log.read_text("utf-8", "replace")

    def _until(self, condition: Callable[[], object], what: str) -> None:
        """Wait, while people act."""

        def look() -> object:
            self._act()
            return condition()

        until(look, what)

    def _act(self) -> None:
        """Press the button of each card, and run the schedule when it is set and announced."""
        if self.slack.sockets.count and time.monotonic() - self._pressed > PRESS_EVERY_S:
            for message in self._waiting():
                self._pressed = time.monotonic()
                with suppress(KeyError):  # the bot has just removed the buttons
                    self.slack.people.click(self.asker, OFFICE, message.ts, self.scenario.press)
        if not self.scenario.schedule or self._has_run_schedule:
            return
        name = self.filled("{schedule}")
        is_set = self.books.holds(f"select 1 from schedules where id = '{name}'")
        if is_set and not self._waiting() and self.is_done:
            self._has_run_schedule = True
            of_team = ("--team", self.team) if self.team else ()
            ended = self.lives.command(*of_team, "schedules", "run", name).wait()
            if ended:
                raise NotReached(f"`schedules run {name}` ended with {ended}")

    def _waiting(self) -> list[Shown]:
        """Return the undecided cards."""
        press = self.scenario.press
        return [m for m in self.told() if press and f"'{press}'" in str(m.blocks)]

    def _moment(self, name: str, phase: Phase) -> bool:
        return bool(self.trap and self.trap.at is None and self.trap.moment(name, phase))

    def _is_greeted(self) -> bool:
        """Return whether each process has made its first call in this workspace."""
        greeted = self.watch.greeted
        return all(greeted.get(n, 0.0) > began for n, began in self.lives.started.items())

    def _quiet(self, seconds: float) -> bool:
        log = self.watch.log
        return not log or time.time() - log[-1][0] > seconds


@contextmanager
def staged(
    folder: Path, url: str | None, streams_refused: StreamsRefused | None = None
) -> Iterator[Stage]:
    """Yield one workspace, served by one process.

    `folder` holds the bot's data and log; `url` is its Postgres database;
    `streams_refused` is how Slack refuses streams.
    """
    slack = LocalSlack(workspace(), **DELIVERED, streams_refused=streams_refused)
    env: dict[str, str] = {"SLACK_BOT_TOKEN": BOT_TOKEN}
    lives, books = Lives(folder, env), Books(folder / "data", url)
    stage = Stage(lives, slack, books)
    server = ModelServer(responder, latency_s=LATENCY_S)
    with (
        closing(books),
        LocalServer(stage.watch.slack(slack.app), "slack") as at,
        LocalServer(stage.watch.model(server.app), "model") as responders,
    ):
        env |= environment(folder, url, at.url + API_PATH, responders.url)
        settings = SETTINGS if streams_refused is None else UNPACED
        (folder / "assistant.yaml").write_text(yaml.safe_dump(settings))
        try:
            yield stage
        finally:
            lives.end()


def environment(folder: Path, url: str | None, slack: str, model: str) -> dict[str, str]:
    """Return the environment of a process, without the secrets of its kind of installation."""
    return {
        "SLACK_APP_TOKEN": APP_TOKEN,
        "SLACK_API_URL": slack,
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "kills",
        "ASSISTANT_DATA_DIR": str(folder / "data"),
        "ASSISTANT_CONFIG": str(folder / "assistant.yaml"),
        **({"DATABASE_URL": url} if url else {}),
    }


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    """Return when the condition holds. Raises NotReached if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise NotReached(f"waited {seconds:.0f} s for {what}")
        time.sleep(LOOK_S)
