"""Why an answer was bad, for a database that an earlier version created."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bot.storage.tables import feedback

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    present = {each["name"] for each in sa.inspect(op.get_bind()).get_columns(feedback.name)}
    for name in ("reason", "comment"):
        if name not in present:
            op.add_column(feedback.name, sa.Column(name, feedback.c[name].type, nullable=True))
