"""The table of installed workspaces, for a database that an earlier version created."""

from __future__ import annotations

from alembic import op

from bot.storage.tables import installations

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    installations.create(op.get_bind(), checkfirst=True)
