"""`assistant serve` as a process: the page and samples of `--local`, SIGTERM, restart."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_kit import scripted_parent, store_at, until
from fleet_kit import OUTSIDE, Bot, fleet
from fork_server import Fork
from serve_kit import echo, free_port
from standins.model_faults import Faults
from timing import WAIT_S, Patience

from bot.local.offline.recordings import RECORDED_MARK
from bot.local.sample_workspace import read_data
from bot.local.samples import SAMPLE_AS_OF, SAMPLE_OWNER
from subagents.overlap import audit

pytestmark = pytest.mark.system

REFUNDS = "Which market had the largest refunds in March, and how much?"


class Trial:
    """A process of `serve --local`, used through its page."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=WAIT_S) as response:
            return json.loads(response.read())

    def post(self, act: str, **fields: str) -> Any:
        body = json.dumps({"user": SAMPLE_OWNER, **fields}).encode()
        head = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}page/{act}", body, head)
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return json.loads(response.read())

    def read_live_page(self, channel: str, ts: str) -> Any:
        query = f"user={SAMPLE_OWNER}&channel={channel}&thread={ts}"
        with urllib.request.urlopen(f"{self.url}page/live?{query}", timeout=WAIT_S) as response:
            return json.loads(response.readline().removeprefix(b"data: "))

    def ask(self, text: str) -> str:
        """Ask in a direct message; return the timestamp of the thread."""
        return str(self.post("say", channel=self.post("dm")["channel"], text=text)["ts"])

    def answer(self, ts: str) -> str:
        """Return the text and the blocks of the finished answer, as JSON."""
        direct, patience = self.post("dm")["channel"], Patience(120)
        while True:
            seen = self.read_live_page(direct, ts)
            replies = [m for m in seen["thread"] if m["user"] != SAMPLE_OWNER and m["text"]]
            if replies and not seen["working"]:
                return json.dumps(replies, ensure_ascii=False)
            assert not patience.over, replies
            time.sleep(0.2)


def environment(folder: Path) -> dict[str, str]:
    (folder / "assistant.yaml").write_text(f"data_dir: {folder / 'data'}\n", "utf-8")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(OUTSIDE)}
    return {**inherited, "HOME": str(folder), "NO_COLOR": "1"}


def start(folder: Path, *words: str) -> Fork:
    log = folder / f"output-{time.monotonic_ns()}"
    return Fork("bot", *words, env=environment(folder), folder=folder, log=log)


def command(folder: Path, *words: str) -> tuple[int | None, str]:
    """Return the exit code and the output of a command."""
    process = start(folder, *words)
    return process.wait(), process.read_output()


OPENED = re.compile(r"Open (http://127\.0\.0\.1:\d+/) in a browser .*\n")


@contextmanager
def trial(folder: Path, port: int) -> Iterator[Trial]:
    process = start(folder, "serve", "--local", "--port", "0", "--page-port", str(port))
    try:
        found = OPENED.match(process.wait_for_output())
        assert found, process.read_output()
        yield Trial(found[1])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


@pytest.mark.timeout(600)
def test_local_page_shares_its_sample_and_runs_with_the_command_line(tmp_path: Path) -> None:
    port = free_port()
    with trial(tmp_path, port) as page:
        assert page.url == f"http://127.0.0.1:{port}/"
        since = page.get("page/workspace")["now"] - SAMPLE_AS_OF.timestamp()
        assert 0 <= since < 600
        answer = page.answer(page.ask(REFUNDS))
        assert "505.00 EUR" in answer
        _, by_command = command(
            *(tmp_path, "ask", REFUNDS, "--sample", "--model", "offline", "--json")
        )
        assert "505" in by_command
        (run,) = set(re.findall(r'"value": "([0-9a-f]{12})"', answer))
        assert "0 leaks" in command(tmp_path, "audit", run)[1]
        assert REFUNDS in command(tmp_path, "show", run)[1]
        code, output = command(
            tmp_path, "serve", "--local", "--port", "0", "--page-port", str(port)
        )
        assert (code, f"The page cannot use port {port}" in output) == (2, True)
        code, output = command(tmp_path, "serve", "--local", "--port", "0", "--page-port", "0")
        assert (code, "Another `assistant serve`" in output) == (2, True)
    with trial(tmp_path, 0):  # starts empty: earlier runs are gone
        assert "There is no run" in command(tmp_path, "show", run)[1]


@pytest.mark.timeout(600)
def test_recorded_answers_are_replayed_only_for_recorded_questions(tmp_path: Path) -> None:
    openings = {each["opening"] for each in read_data("recordings")}
    with trial(tmp_path, 0) as page:
        threads = {text: page.ask(text) for text in page.get("page/workspace")["prompts"]}
        assert len(threads) > 12
        for text, ts in threads.items():
            assert (RECORDED_MARK in page.answer(ts)) == (text in openings), text


# ---- SIGTERM and restart


async def terminate(bot: Bot) -> int | None:
    """Send SIGTERM; return the exit code."""
    bot.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(bot.process.wait)


@pytest.mark.parametrize("mode", ["socket", "http"])
async def test_sigterm_lets_a_running_request_finish(tmp_path: Path, mode: str) -> None:
    with fleet(tmp_path, scripted_parent(echo), mode=mode, latency_s=1.0) as bots:
        (bot,) = await bots.start_bots()
        thread = bots.ask("Hello?")
        await until(lambda: bots.model.recorded)
        assert await terminate(bot) == 0
        (shown,) = bots.finished_messages(thread)
        assert "You asked: Hello?" in shown.text
        assert bots.slack.state.sessions[bots.channel, thread] == "active"


async def test_request_longer_than_the_drain_time_resumes_after_restart(
    tmp_path: Path,
) -> None:
    slow, short = Faults(["slow"]), {"drain_s": 0.5}
    with fleet(tmp_path, scripted_parent(echo), mode="socket", faults=slow, serve=short) as bots:
        (bot,) = await bots.start_bots()
        thread = bots.ask("Hello?")
        await until(lambda: bots.model.recorded)
        ending = asyncio.create_task(terminate(bot))
        await asyncio.sleep(0.1)
        late = bots.ask("Are you going?")
        assert await ending == 0
        assert bots.finished_messages(thread) == []
        away = bots.ask("Are you there?")
        (bot,) = await bots.start_bots()
        for each in (thread, late, away):
            await bots.answer(each)
        assert await terminate(bot) == 0
        assert len(bots.model.recorded) <= 4  # at most the call under way is repeated
    async with store_at(tmp_path / "data") as store:
        runs = await store.runs()
        assert [run.status for run in runs] == ["complete"] * 3
        for run in runs:
            assert audit(await store.trajectory(run.id)).leaks == ()
