"""Show a reply while its answer is being written: as a streamed message, or by edits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from bot.slack import blocks as slack_blocks
from bot.slack import plan
from bot.slack.blocks import Rendered
from bot.slack.client import (
    GONE,
    ChannelClosed,
    ContentRefused,
    MessageGone,
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
from bot.storage.requests import StoredRequest
from config.sections import ReplySettings
from config.words import phrase
from scopes.label import TRUSTED, Label
from scopes.tool import ToolError
from subagents.events import AnswerDelta, AnswerRestarted, ContextGrew, Event, SubagentFinished

log = logging.getLogger(__name__)

STREAM_BYTES = 9_000
"""Plan and text of a streamed message, UTF-8; Slack refuses from about 10,600 on (measured:
github.com/openclaw/openclaw/pull/143882)."""
EDIT_CHARS = 6_000
"""Text shown below the plan of an edited message; the blocks of one may have about 13,000."""


Admits = Callable[[Label], Awaitable[bool]]


async def only_public(label: Label) -> bool:
    """Allow public labels only: the default for a message whose readers are not known."""
    return label.is_open


class LiveMessage:
    """One message. `ts` is None before it is posted, and after it is gone."""

    def __init__(
        self,
        writer: MessageWriter,
        asked: StoredRequest,
        settings: ReplySettings,
        shown: Callable[[str], str],
        run: str,
        admits: Admits,
    ) -> None:
        """`shown` turns the answer so far into what can be shown of it.

        `admits` returns whether everyone who sees the message may know what rests on a label.
        """
        self.plan, self.text = Plan(), ""
        self.ts: str | None = None
        self.streaming = False
        """As far as we know Slack accepts more stream chunks for it, and no edit."""
        self.exact = True
        """The stream shows `sent` and nothing else."""
        self.sent = ""
        self.unsettled = False
        """A stream was started with an unknown outcome, was not found, and may still appear."""
        self.late = False
        """An edit of unknown outcome may still be applied, over a newer one."""
        self.ended: dict[str, Any] | None = None
        """The plan above an answer whose stream was ended by `end`."""
        self._writer, self._asked, self._settings = writer, asked, settings
        self._shown, self._mark = shown, Mark(asked.written_key, run)
        self._admits, self._label = admits, TRUSTED
        self._waiting: list[Event] = []
        self._rows: dict[str, PlanTask] = {}
        self._title = ""
        self._started = 0.0
        self._last: MessagePart | None = None
        """What an edit showed last."""
        self._plain = False

    def record(self, event: Event) -> None:
        """Record an event; `refresh` shows it if everyone who sees the message may know of it."""
        if isinstance(event, ContextGrew | SubagentFinished):
            self._label = self._label.join(event.label)
        self._waiting.append(event)

    async def _process_events(self) -> None:
        """Process the events so far; those that may not be shown here are dropped for good."""
        waiting, self._waiting = self._waiting, []
        if waiting and await self._admits(self._label):
            for event in waiting:
                self._process(event)

    def _process(self, event: Event) -> None:
        match event:
            case AnswerDelta(text):
                self.text += text
            case AnswerRestarted():
                self.text = ""
        self.plan.take(event)

    async def start(self) -> None:
        """Show the first sign: a stream if one can be started at once, else a message.

        Raises WriteFailed; after OutcomeUnknown a message may exist nevertheless.
        """
        asked, rows = self._asked, plan.tasks(self.plan, self._settings.max_rows)
        title = plan.short_heading(self.plan)
        chunks = [_title(title), *(row.chunk() for row in rows)]
        where = (asked.channel, asked.thread_ts)
        self.exact, self.sent, self._last = True, "", None
        try:
            self.ts = await self._writer.start_stream(*where, asked.user_team, asked.user, chunks)
        except OutcomeUnknown:
            self.unsettled = True
            found = await self._writer.unfinished(*where, asked.written_key, asked.ts)
            if found:
                self.unsettled = False
                self.adopt(found)
                return
        except WriteFailed as error:
            log.info("no stream for %s: %s", asked.key, error)
        if self.ts is None:
            await self.post()
            return
        self.streaming, self._started = True, time.monotonic()
        self._rows, self._title = {row.id: row for row in rows}, title

    async def post(self) -> None:
        """Post the message without a stream."""
        asked, part = self._asked, self._compose()
        self.ts = await self._writer.post(self._mark, asked.channel, asked.thread_ts, part)
        self._last = part

    def adopt(self, ts: str, *, streaming: bool = True) -> None:
        """Continue with a message of unknown content, which will be replaced."""
        self.ts, self.streaming = ts, streaming
        self.exact, self.sent, self._last = False, "", None

    def seconds_left(self) -> float | None:
        """Return the seconds until the stream must be left; None = there is none."""
        if not self.streaming:
            return None
        return max(0.0, self._started + self._settings.stream_s - time.monotonic())

    async def refresh(self) -> bool:
        """Show what is new with one write; return False if some is left. Raises WriteFailed."""
        if self.ts is None:
            return False
        await self._process_events()
        if self.streaming and self._goes_on():
            try:
                return await self._append()
            except Unsent:
                raise
            except WriteFailed as error:
                log.info("the stream of %s is left: %s", self._asked.key, error)
                self.exact = False
        await self.leave()
        return await self._edit()

    async def leave(self) -> None:
        """Stop using the stream, if there is one; an edit finds out whether it is still open."""
        if not (self.streaming and self.ts):
            return
        asked = self._asked
        try:
            await self._writer.stop_stream(self._mark, asked.channel, self.ts)
        except WriteFailed as error:
            log.info("the stream of %s was not stopped: %s", asked.key, error)
            if error.code == GONE:
                self.ts = None
        self.streaming, self._last = False, None

    async def end(self, text: str, blocks: tuple[dict[str, Any], ...], of: int) -> bool:
        """End the stream with exactly this text and these blocks; return False if it cannot.

        `of` is the number of parts of the answer.
        """
        await self._process_events()
        if not (self.ts and self.streaming and self.exact and text.startswith(self.sent)):
            return False
        rows = plan.tasks(self.plan, self._settings.max_rows, self._rows, over=True)
        title = plan.short_heading(self.plan, over=True)
        if _size(rows, title, text) > STREAM_BYTES or self.seconds_left() == 0:
            return False
        chunks = self._changes(rows, title)
        rest = text[len(self.sent) :]
        chunks += [{"type": "markdown_text", "text": rest}] if rest else []
        self.exact, mark = False, replace(self._mark, of=of)
        try:
            await self._writer.stop_stream(mark, self._asked.channel, self.ts, chunks, blocks)
        except WriteFailed as error:
            log.info("the stream of %s does not end as it should: %s", mark.key, error)
            return False
        self.streaming, self.sent, self._last = False, text, None
        self.ended = plan.block(rows, title) if rows else None
        return True

    def _goes_on(self) -> bool:
        ready = self._shown(self.text) if self.text else ""
        return self.exact and self.seconds_left() != 0 and ready.startswith(self.sent)

    async def _append(self) -> bool:
        assert self.ts
        rows = plan.tasks(self.plan, self._settings.max_rows, self._rows)
        title = plan.short_heading(self.plan)
        ready = self._shown(self.text) if self.text else ""
        fits = _size(rows, title, ready) <= STREAM_BYTES
        rest = ready[len(self.sent) :] if fits else ""
        chunks = self._changes(rows, title)
        chunks += [{"type": "markdown_text", "text": rest}] if rest else []
        if not chunks:
            return True
        self.exact = not rest
        try:
            done = await self._writer.append(self._asked.channel, self.ts, chunks)
        except Unsent:
            self.exact = True
            raise
        self.exact = True
        if done:
            self.sent += rest
            self._rows |= {row.id: row for row in rows}
            self._title = title
        return done

    def _changes(self, rows: list[PlanTask], title: str) -> list[dict[str, Any]]:
        changed = [row.chunk() for row in rows if self._rows.get(row.id) != row]
        return [_title(title), *changed] if title != self._title else changed

    async def _edit(self) -> bool:
        if self.ts is None:
            return False
        part = self._compose()
        if part == self._last:
            return True
        try:
            done = await self._writer.show(self._mark, self._asked.channel, self.ts, part)
        except ContentRefused:
            self._plain = True
            raise
        except MessageGone as error:
            if error.code == GONE:
                self.ts = None
            raise
        except OutcomeUnknown:
            self.late = True
            raise
        except StreamEnded:  # it is being streamed after all
            self.streaming, self.exact = True, False
            raise
        if done:
            self._last = part
        return done

    def _compose(self) -> MessagePart:
        """Return the plan and the answer so far, as text and as blocks."""
        rows, title = plan.tasks(self.plan, self._settings.max_rows), plan.short_heading(self.plan)
        ready = self._shown(self.text) if self.text else ""
        most = min(self._settings.message_chars, EDIT_CHARS)
        ready = ready if len(ready) <= most else ready[: most - 1] + "…"
        prose = [{"type": "markdown", "text": ready}] if ready.strip() else []
        above = [plan.block(rows, title)] if rows else []
        head = "" if prose and not rows else plan.lines(rows, title)
        text = "\n\n".join(filter(None, [head, ready]))
        return MessagePart(text, () if self._plain else (*above, *prose))


def _title(title: str) -> dict[str, Any]:
    return {"type": "plan_update", "title": title}


def _size(rows: list[PlanTask], title: str, text: str) -> int:
    return sum(
        len(each.encode(errors="replace")) for each in (title, text, *(r.title for r in rows))
    )


QUIET_S = 20.0
"""Seconds that a write in progress may take when the reply ends."""
TRIES = 4
"""Failed writes into a message before a new one is posted instead."""
SLOWEST = 16
"""Most update intervals between two tries of a progress update that Slack refuses."""


class StreamingReply:
    """The visible answer of one request. The caller that opens it must close it (`aclose`)."""

    def __init__(
        self,
        writer: MessageWriter,
        asked: StoredRequest,
        settings: ReplySettings,
        state: Mapping[str, Any] | None = None,
        *,
        shown: Callable[[str], str] = str,
        title: str = "",
        run: str = "",
        admits: Admits = only_public,
    ) -> None:
        """`state` is what `open` returned in an earlier process: its message is then replaced.

        `shown` turns the answer so far into what can be shown of it (Prose.live); `title` names the
        request beside Slack's Stop button; `admits` says which labels everyone who sees the message
        may know of.
        """
        self._writer, self._asked, self._settings = writer, asked, settings
        self._live = LiveMessage(writer, asked, settings, shown, run, admits)
        self._title, self._run = title or phrase("plan.working"), run
        self._known = False
        """All messages of an earlier process are known."""
        self._parts: dict[int, tuple[str, ...]] = {}
        self._final: dict[str, int] = {}
        """Messages that hold a part of a finished answer, and how many parts that answer has."""
        self._dead: dict[str, None] = {}
        """Messages that cannot be written to any more, and must be deleted."""
        self._late_streams: tuple[str, ...] = ()
        """Messages of streams that were started with an unknown outcome and appeared later."""
        self._is_last_resort = False
        """If writing the current sentence fails, nothing else will be tried."""
        self._is_working = bool(state)
        self._wake, self._ending = asyncio.Event(), asyncio.Event()
        self._updates: asyncio.Task[None] | None = None
        if state and state.get("ts"):
            self._live.adopt(str(state["ts"][0]), streaming=bool(state.get("streamed", True)))

    async def open(self, *, look_first: bool = True) -> dict[str, Any]:
        """Show the first sign; return the state to store. May be called again.

        `look_first` False = no earlier process of this request wrote anything, so nothing is looked
        up. Raises ChannelClosed or TokenRefused; any other failure is retried later.
        """
        if self._updates is None:
            self._known = not look_first and self._live.ts is None
            try:
                await self._start()
            except (ChannelClosed, TokenRefused):
                raise
            except WriteFailed as error:
                log.warning("no first sign of %s: %s", self._asked.key, error)
                self._wake.set()
            self._updates = asyncio.create_task(self._run_updates())
        return self._state()

    def emit(self, event: Event) -> None:
        """Record an event to show soon. Does no I/O, never raises; only in the loop's thread."""
        self._live.record(event)
        self._wake.set()

    async def finish(self, rendered: Rendered) -> dict[str, Any]:
        """Show the whole answer. May be called again, by any process. Raises WriteFailed."""
        return await self._finish(rendered, len(rendered.parts))

    async def fail(self, text: str, reference: str = "") -> dict[str, Any]:
        """Show one plain sentence as the answer, replacing everything else."""
        self._live.exact = False
        return await self._finish(slack_blocks.sentence(text, reference), 0)

    async def apologise(self, text: str, reference: str = "") -> dict[str, Any]:
        """Show one plain sentence in place of the answer; delivered parts of it stay.

        If a part of the answer is missing, the sentence comes after the others.
        """
        await self._stop_updates()
        await self._find_messages()
        parts = self._final.get(self._live.ts or "", 0)
        if not parts:
            self._is_last_resort = True
            return await self.fail(text, reference)
        if not all(self._parts.get(number) for number in range(2, parts + 1)):
            part = slack_blocks.sentence(text, reference).parts[0]
            await self._post(self._mark(parts + 1), part, look_first=True)
        await self.set_working(False)
        return self._state()

    async def _finish(self, rendered: Rendered, of: int) -> dict[str, Any]:
        """Write the answer; `of` is the number of its parts, 0 for a sentence."""
        await self._stop_updates()
        try:
            if not self._known or self._live.unsettled:
                await self._find_messages()
            self._known = False
            await self._write_first(rendered, of)
            await self._write_others(rendered.parts, of)
            self._known = True
        except WriteFailed:
            await self.set_working(False)
            raise
        await self.set_working(False)
        return self._state()

    async def aclose(self) -> None:
        """Stop showing progress, and leave the message as it is."""
        await self._stop_updates()
        await self.set_working(False)

    async def set_working(self, on: bool) -> None:
        """Show or remove Slack's Stop button. Best effort, never raises."""
        asked = self._asked
        where = (asked.channel, asked.thread_ts, asked.user)
        if on:
            self._is_working = True  # also if the outcome is unknown
            await self._writer.set_status(*where, "processing", self._title)
        elif self._is_working:
            self._is_working = not await self._writer.set_status(*where, "active")

    def _state(self) -> dict[str, Any]:
        first = [self._live.ts] if self._live.ts else []
        others = [self._parts[n][0] for n in sorted(self._parts) if n > 1 and self._parts[n]]
        return {"ts": first + others, "streamed": self._live.streaming}

    async def _start(self) -> None:
        if self._live.ts is None and not self._known:
            await self._find_messages()
        if self._live.ts is None:
            self._known = False
            await self._live.start()
            self._known = True
        if not self._live.exact:
            self._wake.set()

    async def _find_messages(self) -> None:
        """Find what an earlier process of this request wrote, if Slack lets us read it."""
        asked = self._asked
        try:
            mine = await self._writer.mine(
                asked.channel, asked.thread_ts, asked.written_key, asked.ts
            )
        except WriteFailed as error:
            if is_away(error):
                raise
            log.warning("earlier messages of %s cannot be looked up: %s", asked.key, error)
            return
        self._parts, self._final = dict(mine.parts), dict(mine.final)
        firsts = [ts for ts in (*mine.parts.get(1, ()), *mine.unmarked[:1]) if ts not in self._dead]
        final = [ts for ts in firsts if ts in mine.final]
        if final and self._live.ts not in final:
            if self._live.ts:
                self._dead[self._live.ts] = None
            self._live.adopt(final[0], streaming=False)
        elif self._live.ts is None and firsts:
            self._live.adopt(firsts[0])
            self._is_working = True
        if self._live.unsettled:
            self._late_streams = tuple(ts for ts in mine.unmarked if ts != self._live.ts)
        self._known = True

    async def _write_first(self, rendered: Rendered, of: int) -> None:
        """Put the first part into the reply's message, or into a new one if that fails."""
        part, before, lost = rendered.parts[0], self._live.ts, dict(self._dead)
        for _ in range(TRIES):
            ts = self._live.ts
            if ts is None:
                break
            try:
                await self._write_into(ts, rendered, of)
            except StreamEnded:  # it is being streamed after all
                self._live.adopt(ts)
                continue
            except WriteFailed as error:
                if is_away(error) and not self._is_last_resort:
                    raise
                if self._is_final(ts, of) and error.code != GONE:
                    log.info("the answer of %s stays as it is: %s", self._asked.key, error)
                    return
                log.warning("%s is not written into its message: %s", self._asked.key, error)
                self._live.ts = None
            if self._live.ts:
                return
            self._dead[ts] = None
            await self._find_messages()
        if self._live.ts:
            self._dead[self._live.ts] = None
        try:
            self._live.ts = await self._post(self._mark(1, of), part)
        except WriteFailed:
            self._dead, self._live.ts = lost, before  # a later try starts with this message again
            raise
        self._live.streaming, self._final[self._live.ts] = False, of

    async def _write_into(self, ts: str, rendered: Rendered, of: int) -> None:
        """Put the first part into this message. Raises WriteFailed.

        If the live message's `ts` is None afterwards, the message is gone.
        """
        part, mark = rendered.parts[0], self._mark(1, of)
        if await self._live.end(rendered.streamed_text, rendered.below, of):
            self._final[ts] = of
            await self._replace_streamed(mark, ts, part)
            return
        await self._live.leave()
        if self._live.ts is None:
            return
        await self._writer.update(mark, self._asked.channel, ts, part)
        self._final[ts] = of
        if self._live.late:
            await self._writer.settle()
            await self._writer.update(mark, self._asked.channel, ts, part)

    async def _replace_streamed(self, mark: Mark, ts: str, part: MessagePart) -> None:
        """Replace the streamed markdown with blocks, below the plan.

        Slack parses nothing in rich text, but it interprets markdown in its own way. The answer is
        already delivered: it stays as it is if Slack refuses the blocks.
        """
        above = [self._live.ended] if self._live.ended else []
        blocks = [*above, *part.blocks]
        fits = slack_blocks.size(blocks) <= slack_blocks.MAX_MESSAGE
        part = MessagePart(part.text, tuple(blocks) if fits else part.blocks)
        try:
            await self._writer.update(mark, self._asked.channel, ts, part, exact=True)
        except WriteFailed as error:
            if error.code == GONE:
                self._live.ts = None
            log.info("the answer of %s stays as it was streamed: %s", self._asked.key, error)

    async def _write_others(self, parts: tuple[MessagePart, ...], of: int) -> None:
        """Write the other parts; remove what an earlier process wrote beyond them, or twice."""
        first = [self._live.ts or "", *self._parts.get(1, ()), *self._dead]
        self._parts[1] = tuple(dict.fromkeys(first))
        for number, part in enumerate(parts[1:], 2):
            there = self._parts.get(number, ())
            if there and await self._is_replaced(number, there[0], part, of):
                continue
            new = await self._post(self._mark(number, of), part, besides=there)
            self._parts[number] = (new, *there)
        for number, there in list(self._parts.items()):
            kept = 1 if number <= len(parts) else 0
            for ts in there[kept:]:
                await self._delete(ts)
            self._parts[number] = there[:kept]
        for ts in self._late_streams:
            with suppress(WriteFailed):
                await self._writer.stop_stream(self._mark(1), self._asked.channel, ts)
            await self._delete(ts)
        self._late_streams = ()

    async def _is_replaced(self, number: int, ts: str, part: MessagePart, of: int) -> bool:
        """Put another part into its message; return False if it needs a new message."""
        try:
            await self._writer.update(self._mark(number, of), self._asked.channel, ts, part)
        except WriteFailed as error:
            if is_away(error):
                raise
            log.info("part %d of %s is not written again: %s", number, self._asked.key, error)
            return self._is_final(ts, of) and error.code != GONE
        return True

    def _is_final(self, ts: str, of: int) -> bool:
        """Return whether this message belongs to a finished answer of so many parts."""
        return of > 0 and self._final.get(ts) == of

    async def _delete(self, ts: str) -> None:
        """Delete an extra message; the answer is complete even if Slack refuses."""
        try:
            await self._writer.delete(self._asked.channel, ts)
        except WriteFailed as error:
            if is_away(error):
                raise
            log.warning("%s of %s is not deleted: %s", ts, self._asked.key, error)

    async def _post(
        self,
        mark: Mark,
        part: MessagePart,
        *,
        look_first: bool = False,
        besides: Collection[str] = (),
    ) -> str:
        asked = self._asked
        return await self._writer.post(
            *(mark, asked.channel, asked.thread_ts, part),
            look_first=look_first,
            after=asked.ts,
            besides={*self._dead, *besides},
        )

    def _mark(self, number: int, of: int = 0) -> Mark:
        """Return the mark of this part of an answer of so many."""
        key = self._asked.written_key
        return Mark(key if number == 1 else f"{key}#{number}", self._run, of)

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
        slow = 1
        while True:
            await _wait(self._wake, self._live.seconds_left())
            if self._ending.is_set():
                return
            self._wake.clear()
            try:
                slow = await self._refresh(slow)
            except (ChannelClosed, TokenRefused) as error:
                log.warning("%s is not shown any more: %s", self._asked.key, error)
                return
            except Exception:  # top-level boundary: showing progress must never break the run
                log.exception("the progress of %s cannot be shown", self._asked.key)
            await _wait(self._ending, self._settings.update_s * slow)

    async def _shown(self) -> bool:
        """Show what is new; a message that Slack reports as gone is deleted in the end."""
        ts = self._live.ts
        try:
            return await self._live.refresh()
        finally:
            if ts and self._live.ts is None:
                self._dead[ts] = None

    async def _refresh(self, slow: int) -> int:
        """Make one write; return how many intervals to wait before the next one."""
        try:
            if self._live.ts is None:
                await self._start()
            shown = await self._shown()
        except (ChannelClosed, TokenRefused):
            raise
        except WriteFailed as error:
            log.info("the progress of %s is not shown yet: %s", self._asked.key, error)
            self._wake.set()
            return min(slow * 2, SLOWEST)
        if not shown:
            self._wake.set()
        return 1


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


