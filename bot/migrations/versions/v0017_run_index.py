"""Names, and by what runs are found and added up, for a database that an earlier version filled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bot.storage.run_index import folded, store_model_costs
from bot.storage.tables import model_costs, names, questions, runs

revision = "0017"
down_revision = "0016"
ROWS = 1_000


def upgrade() -> None:
    bind = op.get_bind()
    for table in (questions, model_costs, names):
        table.create(bind, checkfirst=True)
    known = sa.select(questions.c.run)
    asked = sa.select(runs.c.id, runs.c.question).where(runs.c.id.not_in(known))
    for rows in bind.execute(asked).partitions(ROWS):
        bind.execute(
            sa.insert(questions), [{"run": row.id, "text": folded(row.question)} for row in rows]
        )
    store_model_costs(bind)
