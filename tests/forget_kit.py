"""Helpers for tests of deletion: runs stored as the product stores them, and the decrypted columns
of every table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from bot.runs.checkpoint import RunLog
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.requests import IncomingMessage, RequestQueue
from bot.storage.tables import METADATA, actions, proposal
from scopes.effects import Handles
from scopes.intent import Intent
from scopes.label import TRUSTED_LABEL, Label
from scopes.tool import Item
from subagents.brief import Brief, BriefDraft, SpawnedBrief
from subagents.gate import Action, new_id
from subagents.result import SubagentResult
from subagents.trajectory import Context, Origin

Json = dict[str, Any]

NOW = datetime(2026, 4, 15, 9, 30, tzinfo=UTC)
URL = "https://acme.slack.com/archives"


def item(id: str, text: str, author: str = "U0ANA") -> Item:
    channel = id.partition("/")[0]
    label = Label(untrusted=True, sources=frozenset({channel}))
    return Item(id, text, link_to(id), label, author, NOW, "Ana Ruiz")


def link_to(id: str) -> str:
    channel, _, ts = id.partition("/")
    return f"{URL}/{channel}/p{ts.replace('.', '')}"


def finding(id: str, claim: str, *evidence: str, quotes: Sequence[str] = ()) -> Json:
    return {
        **{"id": id, "claim": claim, "evidence": list(evidence), "quotes": list(quotes)},
        **{"state": "unsolved", "severity": "high", "severity_reason": "", "owner": ""},
        **{"next_step": "", "customers": [], "links": [link_to(e) for e in evidence]},
        **{"messages": len(evidence), "people": 1, "since": None},
    }


def result(id: str, text: str, findings: Sequence[Json], *sources: str) -> Json:
    return {
        **{"id": id, "scope": "slack", "model": "fast", "contract": "answer", "steps": 2},
        **{"status": "complete", "stopped_by": "none", "reason": "", "cost_usd": 0.01},
        **{"text": text, "findings": list(findings), "value": {"text": text}, "not_covered": []},
        **{"unsupported": [], "coverage": {}, "usage": {}, "tool_calls": []},
        "label": {"untrusted": True, "readers": "public", "sources": list(sources)},
    }


def spawned_brief(id: str, task: str = "Look.") -> SpawnedBrief:
    draft = BriefDraft(task=task, scope="slack")
    brief = Brief(draft, Handles({}), None, TRUSTED_LABEL, intent=Intent(task))
    return SpawnedBrief(id, brief, "abc", "fast", (), (), "slack/answer@1", "p1", 60.0, 10.0, NOW)


@dataclass
class RunToStore:
    """A run to store: the items that it read, its results, its answer."""

    id: str
    read: Sequence[Item]
    results: Sequence[Json] = ()
    answer: str = ""
    question: str = "What is open?"
    request: str | None = None
    requester: str | None = None

    @property
    def document(self) -> Json:
        return {
            **{"run_id": self.id, "kind": "ask", "question": self.question, "answer": self.answer},
            **{"subagents": list(self.results), "coverage": {"not_covered": []}},
        }

    async def store(self, store: Store, *, ended: bool = True) -> None:
        """Store the run step by step, as `serve` does."""
        request, requester = self.request, self.requester
        await store.start_run(
            self.id, "ask", self.question, "offline", {}, requester=requester, request=request
        )
        sink = RunLog(store, self.id)
        run, text = self.id, "\n".join(i.line() for i in self.read)
        sink.context(Context(run, "s1", "p1", "subagent", "slack", "fast", "t@1", ("read",), NOW))
        shown = {"type": "tool_result", "tool_use_id": "t1", "content": f"<f>\n{text}\n</f>"}
        sink.note(run, "s1", Origin.TOOL_RESULT, shown, "read")
        sink.request(run, "s1", 0, 1, {"messages": [{"role": "user", "content": [shown]}]})
        reply = {"type": "text", "text": f"I have read: {text}"}
        sink.reply(run, "s1", 0, 1, {"content": [reply], "cost_usd": 0.5})
        sink.saw(run, [(i.id, i.author) for i in self.read])
        items = TypeAdapter(Sequence[Item]).dump_python(self.read, mode="json")
        body = {"results": [{"text": text, "items": items}]}
        sink.steps.append({"run": run, "key": f"{run}/s1/1/tools", "body": body})
        await sink.flush()
        for each in map(SubagentResult.model_validate, self.results):
            await store.save_subagent(run, spawned_brief(each.id), each)
        if ended:
            await store.finish_run(run, "complete", result=self.document, cost_usd=0.01)


async def ask(
    inbox: RequestQueue, id: str, text: str, user: str = "U0ANA", state: str = "done"
) -> str:
    """Store a request in this state; return its key."""
    channel, _, ts = id.partition("/")
    event: Json = {"type": "message", "channel": channel, "ts": ts, "user": user, "text": text}
    event["blocks"] = [{"type": "rich_text", "elements": [{"text": text}]}]
    incoming = IncomingMessage("T1", channel, ts, ts, user, "mention", event)
    await inbox.add(incoming)
    if state == "running":
        await inbox.take(1, datetime.now(UTC))
    elif state != "new":
        await inbox.finish(incoming.key, state)
    return incoming.key


async def propose(database: Database, run: str, text: str, user: str = "U0ANA") -> Action:
    action = Action(
        id=new_id(),
        run=run,
        context="p1",
        tool="post_message",
        scope="slack",
        args={"channel": "C9", "text": text},
        requester=user,
        label=Label(),
        handles={},
        intent=Intent("post it"),
        rule="audience",
        made=NOW,
    )
    await database.write(sa.insert(actions).values(proposal(action)))
    return action


async def columns(database: Database) -> dict[str, str]:
    """Return the decrypted columns of each table as text."""
    contents = {}
    for table in METADATA.sorted_tables:
        rows = await database.read(sa.select(table))
        contents[table.name] = "\n".join(
            json.dumps(r._asdict(), default=str, ensure_ascii=False) for r in rows
        )
    return contents


async def tables_with(database: Database, words: Iterable[str]) -> list[str]:
    """Return the tables that contain any of these texts."""
    texts = [json.dumps(w, ensure_ascii=False)[1:-1] for w in words]
    contents = await columns(database)
    return [name for name, text in contents.items() if any(w in text for w in texts)]
