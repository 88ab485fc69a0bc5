"""The process that runs SQL in DuckDB: untrusted statements, under limits of its own.

It answers the requests of a `scopes.programs.WorkerProcess`: a list in JSON of a path, a schema, a
method of `Program` and its arguments. An answer is lines of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from scopes.confinement import confine
from scopes.databases.allow_list import (
    DUCKDB_HIDDEN,
    DUCKDB_TABLE_FUNCTIONS,
    DUCKDB_VIEWS,
    INFORMATION_SCHEMA,
)
from scopes.databases.table_files import MAX_FILES, LoadedFolder, candidates, load, quote_identifier
from scopes.databases.table_kinds import is_duckdb
from scopes.programs import limit, serve

OVERHEAD_MB = 256
"""Part of the address space for Python, DuckDB's code and stacks."""
LOCKDOWN_SETTINGS = """
SET TimeZone = 'UTC'; SET python_enable_replacements = false;
SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;
SET allow_community_extensions = false; SET enable_external_access = false;
SET disabled_filesystems = 'LocalFileSystem'"""

BUILTIN = "system.main"
"""Schema of DuckDB's own functions: a macro of the file replaces a bare name."""


class RequestFailed(Exception):
    """A request that failed for a reason of this `kind`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


@dataclass
class Program:
    """A file or folder of tables, and its open connection."""

    path: Path
    schema: str | None
    memory_mb: int
    files: bool = False
    """True for a folder of tables, or a file that is not DuckDB's."""
    connection: duckdb.DuckDBPyConnection | None = None
    mark: object = None
    """State of the files when they were opened."""
    loaded: LoadedFolder = field(default_factory=LoadedFolder)
    lines: list[bytes] = field(default_factory=list)
    """Lines of the current answer."""

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return the connection, a new one if a file has changed. Raises Failed."""
        place = self.path.resolve()
        try:
            self.files = place.is_dir() or not is_duckdb(place)
            files = candidates(place) if self.files else [place]
            stats = [(str(file), file.lstat()) for file in files[:MAX_FILES]]
        except OSError:
            raise RequestFailed("absent") from None
        mark = len(files), [(name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in stats]
        if self.connection is None or mark != self.mark:
            self.close()
            self.connection = self._open(place)
            self.mark = mark
        return self.connection

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _open(self, place: Path) -> duckdb.DuckDBPyConnection:
        limit = f"{max(64, self.memory_mb - OVERHEAD_MB)}MB"
        where = ":memory:" if self.files else str(place)
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": "1",
            "memory_limit": limit,
            "temp_directory": "",
            "max_temp_directory_size": "0B",
        }
        try:
            connection = duckdb.connect(where, read_only=not self.files, config=settings)
        except duckdb.IOException as error:
            raise RequestFailed("busy" if "lock" in str(error) else "broken") from None
        except duckdb.Error:
            raise RequestFailed("broken") from None
        if self.files:
            self.loaded = load(connection, place)
        for statement in LOCKDOWN_SETTINGS.split(";"):
            connection.execute(statement)
        if self.schema:
            full = self.schema if "." in self.schema else f"{_home_of(connection)[0]}.{self.schema}"
            try:
                connection.execute("USE " + ".".join(map(quote_identifier, full.split("."))))
            except duckdb.Error:
                raise RequestFailed("schema") from None
        connection.execute("SET lock_configuration = true")
        return connection

    def answer(self, does: str, *arguments: Any) -> bytes:
        """Answer one request; the last line is the kind of failure or "", and a result or error."""
        self.lines.clear()
        try:
            ending = "", getattr(self, does)(self.connect(), *arguments)
        except RequestFailed as error:
            ending = error.kind, None
        except (MemoryError, duckdb.OutOfMemoryException):
            ending = "memory", None
        except duckdb.Error as error:
            ending = "sql", " ".join(str(error).split())[:400]
        finally:
            if not self.files and does != "open":  # another request follows it
                self.close()  # while it is open, nobody can write to it
        self._say(ending)
        return b"".join(self.lines)

    def open(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Only open the source."""

    def tables(self, connection: duckdb.DuckDBPyConnection, wanted: str, most: int) -> None:
        """List all tables, or one; for an ambiguous bare name, the one that a query would use."""
        wanted = wanted.casefold().replace('"', "")
        catalog, home = _home_of(connection)
        reserved = {row[0] for row in connection.execute(RESERVED_WORDS_QUERY).fetchall()}
        listed = connection.execute(TABLES_QUERY).fetchall()
        if wanted:
            listed.sort(key=lambda row: row[0] != home)
            named = [(f".{catalog}.{row[0]}.{row[1]}".casefold(), row) for row in listed]
            listed = [row for name, row in named if name.endswith(f".{wanted}")][:1]
        columns = connection.execute(COLUMNS).fetchall()
        shown = bool(wanted) or len(columns) <= FEW_COLUMNS
        for schema, table, note, is_table in listed[:most]:
            file = self.loaded.tables.get(table)
            notes = ("" if is_table else "a view", note, file and f"from {file}")
            own = [c[2:] for c in columns if shown and c[:2] == (schema, table)]
            parts = [table] if schema == home else [schema, table]
            if len(parts) > 1 and schema.casefold() == catalog.casefold():
                parts = [catalog, *parts]  # otherwise DuckDB confuses the schema with the file
            rows = _count(connection, catalog, schema, table) if is_table else None
            note = "; ".join(filter(None, notes))
            name = ".".join(_plain(part, reserved) for part in parts)
            self._say((name, rows, note, [(column, kind, of or "") for column, kind, of in own]))
        for file, why in self.loaded.unreadable.items() if not wanted else ():
            self._say((file, None, f"not readable: {why}", ()))

    def query(
        self, connection: duckdb.DuckDBPyConnection, sql: str, max_rows: int, max_bytes: int
    ) -> int | None:
        """Write the rows of one statement that only reads, up to the limits; return how many there
        are, None = more."""
        statements = duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise RequestFailed("statement")
        try:
            if not tells_of_data(connection, sql):
                raise RequestFailed("machine")
        except RecursionError:
            raise RequestFailed("deep") from None
        columns, cursor = _run(connection, statements[0])
        self._say(columns)
        count = size = 0
        while row := cursor.fetchone():
            line = _line([_cell(value) for value in row])
            size += len(line)
            if count == max_rows or size > max_bytes:
                return None
            self.lines.append(line)
            count += 1
        return count

    def _say(self, reply: Sequence[Any]) -> None:
        self.lines.append(_line(reply))


