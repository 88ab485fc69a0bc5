"""What was said around a request: its thread as it stands in Slack, its files, earlier answers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.erasure.sightings import of_runs
from bot.faces.pane import hint
from bot.hearing.said import people_in
from bot.policy.people import People
from bot.replies.citable import without_own
from bot.replies.cite import CITED
from bot.requests.files import read_files
from bot.requests.inbox import Inbox, StoredRequest
from bot.requests.names import FAILURES, Names
from bot.requests.thread import Thread, rebuild
from bot.runs.runs import Live
from bot.storage.store import Store, StoredSubagent
from config.settings import Reply
from scopes.label import TRUSTED, Label, is_conversation
from scopes.slack_items import is_outside
from scopes.slack_reader import SlackReader
from subagents.fence import new_fence
from subagents.run import Run

log = logging.getLogger(__name__)

MAX_EARLIER_ANSWERS = 20
LEFT_OUT = "(an earlier answer, left out here)"
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
        earlier = await self._earlier(request, live.run) if in_thread else Earlier()
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
        public = facts is not None and not facts.private and not facts.shared
        name = f"#{facts.name}" if facts and public and facts.name else "this conversation"
        outside = await self._is_outside(request, thread)
        label = replace(thread.label, outside=outside).join(earlier.label)
        if attached.blocks:
            label = label.join(replace(await self._home(request, reader), outside=True))
        await self._note(request, live, thread, earlier)
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
            "said": thread.said,
            "label": label.to_json(),
            "refused": [*attached.refused, *([thread.note] if thread.note else [])],
        }

    async def _note(
        self, request: StoredRequest, live: Live, thread: Thread, earlier: Earlier
    ) -> None:
        """Note whose text this run holds: that of the thread, of the files, of earlier answers."""
        listed = request.event.get("files")
        files = listed if isinstance(listed, list) else []
        ids = [file.get("id") for file in files if isinstance(file, dict)]
        seen = await of_runs(self.store.database, list(earlier.answers))
        seen += [(item.id, item.author) for item in thread.items]
        seen += [(id, request.user) for id in ids if isinstance(id, str)]
        live.run.sink.saw(live.run.id, seen)

    async def _is_outside(self, request: StoredRequest, thread: Thread) -> bool:
        """Return whether anybody but full members worded what the thread shows."""
        users = people_in(thread.others)
        found = await asyncio.gather(*(self.people.person(u, request.team) for u in users))
        kinds = {person.id: person.kind for person in found if person}
        return thread.attached or any(is_outside(m, kinds) for m in thread.others)

    async def _home(self, request: StoredRequest, reader: SlackReader) -> Label:
        """The label of what was handed in with the request: whoever is there may read it."""
        try:
            return await reader.label(request.channel)
        except FAILURES as error:
            log.warning("who may read %s is not known: %s", request.channel, error)
            own = frozenset({request.user})
            return Label(True, own, frozenset({request.channel}), outside=True)

    async def _earlier(self, request: StoredRequest, run: Run) -> Earlier:
        """What earlier answers in the thread had found, the latest first, and whom it is for.

        An answer that rests on what this requester may not read is left out, wherever it stands.
        """
        found = Earlier()
        reader = run.clients[SlackReader]
        assert isinstance(reader, SlackReader)
        runs = await self.inbox.answered(request)
        found.answers |= dict.fromkeys(runs[:-MAX_EARLIER_ANSWERS], LEFT_OUT)
        rich = 0
        for number, id in list(enumerate(runs, 1))[: -MAX_EARLIER_ANSWERS - 1 : -1]:
            offset = number * EARLIER
            before = len(found.findings)
            document = (await self.store.run(id)).result or {}
            told = document.get("label")
            label = Label.of(told) if told else await self._home(request, reader)
            subagents = await self.store.subagents(id) if rich < MAX_EARLIER_RUNS else []
            label = await self._rejoined(joined_labels(label, subagents), reader)
            if await run.gate.directory.obstacles(label, request.user):
                found.answers[id] = LEFT_OUT
                continue
            for subagent in subagents:
                found.findings += _renumbered((subagent.result or {}).get("findings") or (), offset)
            rich += len(found.findings) > before
            answer = without_own(document.get("answer") or "")
            if answer or len(found.findings) > before:
                found.label = found.label.join(label)
            found.answers[id] = _moved(answer, offset) or LEFT_OUT
        return found

    async def _rejoined(self, label: Label, reader: SlackReader) -> Label:
        """A stored label as it is now: a channel that was public then may be private by now."""
        for source in sorted(filter(is_conversation, label.sources)):
            try:
                label = label.join(await reader.label(source))
            except FAILURES as error:
                log.warning("who may read %s is not known: %s", source, error)
                unknown = Label(True, frozenset(), frozenset({source}), outside=True)
                label = label.join(unknown)
        return label


def joined_labels(label: Label, subagents: Sequence[StoredSubagent]) -> Label:
    """A run's label with those of its subagents; runs stored before labels were have only these."""
    for subagent in subagents:
        if (subagent.result or {}).get("label"):
            label = label.join(Label.of((subagent.result or {})["label"]))
    return label


@dataclass
class Earlier:
    """What earlier answers in a thread hold."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    """With ids of their own in this thread: the second answer's F1.2 is F2001.2 from then on."""
    answers: dict[str, str] = field(default_factory=dict)
    label: Label = TRUSTED


def _moved(answer: str, offset: int) -> str:
    return CITED.sub(lambda match: _shifted(match[0], offset), answer)


def _shifted(text: str, offset: int) -> str:
    """The finding ids in a text, moved on; those that were moved already stay."""

    def put(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"F{number if number >= EARLIER else offset + number}.{match[2]}"

    return re.sub(r"F(\d+)\.(\d+)", put, text)


def _renumbered(findings: Sequence[Mapping[str, Any]], offset: int) -> list[dict[str, Any]]:
    held = [f for f in findings if f["evidence"]]  # the source of the others was deleted
    return [{**finding, "id": _shifted(finding["id"], offset)} for finding in held]
