"""Run by Alembic: it migrates over the connection and in the transaction that it is handed."""

from __future__ import annotations

from alembic import context

import bot.memory.notes
import bot.schedule.tables
import bot.storage.gate_tables
import bot.storage.mail_tables
import bot.storage.serve_tables
import bot.storage.tool_tables  # noqa: F401 - all add their tables to the metadata
from bot.storage.sealed import differs
from bot.storage.tables import METADATA

context.configure(
    connection=context.config.attributes.get("connection"),
    target_metadata=METADATA,
    render_as_batch=True,  # SQLite alters a table by copying it
    compare_type=differs,
)
context.run_migrations()
