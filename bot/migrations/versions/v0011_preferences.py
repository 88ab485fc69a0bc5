"""The table of preferences, for a database that an earlier version created."""

from __future__ import annotations

from alembic import op

from bot.storage.tables import preferences

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    preferences.create(op.get_bind(), checkfirst=True)
