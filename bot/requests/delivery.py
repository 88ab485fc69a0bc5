"""Deliver an answer: render it, check who sees it, post it, and attach its files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar

from bot.memory import kept_files, publish_conversation
from bot.reports import slack
from bot.reports.documents import Answer, AnswerDocument, Document, parse_document
from bot.runs.run import ActiveRun, Runs
from bot.runs.store import Store
from bot.slack import blocks
from bot.slack.client import TokenRefused, WriteFailed, retry_until
from bot.slack.messages import Mark, MessagePart
from bot.slack.stream import LabelCheck, StreamingReply
from bot.slack.writer import FILE_TAKEN, MessageWriter, Uploads
from bot.storage.requests import Choice, RequestQueue, StoredReply, StoredRequest, try_now
from config.settings import Settings
from config.words import phrase
from scopes.intent import Intent
from scopes.label import Label
from scopes.resources import Resource, Resources
from scopes.tool import ToolContext
from subagents.directory import Obstacle
from subagents.gate import Gate
from subagents.run import Run

log = logging.getLogger(__name__)


def render_answer(
    document: Document, request: StoredRequest, settings: Settings
) -> tuple[MessagePart, ...]:
    """Render the document of an answer, a triage or a sweep."""
    if isinstance(document, AnswerDocument):
        return slack.answer_message(document, request.key, settings.reply, request.user)
    parts = slack.report_parts(document, settings.triage.categories)
    *before, last = (*slack.lead_message(document, settings.reply, request.user), *parts)
    return (*before, replace(last, blocks=(*last.blocks, blocks.feedback(request.key))))


T = TypeVar("T")
Write = Callable[[], Awaitable[T]]
"""Writes to Slack, and may be called again; returns the result."""

AGAIN_S = 0.2
"""Seconds between two tries to have a request answered again."""
DURATION_STEP = "took"
"""Name of the step that stores how long the answer took, before it is written."""
MOST_NAMED = 10


async def post_thread(
    writer: MessageWriter,
    mark: Mark,
    channel: str,
    parts: Sequence[MessagePart],
    *,
    after: str = "",
) -> str:
    """Post the parts in one thread, each once; return the ts of the first message.

    No part was posted before `after`.
    """
    marks = [replace(mark, key=f"{mark.key}#{number}") for number in range(1, len(parts) + 1)]
    root = await writer.post(marks[0], channel, None, parts[0], look_first=True, after=after)
    posted_parts = (await writer.posted.of(channel, root, mark.key, "")).parts if parts[1:] else {}
    for number, part in enumerate(parts[1:], 2):
        if number not in posted_parts:
            await writer.post(marks[number - 1], channel, root, part)
    return root


def why(obstacles: Sequence[Obstacle]) -> str:
    """Explain the obstacles to the requester alone: channels that they can read are named."""
    text = phrase("reply.for_you", names=format_obstacles(obstacles, MOST_NAMED))
    ever = all(o.grantable for o in obstacles)
    return f"{text} {phrase('reply.grantable')}" if ever else text


def format_obstacles(obstacles: Sequence[Obstacle], most: int) -> str:
    """Name the sources that somebody may not read, at most so many, and why."""
    names = list(dict.fromkeys(f"{o.name} ({o.why})" for o in obstacles))
    more = f" {phrase('more', n=len(names) - most)}" if len(names) > most else ""
    return f"{'; '.join(names[:most])}{more}"


HIDDEN = "file.hidden"
MAX_FILES = 5
"""Maximum number of files of one answer."""
MISSING_SCOPE = "missing_scope"
FILE_ERROR_KEYS = {MISSING_SCOPE: "file.lacking", FILE_TAKEN: "file.not_shown"}
"""Slack's error -> key of why a file is missing."""


async def _as_optional(write: Write[T]) -> T:
    """Return the result of a write; do not wait if Slack denies its permission."""
    try:
        return await write()
    except TokenRefused as error:
        if error.code != MISSING_SCOPE:
            raise
        raise WriteFailed(error.method, error.code) from error


