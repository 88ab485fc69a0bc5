"""Triages of a mailbox in a new process: `python -m benchmarks.triage_client`, given as JSON.

Each sample has its own store, so that the mailbox is new to it. Its time is that of the command,
from the opened program and store to the stored digest.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.fernet import Fernet

from benchmarks.processes import memory_mb
from bot.cli.triage import triage_mailbox
from bot.context import open_app
from bot.local.google.server import TOKEN
from bot.options import Options
from bot.reports.documents import TriageReport
from config.settings import Settings, load_settings
from subagents.events import ignore

WIDE = 10**9


@dataclass(frozen=True, slots=True)
class Wanted:
    """The mailbox to triage, and the settings."""

    gmail: str
    model: str
    limits: Sequence[int | None]
    """`--limit` of each sample, one after another in one process; None = all threads."""
    concurrency: int = 64
    """Subagents at once."""
    quota: int = 6_000
    """Gmail units a minute."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One triage."""

    wall_s: float
    peak_mb: float
    """Peak memory of the process so far."""
    threads: int
    """Threads with a verdict."""
    usage: Mapping[str, int]
    cost_usd: float
    """Cost, including the parent."""
    subagents_usd: float


def sampled(wanted: Wanted) -> list[Sample]:
    """Take samples in a separate process. Raises CalledProcessError."""
    command = [sys.executable, "-m", "benchmarks.triage_client"]
    data = json.dumps(asdict(wanted))
    done = subprocess.run(
        command, input=data, check=True, stdout=subprocess.PIPE, text=True, timeout=600
    )
    return [Sample(**each) for each in json.loads(done.stdout)]


async def triaged(wanted: Wanted, limit: int | None) -> Sample:
    with TemporaryDirectory() as folder:
        settings = _settings(wanted, Path(folder))
        async with open_app(settings, Options(mail=True), ignore) as app:
            gc.collect()
            began = time.perf_counter()
            document = await triage_mailbox(app, limit)
            wall = time.perf_counter() - began
            assert not app.store_fault, app.store_fault
    assert document.status == "complete", document.unreadable or document.status
    return _sample(document, wall)


def _sample(document: TriageReport, wall: float) -> Sample:
    subagents = document.subagents
    return Sample(
        wall_s=wall,
        peak_mb=memory_mb("VmHWM"),
        threads=len(document.verdicts),
        usage=document.usage.model_dump(),
        cost_usd=document.cost_usd or 0.0,
        subagents_usd=sum(each.cost_usd or 0.0 for each in subagents),
    )


def _settings(wanted: Wanted, folder: Path) -> Settings:
    """Return the defaults, except for the measured settings and the budget of a run."""
    changed = {
        "google": {"units_per_minute": wanted.quota},
        "limits": {"max_concurrency": wanted.concurrency, "tokens": WIDE, "steps": WIDE},
        "triage": {"budget_usd": 1e6},
    }
    path = folder / "assistant.yaml"
    path.write_text(json.dumps(changed))
    outside = {
        "ANTHROPIC_API_KEY": "bench",
        "ANTHROPIC_BASE_URL": wanted.model,
        "GMAIL_API_ENDPOINT": wanted.gmail,
        "GOOGLE_ACCESS_TOKEN": TOKEN,
        "ASSISTANT_ENCRYPTION_KEY": Fernet.generate_key().decode(),
        "ASSISTANT_DATA_DIR": str(folder / "data"),
    }
    return load_settings(path, outside)


def main() -> None:
    wanted = Wanted(**json.loads(sys.stdin.read()))
    samples = [asyncio.run(triaged(wanted, limit)) for limit in wanted.limits]
    print(json.dumps([asdict(each) for each in samples]))


if __name__ == "__main__":
    main()
