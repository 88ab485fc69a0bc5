"""What is noticed of mailboxes between two triages, and until when Gmail tells of new mail."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "mail_polls",
        _text("account", primary_key=True),
        _text("line"),
        _text("history"),
        _text("lost"),
        sa.Column("threads", sa.JSON, nullable=False),
        sa.Column("at", sa.String),
        sa.Column("taken", sa.String),
        _text("not_before"),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("revoked", sa.Text),
        sa.Column("since", sa.String),
        sa.Column("told", sa.String),
        sa.Column("watched_until", sa.String),
        sa.Column("watch_again", sa.String),
        sa.Column("watch_failures", sa.Integer, nullable=False),
        sa.Column("watch_why", sa.Text),
    )
    op.create_index("mail_polls_by_time", "mail_polls", ["not_before"])


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, **options)
