"""The data of the local BigQuery: real tables in DuckDB, described as BigQuery does."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from bot.local.google.api import GoogleRefused, Json
from standins.bigquery import PROJECT, Answer, BigQueryState, Read

KINDS: Mapping[str, str] = {
    "boolean": "BOOLEAN", "double": "FLOAT", "float": "FLOAT", "decimal": "NUMERIC",
    "date": "DATE", "time": "TIME", "timestamp": "DATETIME",
}  # fmt: skip
"""DuckDB's type -> BigQuery's; whole numbers are INTEGER, the rest STRING."""
WHOLE = re.compile(r"u?(tiny|small|big|huge)?int(eger)?")
WIDTHS: Mapping[str, int] = {"BOOLEAN": 1, "NUMERIC": 16}
"""Bytes of a value; 8 of others, 2 and the length of a text (cloud.google.com/bigquery/pricing)."""
QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"((?:[^"\\]|\\.)*)"|`([^`]*)`""")


class Tables:
    """Datasets of one project; `run` fills them."""

    location = "US"

    def __init__(self, project: str) -> None:
        self.project = project
        self._base = duckdb.connect(config={"threads": 1, "python_enable_replacements": False})
        self._base.execute(f"ATTACH ':memory:' AS \"{project}\"")
        self._base.execute("SET enable_external_access = false")

    def run(self, sql: str) -> None:
        """Create schemas and tables, in DuckDB's SQL."""
        cursor = self._base.cursor()
        cursor.execute(f'USE "{self.project}"')
        cursor.execute(sql)

    def close(self) -> None:
        self._base.close()

    def datasets(self) -> list[str]:
        sql = "SELECT schema_name FROM duckdb_schemas() WHERE database_name = ? AND NOT internal"
        found = [str(name) for (name,) in self._base.execute(sql, [self.project]).fetchall()]
        return sorted(name for name in found if name != "main")

    def tables(self, dataset: str) -> dict[str, str]:
        """Return `TABLE` or `VIEW` by name; refuse a missing dataset."""
        if dataset not in self.datasets():
            raise GoogleRefused("notFound", f"Not found: Dataset {self.project}:{dataset}")
        where = "WHERE database_name = ? AND schema_name = ? AND NOT internal"
        at = [self.project, dataset]
        tables = self._base.execute(f"SELECT table_name FROM duckdb_tables() {where}", at)
        found = {str(name): "TABLE" for (name,) in tables.fetchall()}
        views = self._base.execute(f"SELECT view_name FROM duckdb_views() {where}", at)
        return found | {str(name): "VIEW" for (name,) in views.fetchall()}

    def fields(self, dataset: str, table: str) -> list[Json]:
        return self.answer(f'SELECT * FROM "{table}" LIMIT 0', dataset).fields

    def rows(self, dataset: str, table: str) -> int:
        found = self._base.execute(f'SELECT count(*) FROM "{self.project}"."{dataset}"."{table}"')
        return int((found.fetchone() or (0,))[0])

    def bytes(self, dataset: str, table: str, columns: frozenset[str]) -> int:
        """Return the bytes that BigQuery bills for reading these columns."""
        sums = []
        for each in self.fields(dataset, table):
            name = each["name"]
            if "*" in columns or name.lower() in columns:
                text = f'sum(2 + octet_length(encode("{name}"::VARCHAR)))'
                width = WIDTHS.get(each["type"], 8)
                sums.append(text if each["type"] == "STRING" else f'{width} * count("{name}")')
        if not sums:
            return 0
        total = " + ".join(f"coalesce({each}, 0)" for each in sums)
        sql = f'SELECT {total} FROM "{self.project}"."{dataset}"."{table}"'
        return int((self._base.execute(sql).fetchone() or (0,))[0])

    def read(self, sql: str, dataset: str) -> Read:
        """Return what a SELECT names; refuse invalid SQL and missing tables."""
        found = self._base.execute("SELECT json_serialize_sql(?)", [ours(sql)]).fetchone()
        tree = json.loads((found or ("{}",))[0])
        if tree.get("error"):
            raise GoogleRefused("invalidQuery", str(tree.get("error_message", "Syntax error")))
        nodes = list(_nodes(tree))
        with_ = {str(n["key"]).lower() for n in nodes if _names_a_query(n)}
        columns = {str(n["column_names"][-1]).lower() for n in nodes if n.get("column_names")}
        star = {"*" for n in nodes if n.get("class") == "STAR"}
        base_tables = [n for n in nodes if n.get("type") == "BASE_TABLE"]
        tables, views = dict[tuple[str, str], None](), dict[tuple[str, str], None]()
        for node in base_tables:
            if not node["schema_name"] and node["table_name"].lower() in with_:
                continue
            at = (node["schema_name"] or dataset, node["table_name"])
            if self._kind(node["catalog_name"], *at) == "TABLE":
                tables[at] = None
                continue
            views[at] = None
            inner = self.read(self._view(*at), at[0])
            tables |= dict.fromkeys(inner.tables)
            columns |= inner.columns
        return Read(tuple(tables), tuple(views), frozenset(columns | star))

    def _kind(self, project: str, dataset: str, table: str) -> str:
        at = f"{project or self.project}:{dataset}.{table}"
        known = self.tables(dataset) if project in ("", self.project) else {}
        if table not in known:
            where = f"was not found in location {self.location}"
            raise GoogleRefused("notFound", f"Not found: Table {at} {where}")
        return known[table]

    def _view(self, dataset: str, view: str) -> str:
        sql = "SELECT sql FROM duckdb_views() WHERE database_name = ? AND schema_name = ? "
        found = self._base.execute(f"{sql} AND view_name = ?", [self.project, dataset, view])
        definition = str((found.fetchone() or ("",))[0])
        return re.split(r"\bAS\b", definition, maxsplit=1, flags=re.IGNORECASE)[1].rstrip("; \n")

    def answer(self, sql: str, dataset: str) -> Answer:
        """Run one SELECT; refuse as BigQuery does."""
        cursor = self._base.cursor()
        try:
            cursor.execute(f'USE "{self.project}"."{dataset}"')
            cursor.execute("SET TimeZone = 'UTC'")
            cursor.execute(ours(sql))
            fields = [_field(name, kind) for name, kind, *_ in cursor.description or ()]
            return Answer(fields, cursor.fetchall())
        except duckdb.Error as error:
            raise GoogleRefused("invalidQuery", str(error).partition("\n")[0]) from None
        finally:
            cursor.close()


def ours(sql: str) -> str:
    """Requote "texts" and `project.dataset.table` of a query for DuckDB."""

    def requote(found: re.Match[str]) -> str:
        text, name = found.groups()
        if text is not None:
            return "'" + text.replace("'", "''") + "'"
        if name is not None:
            return ".".join(f'"{part}"' for part in name.split("."))
        return found[0]

    return QUOTED.sub(requote, sql).strip().rstrip(";")


def _nodes(tree: Any) -> Iterator[Json]:
    if isinstance(tree, dict):
        yield tree
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for each in inner:
        yield from _nodes(each)


def _names_a_query(node: Json) -> bool:
    value = node.get("value")
    return "key" in node and isinstance(value, dict) and "query_node" in value


def _field(name: str, kind: Any) -> Json:
    type = "INTEGER" if WHOLE.fullmatch(kind.id) else KINDS.get(kind.id, "STRING")
    return {"name": name, "type": type, "mode": "NULLABLE"}


def bigquery_of(project: str = PROJECT) -> BigQueryState:
    """Return an empty project of BigQuery."""
    return BigQueryState(Tables(project))
