"""Run by Alembic: it migrates over the connection and in the transaction that it is handed."""

from __future__ import annotations

from alembic import context

from bot.storage.tables import METADATA

context.configure(connection=context.config.attributes.get("connection"), target_metadata=METADATA)
context.run_migrations()
