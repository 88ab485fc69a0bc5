"""The `panel` table: five specialists and the slowest of them alone, and CPU of a finding."""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.standin import standin
from benchmarks.table import Row
from benchmarks.workload import LATENCY_S, settings_for
from bot.context import App
from bot.options import Options
from bot.reports.documents import PanelFinding, PanelPhase
from bot.runs.store import Store
from bot.tasks.base import Request
from bot.tasks.material import ReviewMaterial, sections_of
from bot.tasks.panel import Panel
from config.panels import Profile, load_profile
from scopes.tool import Window
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter

RESPONDER = "benchmarks.panel_model:panel"
END = datetime(2026, 3, 16, tzinfo=UTC)
REPEATS = 3
FINDINGS = 40
RATIO, CPU_MS = 1.3, 10.0
"""The bars of issue 23."""
NOTES = f"""\
{LATENCY_S:g} s a model call; the stand-in is a process of its own. Reading: wall of a panel of five
that finds nothing, beside the slowest of five panels of one specialist each; medians of {REPEATS}.
Judging: CPU of this process from the first to the last verdict on {FINDINGS} findings, divided by
them: routing, sanitizing, briefs, HTTP, the record and the store are in it."""


class MeasuredPanel(Panel):
    """A panel that records the CPU time of its second phase."""

    cpu_s = 0.0
    judged: Sequence[PanelFinding] = ()

    async def _judge(self, phase: PanelPhase) -> None:
        start = time.process_time()
        await super()._judge(phase)
        self.cpu_s = time.process_time() - start


def panel() -> list[Row]:
    """Measure both."""
    with standin(LATENCY_S, RESPONDER) as url, TemporaryDirectory() as folder:
        return asyncio.run(_rows(url, Path(folder)))


async def _rows(url: str, folder: Path) -> list[Row]:
    settings = settings_for(64)
    wide = settings.panel.model_copy(update={"budget_usd": 1e6})
    settings = settings.model_copy(update={"panel": wide})
    store, model = await Store.open(folder), ModelClient(settings.models, "bench", url)
    options = Options(model="claude")
    app = App(settings, options, model, RateLimiter(64), store, None, END, problems=())
    profile = load_profile("code")
    names = [each.name for each in profile.specialists]
    try:
        await _wall(app, profile, _material(()))  # imports of a first panel
        five, alone = [], []
        for _ in range(REPEATS):
            five.append((await _wall(app, profile, _material(())))[0])
            single = [replace(profile, specialists=(each,)) for each in profile.specialists]
            alone.append(max([(await _wall(app, one, _material(())))[0] for one in single]))
        marked = _material([names[n % len(names)] for n in range(FINDINGS)])
        _, done = await _wall(app, profile, marked)
        judged = sum(finding.outcome == "confirmed" for finding in done.judged)
    finally:
        await model.aclose()
        await store.aclose()
    wall, slowest = statistics.median(five), statistics.median(alone)
    cpu_ms = done.cpu_s * 1_000 / max(1, judged)
    return [
        Row("wall of five", wall, " s"),
        Row("wall of the slowest alone", slowest, " s"),
        Row("ratio", wall / slowest, "", RATIO),
        Row("findings that were not judged", FINDINGS - judged, "", 0),
        Row("CPU of a finding", cpu_ms, " ms", CPU_MS),
    ]


async def _wall(app: App, profile: Profile, of: ReviewMaterial) -> tuple[float, MeasuredPanel]:
    async with app.run("panel", "bench") as run:
        task = MeasuredPanel(app, run, Request("bench", Window(END, END)), of, profile, "bench")
        start = time.perf_counter()
        task.judged = (await task.work()).findings
        return time.perf_counter() - start, task


def _material(marks: list[str] | tuple[()]) -> ReviewMaterial:
    """Return a file with a line that a specialist finds for each of these names."""
    lines = [f"plain_{n} = {_words(f'plain {n}')!r}" for n in range(200)]
    for number, name in enumerate(marks):
        claim = f"# find {name} the {_words(f'mark {number}')} is wrong"
        lines[5 * number : 5 * number] = [f"def section_{number}():", f"@mark_{number}", claim]
    return ReviewMaterial("app.py", "files", (sections_of("app.py", "\n".join(lines)),))


def _words(seed: str) -> str:
    letters = str.maketrans("0123456789", "ghijklmnop")
    raw = hashlib.sha256(seed.encode()).hexdigest().translate(letters)
    return " ".join(raw[n : n + 8] for n in range(0, 64, 8))
