"""What the local BigQuery knows of a query, and its rows as they are sent."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from bot.local.google.api import Json

ODD: Mapping[str, str] = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Read:
    """What a query names: tables as (dataset, table), and columns by name."""

    tables: tuple[tuple[str, str], ...] = ()
    views: tuple[tuple[str, str], ...] = ()
    columns: frozenset[str] = frozenset()
    """In small letters; `*` = all."""


@dataclass(frozen=True, slots=True)
class Answer:
    fields: list[Json]
    rows: list[tuple[Any, ...]] = field(default_factory=list)


def cells(fields: Sequence[Json], row: Sequence[Any], whole_times: bool) -> Json:
    """A row as it is sent; `whole_times`: timestamps as microseconds."""
    return {"f": [{"v": _cell(f, v, whole_times)} for f, v in zip(fields, row, strict=True)]}


def _cell(field_: Json, value: Any, whole: bool) -> Any:
    if field_["mode"] == "REPEATED":  # BigQuery has no empty list that is NULL
        one = {**field_, "mode": "NULLABLE"}
        return [{"v": _cell(one, each, whole)} for each in value or ()]
    if value is None:
        return None
    if field_["type"] == "RECORD":
        return cells(field_["fields"], list(value.values()), whole)
    return _text(value, whole)


def _text(value: Any, whole: bool) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return ODD.get(repr(value), repr(value))
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() if value.tzinfo:
            micros = (value - EPOCH) // timedelta(microseconds=1)
            return str(micros) if whole else repr(micros / 1e6)
        case date() | time():
            return value.isoformat()
    return str(value)
