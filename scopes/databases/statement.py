"""SQL statements parsed by sqlglot: whether one only reads, and what it reads.

Imported only when there is a statement: sqlglot takes 0.1 s and 15 MB.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from sqlglot import exp
from sqlglot.dialects import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from scopes.databases.allow_list import (
    BIGQUERY,
    INFORMATION_SCHEMA,
    ONE_SELECT_ERROR,
    POSTGRESQL,
    SYSTEM_ACCESS_ERROR,
)

MAX_CHARS = 20_000
"""Characters of a statement."""
PARSE_S = 0.5
"""Maximum CPU seconds to parse one: sqlglot parses nested arrays again at each level."""
DIALECTS = {"DuckDB": "duckdb", "BigQuery": "bigquery", "PostgreSQL": "postgres"}
"""`SourceDatabase.dialect` -> its name in sqlglot."""
FUNCTIONS = {"PostgreSQL": POSTGRESQL, "BigQuery": BIGQUERY}
READS = (exp.Query, exp.Values)
"""Statements that only read if all their parts do."""
ALLOWED_NODES = (
    *(exp.Condition, exp.Query, exp.Values, exp.Table, exp.TableAlias, exp.Identifier, exp.Var),
    *(exp.Star, exp.Alias, exp.Aliases, exp.With, exp.CTE, exp.From, exp.Join, exp.Lateral),
    *(exp.Where, exp.Group, exp.Cube, exp.Rollup, exp.GroupingSets, exp.Having, exp.Qualify),
    *(exp.Order, exp.Ordered, exp.Limit, exp.LimitOptions, exp.Fetch, exp.Offset, exp.Distinct),
    *(exp.Filter, exp.WindowSpec, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls),
    *(exp.HavingMax, exp.Tuple, exp.Interval, exp.AtTimeZone, exp.DataType, exp.DataTypeParam),
    *(exp.TableSample, exp.Pivot, exp.PivotAlias, exp.PivotAny, exp.Version, exp.ColumnDef),
    *(exp.ColumnConstraint, exp.PathColumnConstraint, exp.JSONSchema, exp.JSONColumnDef),
    *(exp.JSONPath, exp.JSONPathPart, exp.RecursiveWithSearch),
)
"""Nodes of a statement that only reads: no lock, no INTO, and no statement that writes."""
PARAMETER_NODES = (exp.Parameter, exp.SessionParameter, exp.Placeholder)
"""Conditions whose value is elsewhere."""
PATH = re.compile(r"[/\\:*.]")
"""Characters in the name of a table that is, or may be, a file."""
SYSTEM = re.compile(r"pg_\w+|duckdb_\w+|sqlite_\w+|pragma_\w+")
ESCAPED_NAME_PATTERN = re.compile(r'\bu&"|[\0-\x08]', re.IGNORECASE)
"""A name in escapes, which sqlglot takes for an operation, and control characters."""
ODD_COMMENT = re.compile(r"/\*|\*/|\A *M?[!+]")
"""Whether comments nest, and whether this is one, depends on the database."""
SPELLING_ERROR = (
    "Write texts in single quotes, names in plain letters, and no comments in comments: dollar "
    "quotes and escapes are not read here."
)
UNPARSABLE_ERROR = "It cannot be read as {dialect}{where}. A name that is a keyword needs quotes."
TOO_DEEP = "The statement is nested too deeply: write it flatter."
PATH_ERROR = "A path in quotes or backticks is no table here: list_tables shows their names."
CATALOGS = "information_schema, list_tables and describe_table show the tables and columns."


class TooDeep(Exception):
    """A statement takes too long to read."""


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A text parsed by sqlglot."""

    tokens: Sequence[Token]
    trees: Sequence[exp.Expr | None]
    called: frozenset[str]
    """Its functions as written, in lower case: `sum`, `net.host`."""

    def nodes(self, *kinds: type[exp.Expr]) -> Iterator[Any]:
        return (node for tree in self.trees if tree for node in tree.find_all(*kinds, bfs=False))


def read(text: str, dialect: str) -> ParsedStatement:
    """Read a text in a dialect of sqlglot. Raises SqlglotError, RecursionError, TooDeep."""
    parser = _parser_of(dialect)()
    tokens = parser.dialect.tokenize(text)
    return ParsedStatement(tokens, parser.parse(tokens, text), frozenset(parser.called))