async def upload(
    uploads: Uploads,
    place: tuple[str, str],
    name: str,
    read: Write[bytes],
    step: str,
    once: Callable[[str, type[str], Write[str]], Awaitable[str]],
) -> list[str]:
    """Upload a file and show it in a thread, in a step each; return why it is missing, if it is.

    The names of the steps begin with `step`; `once` runs a step, or returns its stored result.
    """

    async def send() -> str:
        return await uploads.hand_over(name, await read())

    async def show() -> str:
        return await uploads.show(*place, sent, name)

    try:
        sent = await once(f"{step}/sent", str, lambda: _as_optional(send))
        await once(f"{step}/shown", str, lambda: _as_optional(show))
    except WriteFailed as error:  # the answer is complete without it
        log.warning("%s is not attached: %s", step, error)
        return [f"{name} ({phrase(FILE_ERROR_KEYS.get(error.code, 'file.not_taken'))})"]
    return []


async def read_file(run: Run, file: Resource) -> bytes:
    """Return a stored file as people get it. Raises WriteFailed."""
    files = run.client(Resources)  # type: ignore[type-abstract]
    found = await files.get(file.space, file.name, file.version)
    if found is None:
        raise WriteFailed("upload", "file_is_gone")
    return await asyncio.to_thread(getattr, found, "shown")  # takes seconds for 5 MB


BELIEVED_S = 5.0
"""Seconds for which a check of a message's readers is cached while an answer is written."""


class Asker(Protocol):
    """The part of `bot.approvals.service.CardPoster` that is needed here."""

    async def show(self, run: str, request: StoredRequest) -> int: ...
    async def offer_grant(
        self, run: str, requester: str, sources: Mapping[str, str], destination: str
    ) -> None: ...


