"""What may become of a request: the kinds of decision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What an allowed request may use."""

    scopes: tuple[str, ...]
    models: tuple[str, ...]
    cost_usd: float
    """The request's own limit, or what is left of a daily one where that is less."""


@dataclass(frozen=True, slots=True)
class Allowed:
    limits: Limits


@dataclass(frozen=True, slots=True)
class Refused:
    """The user is told why, privately."""

    reason: str


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing is said; the reason is for the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Later:
    """Requests at work may yet use the budget up: decide again when they have ended."""


Decision = Allowed | Refused | Silent | Later
