"""What the gate says to a call, and the line that it logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scopes.effects import Effect
from scopes.label import TRUSTED, Label
from subagents.action import Action
from subagents.directory import Obstacle


@dataclass(frozen=True, slots=True)
class Allow:
    args: Mapping[str, Any]
    """The arguments to run with: validated, handles resolved to ids."""
    rule: str
    effect: Effect
    """How it acts, which it is counted by."""
    approved: bool = False
    """A look-up that the requester has approved to the letter."""


@dataclass(frozen=True, slots=True)
class Card:
    """A call that runs when a person approves of it."""

    action: Action
    rule: str

    @property
    def reason(self) -> str:
        """Shown to the model."""
        if self.action.asks:
            return (
                "Not looked up: it would tell the internet of what was read. The requester is "
                "asked below your answer, once for all look-ups of this request, and gets a new "
                "answer with them. Do not call it again; say in your answer what waits."
            )
        return (
            "Not done: this needs approval. The requester is asked below your answer, with the "
            "exact text. Do not call it again; say in your answer what waits for approval."
        )


@dataclass(frozen=True, slots=True)
class Deny:
    reason: str
    """Shown to the model; for what is hidden the same as for what does not exist."""
    rule: str
    label: Label = TRUSTED
    """Of what was looked at before it was refused."""


Verdict = Allow | Card | Deny


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the gate's log. It holds no text of anybody's."""

    run: str
    context: str
    tool: str
    args_hash: str
    verdict: str
    """`allow`, `card` or `deny`; of what a person clicked `approved` or `refused`."""
    rule: str
    at: datetime
    requester: str | None = None
    label: Mapping[str, Any] | None = None
    """Of the context at that moment: `untrusted`, `readers` (public, or how many), `sources`."""


@dataclass(frozen=True, slots=True)
class Release:
    """Whether an answer may be shown where it was asked for."""

    obstacles: tuple[Obstacle, ...] = ()

    @property
    def public(self) -> bool:
        return not self.obstacles
