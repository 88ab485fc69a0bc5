"""The value in a database that tells whether our key is the one it was first written with."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from bot.storage.serve_tables import flags
from bot.storage.vault import Vault

CHECK = "key_check"
"""Flag of a database; who can open its value has the right key."""
DIGESTS = "digests"
"""Part of the check value: the key of digests, sealed; it stays when the vault's own change."""


def check(engine: sa.Engine, vault: Vault) -> bytes:
    """The key by which addresses are hidden in this database: see bot/mail/addresses.py.

    Raises WrongKey where another key was the first to be used for this database.
    """
    find = sa.select(flags.c.value).where(flags.c.name == CHECK)
    with engine.connect() as connection:
        found = connection.execute(find).scalar()
    if found is None or DIGESTS not in found:
        with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
            found = _checked(connection, vault)
    vault.open(found["sealed"])
    return bytes.fromhex(vault.open(found[DIGESTS], DIGESTS))


def _checked(connection: sa.Connection, vault: Vault) -> dict[str, str]:
    """The check value of whoever came first, with a key for digests."""
    made = postgresql if connection.dialect.name == "postgresql" else sqlite
    row = {"name": CHECK, "value": {"sealed": vault.seal(CHECK)}, "at": datetime.now(UTC)}
    connection.execute(made.insert(flags).values(row).on_conflict_do_nothing())
    mine = flags.c.name == CHECK
    found = connection.execute(sa.select(flags.c.value).where(mine).with_for_update()).scalar_one()
    vault.open(found["sealed"])
    if DIGESTS not in found:
        found = {**found, DIGESTS: vault.seal(secrets.token_hex(32), DIGESTS)}
        connection.execute(sa.update(flags).where(mine).values(value=found))
    return dict(found)
