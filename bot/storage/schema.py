"""The schema of the product's own tables: brought up to date when a database is opened."""

from __future__ import annotations

import sqlalchemy as sa

from bot.errors import StoreError
from bot.storage.tables import REVISIONS

MIGRATING = 7_002
"""Advisory lock of Postgres that a replica holds while it migrates."""


def migrate(engine: sa.Engine, where: object, elsewhere: str) -> None:
    """Bring an empty or older database to this program's schema, once, whoever else tries.

    `elsewhere` tells how to use another one. Raises StoreError for a database that is not ours or
    newer than this program.
    """
    with engine.connect() as connection:
        if _revision(connection, where, elsewhere) == REVISIONS[-1]:
            return
    with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATING)))
        if _revision(connection, where, elsewhere) != REVISIONS[-1]:  # nobody did it meanwhile
            _upgrade(connection)


def _revision(connection: sa.Connection, where: object, elsewhere: str) -> str | None:
    """The schema of the database, None for an empty one."""
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        return None
    found: str | None = None
    if "alembic_version" in tables:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if found in REVISIONS:
        return found
    if found is None:
        raise StoreError(where, "holds something else", f"Move that away, or {elsewhere}")
    what = f"was written by a newer assistant (schema {found}; this one knows {REVISIONS[-1]})"
    raise StoreError(where, what, f"Update this program, or {elsewhere}")


def _upgrade(connection: sa.Connection) -> None:
    # Imported here: Alembic takes 0.15 s to import, which nearly every start can do without.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "bot:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
