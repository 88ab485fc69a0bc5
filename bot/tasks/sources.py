"""Select the channels of a sweep by name, and split large ones between subagents."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.errors import SetupError
from scopes.label import TRUSTED, Label
from scopes.slack_reader import ChannelInfo, SlackConversation, SlackReader
from scopes.tool import BEFORE_WINDOW, Window, estimate_tokens
from subagents.result import SubagentResult
from subagents.run import Run

PART_SHARE = 0.55
"""Share of a subagent's context for a source; the rest is for its prompt and result."""

NO_ANSWER = "Slack gave no answer in time; try again later"


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a channel that one subagent reads."""

    window: Window
    ids: tuple[str, ...]
    """Ids of its messages."""


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """The shares of a channel, or why there are none."""

    channel: str
    shares: tuple[Share, ...] = ()
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Root of a thread -> the bug keys that it names."""
    label: Label = TRUSTED
    """Label of what is said of the channel itself, which may be private."""
    fault: str = ""
    stopped: str = ""
    """What stopped the planning before its turn: `user`, `time`, or `slack` (unavailable)."""


@dataclass
class SweepSource:
    """A channel to sweep."""

    channel: ChannelInfo
    window: Window
    plan: ChannelPlan | None = None
    results: list[SubagentResult] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"#{self.channel.name}"

    @property
    def fault(self) -> str:
        return self.plan.fault if self.plan else ""


def chosen(channels: Sequence[ChannelInfo], patterns: Sequence[str]) -> list[ChannelInfo]:
    """Return the channels whose name or id matches a pattern (`support-*`, `#support-es`, `C123`).

    Raises SetupError if a pattern matches nothing, listing what exists.
    """
    found: dict[str, ChannelInfo] = {}
    for pattern in patterns:
        hits = match_channels(channels, pattern)
        if not hits:
            names = ", ".join(f"#{c.name}" for c in channels[:20]) or "none at all"
            raise SetupError(
                "no_channels", f"No channel matches {pattern!r}.", f"Channels here: {names}."
            )
        found |= {c.id: c for c in hits}
    return list(found.values())


def match_channels(channels: Sequence[ChannelInfo], pattern: str) -> list[ChannelInfo]:
    """Return the channels that a name, an id or a pattern means."""
    bare = pattern.lstrip("#")
    return [
        c
        for c in channels
        if c.id == bare or fnmatch.fnmatchcase(c.name.casefold(), bare.casefold())
    ]


def split(
    found: Sequence[SlackConversation], window: Window, max_tokens: int, max_threads: int
) -> list[Window]:
    """Split the window between threads, a share for each subagent; [] if nothing is to be read."""
    if not found:
        return []
    sizes = [sum(estimate_tokens(i.line()) + 1 for i in c.items) for c in found]
    parts = max(-(-sum(sizes) // max_tokens), -(-len(found) // max_threads))
    share, cuts, used, here = sum(sizes) / parts, [0], 0, 0
    for k, size in enumerate(sizes):
        over = here + size > max_tokens or k - cuts[-1] >= max_threads
        if k > cuts[-1] and (over or used + size / 2 > share * len(cuts)):
            cuts.append(k)
            here = 0
        used, here = used + size, here + size
    starts = [found[k].root.at for k in cuts[1:]]
    return [
        Window(window.oldest, window.latest, begin, end)
        for begin, end in zip([None, *starts], [*starts, None], strict=True)
    ]


def ids_of(found: Sequence[SlackConversation], share: Window) -> tuple[str, ...]:
    """Return the ids of the messages inside the window in the threads of one share."""
    threads = [c for c in found if c.root.at and share.opens(c.root.at)]
    return tuple(i.id for c in threads for i in c.items if BEFORE_WINDOW not in i.notes)


async def seen_channels(run: Run, reader: SlackReader) -> dict[str, ChannelInfo]:
    """The channels of the workspace without those that are private and not the requester's.

    They are asked about whatever is named: how long it takes tells nothing of what is hidden.
    """
    channels = await reader.channels()
    private = [c.id for c in channels if c.is_private]
    answers = await asyncio.gather(*(run.gate.may_read(run.requester, id) for id in private))
    hidden = {id for id, may in zip(private, answers, strict=True) if not may}
    return {c.id: c for c in channels if c.id not in hidden}
