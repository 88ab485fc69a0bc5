"""The `triage` table: a mailbox of fifty threads, from the listing to the stored digest.

The command's own code (`open_app`, `Triage`) runs in this process, Gmail and the model each in
another. Prices are those of genai-prices.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.fernet import Fernet

from benchmarks.standin import process_of, standin
from benchmarks.table import Row
from benchmarks.workload import settings_for
from bot.cli.triage import triage_mailbox
from bot.context import open_app
from bot.local.google.server import TOKEN
from bot.options import Options
from bot.reports.documents import TriageReport
from config.settings import load_settings
from scopes.google.client import MOST_CALLS
from subagents.budget import NANOUSD_PER_USD
from subagents.events import ignore
from subagents.prices import Usage, cost_nanousd

GMAIL, RESPONDER = "benchmarks.triage_inbox:gmail", "benchmarks.triage_inbox:responder"
CONCURRENCY, WIDE = 64, 10**9
THREADS = 50
SHORT, LONG = 200, 6_000
"""Tokens of a thread, as the product estimates them: bytes / 3."""
GMAIL_S, MODEL_S = 0.05, 0.2
LISTING = 2
"""Calls before the first thread, one after another: the mailbox's state, its threads."""
REPEATS = 5
SCALED_S = 0.5
APART_S = 3.0
"""A model call long enough that all begin before the first ends: none finds a cache entry."""
GOAL_USD = 0.08
NOTES = f"""\
Ideal: {LISTING} calls of Gmail before the first thread, then the slower of two: fetching, a call
of {GMAIL_S * 1000:.0f} ms a thread over MOST_CALLS, and with it the last verdict; or judging, a
call of {MODEL_S * 1000:.0f} ms a thread over limits.max_concurrency, and with it the first thread.
Then the parent's one call. Quota: fifty threads are a third of a minute's units and wait for none
of it. Cost is that of a fresh cache, into which all write and out of which none reads. The written
model does not think: thinking costs output tokens on top."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One triage, from the opened program and its new store to the stored digest."""

    wall_s: float
    calls: int
    """Calls of the model."""
    document: TriageReport


def triage(tokens: int = SHORT) -> list[Row]:
    """Return all rows; `tokens` is the length of a thread for measurements of speed."""
    return [*_speed(tokens), *_cost(), _in_turn()]


def measured(
    tokens: int, call_s: float, times: int = 1, concurrency: int = CONCURRENCY
) -> list[Sample]:
    """Triage a mailbox so many times; `call_s` is of the model."""
    with (
        process_of(GMAIL, str(THREADS), str(tokens), str(GMAIL_S)) as gmail,
        standin(call_s, RESPONDER) as model,
    ):
        changed = {
            "limits": {"max_concurrency": concurrency, "tokens": WIDE, "steps": WIDE},
            "triage": {"budget_usd": 1e6},
        }
        outside = {
            "ANTHROPIC_API_KEY": "bench",
            "ANTHROPIC_BASE_URL": model,
            "GMAIL_API_ENDPOINT": gmail,
            "GOOGLE_ACCESS_TOKEN": TOKEN,
            "ASSISTANT_ENCRYPTION_KEY": Fernet.generate_key().decode(),
        }
        return [asyncio.run(_triaged(changed, outside)) for _ in range(times)]


async def _triaged(changed: Mapping[str, object], outside: Mapping[str, str]) -> Sample:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "assistant.yaml"
        path.write_text(json.dumps(changed))
        settings = load_settings(path, {**outside, "ASSISTANT_DATA_DIR": f"{folder}/data"})
        async with open_app(settings, Options(mail=True), ignore) as app:
            gc.collect()
            began = time.perf_counter()
            document = await triage_mailbox(app)
            wall = time.perf_counter() - began
            assert not app.store_fault, app.store_fault
            recorded = await app.store.trajectory(document.run_id)
    assert document.status == "complete", document.unreadable or document.status
    return Sample(wall, len(recorded.requests), document)


def ideal_s(call_s: float = MODEL_S) -> float:
    """Return the earliest time for the answer to the last call: see NOTES."""
    default = MOST_CALLS, CONCURRENCY
    fetching, judging = (ceil(THREADS / each) for each in default)
    slower = max(fetching * GMAIL_S + call_s, GMAIL_S + judging * call_s)
    return LISTING * GMAIL_S + slower + call_s


def _speed(tokens: int) -> list[Row]:
    # the first sample does late imports
    samples = measured(tokens, MODEL_S, 1 + REPEATS)[1:]
    ideal, walls = ideal_s(), [each.wall_s for each in samples]
    wall, calls = statistics.median(walls), statistics.mean(each.calls for each in samples)
    size = f"{THREADS} threads of {tokens:,} tokens"
    return [
        Row(
            f"wall over the ideal, {size}",
            wall / ideal,
            "x",
            1.3,
            f"{wall:.2f} s (best {min(walls):.2f}), ideal {ideal:.2f} s; the parent's call is "
            f"{MODEL_S:g} s of both",
        ),
        Row("model calls a thread", calls / THREADS, "", 1.2, "the parent's included"),
    ]


def _cost() -> list[Row]:
    (sample,) = measured(LONG, APART_S)
    document, models = sample.document, settings_for(1).models
    used, cost = document.usage, document.cost_usd or 0.0
    assert not used.cache_read, "a call found the cache filled"
    parent = cost - sum(each.cost_usd or 0.0 for each in document.subagents)
    thinking = (cost_nanousd(models.fast, Usage(output=100 * THREADS)) or 0) / NANOUSD_PER_USD
    note = f"parent {parent:.4f}; {used.total - used.output:,} tokens in, {used.output:,} out"
    more = f"100 tokens of thinking a thread add {thinking:.4f}"
    size = f"{THREADS} threads of {LONG:,} tokens"
    return [Row(f"cost of {size}", cost, " $", GOAL_USD, f"{note}; {more}")]


def _in_turn() -> Row:
    """Measure subagents one after another, compared with all at once."""
    (alone,) = measured(SHORT, SCALED_S, concurrency=1)
    _, together = measured(SHORT, SCALED_S, 2)
    run = f"{alone.wall_s:.1f} s and {together.wall_s:.2f} s"
    expected = alone.calls * SCALED_S / ideal_s(SCALED_S)
    return Row(
        f"one after another over fan-out, {SCALED_S:g} s a call",
        alone.wall_s / together.wall_s,
        "x",
        None,
        f"run: {run}; as counted {expected:.3g}x",
    )
