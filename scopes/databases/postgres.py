"""A PostgreSQL database, read only: by its transactions, its time-outs and its role."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg
from psycopg import sql as compose

from scopes.databases.statement import refusal
from scopes.databases.tables import MAX_TABLES, Column, Rows, StatementFailed, TableInfo, Value
from scopes.tool import SourceFailed, ToolError

log = logging.getLogger(__name__)

CONNECT_S = 10
LOCK_S = 5
"""Seconds for which a query waits for a lock."""
MAX_RUNNING = 3
"""Queries at once, each with a connection; a role has few, and others use the server, too."""
MAX_CELL = 32_767
"""Characters, as in Excel; a longer cell is cut by the server."""
ROW_CHARS = 1_000_000
"""Characters that the cells of one row may have together."""
AS_THEY_ARE: Final = frozenset({16, 20, 21, 23, 26, 700, 701, 1700})
"""Type oids of booleans and numbers: small, and exact in Python. Others come as text."""
SETTINGS = """
SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),
set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true),
set_config('IntervalStyle', 'postgres', true), set_config('bytea_output', 'hex', true),
set_config('standard_conforming_strings', 'on', true)"""
TABLES_QUERY = """
SELECT c.oid, CASE WHEN pg_table_is_visible(c.oid) THEN quote_ident(c.relname)
  ELSE quote_ident(n.nspname) || '.' || quote_ident(c.relname) END,
  c.reltuples::bigint, c.relkind::text, left(coalesce(obj_description(c.oid, 'pg_class'), ''), 300)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
  AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')"""
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
  left(coalesce(col_description(a.attrelid, a.attnum), ''), 300)
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
  AND has_column_privilege(a.attrelid, a.attnum, 'SELECT') ORDER BY a.attnum"""
UNREACHABLE: Final = (
    "The PostgreSQL server cannot be reached, or does not let the bot in: see data.databases in "
    "assistant.yaml."
)
TOO_LONG: Final = "The query took too long and was ended: filter or aggregate earlier."
ODD_TEXT: Final = (
    "A text is in another encoding than the database: leave its column out, or select "
    "encode(convert_to(column, 'SQL_ASCII'), 'escape')."
)
SQLSTATE_ERRORS: Final = {
    "22021": ODD_TEXT,
    "57014": TOO_LONG,
    "55P03": "A table is locked by somebody who changes it. Try again once.",
    "25006": "This database is only read.",
    "53200": "The query needs more memory than the server has for it: aggregate earlier.",
    "53400": "The query needs more room than the server gives it: aggregate earlier.",
}
"""SQLSTATE (PostgreSQL, appendix A) -> sentence."""
Connection = psycopg.AsyncConnection[tuple[Any, ...]]


@dataclass
class Postgres:
    """One database: `tables.SourceDatabase`. No query changes it, with any function."""

    dialect: ClassVar = "PostgreSQL"
    url: str
    schema: str | None
    password_file: Path | None
    query_s: float
    max_bytes: int
    """Maximum bytes of a result."""
    _idle: list[Connection] = field(default_factory=list)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_RUNNING))

    async def tables(self) -> Sequence[TableInfo]:
        async with self._read_only() as connection:
            listed = await _fetch(connection, f"{TABLES_QUERY} ORDER BY 2 LIMIT {MAX_TABLES}")
        return [_table(row) for row in listed]

    async def describe(self, table: str) -> TableInfo | None:
        async with self._read_only() as connection:
            rows = await _fetch(connection, TABLES_QUERY)
            wanted = table.casefold().replace('"', "")
            for row in rows:
                if row[1].casefold().replace('"', "") in (wanted, wanted.removeprefix("public.")):
                    columns = await _fetch(connection, COLUMNS, row[0])
                    return _table(row, tuple(Column(*c) for c in columns))
        return None

    async def query(self, sql: str, max_rows: int) -> Rows:
        if why := refusal(sql, self.dialect):
            raise ToolError(why)
        async with self._read_only() as connection:
            columns = await _describe(connection, sql)
            wrapped = _wrap(sql, columns, max_rows + 1)
            rows: list[tuple[Value, ...]] = []
            size = 0
            cursor = connection.cursor()
            async for row in cursor.stream(wrapped):  # one row at a time, to save memory
                size += sum(len(str(cell)) for cell in row)
                if len(rows) == max_rows or size > self.max_bytes:
                    await connection.close()  # do not wait for the remaining rows
                    return Rows(_columns(columns), tuple(rows), None)
                rows.append(row)
        return Rows(_columns(columns), tuple(rows), len(rows))

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def _read_only(self) -> AsyncIterator[Connection]:
        """Open a connection in a read-only transaction. Raises ToolError, SourceFailed."""
        async with self._turns:
            connection = None
            try:
                async with asyncio.timeout(self.query_s + LOCK_S):
                    connection = await self._open_transaction()
                    yield connection
                    if not connection.closed:
                        await connection.rollback()
                        self._idle.append(connection)
            except TimeoutError:
                raise ToolError(TOO_LONG) from None
            except UnicodeError:
                raise ToolError(ODD_TEXT) from None
            except psycopg.Error as error:
                raise _error_for(error) from None
            finally:
                if connection and connection not in self._idle:
                    await connection.close()

    async def _open_transaction(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            with suppress(psycopg.OperationalError):  # the server has closed it meanwhile
                await self._begin(connection)
                return connection
        connection = await self._connect()
        await self._begin(connection)
        return connection

    async def _begin(self, connection: Connection) -> None:
        ms = (str(int(self.query_s * 1000)), str(LOCK_S * 1000))
        await connection.execute(SETTINGS, ms)
        if self.schema:
            path = compose.Identifier(self.schema)
            await connection.execute(compose.SQL("SET LOCAL search_path TO {}").format(path))

    async def _connect(self) -> Connection:
        """Connect, and hide the statements of this session from others if the role may do so: a
        superuser, or from PostgreSQL 15 on a role with SET on that parameter."""
        file = self.password_file
        try:
            password = (await asyncio.to_thread(file.read_text)).strip() if file else None
            connection = await psycopg.AsyncConnection.connect(
                self.url,
                autocommit=True,
                connect_timeout=CONNECT_S,
                application_name="assistant",
                client_encoding="utf8",  # of statements, independent of the server's
                password=password,  # None = the one in the address, if any
            )
        except (psycopg.Error, OSError) as error:
            kind = type(error).__name__
            log.warning("a database of data.databases cannot be opened: %s", kind)
            raise SourceFailed(UNREACHABLE) from None
        with suppress(psycopg.errors.InsufficientPrivilege):
            await connection.execute("SET track_activities = off")
        await connection.set_autocommit(False)
        await connection.set_read_only(True)
        if connection.info.parameter_status("is_superuser") == "on":
            log.warning("a database of data.databases is read as a superuser: give a role for it")
        return connection


async def _fetch(connection: Connection, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    cursor = await connection.execute(statement.encode(), arguments or None)
    return await cursor.fetchall()


async def _describe(connection: Connection, sql: str) -> list[psycopg.Column]:
    """Return the columns of a statement; the server accepts only one that gives rows."""
    async with connection.cursor(name="described") as cursor:
        await cursor.execute(sql.strip().rstrip(";").encode())
        columns = list(cursor.description or ())
    if not columns:
        raise ToolError("Select at least one column.")
    return columns


def _wrap(sql: str, columns: Sequence[psycopg.Column], limit: int) -> bytes:
    """Return the same statement with its cells and rows limited at the server."""
    room = max(100, min(MAX_CELL, ROW_CHARS // len(columns)))
    names = [f"c{n}" for n in range(len(columns))]
    cells = [
        name if column.type_code in AS_THEY_ARE else f"left({name}::text, {room})"
        for name, column in zip(names, columns, strict=True)
    ]
    inner = sql.strip().rstrip(";")
    text = f"SELECT {', '.join(cells)} FROM (\n{inner}\n) AS q ({', '.join(names)}) LIMIT {limit}"
    return text.encode()


def _columns(described: Sequence[psycopg.Column]) -> tuple[Column, ...]:
    """Return columns; types of the database's own, known by number only, are shown as text."""
    kinds = [c.type_display for c in described]
    kinds = ["text" if kind.isdecimal() else kind for kind in kinds]
    return tuple(Column(c.name, kind) for c, kind in zip(described, kinds, strict=True))


def _table(row: Sequence[Any], columns: tuple[Column, ...] = ()) -> TableInfo:
    _, name, about, kind, note = row
    view = "a view" if kind in ("v", "m") else ""
    rows = f"about {about} rows" if about >= 0 and not view else ""
    return TableInfo(name, None, columns, "; ".join(filter(None, (view, rows, note))))


def _error_for(error: psycopg.Error) -> Exception:
    """Return the server's error, with its text only if the model may see it."""
    state = error.sqlstate or ""
    if state in SQLSTATE_ERRORS:
        return ToolError(SQLSTATE_ERRORS[state])
    message = error.diag.message_primary
    if not message or state.startswith(("08", "57P", "XX")):
        log.warning("a query of data.databases failed: %s %s", type(error).__name__, state)
        return SourceFailed("The PostgreSQL server ended the connection.")
    hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
    return StatementFailed(" ".join(f"{message}{hint}".split())[:400])
