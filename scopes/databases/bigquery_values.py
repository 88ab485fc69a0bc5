"""What BigQuery sends as JSON, as values and sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from scopes.databases.tables import Column, Value, spelled
from scopes.sizes import size_of
from scopes.tool import one_line

Json = Mapping[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES: Final[Mapping[str, str]] = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL"}
"""What the API calls some types -> what SQL does."""


def column_of(field: Json) -> Column:
    """Return a column, nested ones with all that is in them: `ARRAY<STRUCT<sku STRING,
    n INT64>>`.
    """
    return Column(str(field["name"]), _type(field), str(field.get("description") or ""))


def _type(field: Json) -> str:
    kind = str(field.get("type") or "STRING")
    if kind in ("RECORD", "STRUCT"):
        inner = ", ".join(f"{each['name']} {_type(each)}" for each in _inner(field))
        kind = f"STRUCT<{inner}>"
    elif field.get("precision"):
        scale = f",{field['scale']}" if field.get("scale") else ""
        kind = f"{kind}({field['precision']}{scale})"
    else:
        kind = NAMES.get(kind, kind)
    return f"ARRAY<{kind}>" if field.get("mode") == "REPEATED" else kind


def _inner(field: Json) -> Sequence[Json]:
    return field.get("fields") or ()


def row_of(fields: Sequence[Json], row: Json) -> tuple[Value, ...]:
    """Return a row of a result: `{"f": [{"v": ...}, ...]}`. Raises ValueError where it is none."""
    cells = row.get("f") or ()
    return tuple(_cell(f, cell.get("v")) for f, cell in zip(fields, cells, strict=True))


def _cell(field: Json, value: Any) -> Value:
    """Return a value that stands by itself; lists and structs as compact JSON."""
    if value is None:
        return None
    if field.get("mode") == "REPEATED" or _inner(field):
        return json.dumps(
            _nested(field, value), default=spelled, ensure_ascii=False, separators=(",", ":")
        )
    return _READ.get(str(field.get("type")), str)(value)


def _nested(field: Json, value: Any) -> Any:
    if value is None:
        return None
    if field.get("mode") == "REPEATED":
        one = {**field, "mode": "NULLABLE"}
        return [_nested(one, each.get("v")) for each in value]
    if inner := _inner(field):
        cells = value.get("f") or ()
        pairs = zip(inner, cells, strict=True)
        return {str(f["name"]): _nested(f, cell.get("v")) for f, cell in pairs}
    return _cell(field, value)


def _time_of(text: str) -> datetime:
    """Microseconds since 1970, as they are asked for."""
    return EPOCH + timedelta(microseconds=int(text))


_READ: Final[Mapping[str, Callable[[str], Value]]] = {
    "INTEGER": int,
    "INT64": int,
    "FLOAT": float,
    "FLOAT64": float,
    "NUMERIC": Decimal,
    "BIGNUMERIC": Decimal,
    "BOOLEAN": lambda text: text == "true",
    "BOOL": lambda text: text == "true",
    "DATE": date.fromisoformat,
    "TIME": time.fromisoformat,
    "DATETIME": datetime.fromisoformat,
    "TIMESTAMP": _time_of,
}
"""Type -> how its text is read; all others stay text."""


def kind_of(table: Json) -> str:
    """Return what it is where it is no plain table: `view`, `external`."""
    kind = str(table.get("type") or "TABLE")
    return "" if kind == "TABLE" else kind.lower().replace("_", " ")


def notes_of(table: Json) -> Iterator[str]:
    """Yield what a table says of itself, and what makes a query of it cheap."""
    if kind := kind_of(table):
        yield f"{kind.capitalize()}."
    if said := one_line(str(table.get("description") or "")):
        yield said
    time_, range_ = table.get("timePartitioning"), table.get("rangePartitioning")
    if column := (time_ or {}).get("field") or (range_ or {}).get("field"):
        yield f"Partitioned by {column}: filter by it."
    elif time_:
        yield "Partitioned by _PARTITIONTIME: filter by it."
    if size := int(table.get("numBytes") or 0):
        yield f"{size_of(size)} in all."
