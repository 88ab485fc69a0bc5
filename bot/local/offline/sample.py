"""Replay what careful readers said of the threads of the sample workspace.

A recorded answer counts only while a thread ends where it ended when it was read; the rules judge
any other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from bot.local.sample_workspace import At, SampleData, load_sample, read_data, ts_at
from bot.local.samples import SAMPLE_AS_OF

State = Literal["unanswered", "unsolved", "waiting", "solved", "none"]
Severity = Literal["high", "medium", "low", ""]


@dataclass(frozen=True, slots=True)
class ThreadLabel:
    """What a careful native reader says about one thread at `SAMPLE_AS_OF`."""

    root: str
    """Item id of the root, "CHANNEL/ts"."""
    state: State
    severity: Severity = ""
    """Empty when the state is none, like `issue`."""
    issue: str = ""
    """A key of `Labels.issues`."""
    customers: tuple[str, ...] = ()
    """The names in square brackets, in the order in which they are first written."""


@dataclass(frozen=True, slots=True)
class IssueLabel:
    title: str
    tracker: str | None
    """Key of the item in the bug tracker; None = not tracked."""


@dataclass(frozen=True, slots=True)
class ChannelLabels:
    top_issue: str
    """The issue with the most customers, and the most messages."""
    threads: tuple[ThreadLabel, ...]


@dataclass(frozen=True, slots=True)
class Labels:
    issues: Mapping[str, IssueLabel]
    channels: Mapping[str, ChannelLabels]
    """By channel name."""


class _Thread(SampleData):
    at: At
    state: State
    severity: Severity
    issue: str
    customers: tuple[str, ...]


class _Channel(SampleData):
    top_issue: str
    threads: tuple[_Thread, ...]
    none: tuple[At, ...]


class _File(SampleData):
    issues: dict[str, IssueLabel]
    channels: dict[str, _Channel]


def labels() -> Labels:
    """What the offline rules and real models are measured against."""
    file = _File.model_validate(read_data("labels"))
    ids = {channel.name: channel.id for channel in load_sample().channels}
    channels = {name: _channel(ids[name], entry) for name, entry in file.channels.items()}
    return Labels(file.issues, channels)


def _channel(id: str, entry: _Channel) -> ChannelLabels:
    issues = [
        ThreadLabel(f"{id}/{ts_at(x.at)}", x.state, x.severity, x.issue, x.customers)
        for x in entry.threads
    ]
    others = [ThreadLabel(f"{id}/{ts_at(at)}", "none") for at in entry.none]
    return ChannelLabels(entry.top_issue, (*issues, *others))


_APART = ("", "how-to")
"""Labels that name no issue which several threads can share."""
_REASONS = {
    "high": "the customer loses money or sales, or breaks a law",
    "medium": "work goes on by a detour",
    "low": "a question, nothing is broken",
}


@dataclass(frozen=True)
class Verdict:
    """Where a thread stands: its state, severity, and what it is about."""

    state: str
    """unanswered, unsolved, waiting, known, declined, solved, or none where it holds no issue."""
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
    end = f"{SAMPLE_AS_OF.timestamp():.6f}"
    last = {
        f"{channel.id}/{message.thread_ts or message.ts}": f"{channel.id}/{message.ts}"
        for channel in load_sample().channels
        for message in sorted(channel.messages, key=lambda each: each.ts)
        if message.ts < end and message.subtype != "tombstone"
    }
    known = labels()
    return {
        thread.root: (
            last[thread.root],
            Verdict(
                thread.state,
                thread.severity or "low",
                _REASONS[thread.severity or "low"],
                known.issues[thread.issue].title if thread.issue not in _APART else "",
            ),
        )
        for channel in known.channels.values()
        for thread in channel.threads
        if thread.root in last
    }


def issue_of(claim: str) -> IssueLabel | None:
    """Return the issue of the sample that a claim names by its title."""
    return _issues().get(claim)


@cache
def _issues() -> Mapping[str, IssueLabel]:
    return {issue.title: issue for issue in labels().issues.values()}
