"""Select the channels of a sweep by name, and split large ones between subagents."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from bot.errors import SetupError
from config.words import Text
from scopes.label import TRUSTED_LABEL, Label
from scopes.slack_reader import ChannelInfo, SlackConversation, SlackReader
from scopes.tool import BEFORE_WINDOW, Item, Window, estimate_tokens
from subagents.contracts import IssueState
from subagents.result import SubagentResult
from subagents.run import Run

PART_SHARE = 0.55
"""Share of a subagent's context for a source; the rest is for its prompt and result."""

HIDDEN, NO_ANSWER = Text("gap.hidden"), Text("gap.no_answer")


@dataclass(frozen=True, slots=True)
class ShareThread:
    """A thread of a share."""

    root: str
    at: datetime
    """Time of its first message."""
    ids: tuple[str, ...]
    """Ids of its messages inside the window."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a channel that one subagent reads."""

    window: Window
    threads: tuple[ShareThread, ...]
    items: tuple[Item, ...] = ()
    """All its messages, for its subagent; empty if there are too many: then it reads them."""
    number: str = "1"
    """`2`; `2a` and `2b` if its result was too long and two subagents read it again."""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(id for thread in self.threads for id in thread.ids)

    def describe(self, name: str, parts: int) -> str:
        """Describe which threads of a channel it contains, as one of so many shares."""
        first, last = self.threads[0].root, self.threads[-1].root
        span = first if first == last else f"{first} to {last}"
        own = f"share {self.number} of {parts}, threads {span}; others have the rest"
        what = f"all of {name}" if parts == 1 and self.number == "1" else own
        return f"MATERIAL is {what}." if self.items else f"Yours is {what}."

    def halves(self) -> list[Share]:
        """Return two shares with half of the threads each; [] if it has only one."""
        middle = len(self.threads) // 2
        if not middle:
            return []
        boundary = self.threads[middle].at
        first, second = self.threads[:middle], self.threads[middle:]
        return [
            self._part(replace(self.window, opened_before=boundary), first, "a"),
            self._part(replace(self.window, opened_from=boundary), second, "b"),
        ]

    def _part(self, window: Window, threads: tuple[ShareThread, ...], letter: str) -> Share:
        roots = {thread.root for thread in threads}
        items = tuple(i for i in self.items if (i.thread or i.id) in roots)
        return Share(window, threads, items, self.number + letter)

    def without_text(self) -> Share:
        return replace(self, items=())


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """The shares of a channel, or why there are none."""

    shares: tuple[Share, ...] = ()
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Root of a thread -> the bug keys that it names."""
    label: Label = TRUSTED_LABEL
    """Label of statements about the channel itself, which may be private."""
    fault: str = ""
    stopped: str = ""
    """What stopped the planning before its turn: `user`, `time`, or `slack` (unavailable)."""


@dataclass
class SweepSource:
    """A channel to sweep."""

    channel: ChannelInfo
    window: Window
    plan: ChannelPlan | None = None
    read: list[tuple[Share, SubagentResult]] = field(default_factory=list)
    """The result of each share, in the order of the threads."""

    @property
    def results(self) -> list[SubagentResult]:
        return [result for _, result in self.read]

    def set_state(self, ids: Sequence[str], state: IssueState) -> None:
        """Set the state of the findings with these ids."""

        def set_states(result: SubagentResult) -> SubagentResult:
            found = [
                each.model_copy(update={"state": state}) if each.id in ids else each
                for each in result.findings
            ]
            return result.model_copy(update={"findings": found})

        self.read = [(share, set_states(result)) for share, result in self.read]

    @property
    def name(self) -> str:
        return f"#{self.channel.name}"

    @property
    def fault(self) -> str:
        return self.plan.fault if self.plan else ""


def select_channels(channels: Sequence[ChannelInfo], patterns: Sequence[str]) -> list[ChannelInfo]:
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
    name = pattern.lstrip("#")
    return [
        c
        for c in channels
        if c.id == name or fnmatch.fnmatchcase(c.name.casefold(), name.casefold())
    ]


def split(
    found: Sequence[SlackConversation],
    window: Window,
    max_tokens: int,
    max_threads: int,
    max_material: int,
) -> list[Share]:
    """Split the window between threads, a share for each subagent; [] if there is nothing to read.

    A share contains its messages if these have at most `max_material` tokens.
    """
    if not found:
        return []
    sizes = [sum(estimate_tokens(i.line()) + 1 for i in c.items) for c in found]
    parts = max(-(-sum(sizes) // max_tokens), -(-len(found) // max_threads))
    share, cuts, used, size_here = sum(sizes) / parts, [0], 0, 0
    for k, size in enumerate(sizes):
        is_full = size_here + size > max_tokens or k - cuts[-1] >= max_threads
        if k > cuts[-1] and (is_full or used + size / 2 > share * len(cuts)):
            cuts.append(k)
            size_here = 0
        used, size_here = used + size, size_here + size
    bounds = list(zip(cuts, [*cuts[1:], len(found)], strict=True))
    starts = [None, *(found[k].root.at for k in cuts[1:]), None]
    return [
        Share(
            replace(window, opened_from=starts[n], opened_before=starts[n + 1]),
            tuple(map(_thread_of, found[first:end])),
            tuple(item for each in found[first:end] for item in each.items)
            if sum(sizes[first:end]) <= max_material
            else (),
            str(n + 1),
        )
        for n, (first, end) in enumerate(bounds)
    ]


def _thread_of(conversation: SlackConversation) -> ShareThread:
    root = conversation.root
    assert root.at is not None, "a message has a time"
    ids = tuple(i.id for i in conversation.items if BEFORE_WINDOW not in i.notes)
    return ShareThread(root.id, root.at, ids)


async def seen_channels(run: Run, reader: SlackReader) -> dict[str, ChannelInfo]:
    """Return the workspace's channels without private ones that the requester is not in.

    It checks all private ones, even unnamed ones, so that the duration reveals no hidden one.
    """
    channels = await reader.channels()
    private = [c.id for c in channels if c.is_private]
    answers = await asyncio.gather(*(run.gate.may_read(run.requester, id) for id in private))
    hidden = {id for id, may in zip(private, answers, strict=True) if not may}
    return {c.id: c for c in channels if c.id not in hidden}
