"""One request's visible answer, from the first sign to the last word: one, whatever fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from bot.replies import render
from bot.replies.live import Admits, Live, only_public
from bot.replies.live import Place as Place
from bot.replies.outbox import Outbox
from bot.replies.render import Part, Rendered
from bot.replies.writes import (
    GONE,
    ChannelClosed,
    StreamEnded,
    TokenRefused,
    WriteFailed,
    is_away,
)
from bot.requests.requests import StoredRequest
from config.settings import Reply as Settings
from subagents.events import Event

log = logging.getLogger(__name__)

QUIET_S = 20.0
"""How long a write that is under way may take when the reply ends."""
TRIES = 4
"""Times that a message is written into, before a new one is posted in its place."""
SLOWEST = 16
"""Most update intervals between two tries of a progress that Slack does not take."""


class Reply:
    """One request's visible answer. To be closed (`aclose`) by whoever opened it."""

    def __init__(
        self,
        outbox: Outbox,
        place: Place,
        settings: Settings,
        state: Mapping[str, Any] | None = None,
        *,
        shown: Callable[[str], str] = str,
        title: str = "",
        run: str = "",
        admits: Admits = only_public,
    ) -> None:
        """`state` is what `open` returned in an earlier life: its message is then replaced.

        `shown` makes of the answer so far what can be shown of it (Prose.live); `title` names
        the request beside Slack's Stop button; `admits` says of what all who see the message may
        know.
        """
        self._outbox, self._place, self._settings = outbox, place, settings
        self._live = Live(outbox, place, settings, shown, run, admits=admits)
        self._title, self._run = title or "Working on it", run
        self._known = False
        """No message of an earlier life is unknown to us."""
        self._parts: dict[int, tuple[str, ...]] = {}
        self._final: dict[str, int] = {}
        """Messages that hold a part of a finished answer, and how many parts that answer has."""
        self._lost: dict[str, None] = {}
        """Messages that cannot be written to any more, and are to be deleted."""
        self._strays: tuple[str, ...] = ()
        self._is_last_resort = False
        """If the sentence that is written now fails, nothing else will be tried."""
        self._done: tuple[Rendered, dict[str, Any]] | None = None
        self._at_work = bool(state)
        self._wake, self._ending = asyncio.Event(), asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        if state and state.get("ts"):
            self._live.adopt(str(state["ts"][0]), streaming=bool(state.get("streamed", True)))

    async def open(self, *, look_first: bool = True) -> dict[str, Any]:
        """Show the first sign; returns the state to store. May be called again.

        `look_first` False = surely no earlier life of this request wrote, so nothing is looked up.
        Raises ChannelClosed or TokenRefused; whatever else fails is tried again later.
        """
        if self._ticker is None:
            self._known = not look_first and self._live.ts is None
            try:
                await self._begin()
            except (ChannelClosed, TokenRefused):
                raise
            except WriteFailed as error:
                log.warning("no first sign of %s: %s", self._place.key, error)
            self._ticker = asyncio.create_task(self._keep_showing())
        return self._state()

    def emit(self, event: Event) -> None:
        """Note an event, to be shown soon. Does no I/O, never raises; only in the loop's thread."""
        try:
            self._live.take(event)
        except Exception:  # the seam: what is shown never hurts the run
            log.exception("an event of %s cannot be shown", self._place.key)
        self._wake.set()

    async def finish(self, rendered: Rendered) -> dict[str, Any]:
        """Show the whole answer. May be called again, also in another life. Raises WriteFailed."""
        return await self._finish(rendered, len(rendered.parts))

    async def fail(self, text: str, reference: str = "") -> dict[str, Any]:
        """Show one plain sentence as the answer, in place of everything else."""
        self._live.exact = False
        return await self._finish(render.sentence(text, reference), 0)

    async def apologise(self, text: str, reference: str = "") -> dict[str, Any]:
        """Show one plain sentence in place of the answer; what was delivered of it stays.

        Where a part of the answer is missing, the sentence comes behind the others.
        """
        await self._quiet()
        await self._look()
        parts = self._final.get(self._live.ts or "", 0)
        if not parts:
            self._is_last_resort = True
            return await self.fail(text, reference)
        if not all(self._parts.get(number) for number in range(2, parts + 1)):
            part = render.sentence(text, reference).parts[0]
            await self._post(f"{self._place.key}#{parts + 1}", part, look_first=True)
        await self.working(False)
        return self._state()

    async def _finish(self, rendered: Rendered, of: int) -> dict[str, Any]:
        """Write it; `of` is the number of parts of a finished answer, 0 for a sentence."""
        if self._done and self._done[0] == rendered:
            return self._done[1]
        await self._quiet()
        try:
            if not self._known or self._live.unsettled:
                await self._look()
            self._known = False
            await self._write_first(rendered, of)
            await self._write_others(rendered.parts, of)
            self._known = True
        except WriteFailed:
            await self.working(False)
            raise
        await self.working(False)
        self._done = (rendered, self._state())
        return self._done[1]

    async def aclose(self) -> None:
        """Stop showing, and leave the message as it is."""
        await self._quiet()
        await self.working(False)

    async def working(self, on: bool) -> None:
        """Show Slack's Stop button, or take it away. Best effort, never raises."""
        place = self._place
        where = (place.channel, place.thread_ts, place.user)
        if on:
            self._at_work = True  # also when nobody knows whether it is
            await self._outbox.set_status(*where, "processing", self._title)
        elif self._at_work:
            self._at_work = not await self._outbox.set_status(*where, "active")

    def _state(self) -> dict[str, Any]:
        first = [self._live.ts] if self._live.ts else []
        others = [self._parts[n][0] for n in sorted(self._parts) if n > 1 and self._parts[n]]
        return {"ts": first + others, "streamed": self._live.streaming}

    async def _begin(self) -> None:
        if self._live.ts is None and not self._known:
            await self._look()
        if self._live.ts is None:
            self._known = False
            await self._live.begin()
            self._known = True
        if not self._live.exact:
            self._wake.set()

    async def _look(self) -> None:
        """Find what an earlier life of this request wrote, where Slack lets us read it."""
        place = self._place
        try:
            mine = await self._outbox.mine(
                place.channel, place.thread_ts, place.key, place.asked_ts
            )
        except WriteFailed as error:
            if is_away(error):
                raise
            log.warning("nobody knows what was written of %s before: %s", place.key, error)
            return
        self._parts, self._final = dict(mine.parts), dict(mine.final)
        firsts = [ts for ts in (*mine.parts.get(1, ()), *mine.unmarked[:1]) if ts not in self._lost]
        final = [ts for ts in firsts if ts in mine.final]
        if final and self._live.ts not in final:
            if self._live.ts:
                self._lost[self._live.ts] = None
            self._live.adopt(final[0], streaming=False)
        elif self._live.ts is None and firsts:
            self._live.adopt(firsts[0])
            self._at_work = True
        if self._live.unsettled:
            self._strays = tuple(ts for ts in mine.unmarked if ts != self._live.ts)
        self._known = True

    async def _write_first(self, rendered: Rendered, of: int) -> None:
        """Put the first part into the reply's message, or into a new one where that cannot be."""
        part, before, lost = rendered.parts[0], self._live.ts, dict(self._lost)
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
                    log.info("the answer of %s stays as it is: %s", self._place.key, error)
                    return
                log.warning("%s is not written into its message: %s", self._place.key, error)
                self._live.ts = None
            if self._live.ts:
                return
            self._lost[ts] = None
            await self._look()
        if self._live.ts:
            self._lost[self._live.ts] = None
        try:
            self._live.ts = await self._post(self._place.key, part, of)
        except WriteFailed:
            self._lost, self._live.ts = lost, before  # a later try begins with the message again
            raise
        self._live.streaming, self._final[self._live.ts] = False, of

    async def _write_into(self, ts: str, rendered: Rendered, of: int) -> None:
        """Put the first part into this message. Raises WriteFailed; it has gone where `ts` of
        what is live is None then."""
        part, place = rendered.parts[0], self._place
        if await self._live.end(rendered.streamed_text, rendered.below, of):
            self._final[ts] = of
            await self._settle(ts, part, of)
            return
        await self._live.leave()
        if self._live.ts is None:
            return
        await self._update(place.key, ts, part, of)
        self._final[ts] = of
        if self._live.late:
            await self._outbox.settle()
            await self._update(place.key, ts, part, of)

    async def _settle(self, ts: str, part: Part, of: int) -> None:
        """Put blocks in the place of the markdown that was streamed, below the plan.

        In rich text Slack makes nothing of the text; in markdown it reads marks of its own. The
        answer is delivered: it stays as it is where Slack does not take the blocks.
        """
        above = [self._live.ended] if self._live.ended else []
        blocks = [*above, *part.blocks]
        fits = render.size(blocks) <= render.MAX_MESSAGE
        part = Part(part.text, tuple(blocks) if fits else part.blocks)
        try:
            await self._update(self._place.key, ts, part, of, exact=True)
        except WriteFailed as error:
            if error.code == GONE:
                self._live.ts = None
            log.info("the answer of %s stays as it was streamed: %s", self._place.key, error)

    async def _write_others(self, parts: tuple[Part, ...], of: int) -> None:
        """The further parts; what an earlier life wrote beyond them, or twice, is taken away."""
        first = [self._live.ts or "", *self._parts.get(1, ()), *self._lost]
        self._parts[1] = tuple(dict.fromkeys(first))
        for number, part in enumerate(parts[1:], 2):
            there = self._parts.get(number, ())
            if there and await self._is_replaced(number, there[0], part, of):
                continue
            new = await self._post(f"{self._place.key}#{number}", part, of, besides=there)
            self._parts[number] = (new, *there)
        for number, there in list(self._parts.items()):
            kept = 1 if number <= len(parts) else 0
            for ts in there[kept:]:
                await self._delete(ts)
            self._parts[number] = there[:kept]
        for ts in self._strays:
            with suppress(WriteFailed):
                await self._outbox.stop_stream(self._place.key, self._place.channel, ts)
            await self._delete(ts)
        self._strays = ()

    async def _is_replaced(self, number: int, ts: str, part: Part, of: int) -> bool:
        """Put a further part into its message; False = it has to be written into a new one."""
        try:
            await self._update(f"{self._place.key}#{number}", ts, part, of)
        except WriteFailed as error:
            if is_away(error):
                raise
            log.info("part %d of %s is not written again: %s", number, self._place.key, error)
            return self._is_final(ts, of) and error.code != GONE
        return True

    def _is_final(self, ts: str, of: int) -> bool:
        """Whether this message was written as a part of a finished answer of so many parts."""
        return of > 0 and self._final.get(ts) == of

    async def _delete(self, ts: str) -> None:
        """Delete what should not stand there; the answer is whole, also where that is refused."""
        try:
            await self._outbox.delete(self._place.channel, ts)
        except WriteFailed as error:
            if is_away(error):
                raise
            log.warning("%s of %s is not deleted: %s", ts, self._place.key, error)

    async def _post(
        self,
        key: str,
        part: Part,
        of: int = 0,
        *,
        look_first: bool = False,
        besides: Collection[str] = (),
    ) -> str:
        place = self._place
        return await self._outbox.post(
            *(key, place.channel, place.thread_ts, part.text, part.blocks),
            look_first=look_first,
            run=self._run,
            of=of,
            after=place.asked_ts,
            besides={*self._lost, *besides},
        )

    async def _update(self, key: str, ts: str, part: Part, of: int, *, exact: bool = False) -> None:
        await self._outbox.update(
            *(key, self._place.channel, ts, part.text, part.blocks),
            exact=exact,
            run=self._run,
            of=of,
        )

    async def _quiet(self) -> None:
        """End the ticker, after the write that it is at."""
        self._ending.set()
        self._wake.set()
        ticker, self._ticker = self._ticker, None
        if ticker is None:
            return
        try:
            await asyncio.wait({ticker}, timeout=QUIET_S)
        finally:
            ticker.cancel()
        await asyncio.wait({ticker})

    async def _keep_showing(self) -> None:
        """The ticker: at most one write an interval; what comes meanwhile is shown together."""
        slow = 1
        while True:
            await _wait(self._wake, self._live.seconds_left())
            if self._ending.is_set():
                return
            self._wake.clear()
            try:
                slow = await self._tick(slow)
            except (ChannelClosed, TokenRefused) as error:
                log.warning("%s is not shown any more: %s", self._place.key, error)
                return
            except Exception:  # the seam: what is shown never hurts the run
                log.exception("the progress of %s cannot be shown", self._place.key)
            await _wait(self._ending, self._settings.update_s * slow)

    async def _shown(self) -> bool:
        """Show what is new; a message that Slack says has gone is deleted in the end."""
        ts = self._live.ts
        try:
            return await self._live.tick()
        finally:
            if ts and self._live.ts is None:
                self._lost[ts] = None

    async def _tick(self, slow: int) -> int:
        """One write; returns how many intervals the next one has to wait."""
        try:
            if self._live.ts is None:
                await self._begin()
            shown = await self._shown()
        except (ChannelClosed, TokenRefused):
            raise
        except WriteFailed as error:
            log.info("the progress of %s is not shown yet: %s", self._place.key, error)
            self._wake.set()
            return min(slow * 2, SLOWEST)
        if not shown:
            self._wake.set()
        return 1


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def place_of(request: StoredRequest) -> Place:
    return Place(
        user_team=request.user_team,
        channel=request.channel,
        thread_ts=request.thread_ts,
        user=request.user,
        key=request.written_key,
        asked_ts=request.ts,
    )
