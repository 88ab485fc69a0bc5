"""What is kept of mailboxes: cursors, threads that were handled, corrections, acts of buttons."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "mail_cursors",
        _text("account", primary_key=True),
        sa.Column("cursor", sa.Text, nullable=False),
        _text("run"),
        _text("at"),
    )
    op.create_table(
        "mail_threads",
        _text("account", primary_key=True),
        _text("thread", primary_key=True),
        _text("state"),
        sa.Column("messages", sa.JSON, nullable=False),
        _text("history"),
        sa.Column("run", sa.String),
        _text("at"),
        sa.Column("until", sa.String),
    )
    op.create_index("mail_threads_by_state", "mail_threads", ["account", "state"])
    op.create_index("mail_threads_by_time", "mail_threads", ["at"])
    op.create_table(
        "mail_corrections",
        _text("account", primary_key=True),
        _text("thread", primary_key=True),
        _text("field", primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        _text("at"),
    )
    op.create_table(
        "mail_acts",
        _text("account", primary_key=True),
        _text("key", primary_key=True),
        _text("thread"),
        sa.Column("outcome", sa.Text),
        _text("at"),
    )


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, **options)
