"""The database file: opened privately, migrated to this program's schema, its errors in words."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL

from bot.errors import SetupError
from bot.tables import REVISIONS

BUSY_SECONDS = 10
"""How long a command waits for another process that is writing."""

_ELSEWHERE = "set data_dir to another directory."
_MOVE = "Move it away to begin with an empty one."
_COMPLAINTS = {
    sqlite3.SQLITE_FULL: ("has no space left", f"Free some, or {_ELSEWHERE}"),
    sqlite3.SQLITE_IOERR: (
        "cannot be written: the disk is full, has a size limit or is faulty",
        f"Free some space, or {_ELSEWHERE}",
    ),
    sqlite3.SQLITE_READONLY: ("is read-only", f"Make it writable, or {_ELSEWHERE}"),
    sqlite3.SQLITE_PERM: ("may not be used by this account", f"Allow it, or {_ELSEWHERE}"),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        f"Make it and its directory readable and writable, or {_ELSEWHERE}",
    ),
    sqlite3.SQLITE_BUSY: (
        "is in use by another assistant",
        "Try again when that one has finished.",
    ),
    sqlite3.SQLITE_CORRUPT: ("is damaged", _MOVE),
    sqlite3.SQLITE_NOTADB: ("is not a database", _MOVE),
}


class StoreError(SetupError):
    """The store cannot be used. Nothing was half-written."""

    def __init__(self, path: Path, what: str, hint: str) -> None:
        self.path = path
        super().__init__("store", f"The store {path} {what}.", hint)


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turns what the disk and SQLite complain about into a StoreError."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        code = getattr(error.orig, "sqlite_errorcode", None) or 0
        if code & 0xFF not in _COMPLAINTS:
            raise
        raise StoreError(path, *_COMPLAINTS[code & 0xFF]) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = f"Mend that, or {_ELSEWHERE}"
        raise StoreError(path, f"cannot be used: {reason}", hint) from error


def connect(path: Path) -> sa.Engine:
    """An engine for the file, which is made readable by its owner only, at today's schema.

    Blocks for a few milliseconds, or 0.2 s where a schema has to be made. Raises StoreError.
    """
    with explaining(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)
        engine = _engine(path)
        try:
            _migrate(engine, path)
        except BaseException:
            engine.dispose()
            raise
    return engine


def writing(engine: sa.Engine) -> sa.Engine:
    """The engine for transactions that write: they take the lock when they begin, not half-way."""
    return engine.execution_options(begin="BEGIN IMMEDIATE")


def _engine(path: Path) -> sa.Engine:
    engine = sa.create_engine(
        URL.create("sqlite", database=str(path)),
        # One connection, used by one thread after another: see Store.
        pool_size=1,
        max_overflow=0,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        json_serializer=_dumps,
    )

    # The driver opens transactions by itself, late and not round DDL; we say when.
    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None
        for pragma in ("foreign_keys=ON", "journal_mode=WAL"):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _dumps(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can spell it, UTF-8 cannot
        return json.dumps(value, separators=(",", ":"))
    return text


def _migrate(engine: sa.Engine, path: Path) -> None:
    with engine.connect() as connection:
        if _revision(connection, path) == REVISIONS[-1]:
            return
    with writing(engine).begin() as connection:
        if _revision(connection, path) != REVISIONS[-1]:  # nobody else did it meanwhile
            _upgrade(connection)


def _revision(connection: sa.Connection, path: Path) -> str | None:
    """The schema of the file, None for an empty one. Raises StoreError for one not known here."""
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        return None
    found: str | None = None
    if "alembic_version" in tables:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if found in REVISIONS:
        return found
    if found is None:
        raise StoreError(path, "holds something else", f"Move that away, or {_ELSEWHERE}")
    what = f"was written by a newer assistant (schema {found}; this one knows {REVISIONS[-1]})"
    raise StoreError(path, what, f"Update this program, or {_ELSEWHERE}")


def _upgrade(connection: sa.Connection) -> None:
    # Imported here: Alembic takes 0.15 s to import, which nearly every start can do without.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "bot:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
