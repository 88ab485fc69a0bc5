"""A sweep asked for in Slack: the channels that its requester may read, one report."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from bot.parent import Workplace
from bot.replies.cite import statements
from bot.requests.answered import ANSWERED, links_of, sentence, writing
from bot.requests.asked import Request
from bot.requests.opening import seen_channels
from bot.sweep.sections import NOBODY
from bot.sweep.sweep import Sweep
from bot.sweep.words import SweepAsked
from scopes.slack_client import SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import ToolContext, Window
from subagents.contracts import NEEDS_ACTION
from subagents.run import Run
from subagents.toolbox import crash_text

log = logging.getLogger(__name__)

ABSENT = "there is no such channel, or you or the bot may not read it"
TOLD_OF_CHANNEL = 5
"""Issues of a channel that the answer tells in words; the report has all."""


@dataclass
class ChannelSweep:
    """One request for a sweep at work; it stands where `bot.parent.Ask` stands for a question."""

    app: Workplace
    run: Run
    request: Request
    asked: SweepAsked

    def __post_init__(self) -> None:
        self.work: Sweep | None = None

    async def answer(self) -> dict[str, Any]:
        """The document of `sweep --json`, with the fields that an answer has."""
        try:
            return await self._swept()
        except SlackRefused as error:
            return self._told(f"{error}.", [str(error)])
        except Exception as error:  # the seam: one request
            log.exception("the sweep of %s crashed", self.run.id)
            why = crash_text("the sweep", error)
            return self._told(why, [why])

    async def _swept(self) -> dict[str, Any]:
        made = await self.run.checkpoint.step(f"{self.run.id}/opening", self._opening)
        channels = [ChannelInfo(**each) for each in made["channels"]]
        if not channels:
            names = ", ".join(f"`{name}`" for name in self.asked.channels)
            return self._told(f"I can sweep none of {names}: {ABSENT}.", [])
        days = self.asked.days or self.app.settings.sweep.since_days
        latest = self.request.window.latest
        self.work = Sweep(
            *(self.app, self.run),
            replace(self.request, window=Window(latest - timedelta(days=days), latest)),
            *(channels, made["tracker"]),
            language=self.app.settings.report.language or self.asked.language,
        )
        document = await self.work.report()
        document["coverage"]["not_covered"] += made["missing"]
        text = "\n".join(_lines(document))
        said = statements(text, self.links())
        return {
            **document,
            **ANSWERED,
            "question": self.request.text,
            "answer": text,
            "statements": [{"text": s.text, "findings": list(s.findings)} for s in said],
            "cited": sum(bool(s.findings) for s in said),
            "links": {id: found for id, found in self.links().items() if found},
        }

    async def _opening(self) -> dict[str, Any]:
        """Which channels it means, of those that the requester may read."""
        reader, run = self.run.clients[SlackReader], self.run
        assert isinstance(reader, SlackReader)
        seen = list((await seen_channels(run, reader)).values())
        chosen: dict[str, ChannelInfo] = {}
        missing = []
        for name in self.asked.channels:
            found = [
                channel
                for channel in _meant(name, seen, alone=self.request.intent.home[:1] in ("", "D"))
                if await run.gate.may_read(run.requester, channel.id)
            ]
            chosen |= {channel.id: channel for channel in found}
            missing += [] if found else [f"{name}: {ABSENT}"]
        most = run.limits.max_items
        kept = list(chosen.values())[:most]
        missing += [f"{c.name}: only {most} are read at once" for c in list(chosen.values())[most:]]
        lists = [id for id in self.app.lists if await run.gate.may_read(run.requester, id)]
        return {
            "channels": [asdict(channel) for channel in kept],
            "missing": missing,
            "tracker": lists[0] if len(lists) == 1 else None,
        }

    def _told(self, text: str, missing: list[str]) -> dict[str, Any]:
        """An answer of one sentence, for which no model was asked."""
        status = "failed" if missing else "complete"
        return sentence(self.app, self.run, self.request, "sweep", text, status, missing)

    def links(self) -> dict[str, list[str]]:
        results = self.work.fanout.results.values() if self.work else ()
        return links_of(results)

    def writing(self, document: Mapping[str, Any]) -> ToolContext:
        """The context of the finished answer, for the gate."""
        return writing(self.run, self.request, document)


def _meant(name: str, seen: Sequence[ChannelInfo], *, alone: bool) -> list[ChannelInfo]:
    """The channels that a name, an id or a pattern means.

    A pattern means private ones only where nobody but the requester hears the answer.
    """
    wanted = name.casefold()
    if "*" not in name:
        return [c for c in seen if c.id == name or c.name.casefold() == wanted]
    fitting = [c for c in seen if fnmatch.fnmatchcase(c.name.casefold(), wanted)]
    return [c for c in fitting if alone or not c.is_private]


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The report in words, with citations: for who asks about it later, and for other faces."""
    for number, line in enumerate(document["top_lines"], 1):
        yield f"{number}. {line['text']} {_cited(line)}"
    for line in document["patterns"]:
        yield f"- {line['text']} {_cited(line)}"
    for section in document["sections"]:
        yield f"\n**#{section['item']}** ({section['status']})"
        still = [f for f in section["findings"] if f["state"] in NEEDS_ACTION]
        for finding in still[:TOLD_OF_CHANNEL]:
            who = "" if finding["owner"] == NOBODY else f" · {finding['owner']}"
            yield f"- {finding['claim']} ({finding['state']}, {finding['severity']}){who} " + (
                f"[{finding['id']}]"
            )
        if not still:
            yield f"- {section['summary']}" if not section["findings"] else "- Nothing is open."


def _cited(line: Mapping[str, Any]) -> str:
    return "".join(f"[{id}]" for id in line["findings"])
