"""The `engine` table: what isolation costs beside a bare loop over the same SDK and transport."""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import scopes
from benchmarks import memory, start
from benchmarks.bare import Bare, open_bare
from benchmarks.ours import Ours, Sample, open_ours
from benchmarks.standin import standin
from benchmarks.table import Row
from benchmarks.workload import IDEAL_S, LATENCY_S, settings_for
from scopes import ALL, scope_names
from scopes.tool import estimate_tokens
from subagents.brief import template, tools_for
from subagents.contracts import CONTRACTS

CONCURRENCY = (1, 8, 50, 200)
REPEATS = 5
NOTES = f"""\
{LATENCY_S:g} s a model call, 2 tool rounds and submit_result: the ideal is {IDEAL_S:g} s at any N.
The stand-in runs in a process of its own. `bare` is a loop over AsyncAnthropic and
DefaultAioHttpClient that sends the same bodies, in the same run, turn by turn with ours; each
figure is the median of {REPEATS}, a ratio the median of {REPEATS} ratios. Ours goes through Fanout,
TaskSpawner, ModelClient, Gate and RunLog into a store on disk; the tool is list_channels of the
slack scope, answered from memory, so that the loop is measured and not a network. Limits are raised
to let N work at once. CPU is of all threads. Memory is the peak RSS of 200 less that of 50 before,
in fresh processes. Input tokens are compared with the bare loop on the same prompts, briefs and
schemas but unfenced results; the second figure is against one that has only the task's text."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Ours and the bare loop, one right after the other."""

    ours: Sample
    bare: Sample


@dataclass(frozen=True, slots=True)
class Measured:
    pairs: Mapping[int, Sequence[Pair]]
    """By concurrency."""
    unfenced_tokens: int
    """Input tokens of one subagent whose results stand in no fence."""
    task_tokens: int
    """The same with nothing but the task's text as its brief."""

    def added(self, tokens: int) -> float:
        """Percent of input tokens that ours needs beyond `tokens`."""
        return (self.pairs[1][0].ours.input_tokens / tokens - 1) * 100


async def measure(url: str) -> Measured:
    with TemporaryDirectory() as folder:
        async with open_ours(url, Path(folder)) as ours, open_bare(url) as bare:
            await ours.sample(CONCURRENCY[-1])
            await bare.sample(CONCURRENCY[-1])
            found: dict[int, list[Pair]] = {number: [] for number in CONCURRENCY}
            for _ in range(REPEATS):
                for number, pairs in found.items():
                    pairs.append(await _pair(ours, bare, number))
            unfenced = await bare.sample(1, "unfenced")
            task = await bare.sample(1, "task")
            return Measured(found, unfenced.input_tokens, task.input_tokens)


async def _pair(ours: Ours, bare: Bare, number: int) -> Pair:
    gc.collect()
    mine = await ours.sample(number)
    gc.collect()
    base = await bare.sample(number)
    assert mine.input_tokens == base.input_tokens, "the two sides did not send the same"
    return Pair(mine, base)


def speed_rows(found: Mapping[int, Sequence[Pair]]) -> list[Row]:
    rows = []
    for number, pairs in found.items():
        mine = _median([p.ours.wall_s for p in pairs])
        base = _median([p.bare.wall_s for p in pairs])
        ratio = _median([p.ours.wall_s / p.bare.wall_s for p in pairs])
        note = f"over the ideal: ours {mine / IDEAL_S:.2f}x, bare {base / IDEAL_S:.2f}x"
        rows.append(Row(f"wall over bare, N={number}", ratio, "x", 1.15, note))
    for number in (n for n in found if n >= 50):
        pairs = found[number]
        mine = _median([p.ours.cpu_s for p in pairs]) / number * 1000
        base = _median([p.bare.cpu_s for p in pairs]) / number * 1000
        ratio = _median([p.ours.cpu_s / p.bare.cpu_s for p in pairs])
        rows.append(Row(f"CPU over bare, N={number}", ratio, "x", 1.6))
        rows.append(Row(f"CPU a subagent, N={number}", mine, " ms", 7, f"bare {base:.2f} ms"))
    return rows


def memory_rows(url: str) -> list[Row]:
    extra, held = memory.per_subagent_kb("ours", url)
    bare_extra, bare_held = memory.per_subagent_kb("bare", url, runs=2)
    return [
        Row("memory a further subagent", extra, " KB", 150, f"bare {bare_extra:.0f} KB"),
        Row("RSS after 50 subagents", held, " MB", 130, f"bare {bare_held:.0f} MB"),
    ]


def start_rows() -> list[Row]:
    sdk = start.import_sdk_s()
    loaded = "imports" if start.help_imports_settings() else "does not import"
    return [
        Row("assistant --help", start.help_s(), " s", 0.4, f"{loaded} config.settings"),
        Row(
            "start to first model call",
            start.first_call_s(),
            " s",
            1.5,
            f"`import anthropic` alone {sdk:.2f} s",
        ),
    ]


def fixed_rows() -> list[Row]:
    """System prompt and schemas of a subagent, in tokens (bytes / 3 of compact JSON)."""
    rows = []
    for scope in scope_names():
        sizes = {c: fixed_tokens(scope, c) for c in CONTRACTS}
        each = ", ".join(f"{contract} {size}" for contract, size in sizes.items())
        bar = None if scope == ALL else 1500.0
        rows.append(Row(f"fixed tokens, scope {scope}", max(sizes.values()), "", bar, each))
    return rows


def fixed_tokens(scope: str, contract: str) -> int:
    offered = tools_for(contract, scopes.scope(scope).tools)
    system, tools, _ = template(scope, contract, settings_for(1).models.strict_tools, offered)
    parts = [json.dumps(b, ensure_ascii=False, separators=(",", ":")) for b in [*system, *tools]]
    return estimate_tokens("".join(parts))


def token_rows(found: Measured) -> list[Row]:
    beyond, task = found.added(found.unfenced_tokens), found.added(found.task_tokens)
    note = f"{task:.1f} % beyond the task's text alone (the brief's frame and fence)"
    return [Row("input tokens beyond prompts, schemas", beyond, " %", 3, note)]


async def engine() -> list[Row]:
    speed = [start.machine_s()]
    with standin(LATENCY_S) as url:
        found = await measure(url)
        rows = speed_rows(found.pairs) + memory_rows(url)
    rows += token_rows(found) + fixed_rows() + start_rows()
    speed.append(start.machine_s())
    note = f"at the start; {speed[1] * 1000:.0f} ms at the end; absolute figures go with it"
    return [*rows, Row("this machine: 2 million additions", speed[0] * 1000, " ms", None, note)]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
