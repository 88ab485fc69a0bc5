"""Email triage: one isolated subagent a thread, one digest put together by code."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.mail.corrections import Correction, told_of
from bot.mail.state import MailState
from bot.mail.sync import Sync
from bot.mail.words import count
from bot.parent import Workplace
from bot.requests.asked import Request
from bot.sweep.top_lines import Opening, TopLines
from bot.tally import STATUSES, total
from bot.triage.briefing import Reader, brief_of
from bot.triage.looked import UNCHANGED, Looked, looked_at, unread
from bot.triage.matters import Lines, by_urgency, read_lines, shown_first
from bot.triage.prefilter import why_automatic
from bot.triage.verdicts import finding_of, unreadable, verdict_of
from scopes.google.client import GoogleAbsent, GoogleError
from scopes.google.gmail import Gmail
from scopes.mail import ThreadRef
from scopes.tool import iso
from subagents.agent import Agent
from subagents.brief import Brief
from subagents.fanout import Fanout
from subagents.prices import Usage
from subagents.result import SubagentResult
from subagents.run import Run
from subagents.toolbox import crash_text
from subagents.trajectory import Origin
from subagents.view import parent_view

log = logging.getLogger(__name__)

GONE = "it was deleted meanwhile"
AT_ONCE = 16
"""Threads that are fetched together, and whose subagents then begin together."""
AHEAD = 2
"""So many times AT_ONCE are asked for at a time: Google's workers never wait for the slowest."""
MIN_VIEW = 150
"""Tokens of a verdict that its parent is shown; where there is no room for all, urgent ones are."""


