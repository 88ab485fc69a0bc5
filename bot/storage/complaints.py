"""What the disk and the database complain about, in a sentence that says what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from bot.errors import StoreError

FILE_ELSEWHERE = "set data_dir to another directory."
URL_ELSEWHERE = "set DATABASE_URL to another database."
_MOVE = "Move it away to begin with an empty one."
_COMPLAINTS = {
    sqlite3.SQLITE_FULL: ("has no space left", f"Free some, or {FILE_ELSEWHERE}"),
    sqlite3.SQLITE_IOERR: (
        "cannot be written: the disk is full, has a size limit or is faulty",
        f"Free some space, or {FILE_ELSEWHERE}",
    ),
    sqlite3.SQLITE_READONLY: ("is read-only", f"Make it writable, or {FILE_ELSEWHERE}"),
    sqlite3.SQLITE_PERM: ("may not be used by this account", f"Allow it, or {FILE_ELSEWHERE}"),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        f"Make it and its directory readable and writable, or {FILE_ELSEWHERE}",
    ),
    sqlite3.SQLITE_BUSY: (
        "is in use by another assistant",
        "Try again when that one has finished.",
    ),
    sqlite3.SQLITE_CORRUPT: ("is damaged", _MOVE),
    sqlite3.SQLITE_NOTADB: ("is not a database", _MOVE),
}
_STATES = ("08", "25006", "28", "3D", "3F", "40", "42501", "53", "55", "57", "58", "XX")
"""SQLSTATEs, or their classes, of what is wrong with a server or an account, not with a query."""


@contextmanager
def explaining(where: object) -> Iterator[None]:
    """Turns what the disk and the database complain about into a StoreError."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        code = getattr(error.orig, "sqlite_errorcode", None) or 0
        if code & 0xFF in _COMPLAINTS:
            raise StoreError(where, *_COMPLAINTS[code & 0xFF]) from error
        if code or not _is_of_the_server(error):
            raise
        said = str(error.orig).strip().splitlines()
        hint = f"Check that Postgres runs and takes this account, or {URL_ELSEWHERE}"
        raise StoreError(where, f"cannot be used: {said[0] if said else error}", hint) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = f"Mend that, or {FILE_ELSEWHERE}"
        raise StoreError(where, f"cannot be used: {reason}", hint) from error


def _is_of_the_server(error: sa.exc.DBAPIError) -> bool:
    if state := getattr(error.orig, "sqlstate", None):
        return bool(state.startswith(_STATES))
    return isinstance(error, sa.exc.OperationalError | sa.exc.ProgrammingError)
