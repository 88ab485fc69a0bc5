"""The `sweep200` table: a sweep of many channels, compared with Slack's limits.

The command's own code (`assistant sweep`) runs in a separate process, the model in another, Slack
in this one, with the limits of the tiers switched on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_limits import TIERS
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Sent

from benchmarks.processes import memory_mb
from benchmarks.standin import standin
from benchmarks.table import Row
from bot.local.server import LocalServer
from bot.local.workspace import Channel, Message, Team, User, Workspace
from config.settings import load_settings

QUICK, FULL = 30, 200
"""Channels; the full form takes a quarter of an hour, nearly all of it Slack's."""
ALONE, THREADS, REPLIES = 24, 3, 4
"""Of a usual channel's week: messages that nobody answered in a thread; threads, and replies in
each; one reply more goes to a thread of the month before. Forty messages together."""
EARLIER = 250
"""Messages of the months before, in all channels: more than a page of history to read."""
BUSY, YEAR = 40, 3_000
"""Channels with so many earlier messages each, of a kilobyte, read without limits: the memory for a
year of history."""
LARGE_EACH, LARGE = 40, 5
"""One in so many channels is so many times as busy, and needs several subagents."""
LATENCY_S = 0.2
MODEL_CALLS = 1
"""Minimum of a subagent: it gets its messages with the brief."""
PAGE = 999
"""Maximum messages that Slack returns in one call."""
RESPONDER = "bot.local.offline.model:answer"
DAY = 86_400
AS_OF = 1_773_619_200
"""16 March 2026, 00:00 UTC."""
RATIO, PEAK_MB = 1.2, 250.0
LOOK_EVERY_S = 0.02
NOTES = f"""\
Ideal: of each method of Slack the calls that are needed (a page of at most {PAGE} messages of
history, and conversations.replies for each thread with a reply in the window), n calls at a rate of
r a minute: the first r at once and so on, 60 * floor((n - 1) / r) s, and of that the slowest
method's; or, where it is more, the model's {MODEL_CALLS} call of {LATENCY_S * 1000:.0f} ms
a subagent over limits.max_concurrency. Threads are read whole, since each has replies that the
history does not hold. Peak is that of the process that sweeps; a year of history is beside it
because its pages, not the channels, are what fills memory."""

FAILS = "The export of {name} fails since this morning, what now? The customer waits for it."
NOTE = "Noted {name}: the parcel was moved, counted and sent on to the depot near the harbour. "


# ---- the workspace


def workspace(channels: int, earlier: int = EARLIER, more: str = "") -> Workspace:
    """Return channels of everyday talk, a few of them large; `more` ends each earlier message."""
    people = (User("U0ANA", "ana", "Ana Ruiz"), User("U0LUIS", "luis", "Luis Gil"))
    conversations = tuple(_channel(number, earlier, more) for number in range(channels))
    return Workspace(Team("T0BENCH", "Bench", "bench"), people, conversations)


def times(number: int) -> int:
    """Return how busy a channel is."""
    return LARGE if number % LARGE_EACH == LARGE_EACH // 4 else 1


def _channel(number: int, earlier: int, more: str) -> Channel:
    name, busy = f"bench-{number:03d}", times(number)
    week, step = AS_OF - 6 * DAY + number, 5 * DAY // (ALONE * busy)
    messages = [_alone(week + k * step, f"{name}/{k}", k % 8 == 0) for k in range(ALONE * busy)]
    old = AS_OF - 300 * DAY
    messages += [_alone(old + k * 7_200, f"{name}/old{k}{more}") for k in range(earlier)]
    for k in range(THREADS * busy):
        began = week + 900 + k * 2 * step
        messages += _thread(f"{name}/t{k}", [began + 600 * reply for reply in range(REPLIES + 1)])
    messages += _thread(f"{name}/late", [AS_OF - 30 * DAY + number, AS_OF - DAY + number])
    return Channel(f"C0BENCH{number:03d}", name, tuple(messages), ("U0ANA", "U0LUIS"))


def _alone(at: int, name: str, asks: bool = False) -> Message:
    return Message(f"{at}.000100", (FAILS if asks else NOTE).format(name=name), "U0ANA")


def _thread(name: str, at: list[int]) -> list[Message]:
    root = f"{at[0]}.000200"
    replies = [
        Message(f"{each}.000200", f"Looking into {name}, step {k}.", "U0LUIS", thread_ts=root)
        for k, each in enumerate(at[1:], 1)
    ]
    return [Message(root, NOTE.format(name=name), "U0ANA", thread_ts=root), *replies]


# ---- the minimum of calls


def needed(made: Workspace) -> Counter[str]:
    """Return the minimum calls to read all messages of the week."""
    calls = Counter({"conversations.list": 1, "users.list": 1, "auth.test": 1})
    for number, channel in enumerate(made.channels):
        top = sum(not message.is_reply for message in channel.messages)
        calls["conversations.history"] += ceil(top / PAGE)
        calls["conversations.replies"] += THREADS * times(number) + 1
    return calls


