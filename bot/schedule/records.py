"""Schedules, their ticks and their deliveries, as they are stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from config.schedules import Schedule

log = logging.getLogger(__name__)

State = Literal["active", "paused", "refused", "deleted"]
TickState = Literal["due", "running", "ran", "failed", "skipped"]
DeliveryState = Literal["waiting", "delivered", "quiet", "superseded"]

Row = Mapping[Any, Any]
"""Of a table, by the names of its columns."""
TIME = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule and where it stands."""

    id: str
    """Its name."""
    origin: Literal["config", "chat"]
    state: State
    why: str
    """Why it is refused or by whom it was paused; empty while it is active."""
    spec: Schedule
    made: datetime
    watermark: datetime
    """Up to here its ticks are rows."""
    at_work: str | None = None
    """Id of the workflow that works for it."""
    trouble: Mapping[str, Any] | None = None
    """Since when and why it fails, and what its owner was told of it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One time at which a schedule is to run."""

    schedule: str
    at: datetime
    state: TickState
    why: str = ""
    run: str | None = None
    oldest: datetime | None = None
    latest: datetime | None = None
    """Its report covers `[oldest, latest)`; None until it runs."""
    cost_usd: float | None = None
    """Of all its tries."""
    tries: int = 0
    """Those that failed for a passing reason, so that another one follows."""
    not_before: datetime | None = None
    begun: datetime | None = None
    ended: datetime | None = None
    extra: Mapping[str, Any] | None = None
    """What is to be noted when the report is delivered."""

    @property
    def attempt(self) -> int:
        """Number of the try that is at work, or comes next."""
        return self.tries + 1

    @property
    def key(self) -> str:
        """The same for everybody who notices that it is due; the id of its workflow. Each try has
        one of its own."""
        return tick_key(self.schedule, self.at, self.attempt)

    @property
    def run_id(self) -> str:
        """Id of the run of its try: the same whoever begins it."""
        return run_id(self.schedule, self.at, self.attempt)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The way of one report to its readers."""

    schedule: str
    at: datetime
    """Of its tick."""
    state: DeliveryState
    why: str = ""
    tries: int = 0
    not_before: datetime | None = None
    delivered: datetime | None = None
    place: Mapping[str, Any] | None = None
    figures: Mapping[str, int] | None = None

    @property
    def key(self) -> str:
        """Id of the workflow of its next try; each try has one of its own."""
        return f"delivery/{tick_key(self.schedule, self.at)}/{self.tries + 1}"


def opened(row: Row) -> StoredSchedule | None:
    """A row of `schedules`; None where its body is not that of a schedule of this name."""
    try:
        body = json.loads(row["body"])
        if body["id"] != row["id"]:
            raise ValueError("it was moved here from another row")
        spec = Schedule.model_validate_json(json.dumps(body["spec"]))
    except (ValueError, KeyError, TypeError):
        log.exception("the schedule %s cannot be read", row["id"])
        return None
    plain = ("id", "origin", "state", "made", "watermark", "at_work", "trouble")
    return StoredSchedule(spec=spec, why=row["why"] or "", **{name: row[name] for name in plain})


def body_of(id: str, spec: Schedule) -> str:
    """What `opened` reads."""
    return json.dumps({"id": id, "spec": spec.model_dump(mode="json")})


def tick_of(row: Row) -> Tick:
    return Tick(**{**row, "why": row["why"] or ""})


def delivery_of(row: Row) -> Delivery:
    return Delivery(**{**row, "why": row["why"] or ""})


def tick_key(schedule: str, at: datetime, attempt: int = 1) -> str:
    """Id of the workflow of a tick, made of its fire time, never of now."""
    return f"tick/{schedule}/{at.astimezone(UTC).strftime(TIME)}{_again(attempt)}"


def run_id(schedule: str, at: datetime, attempt: int = 1) -> str:
    """Id of the run of a tick: the same whoever begins it."""
    return f"{schedule}-{at.astimezone(UTC):%y%m%d-%H%M%S}{_again(attempt)}"


def _again(attempt: int) -> str:
    return f"-{attempt}" if attempt > 1 else ""
