"""`assistant serve` as a process: what SIGTERM ends, and what goes on after the next start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_kit import led_by, store_at, until, workspace
from serve_kit import ASKER, echo, free_port, mentioned
from standins.model import ModelServer
from standins.model_faults import Faults
from standins.slack import API_PATH, APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, LocalSlack
from standins.slack_shown import Shown
from timing import patient

from bot.local.server import LocalServer
from bot.local.slack.state import BOT_USER
from subagents.overlap import audit

pytestmark = pytest.mark.system

MODES = pytest.mark.parametrize("mode", ["socket", "http"])
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Outside:
    """What a serving process talks to, in this process."""

    slack: LocalSlack
    model: ModelServer
    env: dict[str, str]
    folder: Path
    port: int

    def settle(self, mode: str, drain_s: float) -> None:
        """Write the settings that the next process begins with."""
        serve = f"{{drain_s: {drain_s}, port: {self.port}, log_format: text}}"
        self.folder.joinpath("assistant.yaml").write_text(
            f"slack: {{mode: {mode}}}\nserve: {serve}\n"
        )

    def ask(self, text: str) -> str:
        return self.slack.people.say(ASKER, "C00000001", mentioned(text))

    def replies(self, thread: str) -> list[Shown]:
        return [m for m in self.slack.visible("C00000001", thread) if m.user == BOT_USER]

    def finished(self, thread: str) -> list[Shown]:
        return [m for m in self.replies(thread) if m.metadata and not m.streaming]

    @asynccontextmanager
    async def served(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process that is connected; killed in the end where it still runs."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot", "serve"),
            cwd=self.folder,
            env=self.env,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr
        log: list[str] = []
        reading = asyncio.create_task(_read(process.stderr, log))
        try:
            await until(lambda: "serving;" in "".join(log) or process.returncode, 30)
            assert process.returncode is None, "".join(log)
            if not self.slack.requests:
                await until(lambda: self.slack.sockets.count, 10)
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading


async def _read(stream: asyncio.StreamReader, into: list[str]) -> None:
    while part := await stream.read(65_536):
        into.append(part.decode("utf-8", "replace"))


async def ended(process: asyncio.subprocess.Process) -> None:
    """Ask it to end, and see that it does."""
    process.send_signal(signal.SIGTERM)
    async with patient(20):
        assert await process.wait() == 0


@contextmanager
def outside(
    folder: Path, mode: str, drain_s: float, latency_s: float = 0.0, faults: Faults | None = None
) -> Iterator[Outside]:
    port = free_port()
    heard_at = f"http://127.0.0.1:{port}/slack/events" if mode == "http" else None
    slack = LocalSlack(workspace(2), retries_s=(0.0, 0.3, 1.0), request_url=heard_at)
    model = ModelServer(led_by(echo), latency_s=latency_s, faults=faults, record=True)
    with LocalServer(slack.app, "slack") as at, LocalServer(model.app, "model") as minds:
        env = {
            "PATH": os.environ["PATH"],
            "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"],
            "PYTHONPATH": str(ROOT),
            "ASSISTANT_DATA_DIR": str(folder / "data"),
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
            "SLACK_SIGNING_SECRET": SIGNING_SECRET,
            "SLACK_API_URL": at.url + API_PATH,
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": minds.url,
        }
        there = Outside(slack, model, env, folder, port)
        there.settle(mode, drain_s)
        yield there
        slack.close()


@MODES
async def test_sigterm_lets_a_request_at_work_finish(tmp_path: Path, mode: str) -> None:
    with outside(tmp_path, mode, 10.0, 1.0) as there:
        async with there.served() as process:
            asked = there.ask("Hello?")
            await until(lambda: there.model.recorded)
            await ended(process)
        (shown,) = there.finished(asked)
        assert "You asked: Hello?" in shown.text
        assert there.slack.state.sessions["C00000001", asked].status == "active"


async def test_what_takes_longer_than_the_drain_goes_on_after_the_next_start(
    tmp_path: Path,
) -> None:
    with outside(tmp_path, "socket", 0.5, faults=Faults(["slow"])) as there:
        async with there.served() as process:
            asked = there.ask("Hello?")
            await until(lambda: there.model.recorded)
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.1)
            late = there.ask("Are you going?")
            async with patient():
                assert await process.wait() == 0
        assert there.finished(asked) == []
        away = there.ask("Are you there?")
        there.settle("socket", 10.0)
        async with there.served() as process:
            for thread in (asked, late, away):
                await until(lambda t=thread: there.finished(t), 20)  # type: ignore[misc]
            await ended(process)
        for thread in (asked, late, away):
            assert len(there.replies(thread)) == 1
        assert len(there.model.recorded) <= 4  # at most the call that was under way is made again
    async with store_at(tmp_path / "data") as store:
        runs = await store.runs()
        assert [run.status for run in runs] == ["complete"] * 3
        for run in runs:
            assert audit(await store.trajectory(run.id)).leaks == ()
