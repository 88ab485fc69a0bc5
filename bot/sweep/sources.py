"""What a sweep reads: channels chosen by name, and large ones split between subagents."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bot.errors import SetupError
from scopes.label import TRUSTED, Label
from scopes.slack_reader import ChannelInfo, Conversation
from scopes.tool import BEFORE_WINDOW, Window, estimate_tokens
from subagents.brief import Brief
from subagents.result import SubagentResult

PART_SHARE = 0.55
"""Share of a subagent's context that a source may fill; the rest is for its prompt and result."""


@dataclass
class Source:
    """A channel to sweep: what of it goes to which subagents, or why nothing does."""

    channel: ChannelInfo
    window: Window
    briefs: list[Brief] = field(default_factory=list)
    results: list[SubagentResult] = field(default_factory=list)
    fault: str = ""
    planned: bool = False
    stopped: str = ""
    """What stopped the planning before its turn came: `user` or `time`; `slack` = that was away."""
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Root of a thread -> the bug keys that it names."""
    label: Label = TRUSTED
    """Of what is said of the channel itself, which may be private."""

    @property
    def name(self) -> str:
        return f"#{self.channel.name}"

    def take(self, plan: Mapping[str, Any]) -> list[tuple[Window, tuple[str, ...]]]:
        """What a plan says of it: the shares to be read, each with the ids of its messages."""
        self.planned = True
        self.fault, self.stopped = plan.get("fault", ""), plan.get("stopped", "")
        self.keys = plan.get("keys", {})
        self.label = Label.of(plan["label"]) if "label" in plan else self.label
        oldest, latest = self.window.oldest, self.window.latest
        return [
            (Window(oldest, latest, _time(s["from"]), _time(s["before"])), tuple(s["ids"]))
            for s in plan.get("shares", ())
        ]


def _time(at: str | None) -> datetime | None:
    return datetime.fromisoformat(at) if at else None


def chosen(channels: Sequence[ChannelInfo], patterns: Sequence[str]) -> list[ChannelInfo]:
    """The channels whose name or id matches a pattern (`support-*`, `#support-es`, `C123`).

    Raises SetupError where a pattern matches nothing, naming what there is.
    """
    found: dict[str, ChannelInfo] = {}
    for pattern in patterns:
        bare = pattern.lstrip("#")
        wanted = bare.casefold()
        hits = [
            c for c in channels if fnmatch.fnmatchcase(c.name.casefold(), wanted) or c.id == bare
        ]
        if not hits:
            names = ", ".join(f"#{c.name}" for c in channels[:20]) or "none at all"
            raise SetupError(
                "no_channels", f"No channel matches {pattern!r}.", f"Channels here: {names}."
            )
        found |= {c.id: c for c in hits}
    return list(found.values())


def split(
    found: Sequence[Conversation], window: Window, max_tokens: int, max_threads: int
) -> list[Window]:
    """The window in a share a subagent, cut between threads; [] where there is nothing to read."""
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


def ids_of(found: Sequence[Conversation], share: Window) -> tuple[str, ...]:
    """Ids of the messages inside the window in the threads of one share."""
    threads = [c for c in found if c.root.at and share.opens(c.root.at)]
    return tuple(i.id for c in threads for i in c.items if BEFORE_WINDOW not in i.notes)
