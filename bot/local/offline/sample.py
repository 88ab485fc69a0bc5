"""Replay what careful readers said of the threads of the sample workspace.

A label counts only while a thread ends where it ended when it was read; the rules judge any other
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from bot.local.sample_workspace import At, SampleData, load_sample, read_data, ts_at
from bot.local.samples import SAMPLE_AS_OF

State = Literal["unanswered", "unsolved", "waiting", "solved", "none"]
_APART = ("", "how-to")
"""Labels that name no issue which several threads can share."""
_REASONS = {
    "high": "the customer loses money or sales, or breaks a law",
    "medium": "work goes on by a detour",
    "low": "a question, nothing is broken",
}


class ThreadLabel(SampleData):
    """What a careful native reader says about one thread at `SAMPLE_AS_OF`."""

    at: At
    """The time of its root."""
    state: State
    severity: Literal["high", "medium", "low"]
    issue: str
    """A key of `Labels.issues`."""
    customers: tuple[str, ...]
    """The names in square brackets, in the order in which they are first written."""


class IssueLabel(SampleData):
    title: str
    tracker: str | None
    """Key of the item in the bug tracker; None = not tracked."""


class ChannelLabels(SampleData):
    top_issue: str
    """The issue with the most customers, and the most messages."""
    threads: tuple[ThreadLabel, ...]
    none: tuple[At, ...]
    """The roots of threads that hold no issue."""


class Labels(SampleData):
    issues: dict[str, IssueLabel]
    channels: dict[str, ChannelLabels]
    """By channel name."""


def labels() -> Labels:
    return Labels.model_validate(read_data("labels"))


@dataclass(frozen=True)
class Verdict:
    """Where a thread stands: its state, severity, and what it is about."""

    state: str
    """unanswered, unsolved, waiting, solved, or none where it holds no issue."""
    severity: str
    reason: str = ""
    issue: str = ""
    """Threads of a channel with one state and one issue are one finding; empty: on its own."""


def verdict_of(root: str, last: str) -> Verdict | None:
    """Return what is recorded of a thread of the sample with this root and last message."""
    recorded_last, verdict = _threads().get(root, ("", None))
    return verdict if recorded_last == last else None


@cache
def _threads() -> Mapping[str, tuple[str, Verdict]]:
    """Return id of a thread's root -> id of its last message, and what its label says."""
    sample, known = load_sample(), labels()
    end = f"{SAMPLE_AS_OF.timestamp():.6f}"
    last = {
        f"{channel.id}/{message.thread_ts or message.ts}": f"{channel.id}/{message.ts}"
        for channel in sample.channels
        for message in sorted(channel.messages, key=lambda each: each.ts)
        if message.ts < end and message.subtype != "tombstone"
    }
    found = {}
    for channel in sample.channels:
        labelled = known.channels[channel.name]
        for thread in labelled.threads:
            issue = known.issues[thread.issue].title if thread.issue not in _APART else ""
            verdict = Verdict(thread.state, thread.severity, _REASONS[thread.severity], issue)
            found[f"{channel.id}/{ts_at(thread.at)}"] = verdict
        found |= {f"{channel.id}/{ts_at(at)}": Verdict("none", "low") for at in labelled.none}
    return {root: (last[root], verdict) for root, verdict in found.items() if root in last}