@dataclass
class Delivery:
    """Finishes requests; one for each process."""

    settings: Settings
    store: Store
    inbox: RequestQueue
    writer: MessageWriter
    runs: Runs
    approvals: Asker

    async def write(
        self,
        request: StoredRequest,
        live: ActiveRun,
        reply: StreamingReply,
        ctx: ToolContext,
        document: Document,
    ) -> StoredReply:
        """Write the answer; repeated calls write the same one, and progress never replaces it.

        It is posted where it was asked for if everyone there may read it now; else it is sent to
        the requester alone.
        """

        if not self.is_begun(live):
            took = (datetime.now(UTC) - request.received).total_seconds()
            await live.run.record(f"{live.run.id}/{DURATION_STEP}", float, took)

        async def finish() -> StoredReply:
            gate, parts = live.run.gate, render_answer(document, request, self.settings)
            obstacles = await gate.obstacles("p1", ctx)
            if not obstacles:
                return await reply.finish(parts)
            parts = (blocks.sentence(why(obstacles)), *parts)
            place = await self._send_privately(gate, ctx, request, parts)
            notice = phrase("reply.sent_in_private" if place else "reply.held_back")
            done = await reply.fail(notice)
            return done.model_copy(update={"withheld": obstacles, "private": place})

        return await self.once(live, "finish", StoredReply, finish)

    async def _send_privately(
        self, gate: Gate, ctx: ToolContext, request: StoredRequest, parts: Sequence[MessagePart]
    ) -> tuple[str, str] | None:
        """Send the answer to its requester alone; return channel and ts of its first message.

        May be called again. A requester who may not read it (any more) gets no part of it.
        """
        if await gate.obstacles("p1", ctx, to=request.user):
            return None
        mark = Mark(f"{request.written_key}/private")
        try:
            channel = await self.writer.direct(request.user)
            root = await post_thread(self.writer, mark, channel, parts)
        except WriteFailed as error:
            log.warning("the answer to %s could not be sent in private: %s", request.key, error)
            return None
        return channel, root

    async def attach(
        self, request: StoredRequest, live: ActiveRun, ctx: ToolContext, done: StoredReply
    ) -> None:
        """Attach the files of the request below its answer, written as `done`, each once.

        `ctx` is the context of the answer, which stays if this fails: missing files are reported.
        """
        files = await kept_files(live.run)
        place = done.private if done.withheld else (request.channel, request.thread_ts)
        to = request.user if done.withheld else ""
        if not place:
            return
        missing = []
        for file in files[:MAX_FILES]:
            hidden = await live.run.gate.obstacles("p1", replace(ctx, label=file.label), to)
            if hidden:  # its name is hidden, too
                missing.append(phrase(HIDDEN))
                continue
            step = f"files/{place[0]}/{file.name}@{file.version}"
            read, once = partial(read_file, live.run, file), partial(self.once, live)
            missing += await upload(self.writer.uploads, place, file.name, read, step, once)
        excess = len(files) - MAX_FILES
        missing += [phrase("file.more", n=excess, most=str(MAX_FILES))] if excess > 0 else []
        if missing:
            part = blocks.sentence(phrase("file.missing", names="; ".join(missing)))
            try:
                await self.writer.post(Mark(f"{request.key}/files"), *place, part, look_first=True)
            except WriteFailed as error:
                log.warning("%s is not told of its files: %s", request.key, error)

    async def ask(self, request: StoredRequest, live: ActiveRun, done: StoredReply) -> None:
        """Show the actions that need approval; the answer stays even if that fails."""

        async def show() -> int:
            if done.withheld and all(o.grantable for o in done.withheld):
                sources = {o.source: o.name for o in done.withheld}
                await self.approvals.offer_grant(
                    live.run.id, request.user, sources, request.channel
                )
            return await self.approvals.show(live.run.id, request)

        try:
            await self.once(live, "ask", int, show)
        except WriteFailed as error:
            log.warning("what waits for approval of %s is not shown: %s", request.key, error)

    async def once(self, live: ActiveRun, name: str, kind: type[T], write: Write[T]) -> T:
        """Return the result of a write to Slack: it runs once, and waits while Slack is down."""
        give_up_s = self.settings.serve.outage_give_up_s
        key = f"{live.run.id}/{name}"
        return await live.run.once(key, kind, lambda: retry_until(write, give_up_s))

    def is_begun(self, live: ActiveRun) -> bool:
        """Return whether the answer may have been posted."""
        return live.run.find_recorded(f"{live.run.id}/{DURATION_STEP}", float) is not None

    async def publish(self, run: str) -> bool:
        """Post an answer that was held back in the place of its request.

        Returns False if it may not be posted there now either. The report of a schedule is
        delivered again. Raises WriteFailed.
        """
        if await try_now(self.store.database, run):
            return True
        stored = await self.store.run(run)
        request = await self.inbox.request(stored.request or "")
        if request is None or request.run != run or not stored.result:
            return False
        document = parse_document(stored.result)
        if not isinstance(document, Answer) or not document.label:
            return False
        label = Label.of(document.label)
        async with self.runs.at_work(run) as live:
            ctx = live.run.context(label, intent=Intent(home=request.channel))
            if await live.run.gate.obstacles("p1", ctx):
                return False
            before, settings = request.reply, self.settings
            reply = StreamingReply(self.writer, request, settings.reply, before, run=run)
            async with aclosing(reply):
                done = await reply.finish(render_answer(document, request, settings))
            await publish_conversation(self.store.database, run)
            if before and before.withheld:  # else this ran before
                await self.attach(request, live, ctx, done)
        await self.inbox.finish(request.key, "done", done)
        return True

    async def again(
        self, run: str, lookups: Sequence[str] = (), choice: Choice | None = None
    ) -> bool:
        """Answer the request of this run again, with these look-ups approved, or with this choice.

        May be called again. Returns False if it was answered again since, or was deleted.
        """
        found = await self.store.find_run(run)
        if found is None or not found.request:
            return False
        while True:
            is_started = await self.inbox.again(found.request, run, lookups, choice)
            if is_started is not None:
                return is_started
            await asyncio.sleep(AGAIN_S)


def audience_check(run: Run, home: str) -> LabelCheck:
    """Return a check whether text with a label may be shown in `home` while it is being written."""
    clock = asyncio.get_running_loop().time
    seen: dict[Label, tuple[float, bool]] = {}
    """Label -> until when the result is valid, and the result."""

    async def ask(label: Label, fresh: bool) -> bool:
        until, may_see = seen.get(label, (0.0, False))
        if fresh or clock() >= until:
            ctx = run.context(label, intent=Intent(home=home))
            may_see = not await run.gate.obstacles("p1", ctx, again=label in seen)
            seen[label] = (clock() + BELIEVED_S, may_see)
        return may_see

    return ask
