"""Replay what careful readers said of the threads of the sample workspace.

A label counts only while a thread ends where it ended when it was read; the rules judge any other
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bot.local.sample_workspace import load_sample, read_data, ts_at
from bot.local.samples import SAMPLE_AS_OF

_REASONS = {
    "high": "the customer loses money or sales, or breaks a law",
    "medium": "work goes on by a detour",
    "low": "a question, nothing is broken",
}


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
    sample, labels = load_sample(), read_data("labels")
    end = f"{SAMPLE_AS_OF.timestamp():.6f}"
    last = {
        f"{channel.id}/{message.thread_ts or message.ts}": f"{channel.id}/{message.ts}"
        for channel in sample.channels
        for message in sorted(channel.messages, key=lambda each: each.ts)
        if message.ts < end and message.subtype != "tombstone"
    }
    roots = {
        f"{channel.id}/{ts_at(at)}": _verdict(label, labels["issues"])
        for channel in sample.channels
        for at, label in labels["threads"][channel.name].items()
    }
    return {root: (last[root], verdict) for root, verdict in roots.items() if root in last}


def _verdict(label: str, titles: Mapping[str, str]) -> Verdict:
    """Return what "STATE SEVERITY ISSUE", or "none", stands for."""
    if label == "none":
        return Verdict("none", "low")
    state, severity, issue = label.split()
    return Verdict(state, severity, _REASONS[severity], titles.get(issue, ""))