WORDS = {
    "is_archived": "the channel is archived",
    "channel_not_found": "there is no such channel for me",
    "not_in_channel": "I am not in that channel; somebody has to invite me",
    "user_not_found": "there is no such person",
    "cannot_dm_bot": "that is a bot",
    "user_disabled": "that account was switched off",
    "thread_not_found": "there is no such thread",
    "message_not_found": "there is no such message",
    "invalid_name": "there is no such emoji",
}
"""Our words for Slack's error codes."""


class Writer:
    """Writes for the tools: implements `scopes.slack.SlackWriter`."""

    def __init__(self, writer: MessageWriter, settings: ReplySettings) -> None:
        self._writer, self._settings = writer, settings

    async def post(
        self, key: str, channel: str, thread_ts: str, text: str, request: str, by: str = ""
    ) -> str:
        first = ""
        with _tool_errors():
            for number, part in enumerate(
                slack_blocks.message(text, request, self._settings, by), 1
            ):
                where = (channel, thread_ts or first or None)
                mark = Mark(f"{key}#{number}")
                ts = await self._writer.post(mark, *where, part, look_first=True)
                first = first or ts
        return f"{channel}/{first}"

    async def message(self, key: str, user: str, text: str, request: str, by: str = "") -> str:
        with _tool_errors():
            channel = await self._writer.direct(user)
        return await self.post(key, channel, "", text, request, "" if by == user else by)

    async def react(self, channel: str, ts: str, name: str) -> None:
        with _tool_errors():
            await self._writer.react(channel, ts, name)


@contextmanager
def _tool_errors() -> Iterator[None]:
    """Raise ToolError for what Slack refuses."""
    try:
        yield
    except WriteFailed as error:
        why = WORDS.get(error.code, f"Slack says {error.code}")
        lasts = isinstance(error, ChannelClosed) or error.code in WORDS
        again = "" if lasts else " Try again later."
        raise ToolError(f"It was not written: {why}.{again}") from error
