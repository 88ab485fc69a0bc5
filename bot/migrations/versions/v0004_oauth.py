"""Accounts that are being connected: what lies between the click and the stored tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "oauth_states",
        sa.Column("state", sa.String, primary_key=True, nullable=False),
        sa.Column("account", sa.String, nullable=False, index=True),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("expires", sa.String, nullable=False, index=True),
        sa.Column("body", sa.Text, nullable=False),
    )
