"""When each request was sent and answered, for a database that an earlier version created."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bot.storage.tables import replies, requests

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    for table in (requests, replies):
        present = {each["name"] for each in sa.inspect(op.get_bind()).get_columns(table.name)}
        if "at" not in present:
            op.add_column(table.name, sa.Column("at", table.c.at.type, nullable=True))
