"""Stored runs for tests of the console: many rows, and runs with many subagents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from forget_kit import finding, result, spawned_brief

from bot.runs.store import PendingRecords, Store
from bot.storage import tables
from bot.storage.database import Database
from bot.storage.run_index import fold_text, store_model_costs
from scopes.effects import Handles
from scopes.label import TRUSTED_LABEL
from subagents.brief import Brief, BriefDraft, SpawnedBrief
from subagents.gate import Decision
from subagents.result import SubagentResult
from subagents.trajectory import Context, Origin

SECRET = "xoxb-123456789012-ABCDEFGHIJKLMNOPQRSTUVWX"
NASTY = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>"\'&'
MODELS = {"parent": "claude-main", "subagent": "claude-fast"}
USAGE = {"input": 100, "output": 20, "cache_read": 300, "cache_write": 0, "total": 420}


def many_rows(
    count: int, until: datetime, step: timedelta, users: int = 5, channels: int = 3
) -> list[dict[str, Any]]:
    """Rows of runs, the newest at `until`: users, channels, a schedule, the shell."""
    rows = []
    for n in range(count):
        started = until - n * step
        scheduled, typed = n % 7 == 3, n % 7 == 5
        from_slack = not scheduled and not typed
        rows.append(
            {
                "id": f"run{n:06}",
                "kind": "schedule" if scheduled else "ask" if typed else "mention",
                "status": "failed" if n % 10 == 9 else "complete",
                "question": f"Question {n}: orders of {'räre' if n == 77 else 'last'} week?",
                "model": "claude",
                "args": {"schedule": "weekly"} if scheduled else {},
                "started": started,
                "finished": started + timedelta(seconds=12),
                "result": None,
                "error": None,
                "cost_usd": 0.01 * (n % 5 + 1),
                "requester": None if typed else f"U{n % users}",
                "request": f"T1/C{n % channels}/{n}.000000" if from_slack else None,
            }
        )
    return rows


async def store_rows(database: Database, rows: list[dict[str, Any]]) -> None:
    texts = [{"run": row["id"], "text": fold_text(row["question"])} for row in rows]

    def store(connection: sa.Connection) -> None:
        connection.execute(sa.insert(tables.runs), rows)
        connection.execute(sa.insert(tables.questions), texts)
        for row in rows:
            store_model_costs(connection, row["id"])

    await database.change(store)


@dataclass
class StoredFanout:
    """A run whose subagents wait, call the model, use a tool and submit, at fixed times."""

    store: Store
    id: str
    start: datetime
    question: str = "What is open?"
    words: str = ""
    """Put into each text that people or models write."""
    recording: PendingRecords = field(default_factory=PendingRecords)

    async def begin(self) -> None:
        args = {"limits": {"cost_usd": 1.0}}
        about = (self.id, "mention", self.question + self.words, "claude", args)
        await self.store.start_run(*about, requester="U1", request="T1/C1/1.000001")
        mine = tables.runs.c.id == self.id
        await self.store.database.write(
            sa.update(tables.runs).where(mine).values(started=self.start)
        )
        self.declare("p1", None)
        self.call("p1", 0, 0.0, 1.0, text="It is delegated.")

    def at(self, seconds: float) -> datetime:
        return self.start + timedelta(seconds=seconds)

    def declare(self, id: str, parent: str | None, created: float = 0.0) -> None:
        kind = "subagent" if parent else "parent"
        about = (kind, "slack", MODELS[kind], "slack/answer@1", ("read_channel",))
        self.recording.context(Context(self.id, id, parent, *about, self.at(created)))

    def call(self, id: str, seq: int, sent: float, answered: float, text: str) -> None:
        """Record a model call and its reply; `text` is what the context was sent for it."""
        block = {"type": "text", "text": f"{id}/{seq}: {text}"}
        origin = Origin.TOOL_RESULT if seq else Origin.BRIEF
        self.recording.note(self.id, id, origin, block)
        body = {"system": "You are careful.", "messages": [{"role": "user", "content": [block]}]}
        self.recording.note(
            self.id, id, Origin.PROMPT, {"type": "text", "text": "You are careful."}
        )
        self.recording.request(self.id, id, seq, 1, body)
        tool_use = {
            "type": "tool_use",
            "id": f"t{id}{seq}",
            "name": "read_channel",
            "input": {"n": seq},
        }
        outcome = {"stop_reason": "tool_use", "usage": USAGE, "cost_usd": 0.001}
        self.recording.reply(self.id, id, seq, 1, {"content": [tool_use], **outcome})
        request, reply = self.recording.requests[-1], self.recording.replies[-1]
        self.recording.requests[-1] = replace(request, at=self.at(sent))
        self.recording.replies[-1] = replace(reply, at=self.at(answered))

    async def flush(self, decisions: list[Decision] | None = None) -> None:
        self.recording.decisions = decisions or []
        await self.store.record(self.recording.take())

    def brief(self, number: int) -> SpawnedBrief:
        task = f"Read channel {number} and tell what is open. {self.words}"
        description = f"Channel {number} {self.words}"[:120]
        draft = BriefDraft(task=task, description=description, scope="slack")
        titles = {f"C{number}": f"#channel-{number} {self.words}"}
        brief = Brief(draft, Handles(titles), None, TRUSTED_LABEL)
        return replace(spawned_brief(f"s{number}"), brief=brief, frozen_at=self.at(1.0))

    def result(self, number: int) -> SubagentResult:
        claim, quotes = f"Ana waits in channel {number}. {self.words}", [f"I wait. {self.words}"]
        found = finding(f"F{number}.1", claim, f"C{number}/1.0", quotes=quotes)
        found["links"] = ["https://acme.slack.com/archives/C1/p1", "javascript:window.hacked=1"]
        fields = result(f"s{number}", f"One is open. {self.words}", [found])
        if number == 3:
            fields |= {"status": "partial", "stopped_by": "steps"}
            fields["unsupported"] = [f"finding 2: {self.words} 'gone' is in nothing"]
        return SubagentResult.model_validate({**fields, "usage": USAGE, "cost_usd": 0.002})

    async def freeze(self, count: int) -> None:
        await self.store.save_briefs(self.id, [self.brief(n) for n in range(1, count + 1)])

    async def work(self, number: int) -> None:
        """Let a subagent wait 1 s for each five before it, and use two calls and a tool."""
        wait = 1.0 + (number - 1) // 5
        self.declare(f"s{number}", "p1", wait)
        self.call(f"s{number}", 0, wait, wait + 2.0, f"Read it. {self.words} {SECRET}")
        self.call(f"s{number}", 1, wait + 2.5, wait + 4.0, f"Ana: I wait. {self.words} " * 90)
        await self.flush()
        await self.store.save_subagent(self.id, self.brief(number), self.result(number))

    async def finish(self, seconds: float) -> None:
        about = (self.id, "s1", "read_channel", "hash", "allow", "reads", self.at(3.0))
        decision = Decision(*about)
        self.call("p1", 1, seconds - 2.0, seconds - 0.5, "All have answered.")
        await self.flush([decision])
        await self.store.finish_run(self.id, "complete", cost_usd=0.2)
        mine = tables.runs.c.id == self.id
        ended = sa.update(tables.runs).where(mine).values(finished=self.at(seconds))
        await self.store.database.write(ended)


async def wide_run(store: Store, id: str, count: int = 50, **more: Any) -> StoredFanout:
    """A finished run with `count` subagents."""
    run = StoredFanout(store, id, datetime(2026, 11, 27, 9, tzinfo=UTC), **more)
    await run.begin()
    await run.freeze(count)
    for number in range(1, count + 1):
        await run.work(number)
    await run.finish(20.0)
    return run
