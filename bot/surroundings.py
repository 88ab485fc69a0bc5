"""What was said around a request: its thread as it stands in Slack, its files, earlier answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.files import read_files
from bot.inbox import Inbox, StoredRequest
from bot.names import Names
from bot.pane import hint
from bot.runs import Live
from bot.store import Store
from bot.thread import rebuild
from config.settings import Reply
from scopes.label import Label
from scopes.slack_reader import SlackReader
from subagents.fence import new_fence

MAX_EARLIER_RUNS = 3
MAX_EARLIER_FINDINGS = 40
EARLIER = 1_000
"""Findings of the latest answer are numbered from here on, those of the one before from twice it:
no subagent of this run has such a number."""
NO_WORDS = "(The message mentions you and says nothing else.)"


@dataclass
class Surroundings:
    """Reads what `Answering` needs besides the request itself."""

    store: Store
    inbox: Inbox
    web: AsyncWebClient
    """With the bot's token: downloads files."""
    names: Names
    settings: Reply
    bot_user: str
    url: str

    async def read(self, request: StoredRequest, live: Live) -> dict[str, Any]:
        reader = live.run.clients[SlackReader]
        assert isinstance(reader, SlackReader)
        thread = await rebuild(
            reader.web,
            request,
            self.settings.thread_tokens,
            self.bot_user,
            self.names,
            reader.label,
            self.url,
        )
        fence = new_fence()
        attached = await read_files(self.web, request.event, self.settings, fence)
        text = thread.request or NO_WORDS
        looking_at = hint(request.event)
        in_thread = request.thread_ts != request.ts
        label = thread.label
        earlier, rested_on = await self._earlier(request) if in_thread else ([], [])
        for each in rested_on:
            label = label.join(each)
        here = {request.channel: "this conversation"}
        if in_thread:
            here[f"{request.channel}/{request.thread_ts}"] = "this thread"
        return {
            "fence": fence,
            "text": f"{text}\n({looking_at})" if looking_at else text,
            "conversation": thread.text if in_thread else "",
            "files": [dict(block) for block in attached.blocks],
            "earlier": earlier,
            "here": here,
            "label": label.to_json(),
            "refused": [*attached.refused, *([thread.note] if thread.note else [])],
        }

    async def _earlier(self, request: StoredRequest) -> tuple[list[dict[str, Any]], list[Label]]:
        """What earlier answers in the thread had found, the latest first, and whom it is for."""
        runs = await self.inbox.answered(request, MAX_EARLIER_RUNS)
        found: list[dict[str, Any]] = []
        labels = []
        for place, run in enumerate(runs, 1):
            for subagent in await self.store.subagents(run):
                result = subagent.result or {}
                found += _renumbered(result.get("findings") or (), place * EARLIER)
                if result.get("findings") and result.get("label"):
                    labels.append(Label.of(result["label"]))
        return found[:MAX_EARLIER_FINDINGS], labels


def _renumbered(findings: Sequence[Mapping[str, Any]], offset: int) -> list[dict[str, Any]]:
    made = []
    for finding in findings:
        subagent, _, number = finding["id"].removeprefix("F").partition(".")
        made.append({**finding, "id": f"F{offset + int(subagent)}.{number}"})
    return made
