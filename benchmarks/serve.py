"""The `serve` table: the bot under load, idle, starting and over time; what durability costs."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from pg_kit import database as own_database
from standins.slack_limits import TIERS

from benchmarks import durable_fanout, start
from benchmarks.bot_process import BotProcess, bot_process
from benchmarks.table import Row

STORM_PER_S, STORM_S = 50, 30
CALM_PER_S, CALM_S = 1, 30
ANSWERED_S = 300.0
"""Seconds to wait for answers after the last mention."""
SIGNS = 20
IDLE_S = 20.0
SETTLE_S = 5.0
"""Seconds until a started bot counts as idle: the second socket opens 3 s after the first."""
STARTS = 3
WARM, SHORT, FULL = 200, 300, 2_000
"""Requests before memory is measured, and while it is."""
TOGETHER = 10
SIZED_PER_S, SIZED_S = 10, 10
PARTS = ("storm", "calm", "sign", "idle", "start", "memory", "fanout", "sizes")
NOTES = """\
Slack and the model are stand-ins in this process, two event loops in two threads; the bot is
`python -m bot serve --port 0` in a process of its own, in Socket Mode with two sockets, on SQLite.
Each mention comes as Slack sends it, as `app_mention` and as `message`. Acks are measured at the
stand-in from the moment at which it begins to deliver. An answer here is a parent's alone, whose
model answers at once: it is counted when its last write to Slack has been made. CPU and RSS are of
the bot's process, from /proc. The fan-out is 50 subagents with three model calls of 1 s, which read
a channel and a thread from memory: once as child workflows, with a stored budget and stored steps,
once as tasks with the same store for their trajectory, turn by turn."""


@dataclass
class Load:
    """The results of a number of mentions."""

    mentions: int
    acks: list[float]
    """Seconds of the first try of each event; infinite if that was not acked."""
    unanswered: int
    doubled: int
    seconds: float
    """Seconds from the first mention to the last answer."""
    cpu_s: float
    calls: Counter[str]
    """Calls of Slack's methods."""
    model_calls: int
    errors: list[str] = field(default_factory=list)

    @property
    def p99_ms(self) -> float:
        return sorted(self.acks)[int(0.99 * len(self.acks))] * 1000

    def one_answer(self) -> str:
        """Return the calls of one answer."""
        slack = {m: n / self.mentions for m, n in sorted(self.calls.items())}
        named = ", ".join(f"{m} {n:.2g}" for m, n in slack.items() if n >= 0.05)
        return f"model calls {self.model_calls / self.mentions:.2g}; {named}"


def load(bot: BotProcess, per_s: float, seconds: float) -> Load:
    """Send mentions at an even rate, then wait for the remaining answers."""
    calls, model_calls, cpu = Counter(bot.slack.calls), bot.model.requests, bot.cpu_s()
    delivered, began, threads = len(bot.slack.deliveries), time.perf_counter(), set[str]()
    for number in range(int(per_s * seconds)):
        time.sleep(max(0.0, began + number / per_s - time.perf_counter()))
        threads.add(bot.ask()[1])
    bot.wait_for_answers(bot.asked, ANSWERED_S)
    ended = time.perf_counter()
    time.sleep(1.0)  # for answers that should not come
    answers = bot.answered()
    written = Counter(m.thread_ts for m in bot.written())
    tries = [d for d in bot.slack.deliveries[delivered:] if d.attempt == 0]
    return Load(
        mentions=len(threads),
        acks=[d.acked_at - d.sent_at if d.acked_at else float("inf") for d in tries],
        unanswered=sum(ts not in answers for ts in threads),
        doubled=sum(written[ts] > 1 for ts in threads),
        seconds=ended - began,
        cpu_s=bot.cpu_s() - cpu,
        calls=Counter(bot.slack.calls) - calls,
        model_calls=bot.model.requests - model_calls,
        errors=bot.errors(),
    )


def load_rows(name: str, found: Load) -> list[Row]:
    median = statistics.median(found.acks) * 1000
    errors = f"; {len(found.errors)} errors logged: {found.errors[0][:200]}" if found.errors else ""
    return [
        Row(f"{name}: ack p99", found.p99_ms, " ms", 500, f"p50 {median:.3g} ms{errors}"),
        Row(f"{name}: mentions unanswered", found.unanswered, "", 0, f"of {found.mentions:,}"),
        Row(f"{name}: mentions answered twice", found.doubled, "", 0),
    ]


