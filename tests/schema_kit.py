"""How a migrated database is compared with the tables that the program knows."""

from __future__ import annotations

from typing import Any

from bot.storage.sealed import differs


def _ours(name: str | None, kind: str, _: object) -> bool:
    """All but the indexes of words, which each kind of database makes in its own way."""
    return kind != "table" or not (name or "").startswith(("note_words", "talk_words"))


COMPARED: dict[str, Any] = {"compare_type": differs, "include_name": _ours}
"""Options of Alembic's `MigrationContext.configure`."""
