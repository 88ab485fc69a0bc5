"""The `fanout` table: `ask` as shipped, compared with a bare SDK loop for the same work.

A parent lists the channels and calls `run_subagents` over N of them; each subagent reads its
channel and a thread, and hands in a result. Slack is answered in this process; the model has its
own server.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anthropic import AsyncAnthropic, DefaultAioHttpClient
from slack_sdk.web.async_client import AsyncWebClient

from benchmarks.processes import memory_mb
from benchmarks.table import Row
from benchmarks.workload import LATENCY_S, channel_id, settings_for
from bot.__main__ import FEW_FULL_COLLECTIONS
from bot.cli.ask import answer_question
from bot.context import App
from bot.options import Options
from bot.runs.store import Store
from scopes.slack_client import SlackClient
from scopes.slack_reader import SlackReader
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter

SIZES = (8, 50, 200)
REPEATS = 5
CALLS = 6
"""Calls one after another: three of the parent, three of a child."""
IDEAL_S = CALLS * LATENCY_S
END = datetime(2026, 3, 16, tzinfo=UTC)
LATEST = int((END - timedelta(hours=20)).timestamp())
THREADS = 40
NOTES = f"""\
{LATENCY_S:g} s a model call, {CALLS} calls one after another: the ideal is {IDEAL_S:g} s at any N.
Ours is `ask` with its parent, guard, record, evidence, gate, budget and citations, into a store on
disk; Slack's answers come from memory and go through the reader. The bare loop sends the same
tools' schemas, without a brief, a fence, a record or a check. Both run turn by turn in one process;
wall and CPU are medians of {REPEATS}, CPU of all threads. RSS is the peak of a process that runs
ours alone, with a store that exists."""

Json = dict[str, Any]


@dataclass(frozen=True)
class MemorySlack(SlackClient):
    """Answers the reader's calls from memory, for a workspace with any channels."""

    async def call(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        channel = str(arguments.get("channel", ""))
        if method == "auth.test":
            return {"url": "https://bench.slack.com/", "team_id": "T0", "user": "assistant"}
        if method == "users.list":
            people = [{"id": f"U0{n}", "real_name": f"Person {n}"} for n in range(5)]
            return {"members": people}
        if method == "conversations.list":
            ids = [channel_id(n) for n in range(max(SIZES))]
            return {"channels": [_channel(id) for id in ids]}
        if method == "conversations.info":
            return {"channel": _channel(channel)}
        if method == "conversations.history":
            return {"messages": [_message(n, channel) for n in reversed(range(THREADS))]}
        if method == "conversations.replies":
            root = str(arguments["ts"])
            reply = _message(0, channel) | {"ts": _after(root), "thread_ts": root, "user": "U01"}
            return {"messages": [_message(0, channel) | {"ts": root, "thread_ts": root}, reply]}
        return {}


def _channel(id: str) -> Json:
    return {"id": id, "name": id.lower(), "is_channel": True, "is_member": True}


def _message(number: int, channel: str) -> Json:
    """Return a message of a channel; no two channels share a timestamp."""
    ts = f"{LATEST - 3_600 * number - int(channel[-4:])}.000000"
    text = (
        f"The till {number} of the shop at the corner does not start since the update of today. "
        * 2
    )
    return {
        **{"type": "message", "user": "U00", "ts": ts, "text": text},
        **{"thread_ts": ts, "reply_count": 1, "latest_reply": _after(ts)},
    }


def _after(ts: str) -> str:
    return f"{int(ts[:10]) + 60}.000000"


@dataclass(frozen=True, slots=True)
class Sample:
    wall_s: float
    cpu_s: float
    input_tokens: int


async def _measured(work: Any) -> Sample:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = await work
    return Sample(time.perf_counter() - wall, time.process_time() - cpu, tokens)


async def ask_ours(app: App, number: int) -> int:
    """Return the input tokens of one request with so many subagents."""
    document = await answer_question(app, f"What is open? FANOUT: {number}")
    complete = [each for each in document.subagents if each.status == "complete"]
    assert (len(complete), document.cited) == (number, number), document.answer[:300]
    return int(document.usage.total - document.usage.output)


@asynccontextmanager
async def open_ours(url: str, folder: Path) -> AsyncIterator[App]:
    settings = settings_for(max(SIZES))
    wide = settings.limits.model_copy(
        update={"max_items": 1_000, "max_concurrency": max(SIZES), "max_fanout_tokens": 10**6}
    )
    settings = settings.model_copy(update={"limits": wide})
    store = await Store.open(folder)
    model = ModelClient(settings.models, "bench", url)
    reader = SlackReader(MemorySlack(AsyncWebClient(), 200), timedelta(days=30))
    limiter = RateLimiter(max(SIZES))
    try:
        yield App(settings, Options(), model, limiter, store, reader, END, problems=())
    finally:
        await model.aclose()
        await store.aclose()


@dataclass
class Bare:
    """Parent and children as loops over the SDK."""

    client: Any
    model: str
    tools: Mapping[str, list[Json]]
    tokens: int = 0

    async def ask(self, number: int) -> int:
        self.tokens = 0
        messages: list[Json] = [{"role": "user", "content": f"What is open? FANOUT: {number}"}]
        content = await self._send("parent", messages)
        listed = "\n".join(f"[{channel_id(n)}] #{channel_id(n).lower()}" for n in range(max(SIZES)))
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": [_result(content[0]["id"], listed)]},
        ]
        content = await self._send("parent", messages)
        items = content[0]["input"]["items"]
        found = await asyncio.gather(*(self._child(item) for item in items))
        views = "\n".join(f"[F{n}.1] {text}" for n, text in enumerate(found, 1))
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": [_result(content[0]["id"], views)]},
        ]
        await self._send("parent", messages)
        return self.tokens

    async def _child(self, item: str) -> str:
        messages: list[Json] = [{"role": "user", "content": f"Say what is open in {item}."}]
        history = [_message(n, item) for n in range(THREADS)]
        history = [each for m in history for each in (m, {**m, "ts": _after(m["ts"])})]  # replies
        lines = [f"[{item}/{m['ts']}] {m['user']}: {m['text']}" for m in history]
        while True:
            content = await self._send("child", messages)
            call = next(block for block in content if block["type"] == "tool_use")
            if call["name"] == "submit_result":
                return str(call["input"]["findings"][0]["claim"])
            shown = "\n".join(lines if call["name"] == "read_channel_history" else lines[:2])
            messages += [
                {"role": "assistant", "content": content},
                {"role": "user", "content": [_result(call["id"], shown)]},
            ]

    async def _send(self, role: str, messages: list[Json]) -> list[Json]:
        reply = await self.client.messages.create(
            model=self.model, max_tokens=4_000, messages=messages, tools=self.tools[role]
        )
        used = reply.usage
        self.tokens += used.input_tokens + (used.cache_read_input_tokens or 0)
        self.tokens += used.cache_creation_input_tokens or 0
        return [block.to_dict(mode="json") for block in reply.content]


