"""Encrypts with the first key what was stored in plain text, or with a key that goes out of use."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

import bot.memory.notes
import bot.schedule.tables
import bot.storage.gate_tables
import bot.storage.mail_tables
import bot.storage.tool_tables  # noqa: F401 - all of them add their tables to the metadata
from bot.storage.database import Database
from bot.storage.key_check import CHECK, DIGESTS
from bot.storage.sealed import Sealed, SealedJson
from bot.storage.serve_tables import flags
from bot.storage.tables import METADATA
from bot.storage.vault import Vault, is_sealed

log = logging.getLogger(__name__)

ROWS = 50
"""Rows of one transaction: others, such as the store of what Slack just said, wait for it."""
DONE = "all"
"""Part of the check value: id of the key that all was last seen to be encrypted with."""


async def reseal(database: Database) -> int:
    """Bring all that is stored to the first key; returns of how many rows. Raises StoreError.

    Nothing is looked through where that was done before. Emptied texts stay as they are.
    """
    vault = database.vault
    check = sa.select(flags.c.value).where(flags.c.name == CHECK)
    (row,) = await database.read(check)
    if row["value"].get(DONE) == vault.current:
        return 0
    total = 0
    for table, columns in _sealed_tables():
        while done := await _reseal(database, vault, table, columns):
            total += done
    digests = vault.again(row["value"][DIGESTS])
    value = {"sealed": vault.seal(CHECK), DIGESTS: digests, DONE: vault.current}
    await database.write(sa.update(flags).where(flags.c.name == CHECK).values(value=value))
    log.info("all that is stored is encrypted with the first key of %s", vault.place)
    return total


def _sealed_tables() -> Iterator[tuple[sa.Table, list[sa.Column[Any]]]]:
    for table in METADATA.sorted_tables:
        columns = [c for c in table.c if isinstance(c.type, Sealed | SealedJson)]
        if columns:
            yield table, columns


async def _reseal(
    database: Database, vault: Vault, table: sa.Table, columns: list[sa.Column[Any]]
) -> int:
    raw = {column.name: sa.type_coerce(column, sa.Text) for column in columns}
    ours = f"sealed:{vault.current}:%"
    old = sa.or_(*(sa.and_(each != "", each.not_like(ours)) for each in raw.values()))
    key = list(table.primary_key)
    query = sa.select(*key, *(each.label(name) for name, each in raw.items())).where(old)
    rows = await database.read(query.limit(ROWS))

    def change(connection: sa.Connection) -> None:
        for row in rows:
            stored = {name: row[name] for name in raw if row[name]}
            same = [column == row[column.name] for column in key]
            same += [raw[name] == text for name, text in stored.items()]  # nobody changed it since
            again = {n: sa.literal(_again(vault, text), sa.Text) for n, text in stored.items()}
            connection.execute(sa.update(table).where(*same).values(again))

    if rows:
        await database.change(change)
    return len(rows)


def _again(vault: Vault, stored: str) -> str:
    return vault.again(stored) if is_sealed(stored) else vault.seal(stored)
