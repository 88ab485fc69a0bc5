"""Collect the context of a request: its thread in Slack, its files, and earlier answers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial, reduce
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.citations import CITATION_PATTERN, without_own
from bot.mailbox.sync import MailState
from bot.requests.attachments import read_files
from bot.requests.thread import Thread, ThreadLines, channel_label, read_thread
from bot.runs.durable import Durable
from bot.runs.run import ActiveRun, WorkflowSpawner
from bot.runs.store import Store
from bot.slack.assistant_pane import hint
from bot.slack.messages import has_words, people_in
from bot.slack.people import People
from bot.storage.database import Database
from bot.storage.deletions import seen_by_runs
from bot.storage.requests import RequestQueue, StoredRequest, asked_at
from bot.storage.tables import StoredSubagent
from bot.tasks.base import EarlierTurn, Request, Requester
from config.sections import ReplySettings
from config.settings import Settings
from scopes.intent import Intent
from scopes.label import TRUSTED_LABEL, Label, is_conversation
from scopes.preferences import Preferences
from scopes.slack_items import SlackMessage, is_outside, plain
from scopes.slack_reader import EPOCH, SlackReader
from scopes.tool import Window
from subagents.budget import NANOUSD_PER_USD
from subagents.delimiter import new_delimiter
from subagents.result import Finding
from subagents.run import Run

log = logging.getLogger(__name__)

MAX_EARLIER_ANSWERS = 20
MAX_RECENT, RECENT = 6, timedelta(hours=24)
"""Earlier requests that a new one in a direct message continues, and their maximum age."""
MAX_READ = 20
"""Maximum conversations that an earlier answer rests on; for more, the model lists them again."""
LEFT_OUT = "(an earlier answer, left out here)"
MAX_EARLIER_RUNS = 3
"""Latest earlier answers with findings whose findings are included."""
MAX_EARLIER_FINDINGS = 40
EARLIER_ANSWER_OFFSET = 1_000
"""First number for findings of a thread's first answer; those of the second begin at twice it.

No subagent has such a number, and an id means the same in each turn.
"""
NO_WORDS = "(The message mentions you and says nothing else.)"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A request with the messages around it, as a step of its run stores it."""

    request: Request
    refused: tuple[str, ...]
    """A sentence for each file, or part of the thread, that could not be read."""