def ideal_s(calls: Mapping[str, int], subagents: int) -> float:
    """Return the shortest time: see NOTES."""
    limits = [60.0 * ((count - 1) // TIERS[name]) for name, count in calls.items() if name in TIERS]
    at_once = load_settings(env={}).limits.max_concurrency
    return max(*limits, ceil(subagents / at_once) * MODEL_CALLS * LATENCY_S)


# ---- the run


@dataclass
class Refusals:
    """Slack's app, and how many calls of each method it refused as too frequent."""

    app: ASGIApp
    seen: Counter[str] = field(default_factory=Counter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noting(message: Sent) -> None:
            if message.get("status") == 429:
                self.seen[str(scope["path"]).rpartition("/")[2]] += 1
            await send(message)

        await self.app(scope, receive, noting)


@dataclass
class Swept:
    """The result of a sweep, and measurements from outside."""

    document: dict[str, Any]
    wall_s: float
    peak_mb: float


def sweep200(channels: int = QUICK) -> list[Row]:
    """Return the rows of the table."""
    return [*_speed(channels), *_memory()]


def _memory() -> list[Row]:
    swept, calls, _ = _seen(workspace(BUSY, YEAR, "-" * 900), None)
    pages = calls["conversations.history"]
    note = f"{pages} pages of history, {swept.wall_s:.1f} s without limits"
    return [
        Row(
            f"peak memory, {BUSY} channels of {YEAR:,} messages before",
            swept.peak_mb,
            " MB",
            PEAK_MB,
            note,
        )
    ]


def _seen(
    made: Workspace, limits: Mapping[str, int] | None
) -> tuple[Swept, Counter[str], Counter[str]]:
    """Return a sweep, the calls to Slack, and the refused ones."""
    slack = LocalSlack(made, limits=limits)
    counted = Refusals(slack.app)
    with (
        TemporaryDirectory() as folder,
        LocalServer(counted, "slack") as at,
        standin(LATENCY_S, RESPONDER) as model,
    ):
        swept = _swept(Path(folder), at.url + API_PATH, model)
    return swept, slack.calls, counted.seen


def _speed(total: int) -> list[Row]:
    made = workspace(total)
    swept, calls, refused = _seen(made, TIERS)
    document = swept.document
    subagents, least = len(document["subagents"]), needed(made)
    ideal = ideal_s(least, subagents)
    read = sum(s["coverage"]["messages_read"] for s in document["sections"])
    most = sorted(calls, key=calls.__getitem__, reverse=True)[:4]
    named = ", ".join(f"{calls[m]:,} {m.removeprefix('conversations.')}" for m in most)
    of_these = ", ".join(f"{least[m]:,}" for m in most if least[m])
    note = f"{sum(refused.values())} of them refused; {named}; needed {of_these}"
    return [
        Row(
            f"wall over the ideal, {total} channels",
            swept.wall_s / ideal,
            "x",
            RATIO,
            f"{swept.wall_s:.1f} s, ideal {ideal:.1f} s",
        ),
        Row("peak memory", swept.peak_mb, " MB", PEAK_MB),
        Row("messages read", read, "", None, f"of {_written(made):,}"),
        Row("calls of Slack", sum(calls.values()), "", None, note),
    ]


def _written(made: Workspace) -> int:
    """Return the number of messages in the window."""
    begin = AS_OF - 7 * DAY
    return sum(float(m.ts) >= begin for channel in made.channels for m in channel.messages)


def _swept(folder: Path, slack: str, model: str) -> Swept:
    command = [sys.executable, "-m", "bot", "sweep", "--channels", "bench-*", "--json"]
    command += ["--as-of", "2026-03-16", "--since", "7d"]
    output, log = folder / "out.json", folder / "log"
    environment, peak_mb = _environment(folder, slack, model), 0.0
    began = time.perf_counter()
    with output.open("wb") as out, log.open("wb") as log_file:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=log_file)
        while process.poll() is None:
            peak_mb = max(peak_mb, memory_mb("VmHWM", process.pid))
            time.sleep(LOOK_EVERY_S)
        wall = time.perf_counter() - began
    document = json.loads(output.read_bytes() or b"{}")
    if "sections" not in document:
        raise RuntimeError(log.read_text("utf-8") or output.read_text("utf-8"))
    return Swept(document, wall, peak_mb)


def _environment(folder: Path, slack: str, model: str) -> dict[str, str]:
    config = folder / "assistant.yaml"
    config.write_text("limits: {cost_usd: 100.0}\n", "utf-8")
    return {
        **os.environ,
        "SLACK_API_URL": slack,
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "bench",
        "ASSISTANT_DATA_DIR": str(folder / "data"),
        "ASSISTANT_CONFIG": str(config),
        "DATABASE_URL": "",
    }
