"""A process that dies while tools are at work: each thing is done once, nothing stays behind."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from engine_kit import until, use
from pg_kit import kept
from process_kit import descendants
from serve_kit import ASKER
from tools_kit import STEPS, Moment, Site, site

pytestmark = pytest.mark.system

FEW: dict[Moment, float] = {("data", 1): 0.1, ("files", 2): 0.02}
EVERY: dict[Moment, float] = {
    (name, step): 0.03 * (3 * step % 4) + 0.01
    for name, steps in STEPS.items()
    for step in range(len(steps) + 1)
}


async def asked(work: Site) -> None:
    await work.bots.started()
    work.bots.slack.people.say(
        ASKER, work.home, "Do all three parts in the book, note down and push them."
    )


async def answered(work: Site) -> None:
    await work.until(lambda: work.answers() and work.cards() == 2 and len(work.attached()) >= 3)
    work.answered_once()


LATE: dict[Moment, float] = {("web", 1): 0.05}
SLOW = pytest.mark.slow


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("database", "kills", "after_s"),
    [
        pytest.param("sqlite", FEW, 0.1, id="sqlite-few"),
        pytest.param("postgres", FEW, 0.1, id="postgres-few", marks=SLOW),
        pytest.param("sqlite", EVERY, 0.02, id="sqlite-every", marks=SLOW),
        pytest.param("postgres", EVERY, 0.02, id="postgres-every", marks=SLOW),
        pytest.param("sqlite", LATE, 0.3, id="sqlite-late", marks=SLOW),
    ],
)
async def test_whatever_a_kill_cuts_short_is_done_once(
    tmp_path: Path, database: str, kills: dict[Moment, float], after_s: float
) -> None:
    with kept(database, tmp_path) as place, site(tmp_path, place.url) as work:
        work.kills = dict(kills)
        await asked(work)
        await answered(work)
        assert work.lives == len(kills)
        await work.approve(after_s)
        assert work.lives == len(kills) + 1
        work.approved_once()
        assert len(work.answers()) == 1
        assert len(work.attached()) == 3


ENDLESS = {
    "data": ((use("execute_query", sql="SELECT count(*) FROM range(100000000000)"),),),
    "files": ((use("run_command", command="exec sleep 97", folder="files:book"),),),
    "web": ((use("rogue_hang"), use("run_python", code="while True: pass")),),
}


async def test_no_process_outlives_a_bot_that_was_killed_with_all_of_them_at_work(
    tmp_path: Path,
) -> None:
    with site(tmp_path, files={"sandbox": ["sh", "-c", "{command}"]}) as work:
        work.steps = ENDLESS
        await asked(work)
        bot = work.bots.bots[0].process
        await until(lambda: len(work.bots.calls(of_children=True)) == 3, 40)
        await until(lambda: len([*descendants(bot.pid)]) >= 4)
        work.kill()
        assert len(work.orphans) >= 4
        bot.wait()
        await work.nothing_is_left()


@pytest.mark.slow
async def test_sigterm_lets_what_is_at_work_end_and_leaves_no_process(tmp_path: Path) -> None:
    with site(tmp_path) as work:
        await asked(work)
        bot = work.bots.bots[0].process
        await until(lambda: len(work.bots.calls(of_children=True)) >= 4, 40)
        bot.send_signal(signal.SIGTERM)
        work.note_children()
        assert await asyncio.to_thread(bot.wait, 60) == 0
        await work.nothing_is_left()
        work.answered_once()