@dataclass
class ContextReader:
    """Reads the context that a `RequestHandler` needs besides the request itself."""

    store: Store
    inbox: RequestQueue
    web: AsyncWebClient
    """Client with the bot's token, for downloads."""
    people: People
    settings: ReplySettings
    bot_user: str
    url: str

    async def read(self, request: StoredRequest, live: ActiveRun) -> RequestContext:
        reader = live.run.client(SlackReader)
        requester = frozenset({request.user})
        home = partial(channel_label, reader, request.channel, requester)
        in_thread = request.thread_ts != request.ts
        earlier = EarlierAnswers()
        if in_thread or request.asked_back:
            earlier = await self._earlier(request, live.run, home)
        before = await self._earlier_requests(request)
        label = Label(True, requester, frozenset({request.channel}))
        if in_thread or not has_words(SlackMessage(dict(request.event))):
            label = await home()
        lines = ThreadLines(request, self.bot_user, self.url, label, earlier.answers)
        asked_before, tokens = () if in_thread else tuple(before), self.settings.thread_tokens
        thread = await read_thread(reader.web, self.people, lines, tokens, asked_before)
        delimiter = new_delimiter()
        attached = await read_files(self.web, request.event, self.settings, delimiter)
        text = thread.request or NO_WORDS
        looking_at = hint(request.event)
        name = await conversation_name(self.people, request.channel)
        outside = await self._is_outside(request, thread)
        label = replace(thread.label, outside=outside).join(earlier.label)
        if attached.blocks:
            label = label.join(replace(await home(), outside=True))
        preferences = live.run.client(Preferences)  # type: ignore[type-abstract]
        instructions = await preferences.instructions(request.channel)
        if instructions:  # written by somebody else, though by a full member
            label = label.join(await home())
        await self._note(request, live, thread, earlier)
        here = {request.channel: name}
        if in_thread:
            here[f"{request.channel}/{request.thread_ts}"] = "this thread"
        as_of, choices = asked_at(request), request.choices
        person = await self.people.person(request.user, request.team)
        language = await self.people.language(request.user, request.channel, request.words)
        task_request = Request(
            text=f"{text}\n({looking_at})" if looking_at else text,
            window=Window(as_of - timedelta(days=self.settings.since_days), as_of),
            earliest=as_of - timedelta(days=self.settings.max_since_days),
            requester=Requester.of(person, request.user, language),
            preferences=tuple(
                each.text for each in await preferences.list_preferences(request.user)
            ),
            instructions=instructions,
            delimiter=delimiter,
            conversation=thread.text.rpartition("\n")[0],
            before=tuple(
                [
                    EarlierTurn(raw_text=words, read=await self._read_by(before.get(ts)))
                    for ts, words in thread.own.items()
                ]
            ),
            files=attached.blocks,
            earlier=tuple(earlier.findings[:MAX_EARLIER_FINDINGS]),
            here=here,
            choices=tuple((each.question, each.option) for each in choices),
            label=reduce(Label.join, (Label.of(each.label) for each in choices), label),
            raw_text=thread.raw_text,
            intent=Intent(
                text=plain(thread.raw_text, {}),  # without display names: others choose them
                home=request.channel,
                thread=f"{request.channel}/{request.thread_ts}",
                own=f"{request.channel}/{request.ts}",
                lookups=frozenset(request.lookups),
            ),
        )
        return RequestContext(task_request, (*attached.refused, *filter(None, [thread.note])))

    async def _note(
        self, request: StoredRequest, live: ActiveRun, thread: Thread, earlier: EarlierAnswers
    ) -> None:
        """Record whose text this run holds: from the thread, files, and earlier answers."""
        listed = request.event.get("files")
        files = listed if isinstance(listed, list) else []
        ids = [file.get("id") for file in files if isinstance(file, dict)]
        seen = await seen_by_runs(self.store.database, list(earlier.answers))
        seen += [(item.id, item.author) for item in thread.items]
        seen += [(id, request.user) for id in ids if isinstance(id, str)]
        live.run.sink.saw(live.run.id, seen)

    async def _is_outside(self, request: StoredRequest, thread: Thread) -> bool:
        """Return whether the thread shows text by anyone but full members."""
        users = people_in(thread.others)
        found = await asyncio.gather(*(self.people.person(u, request.team) for u in users))
        kinds = {person.id: person.kind for person in found if person}
        return thread.attached or any(is_outside(m, kinds) for m in thread.others)

    async def _earlier_requests(self, request: StoredRequest) -> dict[str, str]:
        """Return time and run of the requester's last requests in the thread or direct message."""
        if request.thread_ts != request.ts:
            return await self.inbox.find_earlier(request, EPOCH, MAX_EARLIER_ANSWERS)
        if not request.channel.startswith("D"):
            return {}
        return await self.inbox.find_earlier(request, asked_at(request) - RECENT, MAX_RECENT)

    async def _read_by(self, run: str | None) -> tuple[str, ...]:
        """Return the conversations that a run read, without direct messages; () for too many."""
        found = await self.store.find_run(run) if run else None
        label = ((found.result if found else None) or {}).get("label") or {}
        read = [s for s in label.get("sources", ()) if is_conversation(s) and s[0] != "D"]
        return tuple(read) if len(read) <= MAX_READ else ()

    async def _earlier(
        self, request: StoredRequest, run: Run, home: Callable[[], Awaitable[Label]]
    ) -> EarlierAnswers:
        """Return the findings of earlier answers in the thread, and of answers that asked back, the
        latest first, with their label.

        An answer that rests on sources this requester may not read is left out, even if it was
        posted here.
        """
        found, reader = EarlierAnswers(), run.client(SlackReader)
        runs = [*await self.inbox.earlier_runs(request), *request.asked_back]
        found.answers |= dict.fromkeys(runs[:-MAX_EARLIER_ANSWERS], LEFT_OUT)
        rich = 0
        for number, id in list(enumerate(runs, 1))[: -MAX_EARLIER_ANSWERS - 1 : -1]:
            offset = number * EARLIER_ANSWER_OFFSET
            before = len(found.findings)
            document = (await self.store.run(id)).result or {}
            stored = document.get("label")
            label = Label.of(stored) if stored else await home()
            subagents = await self.store.subagents(id) if rich < MAX_EARLIER_RUNS else []
            label = await self._current_label(join_labels(label, subagents), reader)
            if await run.gate.directory.obstacles(label, request.user):
                found.answers[id] = LEFT_OUT
                continue
            for subagent in subagents:
                found.findings += _renumber((subagent.result or {}).get("findings") or (), offset)
            rich += len(found.findings) > before
            answer = without_own(document.get("answer") or "")
            if answer or len(found.findings) > before:
                found.label = found.label.join(label)
            found.answers[id] = _with_offset(answer, offset) or LEFT_OUT
        return found

    async def _current_label(self, label: Label, reader: SlackReader) -> Label:
        """Return a stored label as of now: a channel that was public then may be private now."""
        for source in sorted(filter(is_conversation, label.sources)):
            label = label.join(await channel_label(reader, source, frozenset()))
        return label


