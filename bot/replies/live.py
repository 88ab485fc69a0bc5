"""The message of a reply while its answer is being written: streamed, or else edited."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bot.replies import plan
from bot.replies.outbox import Outbox
from bot.replies.plan import Plan, Task
from bot.replies.writes import (
    GONE,
    ContentRefused,
    MessageGone,
    StreamEnded,
    Unsent,
    Unsettled,
    WriteFailed,
)
from config.settings import Reply as Settings
from scopes.label import TRUSTED, Label
from subagents.events import AnswerDelta, AnswerRestarted, ContextGrew, Event, SubagentFinished

log = logging.getLogger(__name__)

STREAM_BYTES = 9_000
"""Plan and text of a streamed message, UTF-8; Slack refuses from about 10,600 on (measured:
github.com/openclaw/openclaw/pull/143882)."""
EDIT_CHARS = 6_000
"""Text shown below the plan of an edited message; the blocks of one may have about 13,000."""


Admits = Callable[[Label], Awaitable[bool]]


async def only_public(label: Label) -> bool:
    """Nothing private may be shown: for a message of which nobody said who sees it."""
    return label.is_open


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request was asked, and so where its answer goes."""

    user_team: str
    """The workspace that the user belongs to."""
    channel: str
    thread_ts: str
    user: str
    key: str
    """Of the request; its messages are found again by it."""
    asked_ts: str