def _result(id: str, text: str) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": text}


def _tool(name: str, **properties: str) -> Json:
    typed = {key: {"type": kind} for key, kind in properties.items()}
    schema = {"type": "object", "properties": typed}
    return {"name": name, "description": f"{name.replace('_', ' ')}.", "input_schema": schema}


@asynccontextmanager
async def open_bare(url: str) -> AsyncIterator[Bare]:
    models = settings_for(1).models
    child = [
        _tool("read_channel_history", channel="string", cursor="string"),
        _tool("read_thread", thread="string"),
        _tool("submit_result", text="string", findings="array"),
    ]
    parent = [_tool("list_channels"), _tool("run_subagents", items="array", template="object")]
    tools = {"parent": parent, "child": child}
    http = DefaultAioHttpClient()
    client = AsyncAnthropic(api_key="bench", base_url=url, max_retries=0, http_client=http)
    try:
        yield Bare(client, models.fast, tools)
    finally:
        await client.close()


async def measure(url: str) -> dict[int, list[tuple[Sample, Sample]]]:
    """Return pairs of ours and bare, by the number of subagents."""
    found: dict[int, list[tuple[Sample, Sample]]] = {size: [] for size in SIZES}
    with TemporaryDirectory() as folder:
        async with open_ours(url, Path(folder)) as app, open_bare(url) as bare:
            await ask_ours(app, SIZES[0])
            await bare.ask(SIZES[0])
            gc.collect()
            for _ in range(REPEATS):
                for size, pairs in found.items():
                    sample = await _measured(ask_ours(app, size))
                    pairs.append((sample, await _measured(bare.ask(size))))
    return found


async def measure_memory(url: str, folder: Path) -> list[float]:
    """Return the peak RSS of this process in MB: before the first request, and after each size."""
    async with open_ours(url, folder) as app:
        peaks = [memory_mb("VmHWM")]
        for size in SIZES:
            for _ in range(REPEATS):
                await ask_ours(app, size)
            peaks.append(memory_mb("VmHWM"))
    return peaks


async def _create_store(folder: Path) -> None:
    """Create the schema in advance: it takes memory once per store."""
    await (await Store.open(folder)).aclose()


def memory_alone(url: str) -> list[float]:
    """Return the same for a separate process in which only our code runs."""
    with TemporaryDirectory() as folder:
        asyncio.run(_create_store(Path(folder)))
        command = [sys.executable, "-m", "benchmarks.fanout", url, folder]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(each) for each in output.split()]


def fanout() -> list[Row]:
    """Return the rows of the table."""
    from benchmarks.standin import standin  # its server must not count in `memory_alone`

    before = gc.get_threshold()
    gc.set_threshold(*FEW_FULL_COLLECTIONS)  # as every command does
    try:
        with standin(LATENCY_S) as url:
            found = asyncio.run(measure(url))
            start, *peaks = memory_alone(url)
    finally:
        gc.set_threshold(*before)
    rows = []
    bars = dict(zip(SIZES, (1.06, 1.30, 2.2), strict=True))
    for size, pairs in found.items():
        median = statistics.median(ours.wall_s for ours, _ in pairs) / IDEAL_S
        base = statistics.median(bare.wall_s for _, bare in pairs) / IDEAL_S
        rows.append(
            Row(f"wall over the ideal, N={size}", median, "x", bars[size], f"bare {base:.2f}x")
        )
    for size, pairs in found.items():
        median = statistics.median(ours.cpu_s for ours, _ in pairs) / size * 1000
        base = statistics.median(bare.cpu_s for _, bare in pairs) / size * 1000
        bar = 7.0 if size == 50 else None
        rows.append(Row(f"CPU a subagent, N={size}", median, " ms", bar, f"bare {base:.2f} ms"))
    ours, bare = found[50][0]
    more = (ours.input_tokens / bare.input_tokens - 1) * 100
    note = f"{ours.input_tokens:,}; bare {bare.input_tokens:,}"
    rows.append(Row("input tokens over bare, N=50", more, " %", 25.0, note))
    for size, peak in zip(SIZES, peaks, strict=True):
        bar = 130.0 if size == 50 else None
        note = f"{start:.0f} MB before the first request"
        rows.append(Row(f"peak RSS alone, N={size}", peak, " MB", bar, note))
    return rows


if __name__ == "__main__":
    gc.set_threshold(*FEW_FULL_COLLECTIONS)
    print(*asyncio.run(measure_memory(sys.argv[1], Path(sys.argv[2]))))
