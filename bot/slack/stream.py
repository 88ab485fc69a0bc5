"""Show a reply while its answer is being written, and replace it by the complete answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bot.slack import blocks as slack_blocks
from bot.slack import plan
from bot.slack.client import (
    MESSAGE_NOT_FOUND,
    ChannelClosed,
    ContentRefused,
    OutcomeUnknown,
    StreamEnded,
    TokenRefused,
    Unsent,
    WriteFailed,
    is_away,
)
from bot.slack.messages import Mark, MessagePart
from bot.slack.plan import Plan, PlanTask
from bot.slack.writer import MessageWriter
from bot.storage.requests import StoredReply, StoredRequest
from config.sections import ReplySettings
from config.words import phrase
from scopes.label import TRUSTED_LABEL, Label
from subagents.events import AnswerDelta, AnswerRestarted, ContextGrew, Event, SubagentFinished

log = logging.getLogger(__name__)

STREAM_BYTES = 9_000
"""Bytes of plan and text of a streamed message, UTF-8; Slack refuses more than about 10,600
(measured: github.com/openclaw/openclaw/pull/143882)."""
EDIT_CHARS = 6_000
"""Maximum text below the plan of an edited message, whose blocks may have about 13,000."""
QUIET_S = 20.0
"""Seconds that a write in progress may take when the reply ends."""
MAX_END_ATTEMPTS = 4
"""Attempts to end a stream and write into its message, before a new one is posted instead."""

LabelCheck = Callable[[Label, bool], Awaitable[bool]]
"""Returns whether all viewers may know text with a label; True = who they are is checked now."""


async def only_public(label: Label, fresh: bool) -> bool:
    """Allow public labels only: the default for a message whose readers are not known."""
    return label.is_open


@dataclass
class Draft:
    """The plan and the answer so far, limited to what all viewers of the message may know."""

    settings: ReplySettings
    render: Callable[[str], str]
    admits: LabelCheck

    def __post_init__(self) -> None:
        self._plan, self._text, self._label = Plan(), "", TRUSTED_LABEL
        self._waiting: list[Event] = []
        self._is_begun = False
        """Whether the model has begun to write the answer."""

    def record(self, event: Event) -> None:
        if isinstance(event, ContextGrew | SubagentFinished):
            self._label = self._label.join(event.label)
        self._waiting.append(event)

    async def update(self) -> None:
        """Process the recorded events; events that may not be shown here are dropped for good."""
        waiting, self._waiting = self._waiting, []
        begins = not self._is_begun and any(isinstance(each, AnswerDelta) for each in waiting)
        self._is_begun = self._is_begun or begins
        if not waiting or not await self.admits(self._label, begins):
            return
        for event in waiting:
            match event:
                case AnswerDelta(text):
                    self._text += text
                case AnswerRestarted():
                    self._text = ""
            self._plan.take(event)

    @property
    def text(self) -> str:
        """Return the answer so far, in a form that can be shown."""
        return self.render(self._text) if self._text else ""

    def rows(self, shown: Collection[str] = (), *, over: bool = False) -> list[PlanTask]:
        return plan.tasks(self._plan, self.settings.max_rows, shown, over=over)

    def title(self, *, over: bool = False) -> str:
        return plan.short_heading(self._plan, over=over)

    def part(self) -> MessagePart:
        """Return the content of a message that is not streamed."""
        rows, title, ready = self.rows(), self.title(), self.text
        most = min(self.settings.message_chars, EDIT_CHARS)
        ready = ready if len(ready) <= most else ready[: most - 1] + "…"
        prose = [{"type": "markdown", "text": ready}] if ready.strip() else []
        above = [plan.block(rows, title)] if rows else []
        head = "" if prose and not rows else plan.lines(rows, title)
        return MessagePart("\n\n".join(filter(None, [head, ready])), (*above, *prose))


@dataclass
class StreamingReply:
    """The visible answer of one request. The caller that opens it must close it (`aclose`)."""

    writer: MessageWriter
    request: StoredRequest
    settings: ReplySettings
    state: StoredReply | None = None
    """The result of `open` in an earlier process: its message is then replaced."""
    render: Callable[[str], str] = str
    """Returns the part of the answer so far that can be shown (`Prose.live`)."""
    title: str = ""
    """Names the request next to Slack's Stop button."""
    run: str = ""
    admits: LabelCheck = only_public
    """Returns whether all viewers of the message may know text with a label."""

    def __post_init__(self) -> None:
        self._draft = Draft(self.settings, self.render, self.admits)
        self._ts: str | None = None
        """The live message; None before it is posted, and after it is gone."""
        self._streaming = False
        """Whether, as far as we know, Slack accepts stream chunks for it, and no edit."""
        self._sent: str | None = ""
        """The text that its stream shows; None = it may show anything."""
        self._rows: dict[str, PlanTask] = {}
        self._heading = ""
        self._started_at = 0.0
        self._last: MessagePart | None = None
        """The content of the last edit."""
        self._is_plain = False
        """Whether Slack has refused the blocks of an edit."""
        self._is_late = False
        """Whether an edit of unknown outcome may still replace a newer one."""
        self._is_unsettled = False
        """Whether a stream that was started with an unknown outcome may still appear."""
        self._is_known = False
        """Whether all messages of an earlier process are known."""
        self._parts: dict[int, tuple[str, ...]] = {}
        self._final: dict[str, int] = {}
        """Messages with a part of a finished answer, and the number of parts of that answer."""
        self._dead: set[str] = set()
        """Messages that cannot be written to any more, and must be deleted."""
        self._late_streams: set[str] = set()
        """Messages of streams that were started with an unknown outcome and appeared later."""
        self._is_last_resort = False
        """Whether nothing else will be tried if writing the current sentence fails."""
        self._is_working = self.state is not None
        self._wake, self._ending = asyncio.Event(), asyncio.Event()
        self._updates: asyncio.Task[None] | None = None
        if self.state and self.state.ts:
            self._adopt(self.state.ts[0], streaming=self.state.streamed)

    async def open(self, *, look_first: bool = True) -> StoredReply:
        """Show the first sign of work; return the state to store. May be called again.

        `look_first` False = no earlier process of this request wrote anything, so it looks nothing
        up. Raises ChannelClosed or TokenRefused; any other failure is retried later.
        """
        if self._updates is None:
            self._is_known = not look_first and self._ts is None
            try:
                await self._start()
            except (ChannelClosed, TokenRefused):
                raise
            except WriteFailed as error:
                log.warning("no first sign of %s: %s", self.request.key, error)
                self._wake.set()
            self._updates = asyncio.create_task(self._run_updates())
        return self._state()

    def emit(self, event: Event) -> None:
        """Record an event to show soon. Does no I/O, never raises; call it in the loop's thread."""
        self._draft.record(event)
        self._wake.set()

    async def finish(self, parts: Sequence[MessagePart]) -> StoredReply:
        """Show the complete answer. May be called again, by any process. Raises WriteFailed."""
        return await self._finish(parts, len(parts))

    async def fail(self, text: str, reference: str = "") -> StoredReply:
        """Show one plain sentence as the answer, replacing everything else."""
        return await self._finish([slack_blocks.sentence(text, reference)], 0)

    async def apologise(self, text: str, reference: str = "") -> StoredReply:
        """Show one plain sentence instead of the answer; delivered parts of it stay.

        If a part of the answer is missing, the sentence comes after the others.
        """
        await self._stop_updates()
        await self._find_messages()
        parts = self._final.get(self._ts or "", 0)
        if not parts:
            self._is_last_resort = True
            return await self.fail(text, reference)
        if not all(self._parts.get(number) for number in range(2, parts + 1)):
            part = slack_blocks.sentence(text, reference)
            await self._post(self._mark(parts + 1), part, look_first=True)
        await self.set_working(False)
        return self._state()

    async def aclose(self) -> None:
        """Stop showing progress, and leave the message unchanged."""
        await self._stop_updates()
        await self.set_working(False)

    async def set_working(self, on: bool) -> None:
        """Show or remove Slack's Stop button. Best effort, never raises."""
        where = (self.request.channel, self.request.thread_ts, self.request.user)
        if on:
            self._is_working = True  # even if the outcome is unknown
            title = self.title or phrase("plan.working")
            await self.writer.set_status(*where, "processing", title)
        elif self._is_working:
            self._is_working = not await self.writer.set_status(*where, "active")

    def _state(self) -> StoredReply:
        first = [self._ts] if self._ts else []
        others = [self._parts[n][0] for n in sorted(self._parts) if n > 1 and self._parts[n]]
        return StoredReply(ts=(*first, *others), streamed=self._streaming)

    # ---- progress

    async def _start(self) -> None:
        """Show the message of an earlier process, else a stream, else a message."""
        if self._ts is None and not self._is_known:
            await self._find_messages()
        if self._ts is None:
            self._is_known, self._sent, self._last = False, "", None
            await self._start_stream()
            if self._ts is None:
                part = self._draft.part()
                self._ts, self._last = await self._post(self._mark(1), part), part
            self._is_known = True
        if self._sent is None:
            self._wake.set()

    async def _start_stream(self) -> None:
        request, rows, title = self.request, self._draft.rows(), self._draft.title()
        chunks = [_title(title), *(row.chunk() for row in rows)]
        where = (request.channel, request.thread_ts, request.user_team, request.user)
        try:
            self._ts = await self.writer.start_stream(*where, chunks)
        except OutcomeUnknown:
            self._is_unsettled = True
            await self.writer.settle()
            await self._find_messages()
            self._is_unsettled = self._ts is None
        except WriteFailed as error:
            log.info("no stream for %s: %s", request.key, error)
        else:
            self._streaming, self._started_at = self._ts is not None, time.monotonic()
            self._rows, self._heading = {row.id: row for row in rows}, title

    def _adopt(self, ts: str, *, streaming: bool = True) -> None:
        """Continue with a message of unknown content, which will be replaced."""
        self._ts, self._streaming = ts, streaming
        self._sent, self._last = None, None

    async def _stop_updates(self) -> None:
        """Stop the updates after the current write."""
        self._ending.set()
        self._wake.set()
        ticker, self._updates = self._updates, None
        if ticker is None:
            return
        try:
            await asyncio.wait({ticker}, timeout=QUIET_S)
        finally:
            ticker.cancel()
        await asyncio.wait({ticker})

    async def _run_updates(self) -> None:
        """Show progress: at most one write in each interval, which shows all news together."""
        while True:
            await _wait(self._wake, self._seconds_left())
            if self._ending.is_set():
                return
            self._wake.clear()
            try:
                if not await self._show_news():
                    self._wake.set()
            except (ChannelClosed, TokenRefused) as error:
                log.warning("%s is not shown any more: %s", self.request.key, error)
                return
            except WriteFailed as error:
                log.info("the progress of %s is not shown yet: %s", self.request.key, error)
                self._wake.set()
            except Exception:  # top-level boundary: showing progress must never break the run
                log.exception("the progress of %s cannot be shown", self.request.key)
            await _wait(self._ending, self.settings.update_s)

    def _seconds_left(self) -> float | None:
        """Return the seconds until we must leave the stream; None = there is no stream."""
        if not self._streaming:
            return None
        return max(0.0, self._started_at + self.settings.stream_s - time.monotonic())

    async def _show_news(self) -> bool:
        """Show new content with one write; return False if some remains. Raises WriteFailed."""
        if self._ts is None:
            await self._start()
        await self._draft.update()
        sent, ready, seconds_left = self._sent, self._draft.text, self._seconds_left()
        if seconds_left and sent is not None and ready.startswith(sent):
            return await self._append(sent, ready)
        await self._leave()
        return await self._edit() if self._ts else False

    async def _append(self, sent: str, ready: str) -> bool:
        """Append new content to the stream; return False if it is not possible now."""
        rows, title = self._draft.rows(self._rows), self._draft.title()
        rest = ready[len(sent) :] if _fits(rows, title, ready) else ""
        chunks = [] if title == self._heading else [_title(title)]
        chunks += [row.chunk() for row in rows if self._rows.get(row.id) != row]
        chunks += [{"type": "markdown_text", "text": rest}] if rest else []
        if not chunks:
            return True
        self._sent = None  # unknown until Slack has answered
        try:
            done = await self.writer.append(self.request.channel, self._ts or "", chunks)
        except Unsent:
            self._sent = sent
            raise
        self._sent = sent + rest if done else sent
        if done:
            self._rows |= {row.id: row for row in rows}
            self._heading = title
        return done

    async def _leave(self, whole: str = "") -> None:
        """Stop using the stream, if there is one; an edit detects whether it is still open.

        It ends with the text `whole` if it already shows the start of that.
        """
        if not (self._streaming and self._ts):
            return
        sent, self._streaming, self._last = self._sent, False, None
        goes_on = sent is not None and whole.startswith(sent)
        goes_on = goes_on and _fits(self._rows.values(), self._heading, whole)
        rest = whole[len(sent or "") :] if goes_on else ""
        code = ""
        for text in (rest, "") if whole else ("",):  # without the rest, if Slack refuses that
            try:
                await self.writer.stop_stream(self._mark(1), self.request.channel, self._ts, text)
                return
            except WriteFailed as error:
                log.info("the stream of %s was not stopped: %s", self.request.key, error)
                code = error.code
        if code == MESSAGE_NOT_FOUND:
            self._lose(self._ts)

    def _lose(self, ts: str) -> None:
        """Record that Slack reports the live message as gone; it is deleted at the end."""
        self._dead.add(ts)
        self._ts = None

    async def _edit(self) -> bool:
        """Show the draft in the live message; return False if it is not possible now."""
        ts, part = self._ts or "", self._draft.part()
        part = MessagePart(part.text) if self._is_plain else part
        if part == self._last:
            return True
        try:
            done = await self.writer.show(self._mark(1), self.request.channel, ts, part)
        except WriteFailed as error:
            self._is_plain = self._is_plain or isinstance(error, ContentRefused)
            self._is_late = self._is_late or isinstance(error, OutcomeUnknown)
            if error.code == MESSAGE_NOT_FOUND:
                self._lose(ts)
            elif isinstance(error, StreamEnded):  # it is still being streamed
                self._adopt(ts)
            raise
        self._last = part if done else self._last
        return done

    # ---- the whole answer

    async def _finish(self, parts: Sequence[MessagePart], of: int) -> StoredReply:
        """Write the answer; `of` is the number of its parts, 0 for a sentence."""
        await self._stop_updates()
        try:
            if not self._is_known or self._is_unsettled:
                await self._find_messages()
            self._is_known = False
            first = await self._below_plan(parts[0]) if of else parts[0]
            for number, part in enumerate((first, *parts[1:]), 1):
                await self._write(number, part, of)
            await self._delete_others(len(parts))
            self._is_known = True
        finally:
            await self.set_working(False)
        return self._state()

    async def _find_messages(self) -> None:
        """Find the messages of an earlier process of this request, if Slack lets us read them."""
        request = self.request
        where = (request.channel, request.thread_ts)
        try:
            posted = await self.writer.posted.of(*where, request.written_key, request.ts)
        except WriteFailed as error:
            if is_away(error):
                raise
            log.warning("earlier messages of %s cannot be looked up: %s", request.key, error)
            return
        self._parts, self._final = dict(posted.parts), dict(posted.final)
        firsts = [
            ts for ts in (*posted.parts.get(1, ()), *posted.unmarked[:1]) if ts not in self._dead
        ]
        final = [ts for ts in firsts if ts in posted.final]
        if final and self._ts not in final:
            self._dead |= {self._ts} if self._ts else set()
            self._adopt(final[0], streaming=False)
        elif self._ts is None and firsts:
            self._adopt(firsts[0])
            self._is_working = True
        if self._is_unsettled:
            self._late_streams = {*posted.unmarked} - {self._ts or ""}
        self._is_known = True

    async def _below_plan(self, part: MessagePart) -> MessagePart:
        """Return the part below the plan of its stream, which stays above the answer."""
        await self._draft.update()
        rows = self._draft.rows(self._rows, over=True)
        if not rows or not self._streaming or self._sent is None:
            return part
        blocks = (plan.block(rows, self._draft.title(over=True)), *part.blocks)
        fits = slack_blocks.size(blocks) <= slack_blocks.MAX_MESSAGE
        return replace(part, blocks=blocks) if fits else part

    async def _write(self, number: int, part: MessagePart, of: int) -> None:
        """Write a part into its message, or into a new one if that fails."""
        live = [self._ts] if number == 1 and self._ts else []
        candidates = list(dict.fromkeys([*live, *self._parts.get(number, ())]))
        dead = set(self._dead)
        for ts in [each for each in candidates if each not in dead]:
            if await self._is_written(number, ts, part, of):
                break
            log.warning("part %d of %s is not written into its message", number, self.request.key)
            self._dead.add(ts)
        else:
            try:
                ts = await self._post(self._mark(number, of), part, besides=candidates)
            except WriteFailed:
                self._dead = dead  # a later attempt starts with these messages again
                raise
        self._parts[number] = tuple(dict.fromkeys([ts, *candidates]))
        self._final[ts] = of
        if number == 1:
            self._ts, self._streaming = ts, False

    async def _is_written(self, number: int, ts: str, part: MessagePart, of: int) -> bool:
        """Write a part into this message; return False if it is gone or Slack refuses the part."""
        for _ in range(MAX_END_ATTEMPTS):
            try:
                if ts == self._ts:
                    await self._leave(part.streamed)
                    if self._ts is None:
                        return False
                await self._replace(number, ts, part, of)
                if ts == self._ts and self._is_late:
                    await self.writer.settle()
                    await self._replace(number, ts, part, of)
                return True
            except StreamEnded:  # it is still being streamed
                self._adopt(ts)
            except WriteFailed as error:
                if is_away(error) and not self._is_last_resort:
                    raise
                log.info("%s of %s is not written again: %s", ts, self.request.key, error)
                return of > 0 and self._final.get(ts) == of and error.code != MESSAGE_NOT_FOUND
        return False

    async def _delete_others(self, count: int) -> None:
        """Delete messages of earlier processes: beyond so many parts, duplicates, and dead ones."""
        extra = [*self._dead, *self._late_streams]
        for number, messages in self._parts.items():
            extra += messages[1 if number <= count else 0 :]
        for ts in self._late_streams:
            with suppress(WriteFailed):
                await self.writer.stop_stream(self._mark(1), self.request.channel, ts)
        for ts in dict.fromkeys(extra):
            await self._delete(ts)
        self._parts = {n: messages[:1] for n, messages in self._parts.items() if n <= count}
        self._late_streams = set()

    async def _replace(self, number: int, ts: str, part: MessagePart, of: int) -> None:
        await self.writer.update(self._mark(number, of), self.request.channel, ts, part)

    async def _delete(self, ts: str) -> None:
        """Delete an extra message; the answer is complete even if Slack refuses."""
        try:
            await self.writer.delete(self.request.channel, ts)
        except WriteFailed as error:
            if is_away(error):
                raise
            log.warning("%s of %s is not deleted: %s", ts, self.request.key, error)

    async def _post(
        self, mark: Mark, part: MessagePart, look_first: bool = False, besides: Sequence[str] = ()
    ) -> str:
        return await self.writer.post(
            mark,
            self.request.channel,
            self.request.thread_ts,
            part,
            look_first=look_first,
            after=self.request.ts,
            besides={*self._dead, *besides},
        )

    def _mark(self, number: int, of: int = 0) -> Mark:
        """Return the mark of this part of an answer of so many."""
        key = self.request.written_key
        return Mark(key if number == 1 else f"{key}#{number}", self.run, of)


def _fits(rows: Iterable[PlanTask], title: str, text: str) -> bool:
    texts = (title, text, *(row.title for row in rows))
    return sum(len(each.encode(errors="replace")) for each in texts) <= STREAM_BYTES


def _title(title: str) -> dict[str, Any]:
    return {"type": "plan_update", "title": title}


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