@dataclass
class Triage:
    """One triage at work."""

    app: Workplace
    run: Run
    request: Request
    gmail: Gmail
    reader: Reader
    listing: Callable[[], Awaitable[Sync]]
    """Which threads there are to read."""
    limit: int | None = None
    """Most threads that subagents read; None = all."""
    corrections: Sequence[Correction] = ()
    """What the reader has set right before."""
    earlier: Mapping[str, SubagentResult] = field(default_factory=dict)
    """What this run paid for before it died, by the id of the thread's last item."""
    taken: int = 0
    """The last number that this run gave to a subagent before it died."""
    parents: tuple[str, ...] = ()
    """Contexts of its parent that had been asked something before it died."""

    def __post_init__(self) -> None:
        self.fanout = Fanout(self.run, self.app.spawner(self.run), taken=self.taken)
        self.top = TopLines(self.run, "triage", "digest_lines", f"p{1 + len(self.parents)}")
        self.fanout.parent = self.top.context
        self.results: dict[str, SubagentResult] = {}
        """Id of a thread -> its subagent's result."""
        self.looked: list[Looked] = []
        self.sync = Sync((), "", full=True, why="")

    async def report(self) -> dict[str, Any]:
        """The digest as the document of `triage --json`."""
        self.top.begin()
        await self.top.hold()
        try:
            await self._look()
            lines, agent = await self._lines()
        finally:
            await self.top.release()
        return self._document(lines, agent)

    def handled(self) -> dict[str, list[str]]:
        """The threads that the digest is done with, and what was seen of each."""
        done = (t for t in self.looked if t.filtered or t.fault == GONE or t.lasting)
        over = [*done, *(t for t in self.looked if self._value(t))]
        return {t.id: list(t.seen) for t in over}

    # ---- reading: the next threads are fetched while subagents read those before

    async def _look(self) -> None:
        self.sync = await self._listed()
        rest, ahead = list(self.sync.refs), deque[asyncio.Task[tuple[list[Looked], bool]]]()
        wanted, stopped = self.limit or len(rest), False
        async with asyncio.TaskGroup() as group:
            while (rest or ahead) and wanted > 0 and not stopped:
                while rest and len(ahead) < AHEAD and len(ahead) * AT_ONCE < wanted:
                    some, rest = rest[:AT_ONCE], rest[AT_ONCE:]
                    number = len(self.sync.refs) - len(rest)
                    ahead.append(group.create_task(self._fetched(some, number)))
                begun = len(self.looked)
                found, stopped = await ahead.popleft()
                for each in found:
                    if wanted > 0:
                        self.looked.append(each)
                        wanted -= each.is_open
                group.create_task(self._judge([t for t in self.looked[begun:] if t.is_open]))
            for unneeded in ahead:
                unneeded.cancel()

    async def _listed(self) -> Sync:
        async def find() -> dict[str, Any]:
            return (await self.listing()).to_json()

        key = f"{self.run.id}/{self.top.context}/threads"
        return Sync.of(await self.run.checkpoint.step(key, find))

    async def _fetched(self, refs: Sequence[ThreadRef], number: int) -> tuple[list[Looked], bool]:
        """These threads, and whether the user wants no more of them."""

        async def fetch() -> dict[str, Any]:
            found = await asyncio.gather(*map(self._fetch, refs))
            return {"threads": [each.to_json() for each in found], "stop": bool(self.run.stop)}

        key = f"{self.run.id}/{self.top.context}/threads/{number}"
        made = await self.run.checkpoint.step(key, fetch)
        return [Looked.of(each) for each in made["threads"]], made["stop"]

    async def _fetch(self, ref: ThreadRef) -> Looked:
        try:
            thread = await self.gmail.thread(ref.id)
            why = why_automatic(thread, self.reader.address) or ""
            return looked_at(thread, self.reader, why if self.sync.is_new(thread) else UNCHANGED)
        except GoogleAbsent:
            return unread(ref, GONE)
        except GoogleError as error:
            return unread(ref, str(error))
        except Exception as error:  # the seam: one thread that makes no sense harms no other
            log.exception("reading the thread %s of %s crashed", ref.id, self.run.id)
            return unread(ref, crash_text("reading it", error))

    async def _judge(self, threads: Sequence[Looked]) -> None:
        briefs: dict[str, Brief] = {}
        for thread in threads:
            if paid := self.earlier.get(thread.items[-1].id):
                self.results[thread.id] = self.fanout.results[paid.id] = paid
            else:
                briefs[thread.id] = self._brief(thread)
        results = await self.fanout.run_all(list(briefs.values()))
        self.results |= dict(zip(briefs, results, strict=True))

    def _brief(self, thread: Looked) -> Brief:
        settings = self.app.settings.triage
        known = told_of(self.corrections, thread.senders, settings.categories)
        who, asked_by = self.reader, self.run.requester
        return brief_of(thread.id, thread.subject, thread.items, who, settings, known, asked_by)

    # ---- the first lines, the one thing that the parent writes

    async def _lines(self) -> tuple[Lines, Agent | None]:
        """What to do first and what is one matter; by the model, else by code."""
        results = [r for t in self.looked if (r := self.results.get(t.id)) and r.findings]
        if not results:
            return Lines(), None
        limits = self.run.limits
        shown = shown_first(results, limits.max_fanout_tokens // MIN_VIEW)
        text, agent = await self.top.write(self.request, self._opening(shown, len(results)), shown)
        lines = read_lines(text, {f.id for r in results if (f := finding_of(r))})
        return (lines if lines.first else lines.with_first(by_urgency(results))), agent

    def _opening(self, shown: Sequence[SubagentResult], count: int) -> list[Opening]:
        limits = self.run.limits
        cap = min(limits.max_result_tokens, limits.max_fanout_tokens // max(1, len(shown)))
        language = self.app.settings.triage.language or "en"
        said = f"TRIAGE of {count} threads. TODAY: {self.reader.today:%A %Y-%m-%d}"
        if count > len(shown):
            said += f" ({len(shown)} of them are shown, the most urgent)"
        again = [("This goes on after a restart.", Origin.HANDOFF, p) for p in self.parents[-1:]]
        return [
            *again,
            (f"{said}\nLANGUAGE: {language}", Origin.REQUEST, ""),
            *((parent_view(r, cap), Origin.VIEW, r.id) for r in shown),
            ("WRITE: digest lines", Origin.REQUEST, ""),
        ]

    # ---- the document

    def _document(self, lines: Lines, agent: Agent | None) -> dict[str, Any]:
        looked = self.looked
        results = list(self.fanout.results.values())
        own = (agent.usage, agent.cost_usd) if agent else (Usage(), 0.0)
        usage, cost = total(results, *own)
        judged = [t for t in looked if t.is_open and self._value(t) is not None]
        undone = [t for t in looked if not t.filtered and t not in judged]
        names = tuple(self.app.settings.triage.categories)
        verdicts = [verdict_of(t, self.results[t.id], names) for t in judged]
        lost = [unreadable(t, self.results.get(t.id)) for t in undone]
        threads = {v["finding"]: v["thread_id"] for v in verdicts if v["finding"]}
        window = self.request.window
        return {
            "run_id": self.run.id,
            "kind": "triage",
            "status": self._status(verdicts, lost),
            "model": self.app.model_name,
            "mailbox": self.reader.address,
            "as_of": iso(window.latest),
            "window": {"oldest": iso(window.oldest), "latest": iso(window.latest)},
            "coverage": self._coverage(results, lost),
            "top_lines": lines.first_json(threads),
            "matters": lines.matters_json(threads),
            "verdicts": verdicts,
            "filtered": [{**t.heading(), "reason": t.filtered} for t in looked if t.filtered],
            "unreadable": lost,
            "unsupported": sum(len(r.unsupported) for r in results),
            "usage": usage.to_json(),
            "cost_usd": cost,
            "subagents": [r.model_dump(mode="json") for r in results],
        }

    def _value(self, thread: Looked) -> dict[str, Any] | None:
        result = self.results.get(thread.id)
        return result.value if result else None

    def _status(self, verdicts: Sequence[Mapping[str, Any]], lost: Sequence[Any]) -> str:
        if self.run.stop:
            return "cancelled"
        if not lost and not any(verdict["not_read"] for verdict in verdicts):
            return "complete"
        return "partial" if verdicts else "failed"

    def _coverage(
        self, results: Sequence[SubagentResult], lost: Sequence[Mapping[str, str]]
    ) -> dict[str, Any]:
        counts = {s: sum(r.status == s for r in results) for s in STATUSES}
        missing = [f"{each['subject']}: {each['reason']}" for each in lost]
        missing += [
            f"{t.subject}: {each}"
            for t in self.looked
            if (r := self.results.get(t.id)) and r.value is not None
            for each in r.not_covered
        ]
        asked = 0
        if left := len(self.sync.refs) - len(self.looked):
            why = "the stop" if self.run.stop else f"--limit {self.limit}"
            missing.append(f"{count(left, 'older thread')} left out by {why}")
            asked = 0 if self.run.stop else 1
        gaps = [*missing, *self.app.problems]
        return {"items": len(results), **counts, "not_covered": gaps, "left_out": asked}


async def delivered(state: MailState, account: str, triage: Triage) -> None:
    """Note that a digest stands where it belongs; what it did not come to is listed again.

    It may be called again. Raises StoreError.
    """
    await state.delivered(**done_with(account, triage))


def done_with(account: str, triage: Triage) -> dict[str, Any]:
    """What is to be noted when the digest stands where it belongs, as JSON."""
    handled = triage.handled()
    left = [ref.id for ref in triage.sync.refs if ref.id not in handled]
    read = {"cursor": triage.sync.cursor, "threads": handled, "left": left}
    return {"account": account, "run": triage.run.id, **read}
