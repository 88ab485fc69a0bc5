"""The `console` table: how long its pages take with 100,000 stored runs, a year's number."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import sqlalchemy as sa
from starlette.applications import Starlette
from yarl import URL

from benchmarks.postgres import own_database
from benchmarks.table import Row
from bot.console.app import PATH, LoopbackAccess
from bot.console.pages import console_routes
from bot.policy.policy import PolicyFile
from bot.runs.store import PendingRecords, Store
from bot.serving.web import serve_app
from bot.storage import tables
from bot.storage.database import Database
from bot.storage.encryption import Cipher
from bot.storage.run_index import Names, fold_text
from config.settings import load_settings
from scopes.effects import Handles
from scopes.label import TRUSTED_LABEL
from subagents.brief import Brief, BriefDraft, SpawnedBrief
from subagents.result import SubagentResult
from subagents.trajectory import Context, Origin

NUMBER = 100_000
BATCH = 2_000
EVERY = timedelta(days=365) / NUMBER
USERS = 200
CHILDREN = 3
"""Subagents of each run, with their contexts and the parent's."""
RESULT_CHARS = 4_000
WIDE, WIDTH, CALLS = "wide", 50, 6
"""Id of a run with so many subagents, each with so many calls."""
WARM, TIMES = 2, 15
BAR_MS = 300.0
PAGES = {
    "newest runs": "/runs",
    "of one person, failed": "/runs?who=U3&status=failed",
    "of one person by name": "/runs?who=ana",
    "of one channel, with costs": "/runs?where=C7&cost_from=0.02",
    "rated as bad": "/runs?rating=bad",
    "a word that one question has": "/runs?text=needle",
    "a word that no question has": "/runs?text=nowhere",
    "a run of 50 subagents": f"/runs/{WIDE}",
    "what grows of it": f"/runs/{WIDE}/live",
    "a trajectory": f"/runs/{WIDE}/contexts/s7",
    "costs of 30 days": "/costs?first={month}&last={today}",
    "costs of a year": "/costs?first={year}&last={today}",
}
NOTES = f"""\
Medians of {TIMES} requests over HTTP, in the process of the bot. {NUMBER:,} runs in 365 days, each
with a result of {RESULT_CHARS:,} characters, {CHILDREN} subagents and {CHILDREN + 1} contexts."""


