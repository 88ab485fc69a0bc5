"""Events of a run as typed values, for showing progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scopes.label import TRUSTED_LABEL, Label


@dataclass(frozen=True, slots=True)
class SourcesRead:
    """Progress of what code reads before the subagents start."""

    read: int
    total: int


@dataclass(frozen=True, slots=True)
class SubagentQueued:
    child: str
    description: str
    scope: str
    model: str


@dataclass(frozen=True, slots=True)
class SubagentStarted:
    child: str


@dataclass(frozen=True, slots=True)
class ToolsCalled:
    context: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContextGrew:
    """The label of a context has grown: its next text may be for fewer readers."""

    context: str
    label: Label


@dataclass(frozen=True, slots=True)
class SubagentFinished:
    child: str
    status: str
    stopped_by: str
    findings: int
    cost_usd: float | None
    label: Label = TRUSTED_LABEL
    """Label of what it read: how it ended reveals something of that."""


@dataclass(frozen=True, slots=True)
class BriefWasRefused:
    description: str
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class ParentHandedOver:
    session: int


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    text: str


@dataclass(frozen=True, slots=True)
class AnswerRestarted:
    """The answer begins again: its text so far is void."""


Event = (
    SourcesRead
    | SubagentQueued
    | SubagentStarted
    | ToolsCalled
    | ContextGrew
    | SubagentFinished
    | BriefWasRefused
    | ParentHandedOver
    | AnswerDelta
    | AnswerRestarted
)
Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Ignore an event."""
