"""The tables of schedules: what is to run when, each of its ticks, each delivery, known issues.

A tick is one time at which a schedule is to run; its key is the schedule and that time, whoever
notices it and however often. That it ran and that its report was delivered are two things.
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.sealed import OnlySealed, Sealed, SealedJson
from bot.storage.tables import JSON, METADATA, UtcTime, text_column

schedules = sa.Table(
    "schedules",
    METADATA,
    text_column("id", primary_key=True),
    text_column("origin"),
    text_column("state"),
    sa.Column("why", Sealed),
    sa.Column("body", OnlySealed("schedules.body"), nullable=False),
    sa.Column("made", UtcTime, nullable=False),
    sa.Column("changed", UtcTime, nullable=False),
    sa.Column("watermark", UtcTime, nullable=False),
    sa.Column("at_work", sa.String),
    sa.Column("worker", sa.String, index=True),
    sa.Column("trouble", SealedJson),
)
"""`origin`: config or chat. `state`: active, paused, refused (`why` says what its owner has to
mend) or deleted. `body` names its row and holds the `config.schedules.Schedule`: who writes here
without the key can delay, pause and delete, and has nothing run that was not set. `watermark`: up
to here its ticks are rows. `at_work`: the workflow that works for it, of the process `worker`;
there is one at a time. `trouble`: since when it fails, and whether its owner was told."""

ticks = sa.Table(
    "ticks",
    METADATA,
    text_column("schedule", primary_key=True),
    sa.Column("at", UtcTime, primary_key=True),
    text_column("state"),
    sa.Column("why", Sealed),
    sa.Column("run", sa.String),
    sa.Column("oldest", UtcTime),
    sa.Column("latest", UtcTime),
    sa.Column("cost_usd", sa.Float),
    sa.Column("tries", sa.Integer, nullable=False, default=0),
    sa.Column("not_before", UtcTime),
    sa.Column("begun", UtcTime),
    sa.Column("ended", UtcTime),
    sa.Column("extra", SealedJson),
    sa.Index("ticks_by_state", "state", "schedule"),
)
"""`state`: due, running, then ran, failed or skipped (`why` says why). A run that failed for a
passing reason is due again, not before `not_before`; `tries` counts those. `run`, `begun` and
`ended` are of the latest try, `cost_usd` of all of them. Its report covers `[oldest, latest)`.
`extra`: what is to be noted when the report is delivered."""

deliveries = sa.Table(
    "deliveries",
    METADATA,
    text_column("schedule", primary_key=True),
    sa.Column("at", UtcTime, primary_key=True),
    text_column("state"),
    sa.Column("why", Sealed),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("not_before", UtcTime),
    sa.Column("delivered", UtcTime),
    sa.Column("place", JSON),
    sa.Column("figures", JSON),
    sa.Index("deliveries_by_state", "state", "schedule"),
)
"""Of the tick of the same key, once it ran. `state`: waiting, then delivered, quiet (nothing was
new and nothing was to be said) or superseded (a later report covers its window too). `place`: where
the message stands. `figures`: counts by which reports are compared."""

issues = sa.Table(
    "issues",
    METADATA,
    text_column("schedule", primary_key=True),
    text_column("id", primary_key=True),
    text_column("state"),
    sa.Column("body", SealedJson, nullable=False),
    sa.Column("first", UtcTime, nullable=False),
    sa.Column("last", UtcTime, nullable=False),
    sa.Index("issues_by_state", "schedule", "state"),
)
"""The issues that a schedule's delivered reports told, each under one id however it is worded.
`state` is that of its last report; `body` holds its evidence, ids of messages, and what was
said."""
