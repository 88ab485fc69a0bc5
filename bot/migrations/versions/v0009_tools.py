"""What tools keep: files of runs, what was talked about with its index, tools from outside."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

FOR_POSTGRES = (
    "ALTER TABLE note_words ADD COLUMN space text",
    """UPDATE note_words SET space = notes.space, words = words || array_to_tsvector(ARRAY(
    SELECT 't' || substr(lexeme, 2) FROM unnest(words) WHERE 'A' = ANY(weights)))
    FROM notes WHERE notes.id = note""",
    "DELETE FROM note_words WHERE space IS NULL",
    "ALTER TABLE note_words ALTER COLUMN space SET NOT NULL",
    "CREATE INDEX note_words_by_space ON note_words (space, note)",
    """CREATE TABLE talk_words
    (talk bigint PRIMARY KEY, space text NOT NULL, words tsvector NOT NULL)""",
    "CREATE INDEX talk_words_by_word ON talk_words USING gin (words)",
    "CREATE INDEX talk_words_by_space ON talk_words (space, talk)",
)
"""Where a text lies is a column, and a word of a title is told from one of a text by its first
letter: as words with weights both were slow to look for."""


def upgrade() -> None:
    op.create_table(
        "resources",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("space", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("key", sa.String, nullable=False, unique=True),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("head", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("run", sa.String),
        sa.Column("at", sa.String, nullable=False),
        sa.UniqueConstraint("space", "name", "version", name="resources_versions"),
    )
    op.create_index("ix_resources_space", "resources", ["space"])
    op.create_index("ix_resources_run", "resources", ["run"])
    op.create_table(
        "conversations",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run", sa.String, nullable=False, unique=True),
        sa.Column("place", sa.String, nullable=False),
        sa.Column("requester", sa.String),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("at", sa.String, nullable=False),
    )
    op.create_index("ix_conversations_place", "conversations", ["place"])
    op.create_index("ix_conversations_at", "conversations", ["at"])
    op.create_table(
        "outside_tools",
        sa.Column("server", sa.String, primary_key=True),
        sa.Column("tool", sa.String, primary_key=True),
        sa.Column("approved", sa.String, nullable=False),
        sa.Column("seen", sa.String, nullable=False),
        sa.Column("at", sa.String, nullable=False),
    )
    op.create_table(
        "outside_calls",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("at", sa.String, nullable=False),
    )
    op.create_index("ix_outside_calls_at", "outside_calls", ["at"])
    if op.get_context().dialect.name == "sqlite":
        op.execute("CREATE VIRTUAL TABLE talk_words USING fts5(place, text)")
    else:
        for statement in FOR_POSTGRES:
            op.execute(statement)