def _home_of(connection: duckdb.DuckDBPyConnection) -> tuple[str, str]:
    """Return the catalog and the schema in which names without a prefix are looked up.

    The catalog is DuckDB's name for the open file: its name without the ending.
    """
    query = f"SELECT {BUILTIN}.current_database(), {BUILTIN}.current_schema()"
    catalog, schema = connection.execute(query).fetchall()[0]
    return str(catalog), str(schema)


MEGABYTE = 1 << 20
FEW_COLUMNS = 120
"""Up to so many columns in all, a list of tables shows them, too."""
TABLES_QUERY = f"""
SELECT schema_name, table_name, comment, true FROM {BUILTIN}.duckdb_tables() WHERE NOT internal
AND NOT temporary UNION ALL
SELECT schema_name, view_name, comment, false FROM {BUILTIN}.duckdb_views() WHERE NOT internal
AND NOT temporary ORDER BY 1, 2"""
COLUMNS = f"""
SELECT schema_name, table_name, column_name, data_type, comment FROM {BUILTIN}.duckdb_columns()
WHERE NOT internal ORDER BY schema_name, table_name, column_index"""
RESERVED_WORDS_QUERY = f"""
SELECT keyword_name FROM {BUILTIN}.duckdb_keywords() WHERE keyword_category != 'unreserved'"""
PARSE_QUERY = f"SELECT {BUILTIN}.json_serialize_sql(CAST(? AS VARCHAR))"
FUNCTIONS = f"SELECT function_name, internal FROM {BUILTIN}.duckdb_functions()"
VIEWS = f"""
SELECT CASE schema_name WHEN 'information_schema' THEN schema_name || '.' ELSE '' END || view_name
FROM {BUILTIN}.duckdb_views() WHERE internal"""
ALLOWED_CATALOG_OBJECTS = {
    *(("BASE_TABLE", name) for name in DUCKDB_VIEWS),
    *(("BASE_TABLE", f"information_schema.{name}") for name in INFORMATION_SCHEMA),
    *(("SHOW", name) for name in ('"tables"', "__show_tables_expanded")),
}
"""Objects of DuckDB that describe the data, by the kinds of its parser."""
HIDDEN = {("FUNCTION", name) for name in DUCKDB_HIDDEN}
MAX_CELL = 32_767
"""Characters, as in Excel; a longer cell is cut."""
INEXACT = re.compile("DATE|FLOAT|INTERVAL|MAP|TIME|VARIANT")
"""In a type, at any depth: Python or JSON has no exact value for it, so it comes as DuckDB's text.
A field may have such a name, too, which does no harm."""


