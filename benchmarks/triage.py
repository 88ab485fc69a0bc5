"""The `triage` table: a mailbox of fifty threads, from the listing to the stored digest.

The command's own code (`open_app`, `open_mailbox`, `Triage`) runs in a separate process, Gmail and
the model each in another. Prices are those of genai-prices.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from benchmarks.table import Row
from benchmarks.triage_client import Sample, Wanted, sampled
from benchmarks.triage_inbox import seen_at, served
from benchmarks.workload import settings_for
from scopes.google.client import MOST_CALLS, UNITS
from subagents.budget import NANOUSD_PER_USD
from subagents.prices import Usage, cost_nanousd

THREADS, MANY = 50, 500
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
of it; for {MANY} threads it is lifted here. Cost is that of a fresh cache, into which all write and
out of which none reads. The written model does not think: thinking costs output tokens on top."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of one mailbox, and what the two servers recorded for them together."""

    samples: Sequence[Sample]
    gmail: Mapping[str, Any]
    model: Mapping[str, Any]


def triage(tokens: int = SHORT) -> list[Row]:
    """Return all rows; `tokens` is the length of a thread for measurements of speed."""
    return [
        *_speed(tokens),
        *_many(),
        *_cost(),
        _in_turn(),
    ]


def measured(
    threads: int,
    tokens: int,
    call_s: float,
    limits: Sequence[int | None] = (None,),
    **changed: int,
) -> Measured:
    """Measure. `limits` are of Wanted, `changed` its other fields; `call_s` is of the model."""
    with (
        served("gmail", threads, tokens, GMAIL_S) as gmail,
        served("model", threads, tokens, call_s) as model,
    ):
        samples = sampled(Wanted(gmail, model, limits, **changed))
        return Measured(samples, seen_at(gmail), seen_at(model))


def ideal_s(threads: int, call_s: float = MODEL_S) -> float:
    """Return the earliest time for the answer to the last call: see NOTES."""
    default = MOST_CALLS, Wanted("", "", ()).concurrency
    fetching, judging = (ceil(threads / each) for each in default)
    slower = max(fetching * GMAIL_S + call_s, GMAIL_S + judging * call_s)
    return LISTING * GMAIL_S + slower + call_s


def _speed(tokens: int) -> list[Row]:
    # the first sample does late imports
    found = measured(THREADS, tokens, MODEL_S, [None] * (1 + REPEATS))
    triages, ideal = len(found.samples), ideal_s(THREADS)
    walls = [each.wall_s for each in found.samples[1:]]
    wall, calls = statistics.median(walls), found.model["calls"] / triages
    units = found.gmail["units"] / triages
    quota = settings_for(1).google.units_per_minute
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
        Row("Gmail units a thread", units / THREADS, "", None, f"{units:g} of {quota:,} a minute"),
    ]


def _many() -> list[Row]:
    """Measure one mailbox in one process: its first fifty threads, then all five hundred."""
    found = measured(MANY, SHORT, MODEL_S, [THREADS, None], quota=10**9)
    few, many = found.samples
    assert (few.threads, many.threads) == (THREADS, MANY)
    grown = 1024 * (many.peak_mb - few.peak_mb) / (MANY - THREADS)
    peaks = f"peak {few.peak_mb:.0f} MB at {THREADS}, {many.peak_mb:.0f} at {MANY}"
    ideal, units = ideal_s(MANY), MANY * UNITS["threads.get"]
    quota = settings_for(1).google.units_per_minute
    waits = f"the default quota alone takes {(units - 1) // quota} minutes for {units:,} units"
    wall = f"{many.wall_s:.2f} s, ideal {ideal:.2f} s; {waits}"
    return [
        Row(f"wall over the ideal, {MANY} threads", many.wall_s / ideal, "x", None, wall),
        Row(f"memory a further thread, {MANY}", grown, " KB", None, peaks),
    ]


def _cost() -> list[Row]:
    (one,) = measured(THREADS, LONG, APART_S).samples
    used, models = one.usage, settings_for(1).models
    assert not used["cache_read"], "a call found the cache filled"
    parent = one.cost_usd - one.subagents_usd
    prompt = used["total"] - used["output"]
    thinking = (cost_nanousd(models.fast, Usage(output=100 * THREADS)) or 0) / NANOUSD_PER_USD
    note = f"parent {parent:.4f}; {prompt:,} tokens in, {used['output']:,} out"
    more = f"100 tokens of thinking a thread add {thinking:.4f}"
    size = f"{THREADS} threads of {LONG:,} tokens"
    return [Row(f"cost of {size}", one.cost_usd, " $", GOAL_USD, f"{note}; {more}")]


def _in_turn() -> Row:
    """Measure subagents one after another, compared with all at once."""
    found = measured(THREADS, SHORT, SCALED_S, concurrency=1)
    (alone,), calls = found.samples, found.model["calls"]
    _, together = measured(THREADS, SHORT, SCALED_S, [None, None]).samples
    run = f"{alone.wall_s:.1f} s and {together.wall_s:.2f} s"
    expected = calls * SCALED_S / ideal_s(THREADS, SCALED_S)
    return Row(
        f"one after another over fan-out, {SCALED_S:g} s a call",
        alone.wall_s / together.wall_s,
        "x",
        None,
        f"run: {run}; as counted {expected:.3g}x",
    )
