"""Reads the channels of a sweep ahead of their subagents, and says what each of these gets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from bot.sweep.sources import PART_SHARE, Source, ids_of, split
from bot.sweep.tracker import keys_in
from scopes.label import WORKSPACE, Label
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import Conversation, SlackReader
from scopes.tool import Window, iso
from subagents.events import SourcesRead
from subagents.run import Run
from subagents.toolbox import crash_text

log = logging.getLogger(__name__)

PLAN_SHARE = 0.75
"""Share of a sweep's time after which no further channel is read."""

PATIENCE_S = 5.0
"""Seconds that a channel may hold up those after it."""

SIGN_S = 10.0
"""Seconds without a plan after which a sign of life is given."""


class Planning:
    """Plans of channels, as they come; without a model, and no more held at once than are read."""

    def __init__(
        self,
        run: Run,
        sources: Sequence[Source],
        threads_per_subagent: int,
        group: asyncio.TaskGroup,
    ) -> None:
        self._run, self._sources, self._most = run, sources, threads_per_subagent
        self._group = group
        self._room = asyncio.Semaphore(run.limits.max_concurrency)
        self._until = asyncio.get_running_loop().time() + PLAN_SHARE * run.purse.seconds_left()
        self._tasks: list[asyncio.Task[dict[str, Any]]] = []
        self._head = 0.0
        """When the first of them became the first."""
        self._holding: set[str] = set()

    async def next(self) -> dict[str, Any]:
        """The next plan, in the order of the channels unless one of them holds up all others.

        It is a step's work: channels whose plan was handed out in an earlier life are not read
        again.
        """
        clock = asyncio.get_running_loop().time
        if not self._tasks:
            left = [source for source in self._sources if not source.planned]
            self._tasks = [self._group.create_task(self._plan(source)) for source in left]
            self._head = clock()
        self._tell()
        await asyncio.wait(self._tasks[:1], timeout=max(0.0, self._head + PATIENCE_S - clock()))
        while not (done := await self._done()):
            self._tell(waits=True)
        first = next(task for task in self._tasks if task in done)
        if first is self._tasks[0]:
            self._head = clock()
        self._tasks.remove(first)
        return first.result()

    async def _done(self) -> set[asyncio.Task[dict[str, Any]]]:
        first = asyncio.FIRST_COMPLETED
        return (await asyncio.wait(self._tasks, timeout=SIGN_S, return_when=first))[0]

    def _tell(self, *, waits: bool = False) -> None:
        read = sum(source.planned for source in self._sources)
        self._run.emit(SourcesRead(read, len(self._sources), waits))

    def read(self, source: Source) -> None:
        """The subagents of this channel are done: its text is let go of, the next one may come."""
        self._tell()
        self._reader.release(source.channel.id)
        if source.channel.id in self._holding:
            self._holding.remove(source.channel.id)
            self._room.release()

    @property
    def _reader(self) -> SlackReader:
        reader = self._run.clients[SlackReader]
        assert isinstance(reader, SlackReader)
        return reader.patient()

    async def _plan(self, source: Source) -> dict[str, Any]:
        try:
            async with asyncio.timeout_at(self._until) as scope:
                with self._run.stop.watching(scope):
                    await self._room.acquire()
                    self._holding.add(source.channel.id)
                    return await self._planned(source)
        except TimeoutError:
            by = "user" if self._run.stop else "time"
            return _without(source, f"it was not read (stopped by {by})", by)

    async def _planned(self, source: Source) -> dict[str, Any]:
        try:
            found = await self._reader.conversations(source.channel.id, source.window)
            label = await self._label(source)
        except Absent:
            return _without(source, await self._reader.not_in(f"#{source.channel.name}"))
        except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            why = str(error) or "Slack gave no answer in time; try again later"
            return _without(source, why, "" if getattr(error, "needed", "") else "slack")
        except Exception as error:  # the seam: one channel that makes no sense harms no other
            log.exception("planning %s of %s crashed", source.name, self._run.id)
            return _without(source, crash_text("reading it", error))
        most = int(PART_SHARE * self._run.limits.child_context)
        shares = split(found, source.window, most, self._most)
        return {
            "channel": source.channel.id,
            "shares": [_share(found, share) for share in shares],
            "keys": _keys(found),
            "label": label.to_json(),
        }

    async def _label(self, source: Source) -> Label:
        """Of what a report says of a channel, even where nobody wrote in it."""
        if source.channel.is_private:
            return await self._reader.label(source.channel.id)
        return Label(True, WORKSPACE, frozenset({source.channel.id}))


def _without(source: Source, fault: str, stopped: str = "") -> dict[str, Any]:
    """The plan of a channel that could not be read."""
    return {"channel": source.channel.id, "fault": fault, "stopped": stopped}


def _share(found: Sequence[Conversation], share: Window) -> dict[str, Any]:
    begin, end = share.opened_from, share.opened_before
    return {
        "from": iso(begin) if begin else None,
        "before": iso(end) if end else None,
        "ids": list(ids_of(found, share)),
    }


def _keys(found: Sequence[Conversation]) -> Mapping[str, list[str]]:
    """Which bug keys each thread names: by these code finds its row in the tracker."""
    named = {c.root.id: keys_in(" ".join(item.text for item in c.items)) for c in found}
    return {root: keys for root, keys in named.items() if keys}
