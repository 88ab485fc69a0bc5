"""`assistant serve` as a process: the page and samples of `--local`, SIGTERM, restart."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Shell
from engine_kit import scripted_parent, store_at, until
from fleet_kit import Bot, fleet
from fork_server import forked_command
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

    def post(self, act: str, **fields: str) -> Any:
        body = json.dumps({"user": SAMPLE_OWNER, **fields}).encode()
        head = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}page/{act}", body, head)
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return json.loads(response.read())

    def workspace(self) -> Any:
        with urllib.request.urlopen(f"{self.url}page/workspace", timeout=WAIT_S) as response:
            return json.loads(response.read())

    def ask(self, text: str) -> str:
        """Ask in a direct message; return the timestamp of the thread."""
        return str(self.post("say", channel=self.post("dm")["channel"], text=text)["ts"])

    def answer(self, ts: str) -> str:
        """Return the text and the blocks of the finished answer, as JSON."""
        direct, patience = self.post("dm")["channel"], Patience(120)
        live = f"{self.url}page/live?user={SAMPLE_OWNER}&channel={direct}&thread={ts}"
        while True:
            with urllib.request.urlopen(live, timeout=WAIT_S) as response:
                seen = json.loads(response.readline().removeprefix(b"data: "))
            replies = [m for m in seen["thread"] if m["user"] != SAMPLE_OWNER and m["text"]]
            if replies and not seen["working"]:
                return json.dumps(replies, ensure_ascii=False)
            assert not patience.over, replies
            time.sleep(0.2)


OPENED = re.compile(r"Open (http://127\.0\.0\.1:\d+/) in a browser .*\n")


@contextmanager
def trial(port: int = 0) -> Iterator[Trial]:
    Path("command.log").unlink(missing_ok=True)  # of an earlier one
    with forked_command("serve", "--local", "--port", "0", "--page-port", str(port)) as process:
        found = OPENED.match(process.wait_for_output())
        assert found, process.read_output()
        yield Trial(found[1])


@pytest.mark.timeout(600)
def test_local_page_shares_its_sample_and_runs_with_the_command_line(shell: Shell) -> None:
    port = free_port()
    with trial(port) as page:
        assert page.url == f"http://127.0.0.1:{port}/"
        assert 0 <= page.workspace()["now"] - SAMPLE_AS_OF.timestamp() < 600
        answer = page.answer(page.ask(REFUNDS))
        assert "505.00 EUR" in answer
        by_command = shell("ask", REFUNDS, "--sample", "--model", "offline", "--json")
        assert "505" in by_command.out
        (run,) = set(re.findall(r'"value": "([0-9a-f]{12})"', answer))
        assert "0 leaks" in shell("audit", run).out
        assert REFUNDS in shell("show", run).out
        for page_port, reason in (
            (port, f"The page cannot use port {port}"),
            (0, "Another `assistant serve`"),
        ):
            done = shell("serve", "--local", "--port", "0", "--page-port", page_port)
            assert (done.code, reason in done.err) == (2, True)
    with trial():  # starts empty: earlier runs are gone
        assert "There is no run" in shell("show", run).err


@pytest.mark.timeout(600)
def test_recorded_answers_are_replayed_only_for_recorded_questions() -> None:
    openings = {each["opening"] for each in read_data("recordings")}
    with trial() as page:
        threads = {text: page.ask(text) for text in page.workspace()["prompts"]}
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
