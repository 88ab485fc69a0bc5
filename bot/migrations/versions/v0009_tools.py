"""What tools keep: files of runs, what was talked about with its index, tools from outside."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "resources",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("space", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("key", sa.String, nullable=False, unique=True),
        sa.Column("size", sa.Integer, nullable=False),
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
    if op.get_context().dialect.name == "sqlite":
        op.execute("CREATE VIRTUAL TABLE talk_words USING fts5(place, text)")
    else:
        op.execute("CREATE TABLE talk_words (talk bigint PRIMARY KEY, words tsvector NOT NULL)")
        op.execute("CREATE INDEX talk_words_by_word ON talk_words USING gin (words)")