def storm_rows(full: bool) -> list[Row]:
    with bot_process() as bot:
        found = load(bot, STORM_PER_S, STORM_S)
    each = found.cpu_s / found.mentions * 1000
    rate = found.mentions / found.seconds
    return [
        *load_rows(f"{STORM_PER_S}/s for {STORM_S} s", found),
        Row("full answers a second", rate, "", None, found.one_answer()),
        Row("bot's CPU an answer", each, " ms", None, f"{found.seconds:.0f} s to the last answer"),
    ]


def calm_rows(full: bool) -> list[Row]:
    with bot_process(TIERS) as bot:
        found = load(bot, CALM_PER_S, CALM_S * (3 if full else 1))
    last = f"{found.seconds:.0f} s to the last answer; {found.one_answer()}"
    name = f"{CALM_PER_S}/s, rate tiers on"
    return [*load_rows(name, found), Row(f"{name}: time", found.seconds, " s", None, last)]


def sign_rows(full: bool) -> list[Row]:
    """Measure from a mention to the first text below it, one after another."""
    signs, answers = [], []
    with bot_process() as bot:
        time.sleep(SETTLE_S)
        for _ in range(SIGNS):
            time.sleep(0.3)
            began, before = time.perf_counter(), len(bot.slack.effects)
            bot.ask()
            while len(bot.slack.effects) == before and time.perf_counter() < began + 20:
                time.sleep(0.001)
            signs.append(time.perf_counter() - began)
            bot.wait_for_answers(bot.asked, 20, 0.005)
            answers.append(time.perf_counter() - began)
    note = f"worst {max(signs) * 1000:.0f} ms; answer p50 {statistics.median(answers):.2f} s"
    sign = statistics.median(signs) * 1000
    return [Row("first visible sign, p50", sign, " ms", 500, note)]


def idle_rows(full: bool) -> list[Row]:
    with bot_process() as bot:
        bot.ask()
        bot.wait_for_answers(1, 20)
        time.sleep(SETTLE_S)
        cpu, began = bot.cpu_s(), time.perf_counter()
        time.sleep(IDLE_S)
        share = (bot.cpu_s() - cpu) / (time.perf_counter() - began) * 100
    return [Row(f"idle CPU over {IDLE_S:.0f} s", share, " %", 2, "of one core")]


def start_rows(full: bool) -> list[Row]:
    """Measure starts, including the first one, which makes the database."""
    times = []
    for _ in range(STARTS):
        with bot_process() as bot:
            times.append(bot.connected_s)
    note = f"a new database each time; `import anthropic` alone {start.import_sdk_s():.2f} s"
    return [Row("start to connected", statistics.median(times), " s", 3, note)]


def memory_rows(full: bool) -> list[Row]:
    """Measure RSS after each ten requests; caches are full after the first few hundred."""
    number, points = FULL if full else SHORT, []
    with bot_process() as bot:
        while bot.asked < WARM + number:
            for _ in range(TOGETHER):
                bot.ask()
            bot.wait_for_answers(bot.asked, 60)
            points.append((bot.asked, 1024 * bot.rss_mb()))
    later = points[WARM // TOGETHER :]
    slope = statistics.linear_regression(*zip(*later, strict=True)).slope
    held = [f"{kb / 1024:.0f} MB after {n:,}" for n, kb in (points[0], later[0], later[-1])]
    return [Row(f"RSS a request, over {number:,}", slope, " KB", 5, ", ".join(held))]


def size_rows(full: bool) -> list[Row]:
    """Measure the same load on SQLite, and on Postgres with one to three replicas."""
    rows: list[Row] = []
    for replicas in (0, 1, 2, 3):
        database = own_database() if replicas else nullcontext("")
        with database as url, bot_process(database=url, replicas=max(1, replicas)) as bot:
            time.sleep(SETTLE_S)
            found = load(bot, SIZED_PER_S, SIZED_S)
            held = bot.rss_mb()
        name = f"Postgres, {replicas} replicas" if replicas else "SQLite"
        each = found.cpu_s / found.mentions * 1000
        note = f"{found.mentions / found.seconds:.1f} answers a second, {held:.0f} MB a process"
        rows += [*load_rows(name, found), Row(f"{name}: CPU an answer", each, " ms", None, note)]
    return rows


def serve(parts: Sequence[str], full: bool) -> list[Row]:
    """Return the rows of these parts; without any, of all."""
    measured: Mapping[str, Callable[[bool], list[Row]]] = {
        "storm": storm_rows,
        "calm": calm_rows,
        "sign": sign_rows,
        "idle": idle_rows,
        "start": start_rows,
        "memory": memory_rows,
        "fanout": lambda full: durable_fanout.rows(),
        "sizes": size_rows,
    }
    return [row for part in parts or PARTS for row in measured[part](full)]
