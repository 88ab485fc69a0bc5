"""Steps are encrypted, for a database that an earlier version created; old rows stay readable."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bot.storage.tables import steps

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # SQLite takes text in every column
        op.alter_column(steps.name, "body", type_=sa.Text(), postgresql_using="body::text")
