"""The tracker of a sweep: a Slack List, handed to subagents of its own, row by row."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from bot.sweep.tracker import Tracker, rows_of
from config.prompt import prompt
from scopes.label import TRUSTED
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import SlackReader
from scopes.tool import Handles, Item, estimate_tokens
from subagents.brief import Brief, BriefDraft
from subagents.fanout import Fanout
from subagents.result import SubagentResult
from subagents.run import Run
from subagents.toolbox import crash_text

log = logging.getLogger(__name__)

MOST_ROWS = 80
"""Rows that one subagent is given: what it hands in has to fit into one answer."""
ABSENT = "there is no such list, or the bot was not given access to it"


@dataclass
class TrackerReading:
    """One tracker, while a sweep reads it; no subagent of it sees a channel, and none the other
    way round."""

    id: str
    title: str
    """Empty where the settings do not tell it (`slack.lists`)."""
    run: Run
    fanout: Fanout
    items: list[Item] = field(default_factory=list)
    fault: str = ""
    """Why it could not be read."""
    results: list[SubagentResult] = field(default_factory=list)

    async def look(self) -> None:
        """Read its rows, once for all lives of the run."""
        made = await self.run.checkpoint.step(f"{self.run.id}/p1/tracker", self._look)
        self.items = [Item.of(each) for each in made["items"]]
        self.fault = made["fault"]

    async def _look(self) -> dict[str, Any]:
        reader, fault, items = self.run.clients[SlackReader], "", list[Item]()
        assert isinstance(reader, SlackReader)
        try:
            if await self.run.gate.may_read(self.run.requester, self.id):
                items = await reader.list_rows(self.id)
            else:
                fault = ABSENT
        except Absent:
            fault = ABSENT
        except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            fault = str(error) or "Slack gave no answer in time; try again later"
        except Exception as error:  # the seam: a list that makes no sense harms no channel
            log.exception("reading the list %s of %s crashed", self.id, self.run.id)
            fault = crash_text("reading it", error)
        return {"items": [item.to_json() for item in items], "fault": fault}

    async def judge(self) -> None:
        """Let its subagents hand in what the rows say."""
        self.results = await self.fanout.run_all([self._brief(b) for b in self._batches()])

    def _batches(self) -> list[list[Item]]:
        most, batches, size = self.run.limits.max_material_tokens // 2, list[list[Item]](), 0
        for item in self.items:
            size += estimate_tokens(item.line())
            if not batches or size > most or len(batches[-1]) >= MOST_ROWS:
                batches.append([])
                size = estimate_tokens(item.line())
            batches[-1].append(item)
        return batches

    def _brief(self, rows: Sequence[Item]) -> Brief:
        draft = BriefDraft(
            task=prompt("sweep_tracker").replace("{list}", self.id),
            description=f"Read {self.title or 'the tracker'}"[:120],
            scope="slack",
            contract="tracker",
        )
        return Brief(
            draft,
            Handles(),
            None,
            TRUSTED,
            material=tuple(rows),
            expects={self.id: tuple(item.id for item in rows)},
            requester=self.run.requester,
        )

    def tracker(self) -> Tracker | None:
        """Its rows; None where none could be read."""
        rows = rows_of(self.results, {item.id: item for item in self.items})
        return Tracker(rows) if rows or not (self.fault or self.items) else None

    def to_json(self, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What a report says of it; `found` are the tracker fields of its findings."""
        tracker = self.tracker()
        read = len(tracker.rows) if tracker else 0
        left = len(self.items) - read
        status = "failed" if tracker is None else "partial" if left else "complete"
        reason = self.fault or (f"{left} of its {len(self.items)} rows were not read" * bool(left))
        states = [each["status"] for each in found]
        return {
            "id": self.id,
            "title": self.title,
            "status": status,
            "reason": reason,
            "read": read,
            **{state: states.count(state) for state in ("untracked", "tracked", "closed")},
        }