@cache
def _parser_of(dialect: str) -> Callable[[], Any]:
    """Return the parser of sqlglot that notes calls, and ends when its time is up."""
    found = Dialect.get_or_raise(dialect)
    parser_class: Any = found.parser_class
    operators = parser_class.RANGE_PARSERS.copy()
    names = parser_class.ID_VAR_TOKENS
    if dialect != "duckdb":  # GLOB is an ordinary name there
        operators.pop(TokenType.GLOB, None)
        names = {*names, TokenType.GLOB}

    class Parser(parser_class):  # type: ignore[misc]
        RANGE_PARSERS = operators
        ID_VAR_TOKENS = names

        def __init__(self) -> None:
            super().__init__(dialect=found)
            self.called: set[str] = set()
            self.until = time.thread_time() + PARSE_S

        def _advance(self, times: int = 1) -> None:
            if time.thread_time() > self.until:
                raise TooDeep
            super()._advance(times)

        def _parse_function_call(self, *arguments: Any, **options: Any) -> exp.Expr | None:
            at, name = self._index, self._curr.text
            call: exp.Expr | None = super()._parse_function_call(*arguments, **options)
            if call is not None:
                within = self._tokens[at - 2].text if self._tokens[at - 1].text == "." else ""
                self.called.add(f"{within}.{name}".lower() if within else name.lower())
            return call

        def _warn_unsupported(self) -> None:
            """Log no statement: it may contain private names."""

    return Parser


@lru_cache(512)
def refusal(text: str, dialect: str = "") -> str:
    """Return why this is not a single statement that only reads, for the model; "" if it is.

    `dialect` is that of `SourceDatabase.dialect`. The process of DuckDB checks every statement with
    its own parser.
    """
    if len(text) > MAX_CHARS:
        return f"A statement has at most {MAX_CHARS:,} characters."
    if dialect == "DuckDB":
        return ""
    try:
        statement = read(text, DIALECTS.get(dialect, ""))
    except SqlglotError as error:
        return _unreadable(error, dialect)
    except (RecursionError, TooDeep):
        return TOO_DEEP
    if len(statement.trees) != 1 or not isinstance(statement.trees[0], READS):
        return ONE_SELECT_ERROR
    return _table_refusal(statement, dialect) or _part_refusal(statement, text, dialect)


def _unreadable(error: SqlglotError, dialect: str) -> str:
    where = ""
    match error:
        case ParseError(errors=[{"line": line, "col": column}, *_]):
            where = f": line {line}, column {column}"
    return UNPARSABLE_ERROR.format(dialect=dialect or "SQL", where=where)


def _table_refusal(statement: ParsedStatement, dialect: str) -> str:
    for table in statement.nodes(exp.Table):
        names = [part.name.lower() for part in table.parts if isinstance(part, exp.Identifier)]
        if dialect == "BigQuery" and names:
            names[-1] = names[-1].removesuffix("*")  # a wildcard: Google lists its tables
            names = ".".join(names).split(".")
        if any(map(PATH.search, names)):
            return PATH_ERROR
        if _is_of_system(names, dialect):
            return SYSTEM_ACCESS_ERROR
    return ""


def _is_of_system(names: Sequence[str], dialect: str) -> bool:
    if "information_schema" in names:
        return dialect == "BigQuery" or names[-1] not in INFORMATION_SCHEMA
    return dialect != "BigQuery" and any(map(SYSTEM.fullmatch, names))


def _part_refusal(statement: ParsedStatement, text: str, dialect: str) -> str:
    if ESCAPED_NAME_PATTERN.search(text) or any(
        _is_odd(token, text, dialect) for token in statement.tokens
    ):
        return SPELLING_ERROR
    for node in statement.nodes(exp.Expression):
        if not isinstance(node, ALLOWED_NODES) or isinstance(node, PARAMETER_NODES):
            return ONE_SELECT_ERROR
    allowed = FUNCTIONS.get(dialect, POSTGRESQL | BIGQUERY)
    unknown = {node.name.lower() for node in statement.nodes(exp.Anonymous)}
    unknown -= {name.rpartition(".")[2] for name in statement.called}
    plain = {name.removeprefix("pg_catalog.").removeprefix("safe.") for name in statement.called}
    if others := sorted((plain - allowed) | unknown):
        return f"{others[0][:60]}() cannot be used here. {CATALOGS}"
    return ""


def _is_odd(token: Token, text: str, dialect: str) -> bool:
    """Return whether a database may see another end or name of a token than we do."""
    if token.token_type is TokenType.IDENTIFIER and dialect == "BigQuery":
        return "\\" in text[token.start : token.end + 1]
    heredoc = token.token_type is TokenType.HEREDOC_STRING
    return heredoc or any(map(ODD_COMMENT.search, token.comments))


@lru_cache(512)
def tables_of(sql: str) -> tuple[str, ...]:
    """Return the names of the tables that an executed statement reads, without schema, those of the
    outermost SELECT first; none if no dialect of ours parses it.

    This process only parses it.
    """
    for dialect in DIALECTS.values():
        try:
            (tree,) = read(sql, dialect).trees
        except (SqlglotError, RecursionError, TooDeep, ValueError):
            continue
        return _tables(tree) if tree else ()
    return ()


def _tables(statement: exp.Expr) -> tuple[str, ...]:
    aliases = {each.alias for each in statement.find_all(exp.CTE)}
    tables = (each.name for each in statement.find_all(exp.Table, bfs=False))
    return tuple(
        dict.fromkeys(name.rpartition(".")[2] for name in tables if name and name not in aliases)
    )
