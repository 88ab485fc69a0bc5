"""Notes, and the index of their words: FTS5 in SQLite, a tsvector in Postgres."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "notes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("space", sa.String, nullable=False),
        sa.Column("key", sa.String, nullable=False, unique=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("run", sa.String),
        sa.Column("at", sa.String, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_notes_space", "notes", ["space"])
    op.create_index("ix_notes_run", "notes", ["run"])
    if op.get_context().dialect.name == "sqlite":
        op.execute("CREATE VIRTUAL TABLE note_words USING fts5(space, title, text)")
    else:
        op.execute("CREATE TABLE note_words (note bigint PRIMARY KEY, words tsvector NOT NULL)")
        op.execute("CREATE INDEX note_words_by_word ON note_words USING gin (words)")