async def console(postgres: str) -> list[Row]:
    """Measure in a file, and in a database of a Postgres server."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, place in (("SQLite", nullcontext(None)), ("Postgres", own_database(postgres))):
            with place as url:
                store = Store(await Database.open(Path(folder), url, Cipher.generate()))
                try:
                    rows += await _measured(kind, store)
                finally:
                    await store.aclose()
    return rows


async def _measured(kind: str, store: Store) -> list[Row]:
    newest, chance = datetime.now(UTC), random.Random(7)
    for start in range(0, NUMBER, BATCH):
        await store.database.change(partial(_fill, newest=newest, start=start, chance=chance))
    for number in range(USERS):
        await Names(store.database).save(f"U{number}", "Ana" if number == 3 else f"Ben {number}")
    await _wide_run(store, newest)
    if store.database.shared:
        await store.database.change(lambda c: c.execute(sa.text("ANALYZE")))
    month, year = newest - timedelta(days=29), newest - timedelta(days=365)
    days = {"today": newest.date(), "month": month.date(), "year": year.date()}
    settings = load_settings()
    policy = PolicyFile(None, settings.policy)
    app = Starlette(routes=console_routes(store, settings, LoopbackAccess(), policy))
    rows = []
    async with serve_app(app, "127.0.0.1", 0) as here, aiohttp.ClientSession() as client:
        for name, path in PAGES.items():
            address = f"{here}{PATH}{path.format(**days)}"
            took, size = await _timed(client, address)
            rows.append(Row(f"{kind}: {name}", took, " ms", BAR_MS, f"{size / 1000:,.0f} KB"))
    return rows


async def _timed(client: aiohttp.ClientSession, address: str) -> tuple[float, int]:
    """Return the median in ms, and the bytes of the page."""
    took, size = [], 0
    for _ in range(WARM + TIMES):
        began = time.perf_counter()
        async with client.get(URL(address, encoded=True)) as page:
            assert page.status == 200, await page.text()
            size = len(await page.read())
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took[WARM:]), size


def _fill(connection: sa.Connection, newest: datetime, start: int, chance: random.Random) -> None:
    numbers = range(NUMBER - start, NUMBER - start - BATCH, -1)  # oldest first, as in reality
    rows = {table: list[dict[str, Any]]() for table in FILLED}
    for n in numbers:
        for table, fill in FILLED.items():
            rows[table] += fill(n, newest - n * EVERY, chance)
    for table, filled in rows.items():
        connection.execute(sa.insert(table), filled)


def _words() -> str:
    """Return many words in a random order, which a database compresses as little as real text."""
    chance = random.Random(3)
    vocabulary = [
        "".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(5_000)
    ]
    return " ".join(chance.choices(vocabulary, k=200_000))


WORDS = _words()


def _text(length: int, chance: random.Random) -> str:
    start = chance.randrange(len(WORDS) - length)
    return WORDS[start : start + length]


def _question(n: int) -> str:
    return f"Question {n} {'needle' if n == 70_000 else 'of somebody'} " + "about orders " * 8


def _run_row(n: int, at: datetime, chance: random.Random) -> list[dict[str, Any]]:
    scheduled = n % 10 == 0
    return [
        {
            "id": f"run{n:07}",
            "kind": "schedule" if scheduled else "mention",
            "status": "failed" if n % 20 == 3 else "complete",
            "question": _question(n),
            "model": "claude",
            "args": {"schedule": f"report-{n % 3}"} if scheduled else {},
            "started": at,
            "finished": at + timedelta(seconds=30),
            "result": {"answer": _text(RESULT_CHARS, chance)},
            "error": None,
            "cost_usd": chance.random() / 10,
            "requester": f"U{n % USERS}",
            "request": None if scheduled else f"T1/C{n % 40}/{n}.000000",
        }
    ]


def _question_rows(n: int, at: datetime, chance: random.Random) -> list[dict[str, Any]]:
    return [{"run": f"run{n:07}", "text": fold_text(_question(n))}]


def _cost_rows(n: int, at: datetime, chance: random.Random) -> list[dict[str, Any]]:
    same = {"run": f"run{n:07}", "started": at}
    return [{**same, "model": "main", "usd": 0.05}, {**same, "model": "fast", "usd": 0.003}]


def _subagent_rows(n: int, at: datetime, chance: random.Random) -> list[dict[str, Any]]:
    same: dict[str, Any] = {
        "run": f"run{n:07}",
        "brief": {},
        "template": "slack/answer@1",
        "result": None,
    }
    ended = {"status": "complete", "stopped_by": "none", "cost_usd": 0.001}
    return [{**same, **ended, "id": f"s{k}", "position": k} for k in range(1, CHILDREN + 1)]


def _context_rows(n: int, at: datetime, chance: random.Random) -> list[dict[str, Any]]:
    same: dict[str, Any] = {
        "run": f"run{n:07}",
        "scope": "slack",
        "template": "slack/answer@1",
        "tools": [],
    }
    parent: dict[str, Any] = {"id": "p1", "parent": None, "kind": "parent", "model": "main"}
    child = {"parent": "p1", "kind": "subagent", "model": "fast"}
    children = [{"id": f"s{k}", **child} for k in range(1, CHILDREN + 1)]
    return [{**same, **each, "created": at} for each in (parent, *children)]


def _feedback_rows(n: int, at: datetime, chance: random.Random) -> list[dict[str, Any]]:
    rated = {"request": f"T1/C{n % 40}/{n}.000000", "user": "U1", "at": at}
    return [{**rated, "value": "bad"}] if n % 97 == 1 else []


FILLED: dict[sa.Table, Callable[[int, datetime, random.Random], list[dict[str, Any]]]] = {
    tables.runs: _run_row,
    tables.questions: _question_rows,
    tables.model_costs: _cost_rows,
    tables.subagents: _subagent_rows,
    tables.contexts: _context_rows,
    tables.feedback: _feedback_rows,
}


async def _wide_run(store: Store, at: datetime) -> None:
    await store.start_run(WIDE, "mention", "What is open?", "claude", {}, requester="U1")
    recording = PendingRecords()
    for number in range(1, WIDTH + 1):
        id = f"s{number}"
        about = ("subagent", "slack", "fast", "slack/answer@1", ("read_channel",), at)
        recording.context(Context(WIDE, id, "p1", *about))
        message = {"type": "text", "text": f"{id} " + "a message of a channel " * 300}
        messages: list[dict[str, Any]] = []
        for call in range(CALLS):
            block = {**message, "text": f"{call} {message['text']}"}
            recording.note(WIDE, id, Origin.TOOL_RESULT, block)
            messages.append({"role": "user", "content": [block]})
            recording.request(WIDE, id, call, 1, {"messages": messages})
            answer = {"type": "tool_use", "id": f"{id}{call}", "name": "read_channel", "input": {}}
            recording.reply(WIDE, id, call, 1, {"content": [answer], "cost_usd": 0.001})
            messages.append({"role": "assistant", "content": [answer]})
        await store.save_subagent(WIDE, _brief(number, at), _result(number))
    await store.record(recording)
    await store.finish_run(WIDE, "complete", cost_usd=0.3)


def _brief(number: int, at: datetime) -> SpawnedBrief:
    draft = BriefDraft(task="Read the channel and tell what is open. " * 10, scope="slack")
    return SpawnedBrief(
        id=f"s{number}",
        brief=Brief(draft, Handles({f"C{number}": f"#channel-{number}"}), None, TRUSTED_LABEL),
        delimiter="abc",
        model="fast",
        system=(),
        tools=(),
        template="slack/answer@1",
        parent="p1",
        seconds=60.0,
        spare=10.0,
        frozen_at=at,
    )


def _result(number: int) -> SubagentResult:
    findings = [
        {
            "id": f"F{number}.{n}",
            "claim": "Somebody waits for an answer about an order. " * 3,
            "evidence": ["C1/1.0"],
            "quotes": ["I wait for an answer."],
            "links": ["https://acme.slack.com/archives/C1/p1"],
        }
        for n in range(1, 11)
    ]
    same = {"id": f"s{number}", "scope": "slack", "model": "fast", "contract": "answer"}
    ended = {"status": "complete", "stopped_by": "none", "text": "One is open. " * 20}
    return SubagentResult.model_validate({**same, **ended, "findings": findings})
