"""Schedules: what is to run when, each of its ticks, each delivery, known issues."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    _schedules()
    _ticks()
    _deliveries()
    _issues()


def _schedules() -> None:
    op.create_table(
        "schedules",
        _text("id", primary_key=True),
        _text("origin"),
        _text("state"),
        sa.Column("why", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        _text("made"),
        _text("changed"),
        _text("watermark"),
        sa.Column("at_work", sa.String),
        sa.Column("worker", sa.String),
        sa.Column("trouble", sa.Text),
    )
    op.create_index("ix_schedules_worker", "schedules", ["worker"])


def _ticks() -> None:
    op.create_table(
        "ticks",
        _text("schedule", primary_key=True),
        _text("at", primary_key=True),
        _text("state"),
        sa.Column("why", sa.Text),
        sa.Column("run", sa.String),
        sa.Column("oldest", sa.String),
        sa.Column("latest", sa.String),
        sa.Column("cost_usd", sa.Float),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("not_before", sa.String),
        sa.Column("begun", sa.String),
        sa.Column("ended", sa.String),
        sa.Column("extra", sa.Text),
    )
    op.create_index("ticks_by_state", "ticks", ["state", "schedule"])


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        _text("schedule", primary_key=True),
        _text("at", primary_key=True),
        _text("state"),
        sa.Column("why", sa.Text),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("not_before", sa.String),
        sa.Column("delivered", sa.String),
        sa.Column("place", sa.JSON),
        sa.Column("figures", sa.JSON),
    )
    op.create_index("deliveries_by_state", "deliveries", ["state", "schedule"])


def _issues() -> None:
    op.create_table(
        "issues",
        _text("schedule", primary_key=True),
        _text("id", primary_key=True),
        _text("state"),
        sa.Column("body", sa.Text, nullable=False),
        _text("first"),
        _text("last"),
    )
    op.create_index("issues_by_state", "issues", ["schedule", "state"])


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, **options)
