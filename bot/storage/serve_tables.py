"""The tables of `assistant serve`: what was asked in Slack, and what a durable run has done."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.sealed import SealedJson
from bot.storage.tables import JSON, METADATA, UtcTime, of_run, text_column

inbox = sa.Table(
    "inbox",
    METADATA,
    sa.Column("key", sa.String, primary_key=True),
    *(text_column(name) for name in ("team", "channel", "ts", "thread_ts", "user", "kind")),
    sa.Column("event", SealedJson, nullable=False),
    text_column("state"),
    sa.Column("run", sa.String),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("not_before", UtcTime),
    sa.Column("reply", JSON),
    sa.Column("owner", sa.String),
    sa.Index("inbox_by_thread", "team", "channel", "thread_ts"),
    sa.Index("inbox_by_state", "state", "received"),
)
"""Messages that ask something, by (team, channel, ts); `owner` is the process at work on it."""

cursors = sa.Table(
    "cursors",
    METADATA,
    text_column("team", primary_key=True),
    text_column("channel", primary_key=True),
    text_column("ts"),
)
"""The newest message of each channel that was heard."""

flags = sa.Table(
    "flags",
    METADATA,
    text_column("name", primary_key=True),
    sa.Column("value", JSON),
    sa.Column("at", UtcTime, nullable=False),
)

stops = sa.Table(
    "stops",
    METADATA,
    of_run(primary_key=True),
    text_column("by"),
    sa.Column("at", UtcTime, nullable=False),
)

feedback = sa.Table(
    "feedback",
    METADATA,
    text_column("request", primary_key=True),
    text_column("user", primary_key=True),
    text_column("value"),
    sa.Column("at", UtcTime, nullable=False),
)

steps = sa.Table(
    "steps",
    METADATA,
    of_run(primary_key=True),
    text_column("key", primary_key=True),
    sa.Column("body", SealedJson, nullable=False),
)
"""What each step of a durable run returned: a replay hands it out instead of doing it again."""

templates = sa.Table(
    "templates",
    METADATA,
    text_column("version", primary_key=True),
    sa.Column("body", JSON, nullable=False),
)
"""Prompt and schemas of a template version, so that a subagent begun before an update ends with
the texts that it began with."""

purses = sa.Table(
    "purses",
    METADATA,
    of_run(primary_key=True),
    *(
        sa.Column(f"{kind}_{what}", sa.BigInteger, nullable=False)
        for kind in ("cap", "spent", "reserved")
        for what in ("nanousd", "tokens", "steps")
    ),
)

reservations = sa.Table(
    "reservations",
    METADATA,
    of_run(primary_key=True),
    text_column("key", primary_key=True),
    *(sa.Column(what, sa.BigInteger, nullable=False) for what in ("nanousd", "tokens", "steps")),
    text_column("state"),
    text_column("owner", index=True),
)
"""State: `held` for a call that may come, `waits` for the same while its context waits for room,
`kept` for the call that reads the results of others, `sent` for one under way, `settled` with what
it really cost; `owner` is the process that makes the call."""
