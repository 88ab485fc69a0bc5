"""What `assistant serve` keeps: requests, steps, purses, cursors, flags and feedback."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

AMOUNTS = ("nanousd", "tokens", "steps")


def upgrade() -> None:
    op.add_column("runs", sa.Column("requester", sa.String))
    op.add_column("runs", sa.Column("request", sa.String))
    op.create_index("ix_runs_requester", "runs", ["requester"])
    op.create_index("ix_runs_request", "runs", ["request"])
    _heard()
    _durable()


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, **options)


def _json(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON, **options)


def _of_run() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE")


def _heard() -> None:
    op.create_table(
        "inbox",
        _text("key", primary_key=True),
        *(_text(name) for name in ("team", "channel", "ts", "thread_ts", "user", "kind")),
        _json("event", nullable=False),
        _text("state"),
        sa.Column("run", sa.String),
        sa.Column("attempt", sa.Integer, nullable=False),
        _text("received"),
        sa.Column("not_before", sa.String),
        _json("reply"),
        sa.Column("owner", sa.String),
    )
    op.create_index("inbox_by_thread", "inbox", ["team", "channel", "thread_ts"])
    op.create_index("inbox_by_state", "inbox", ["state", "received"])
    op.create_table(
        "cursors", _text("team", primary_key=True), _text("channel", primary_key=True), _text("ts")
    )
    op.create_table("flags", _text("name", primary_key=True), _json("value"), _text("at"))
    op.create_table(
        "feedback",
        _text("request", primary_key=True),
        _text("user", primary_key=True),
        _text("value"),
        _text("at"),
    )


def _durable() -> None:
    op.create_table("stops", _text("run", primary_key=True), _text("by"), _text("at"), _of_run())
    op.create_table(
        "steps",
        _text("run", primary_key=True),
        _text("key", primary_key=True),
        _json("body", nullable=False),
        _of_run(),
    )
    op.create_table("templates", _text("version", primary_key=True), _json("body", nullable=False))
    op.create_table(
        "purses",
        _text("run", primary_key=True),
        *(
            sa.Column(f"{kind}_{what}", sa.BigInteger, nullable=False)
            for kind in ("cap", "spent", "reserved")
            for what in AMOUNTS
        ),
        _of_run(),
    )
    op.create_table(
        "reservations",
        _text("run", primary_key=True),
        _text("key", primary_key=True),
        *(sa.Column(what, sa.BigInteger, nullable=False) for what in AMOUNTS),
        _text("state"),
        _text("owner", index=True),
        _of_run(),
    )
