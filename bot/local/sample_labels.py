"""The ground truth of the sample workspace, from `bot/local/sample/labels.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bot.local.sample_workspace import At, SampleData, load_sample, read_data, ts_at

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
