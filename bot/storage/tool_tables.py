"""Tables of what tools keep: files of runs, what was talked about, tools from outside."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.sealed import OnlySealed
from bot.storage.tables import METADATA, UtcTime, text_column

resources = sa.Table(
    "resources",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    text_column("space", index=True),
    text_column("name"),
    sa.Column("version", sa.Integer, nullable=False),
    text_column("key", unique=True),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("head", OnlySealed("resources.head"), nullable=False),
    sa.Column("body", OnlySealed("resources.body"), nullable=False),
    sa.Column("run", sa.String, index=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.UniqueConstraint("space", "name", "version", name="resources_versions"),
)
"""Named files. `space`: `run:<id>`, or whose they are, as of notes. `name` is hidden, `size` in
bytes; `head` holds space, name, version, media type, label and the content's digest, `body` the
content."""

conversations = sa.Table(
    "conversations",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    text_column("run", unique=True),
    text_column("place", index=True),
    sa.Column("requester", sa.String),
    sa.Column("body", OnlySealed("conversations.body"), nullable=False),
    sa.Column("at", UtcTime, nullable=False, index=True),
)
"""What the bot was asked and answered. `place`: the conversation of Slack that it stands in, else
whose own it is, as of notes. `body` names place and run, and holds question, answer and label. The
index of their words is the table `talk_words`, as `note_words` is of notes."""

outside_tools = sa.Table(
    "outside_tools",
    METADATA,
    text_column("server", primary_key=True),
    text_column("tool", primary_key=True),
    text_column("approved"),
    text_column("seen"),
    sa.Column("at", UtcTime, nullable=False),
)
"""Digests of what a tool from outside says of itself: the one that was approved (empty = none), and
the one that was seen last."""

outside_calls = sa.Table(
    "outside_calls",
    METADATA,
    text_column("key", primary_key=True),
    sa.Column("run", sa.String, nullable=False),
    sa.Column("at", UtcTime, nullable=False, index=True),
)
"""Calls of tools from outside that were begun and change something: none is made twice."""
