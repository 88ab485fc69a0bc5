"""What a schedule is made of: in `assistant.yaml`, and as it is set in chat."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from config.sections import Language, Name, Section, SlackUser
from config.timetable import Timetable

SCHEDULE = r"^[a-z0-9][a-z0-9-]{0,39}$"
DESTINATION = r"^(dm|#[^\s#@]{1,80}|[CG][A-Z0-9]{2,}|[^\s@<>,;]+@[^\s@<>,;]+\.[^\s@<>,;]+)$"
LIST_ID = r"^F[A-Z0-9]{2,}$"

ScheduleName = Annotated[str, StringConstraints(pattern=SCHEDULE)]
Destination = Annotated[str, StringConstraints(pattern=DESTINATION)]
"""`dm` (a direct message to the owner), a channel as `#name` or id, or a mail address."""
Kind = Literal["sweep", "triage"]
MostDollars = Annotated[float, Field(gt=0, allow_inf_nan=False)]

OWN = "dm"


class Schedule(Section):
    """One scheduled report: what it reads and when, with whose rights, where it goes."""

    kind: Kind
    cron: str
    zone: str = "UTC"
    channels: tuple[Name, ...] = Field(default=(), strict=False)
    """Of a sweep: names, patterns or ids."""
    tracker: Annotated[str, StringConstraints(pattern=LIST_ID)] | None = None
    to: Destination
    owner: SlackUser
    """Whose rights it reads with, whose mailbox it triages, who is told when it fails."""
    quiet: bool = False
    """Nothing is sent where nothing is new; the run is recorded."""
    missed: Literal["latest", "all"] = "latest"
    """Which runs are caught up that came while nothing served."""
    missed_hours: Annotated[float, Field(gt=0, le=24 * 31)] = 48
    """An older one is not caught up; it is recorded as missed."""
    overlap: Literal["skip", "wait"] = "skip"
    """What becomes of a run whose time comes while the one before is at work."""
    budget_usd: MostDollars = 1.0
    """Of one run."""
    month_usd: MostDollars | None = None
    """Of all runs of a calendar month in the schedule's zone; None = no limit."""
    language: Language | None = None
    """Of the report; None = that of its readers, as `report.language` says."""
    since_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """How far back the first report looks; None = as `sweep` and `triage` say. Each further one
    begins where the last one ended that was delivered."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        Timetable.of(self.cron, self.zone)
        if self.kind == "sweep" and not self.channels:
            raise ValueError('a sweep needs channels, such as ["csm-*"]')
        if self.kind == "triage" and (self.channels or self.tracker):
            raise ValueError("a triage reads its owner's mailbox: leave channels and tracker out")
        if self.month_usd is not None and self.month_usd < self.budget_usd:
            raise ValueError("month_usd must not be smaller than budget_usd, which is of one run")
        return self

    @property
    def timetable(self) -> Timetable:
        return Timetable(" ".join(self.cron.split()), self.zone)

    @property
    def is_private(self) -> bool:
        """Its reports go to its owner alone, in Slack."""
        return self.to == OWN
