"""What was said around a request: its thread as it stands in Slack, its files, earlier answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.cite import CITED
from bot.files import read_files
from bot.inbox import Inbox, StoredRequest
from bot.names import Names
from bot.pane import hint
from bot.people import People
from bot.runs import Live
from bot.store import Store
from bot.thread import rebuild
from config.settings import Reply
from scopes.label import TRUSTED, Label
from scopes.slack_reader import SlackReader
from subagents.fence import new_fence

MAX_EARLIER_ANSWERS = 20
MAX_EARLIER_RUNS = 3
"""Of those answers, the latest that found something: their findings come along."""
MAX_EARLIER_FINDINGS = 40
EARLIER = 1_000
"""Findings of a thread's first answer are numbered from here on, those of the second from twice it:
no subagent has such a number, and an id means the same in each turn."""
NO_WORDS = "(The message mentions you and says nothing else.)"


@dataclass
class Surroundings:
    """Reads what `Answering` needs besides the request itself."""

    store: Store
    inbox: Inbox
    web: AsyncWebClient
    """With the bot's token: downloads files."""
    names: Names
    people: People
    settings: Reply
    bot_user: str
    url: str

    async def read(self, request: StoredRequest, live: Live) -> dict[str, Any]:
        reader = live.run.clients[SlackReader]
        assert isinstance(reader, SlackReader)
        in_thread = request.thread_ts != request.ts
        earlier = await self._earlier(request) if in_thread else Earlier()
        thread = await rebuild(
            reader.web,
            request,
            self.settings.thread_tokens,
            self.bot_user,
            self.names,
            reader.label,
            self.url,
            earlier.answers,
        )
        fence = new_fence()
        attached = await read_files(self.web, request.event, self.settings, fence)
        text = thread.request or NO_WORDS
        looking_at = hint(request.event)
        facts = await self.people.channel(request.channel)
        name = f"#{facts.name}" if facts and facts.name else "this conversation"
        here = {request.channel: name}
        if in_thread:
            here[f"{request.channel}/{request.thread_ts}"] = "this thread"
        return {
            "fence": fence,
            "text": f"{text}\n({looking_at})" if looking_at else text,
            "conversation": thread.text.rpartition("\n")[0] if in_thread else "",
            "files": [dict(block) for block in attached.blocks],
            "earlier": earlier.findings[:MAX_EARLIER_FINDINGS],
            "here": here,
            "label": thread.label.join(earlier.label).to_json(),
            "refused": [*attached.refused, *([thread.note] if thread.note else [])],
        }

    async def _earlier(self, request: StoredRequest) -> Earlier:
        """What earlier answers in the thread had found, the latest first, and whom it is for."""
        found = Earlier()
        runs = await self.inbox.answered(request)
        rich = 0
        for number, run in list(enumerate(runs, 1))[: -MAX_EARLIER_ANSWERS - 1 : -1]:
            offset = number * EARLIER
            before = len(found.findings)
            subagents = await self.store.subagents(run) if rich < MAX_EARLIER_RUNS else []
            for subagent in subagents:
                result = subagent.result or {}
                found.findings += _renumbered(result.get("findings") or (), offset)
                if result.get("findings") and result.get("label"):
                    found.label = found.label.join(Label.of(result["label"]))
            rich += len(found.findings) > before
            answer = ((await self.store.run(run)).result or {}).get("answer") or ""
            found.answers[run] = CITED.sub(lambda m, o=offset: _shifted(m[0], o), answer)
        return found


@dataclass
class Earlier:
    """What earlier answers in a thread hold."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    """With ids of their own in this thread: the second answer's F1.2 is F2001.2 from then on."""
    answers: dict[str, str] = field(default_factory=dict)
    label: Label = TRUSTED


def _shifted(text: str, offset: int) -> str:
    """The finding ids in a text, moved on; those that were moved already stay."""

    def put(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"F{number if number >= EARLIER else offset + number}.{match[2]}"

    return re.sub(r"F(\d+)\.(\d+)", put, text)


def _renumbered(findings: Sequence[Mapping[str, Any]], offset: int) -> list[dict[str, Any]]:
    return [{**finding, "id": _shifted(finding["id"], offset)} for finding in findings]
