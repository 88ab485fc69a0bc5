"""Stored schedules and their occurrences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel

from config.schedules import Schedule
from scopes.label import TRUSTED_LABEL, Label

State = Literal["active", "paused", "refused", "done", "deleted"]
FREE_NAME_STATES = ("deleted", "done")
"""States in which the name of a schedule is free again."""
OccurrenceState = Literal["due", "running", "ran", "failed", "skipped"]
DeliveryState = Literal["waiting", "delivered", "quiet", "superseded", "failed"]

TIME = "%Y%m%dT%H%M%S.%fZ"


class Failure(BaseModel, frozen=True):
    """The failure of a schedule, and who was told."""

    since: datetime
    at: datetime
    """Time of the occurrence that failed last."""
    why: str
    again: datetime | None = None
    """Time of the next attempt."""
    told: tuple[str, ...] | None = None
    """Ids of the users who were notified."""
    over: str = ""
    """How it works again, in a sentence; empty = it fails."""
    held_until: datetime | None = None
    """A process is sending the alert; no other one does until then."""


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule and its state."""

    id: str
    """Its name."""
    origin: Literal["config", "chat"]
    state: State
    why: str
    """Why it is refused or who paused it; empty while it is active."""
    spec: Schedule
    made: datetime
    changed: datetime
    watermark: datetime
    """Its occurrences up to this time are stored as rows."""
    at_work: str | None = None
    """Id of the workflow that works for it."""
    trouble: Failure | None = None
    label: Label = TRUSTED_LABEL
    """Label of the context in which it was requested; one from the settings is trusted."""

    @classmethod
    def new(
        cls,
        id: str,
        origin: Literal["config", "chat"],
        spec: Schedule,
        now: datetime,
        label: Label = TRUSTED_LABEL,
    ) -> StoredSchedule:
        """Return a schedule that begins now; it is done if its only time has passed."""
        state: State = "active" if spec.timetable.after(now) else "done"
        return cls(id, origin, state, "", spec, now, now, now, label=label)


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt at an occurrence or a delivery: a workflow."""

    kind: Literal["occurrence", "delivery"]
    """Name of the workflow."""
    schedule: str
    at: datetime
    """Time of the occurrence."""
    attempt: int = 1

    @property
    def id(self) -> str:
        """Return the id of the workflow; it is the same in every process that finds it due."""
        return f"{self.kind}/{self.schedule}/{self.at.astimezone(UTC):{TIME}}/{self.attempt}"

    @classmethod
    def parse(cls, id: str) -> Work:
        kind, schedule, time, attempt = id.split("/")
        at = datetime.strptime(time, TIME).replace(tzinfo=UTC)
        return cls("delivery" if kind == "delivery" else "occurrence", schedule, at, int(attempt))


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time at which a schedule is to run."""

    schedule: str
    at: datetime
    state: OccurrenceState
    why: str = ""
    run: str | None = None
    oldest: datetime | None = None
    latest: datetime | None = None
    """Its report covers `[oldest, latest)`; None until it runs."""
    cost_usd: float | None = None
    """Cost of all its attempts."""
    tries: int = 0
    """Number of attempts that failed for a temporary reason and are followed by another one."""
    not_before: datetime | None = None
    begun: datetime | None = None
    ended: datetime | None = None
    extra: Mapping[str, Any] | None = None
    """Data to be recorded when the report is delivered."""
    delivery: DeliveryState | None = None
    """None until it ran; from then on `why` and `not_before` belong to the delivery."""
    delivery_tries: int = 0
    delivered: datetime | None = None
    place: Mapping[str, Any] | None = None
    figures: Mapping[str, int] | None = None

    @property
    def attempt(self) -> int:
        """Return the number of the current or next attempt."""
        return self.tries + 1

    @property
    def work(self) -> Work:
        """Return the work of the current or next attempt to run or, once it ran, to deliver it."""
        if self.delivery:
            return Work("delivery", self.schedule, self.at, self.delivery_tries + 1)
        return Work("occurrence", self.schedule, self.at, self.attempt)

    @property
    def run_id(self) -> str:
        """Return the id of the run of its current or next attempt."""
        return run_id(self.schedule, self.at, self.attempt)


def run_id(schedule: str, at: datetime, attempt: int = 1) -> str:
    """Return the id of the run of an occurrence's attempt, the same in every process."""
    again = f"-{attempt}" if attempt > 1 else ""
    return f"{schedule}-{at.astimezone(UTC):%y%m%d-%H%M%S}{again}"