class Live:
    """One message. `ts` is None until it is there, and when it has gone."""

    def __init__(
        self,
        outbox: Outbox,
        place: Place,
        settings: Settings,
        shown: Callable[[str], str],
        run: str = "",
        clock: Callable[[], float] = time.monotonic,
        admits: Admits = only_public,
    ) -> None:
        """`shown` makes of an answer so far what can be shown of it; `clock` is in seconds.

        `admits` says whether all who see the message may know what rests on text of a label.
        """
        self.plan, self.text = Plan(), ""
        self.ts: str | None = None
        self.streaming = False
        """As far as we know Slack takes more for it, and no edit."""
        self.exact = True
        """The stream shows `sent` and nothing else."""
        self.sent = ""
        self.unsettled = False
        """A stream was asked for, was not found, and may yet come to light."""
        self.late = False
        """An edit of unknown outcome may yet be carried out, over a newer one."""
        self.ended: dict[str, Any] | None = None
        """The plan above an answer whose stream was ended by `end`."""
        self._outbox, self._place, self._settings = outbox, place, settings
        self._shown, self._run, self._clock = shown, run, clock
        self._admits, self._label = admits, TRUSTED
        self._waiting: list[Event] = []
        self._rows: dict[str, Task] = {}
        self._title = ""
        self._began = 0.0
        self._last: tuple[Any, ...] = ()
        self._plain = False

    def take(self, event: Event) -> None:
        """Note an event; `tick` shows it, if all who see the message may know of it."""
        if isinstance(event, ContextGrew | SubagentFinished):
            self._label = self._label.join(event.label)
        self._waiting.append(event)

    async def _catch_up(self) -> None:
        """Take in the events so far; what may not be known here is passed over for good."""
        waiting, self._waiting = self._waiting, []
        if waiting and await self._admits(self._label):
            for event in waiting:
                self._note(event)

    def _note(self, event: Event) -> None:
        match event:
            case AnswerDelta(text):
                self.text += text
            case AnswerRestarted():
                self.text = ""
        self.plan.take(event)

    async def begin(self) -> None:
        """The first sign: a stream where one can be had at once, else a message, whatever Slack
        says of streams.

        Raises WriteFailed; after Unsettled there may be a message nevertheless.
        """
        place, rows = self._place, plan.tasks(self.plan, self._settings.max_rows)
        title = plan.heading(self.plan)
        chunks = [_title(title), *(row.chunk() for row in rows)]
        where = (place.channel, place.thread_ts)
        self.exact, self.sent, self._last = True, "", ()
        try:
            self.ts = await self._outbox.start_stream(*where, place.user_team, place.user, chunks)
        except Unsettled:
            self.unsettled = True
            found = await self._outbox.unfinished(*where, place.key, place.asked_ts)
            if found:
                self.unsettled = False
                self.adopt(found)
                return
        except WriteFailed as error:
            log.info("no stream for %s: %s", place.key, error)
        if self.ts is None:
            await self.post()
            return
        self.streaming, self._began = True, self._clock()
        self._rows, self._title = {row.id: row for row in rows}, title

    async def post(self) -> None:
        """The message without a stream."""
        place, (text, blocks) = self._place, self._edited()
        self.ts = await self._outbox.post(
            place.key, place.channel, place.thread_ts, text, blocks, run=self._run
        )
        self._last = (text, blocks)

    def adopt(self, ts: str, *, streaming: bool = True) -> None:
        """Go on with a message whose content is not known: it will be replaced."""
        self.ts, self.streaming, self.exact, self.sent, self._last = ts, streaming, False, "", ()

    def seconds_left(self) -> float | None:
        """Until the stream has to be left; None = there is none."""
        if not self.streaming:
            return None
        return max(0.0, self._began + self._settings.stream_s - self._clock())

    async def tick(self) -> bool:
        """Show what is new with one write; False = not all of it. Raises WriteFailed."""
        if self.ts is None:
            return False
        await self._catch_up()
        if self.streaming and self._goes_on():
            try:
                return await self._append()
            except Unsent:
                raise
            except WriteFailed as error:
                log.info("the stream of %s is left: %s", self._place.key, error)
                self.exact = False
        await self.leave()
        return await self._edit()

    async def leave(self) -> None:
        """Go on without the stream, if there is one: an edit tells whether it is still open."""
        if not (self.streaming and self.ts):
            return
        place = self._place
        try:
            await self._outbox.stop_stream(place.key, place.channel, self.ts, run=self._run)
        except WriteFailed as error:
            log.info("the stream of %s was not stopped: %s", place.key, error)
            if error.code == GONE:
                self.ts = None
        self.streaming, self._last = False, ()

    async def end(self, text: str, blocks: tuple[dict[str, Any], ...], of: int) -> bool:
        """End the stream with exactly this text in it and these blocks below; False = it cannot.

        `of` is the number of parts of the answer.
        """
        await self._catch_up()
        if not (self.ts and self.streaming and self.exact and text.startswith(self.sent)):
            return False
        rows = plan.tasks(self.plan, self._settings.max_rows, self._rows, over=True)
        title = plan.heading(self.plan, over=True)
        if _size(rows, title, text) > STREAM_BYTES or self.seconds_left() == 0:
            return False
        chunks = self._changes(rows, title)
        rest = text[len(self.sent) :]
        chunks += [{"type": "markdown_text", "text": rest}] if rest else []
        self.exact, place = False, self._place
        try:
            await self._outbox.stop_stream(
                place.key, place.channel, self.ts, chunks, blocks, run=self._run, of=of
            )
        except WriteFailed as error:
            log.info("the stream of %s does not end as it should: %s", place.key, error)
            return False
        self.streaming, self.sent, self._last = False, text, ()
        self.ended = plan.block(rows, title)
        return True

    def _goes_on(self) -> bool:
        ready = self._shown(self.text) if self.text else ""
        return self.exact and self.seconds_left() != 0 and ready.startswith(self.sent)

    async def _append(self) -> bool:
        assert self.ts
        rows = plan.tasks(self.plan, self._settings.max_rows, self._rows)
        title = plan.heading(self.plan)
        ready = self._shown(self.text) if self.text else ""
        fits = _size(rows, title, ready) <= STREAM_BYTES
        rest = ready[len(self.sent) :] if fits else ""
        chunks = self._changes(rows, title)
        chunks += [{"type": "markdown_text", "text": rest}] if rest else []
        if not chunks:
            return True
        self.exact = not rest
        try:
            done = await self._outbox.append(self._place.channel, self.ts, chunks)
        except Unsent:
            self.exact = True
            raise
        self.exact = True
        if done:
            self.sent += rest
            self._rows |= {row.id: row for row in rows}
            self._title = title
        return done

    def _changes(self, rows: list[Task], title: str) -> list[dict[str, Any]]:
        changed = [row.chunk() for row in rows if self._rows.get(row.id) != row]
        return [_title(title), *changed] if title != self._title else changed

    async def _edit(self) -> bool:
        if self.ts is None:
            return False
        place, (text, blocks) = self._place, self._edited()
        if (text, blocks) == self._last:
            return True
        try:
            done = await self._outbox.show(
                place.key, place.channel, self.ts, text, blocks, run=self._run
            )
        except ContentRefused:
            self._plain = True
            raise
        except MessageGone as error:
            if error.code == GONE:
                self.ts = None
            raise
        except Unsettled:
            self.late = True
            raise
        except StreamEnded:  # it is being streamed after all
            self.streaming, self.exact = True, False
            raise
        if done:
            self._last = (text, blocks)
        return done

    def _edited(self) -> tuple[str, list[dict[str, Any]]]:
        """Plan and answer so far, as text and as blocks."""
        rows, title = plan.tasks(self.plan, self._settings.max_rows), plan.heading(self.plan)
        ready = self._shown(self.text) if self.text else ""
        most = min(self._settings.message_chars, EDIT_CHARS)
        ready = ready if len(ready) <= most else ready[: most - 1] + "…"
        text = "\n\n".join(filter(None, [plan.lines(rows, title), ready]))
        if self._plain:
            return text, []
        prose = [{"type": "markdown", "text": ready}] if ready.strip() else []
        return text, [plan.block(rows, title), *prose]


def _title(title: str) -> dict[str, Any]:
    return {"type": "plan_update", "title": title}


def _size(rows: list[Task], title: str, text: str) -> int:
    return sum(
        len(each.encode(errors="replace")) for each in (title, text, *(r.title for r in rows))
    )
