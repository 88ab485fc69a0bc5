"""The index by which runs are listed, in place of the one of their times alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bot.storage.tables import runs

revision = "0015"
down_revision = "0014"
BEFORE = "ix_runs_started"
"""Its name in a database that an earlier version created."""


def upgrade() -> None:
    bind = op.get_bind()
    (listed,) = (each for each in runs.indexes if each.name == "runs_listed")
    listed.create(bind, checkfirst=True)
    if BEFORE in {each["name"] for each in sa.inspect(bind).get_indexes(runs.name)}:
        op.drop_index(BEFORE, runs.name)