async def conversation_name(people: People, channel: str) -> str:
    """Return the name of a public channel, by which a request may refer to it."""
    facts = await people.channel(channel)
    public = facts is not None and not facts.private and not facts.shared
    return f"#{facts.name}" if facts and public and facts.name else "this conversation"


def join_labels(label: Label, subagents: Sequence[StoredSubagent]) -> Label:
    """Join a run's label with those of its subagents, whose findings are shown, too."""
    for subagent in subagents:
        if stored := (subagent.result or {}).get("label"):
            label = label.join(Label.of(stored))
    return label


@dataclass
class EarlierAnswers:
    """The findings of earlier answers in a thread."""

    findings: list[Finding] = field(default_factory=list)
    """Findings with unique ids in this thread: the second answer's F1.2 is always F2001.2."""
    answers: dict[str, str] = field(default_factory=dict)
    label: Label = TRUSTED_LABEL


def _with_offset(answer: str, offset: int) -> str:
    return CITATION_PATTERN.sub(lambda match: _shift_ids(match[0], offset), answer)


def _shift_ids(text: str, offset: int) -> str:
    """Add an offset to the finding ids in a text, except to those that already have one."""

    def put(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"F{number if number >= EARLIER_ANSWER_OFFSET else offset + number}.{match[2]}"

    return re.sub(r"F(\d+)\.(\d+)", put, text)


def _renumber(stored: Sequence[Mapping[str, Any]], offset: int) -> list[Finding]:
    found = map(Finding.model_validate, stored)
    return [each.model_copy(update={"id": _shift_ids(each.id, offset)}) for each in found]


@dataclass(frozen=True)
class TaskContext:
    """Provides to a task what `App` provides on the command line."""

    settings: Settings
    model_name: str
    durable: Durable
    store: Store
    live: ActiveRun
    workflow: str
    problems: tuple[str, ...]
    more: Callable[[float], Awaitable[float]] | None = None
    """Takes US dollars beyond the budget of the run; returns the part that the policy allows."""

    @property
    def lists(self) -> Mapping[str, str]:
        return self.settings.slack.lists

    @property
    def database(self) -> Database:
        return self.store.database

    @property
    def mail(self) -> MailState:
        return MailState(self.database)

    async def extend(self, run: Run, usd: float, seconds: float) -> None:
        async def grant() -> int:
            has = run.budget.caps.nanousd / NANOUSD_PER_USD
            more = await self.more(usd - has) if self.more and usd > has else 0.0
            return round((has + more) * NANOUSD_PER_USD)

        await run.budget.extend(await run.once(f"{run.id}/budget", int, grant), seconds)

    def spawner(self, run: Run) -> WorkflowSpawner:
        return WorkflowSpawner(self.durable, self.store, self.live, self.workflow)