def _plain(name: str, reserved: Container[str]) -> str:
    """Return a name for a query, in quotes only if needed."""
    simple = re.fullmatch(r"[^\W\d]\w*", name) and name.lower() not in reserved
    return name if simple else quote_identifier(name)


def _count(connection: duckdb.DuckDBPyConnection, *names: str) -> int:
    table = ".".join(map(quote_identifier, names))
    return int(connection.execute(f"SELECT {BUILTIN}.count_star() FROM {table}").fetchall()[0][0])


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace") + b"\n"


def _run(
    connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement
) -> tuple[list[tuple[str, str]], duckdb.DuckDBPyConnection]:
    """Return the names and types of the columns, and a cursor over exact rows."""
    described = connection.sql(statement.query).description or []  # bound, and not yet run
    columns = [(str(column[0]), str(column[1])) for column in described]
    kinds = [kind for _, kind in columns]
    if any(map(INEXACT.search, kinds)):
        return columns, connection.execute(exactly(statement.query, kinds))
    return columns, connection.execute(statement)


def tells_of_data(connection: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """Return whether a SELECT, as DuckDB parses it, returns only information from the data.

    Raises RecursionError if it is nested too deeply to be parsed.
    """
    parsed = connection.execute(PARSE_QUERY, [sql]).fetchone()
    tree = json.loads(parsed[0]) if parsed else {"error": True}
    used = set(_find_names(tree))
    functions = {name for kind, name in used if kind == "TABLE_FUNCTION"} - DUCKDB_TABLE_FUNCTIONS
    views = {
        ("BASE_TABLE", name) for (name,) in connection.execute(VIEWS).fetchall()
    } - ALLOWED_CATALOG_OBJECTS
    if (
        tree["error"]
        or used & (views | HIDDEN)
        or any(k == "SHOW" for k, _ in used - ALLOWED_CATALOG_OBJECTS)
    ):
        return False
    if not functions:
        return True
    listed = connection.execute(FUNCTIONS).fetchall()
    own = {name.casefold() for name, internal in listed if not internal}
    return functions <= own - {name.casefold() for name, internal in listed if internal}


def _find_names(tree: Any) -> Iterator[tuple[str, str]]:
    """Yield the kinds and names, in lower case, of the objects that a statement uses."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        if not isinstance(node, dict):
            continue
        todo += node.values()
        match node:
            case {"type": "BASE_TABLE", "schema_name": str(schema), "table_name": str(name)}:
                head = "information_schema." if schema.casefold() == "information_schema" else ""
                yield "BASE_TABLE", head + name.casefold()
            case {"type": "TABLE_FUNCTION", "function": {"function_name": str(name)}}:
                yield "TABLE_FUNCTION", name.casefold()
            case {"type": "FUNCTION", "function_name": str(name)}:
                yield "FUNCTION", name.casefold()
            case {"type": "BASE_TABLE" | "TABLE_FUNCTION" | "FUNCTION" as kind}:
                raise ValueError(f"DuckDB tells of a {kind} in a form that is not known")
            case {"show_type": "SHOW_SPECIAL"}:
                yield "SHOW", str(node["table_name"]).casefold()


def exactly(sql: str, kinds: Sequence[str]) -> str:
    """Return the statement with columns that Python would change cast to text or DOUBLE."""
    wanted = ", ".join(_column(n, kind) for n, kind in enumerate(kinds, 1))
    return f"SELECT {wanted} FROM (\n{sql.strip().rstrip(';')}\n)"


def _column(n: int, kind: str) -> str:
    if not INEXACT.search(kind):
        return f"#{n}"
    text = f"CAST(#{n} AS VARCHAR)"
    return f"CAST({text} AS DOUBLE)" if kind == "FLOAT" else text  # 19.99, not 19.9899997


def _cell(value: Any) -> Any:
    """Return a value as JSON; an exact decimal number as `[text]`."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Decimal):
        return [str(value)]
    text = _spell(value)
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}... [cut]"


def _spell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"0x{bytes(value[:MAX_CELL]).hex()}"
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=_spell)
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def main(memory_mb: int) -> None:
    limit(memory=memory_mb * MEGABYTE, file_bytes=0, files=64)
    confine(reads=True)

    @cache
    def program(path: str, schema: str | None) -> Program:
        return Program(Path(path), schema, memory_mb)

    def reply(request: bytes) -> bytes:
        path, schema, *arguments = json.loads(request)
        return program(path, schema).answer(*arguments)

    serve(reply)
