"""A dataset of BigQuery: each query is priced first, and may not cost more than that."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final

from scopes.databases.allow_list import ONE_SELECT_ERROR
from scopes.databases.statement import refusal
from scopes.databases.tables import Column, Rows, StatementFailed, TableInfo, Value, format_exact
from scopes.google.client import GoogleClient
from scopes.google.errors import GoogleAbsent, GoogleError
from scopes.tool import ToolError, one_line, size_of

Json = Mapping[str, Any]

BIGQUERY_SCOPE: Final = "https://www.googleapis.com/auth/bigquery"
"""The scope for jobs.insert; none only reads. The roles Data Viewer and Job User only read."""
USD_PER_TIB: Final = 6.25
"""On demand, US regions (cloud.google.com/bigquery/pricing); the first TiB of a month is free."""
TIB: Final = 2**40
PAGE_SIZE: Final = 5_000
"""Rows and tables of one page, at most; BigQuery ends one at 10 MB."""
WAIT_MS: Final = 5_000
"""Milliseconds for which BigQuery holds a request for the result open."""
CANCEL_S: Final = 3.0
MOST_NAMED: Final = 50
"""Maximum tables of a query that BigQuery names (jobs, JobStatistics2.referencedTables)."""
TABLE = re.compile(r"[\w $@-]{1,300}")
FIXABLE_REASONS: Final = frozenset(
    {"invalid", "invalidQuery", "resourcesExceeded", "responseTooLarge", "notFound"}
    | {"bytesBilledLimitExceeded", "timeout", "badRequest", "tableUnavailable"}
)
"""BigQuery's reasons for errors that another query may fix."""
ACCESS_DENIED_PREFIXES: Final = ("Access Denied: Table", "Access Denied: View")


@dataclass
class BigQuery:
    """One dataset, read only: `tables.SourceDatabase`. Its methods raise GoogleError, too."""

    dialect: ClassVar = "BigQuery"
    google: GoogleClient
    project: str
    dataset: str
    query_s: float = 30.0
    usd: float = 0.05
    """Maximum cost of one query."""
    max_bytes: int = 5_000_000
    """Maximum bytes of a result; the pages after that are left out."""

    def __post_init__(self) -> None:
        self._service: Any = self.google.service("bigquery", "v2", "bigquery/v2/")

    @property
    def most_bytes(self) -> int:
        """Return the bytes that a query may read for this cost."""
        return max(1, int(self.usd / USD_PER_TIB * TIB))

    async def tables(self) -> Sequence[TableInfo]:
        found: list[TableInfo] = []
        where = {"projectId": self.project, "datasetId": self.dataset}
        async for page in self.google.pages(self._service.tables(), **where, maxResults=PAGE_SIZE):
            for each in page.get("tables") or ():
                name = str(each["tableReference"]["tableId"])
                found.append(TableInfo(name, note=kind_of(each)))
        return sorted(found, key=lambda each: each.name)

    async def describe(self, table: str) -> TableInfo | None:
        name = table.replace("`", "").strip()
        for prefix in (f"{self.project}.", f"{self.project}:", f"{self.dataset}."):
            name = name.removeprefix(prefix)
        if not TABLE.fullmatch(name):  # it belongs to another dataset
            return None
        where = {"projectId": self.project, "datasetId": self.dataset, "tableId": name}
        try:
            found = await self.google.call(self._service.tables().get(**where))
        except GoogleError as error:
            if isinstance(error, GoogleAbsent) or _is_closed(error):
                return None
            raise
        rows = found.get("numRows")
        return TableInfo(
            name,
            int(rows) if rows is not None and found.get("type") in (None, "TABLE") else None,
            tuple(each.column() for each in fields_of(found.get("schema") or {})),
            " ".join(notes_of(found)),
        )

    async def query(self, sql: str, max_rows: int) -> Rows:
        """Return the first rows of one SELECT."""
        if why := refusal(sql, self.dialect):
            raise ToolError(why)
        try:
            async with asyncio.timeout(self.query_s):
                return await self._query(sql, max_rows)
        except TimeoutError:
            raise ToolError(
                f"The query took longer than {self.query_s:g} s and was ended. Ask for less: "
                "fewer rows, a filter, fewer joins."
            ) from None
        except GoogleError as error:
            if not _is_closed(error) and error.reason not in FIXABLE_REASONS:
                raise
            message = f"BigQuery: {one_line(error.detail) or error.reason}"
            raise StatementFailed(message) from error

    async def _query(self, sql: str, max_rows: int) -> Rows:
        dataset = {"projectId": self.project, "datasetId": self.dataset}
        query = {"query": sql, "useLegacySql": False, "defaultDataset": dataset}
        labels = {"labels": {"app": "assistant"}}
        price, location = await self._weigh(sql, {"query": query, **labels})
        job = {"projectId": self.project, "jobId": f"assistant_{uuid.uuid4().hex}"}
        job |= {"location": location} if location else {}  # else BigQuery chooses one
        capped = {**query, "maximumBytesBilled": str(self.most_bytes)}
        timeout = {"jobTimeoutMs": str(int(self.query_s * 1000))}
        done = False
        try:
            job = await self._start(job, {"query": capped, **labels, **timeout})
            rows = await self._rows(job, max_rows, f"{price:,} bytes read.")
            done = True
            return rows
        finally:
            if not done:  # nobody waits for it now
                await self._cancel(job)

    async def _weigh(self, sql: str, query: Json) -> tuple[int, str]:
        """Return the bytes that a query would read, and where it would run.

        Raises ToolError if it costs too much or reads outside of this dataset.
        """
        body = {"configuration": {**query, "dryRun": True}}
        request = self._service.jobs().insert(projectId=self.project, body=body)
        answer = await self.google.call(request)
        statistics = answer.get("statistics") or {}
        found = statistics.get("query") or {}
        if found.get("statementType") != "SELECT":
            raise ToolError(ONE_SELECT_ERROR)
        self._confine(sql, found)
        price = int(found.get("totalBytesProcessed") or statistics.get("totalBytesProcessed") or 0)
        if price > self.most_bytes:
            raise ToolError(
                f"It was not run: it would read {size_of(price)} and cost "
                f"${price / TIB * USD_PER_TIB:,.2f}; one query may cost ${self.usd:g}. Name only "
                "the columns that you need, and filter by the partition column that "
                "describe_table names; LIMIT makes it no cheaper."
            )
        return price, str((answer.get("jobReference") or {}).get("location") or "")

    def _confine(self, sql: str, found: Json) -> None:
        """Refuse a query that names other datasets: their readers may differ from this one's.

        A view of the dataset may read outside of it; the query does not name what the view reads.
        """
        own = (self.project, self.dataset)
        tables = found.get("referencedTables") or ()
        used = [*tables, *(found.get("referencedRoutines") or ())]
        beyond = [each for each in used if (each.get("projectId"), each.get("datasetId")) != own]
        views = found.get("referencedLogicalViews")
        others = {re.escape(str(each.get("datasetId"))) for each in beyond}
        named = others and re.search(rf"\b({'|'.join(others)})\b", sql, re.IGNORECASE)
        if named or (beyond and not views) or len(tables) >= MOST_NAMED:
            raise ToolError(f"Only tables of {self.project}.{self.dataset} can be queried here.")

    async def _start(self, job: dict[str, str], configuration: Json) -> dict[str, str]:
        """Return the running job. An existing one with this id is ours: its answer was lost."""
        body = {"jobReference": job, "configuration": configuration}
        request = self._service.jobs().insert(projectId=self.project, body=body)
        try:
            answer = await self.google.call(request)
        except GoogleError as error:
            if error.code != 409:
                raise
            return job
        location = (answer.get("jobReference") or {}).get("location")
        return {**job, "location": location} if location else job

    async def _rows(self, job: dict[str, str], max_rows: int, note: str) -> Rows:
        rows: list[tuple[Value, ...]] = []
        fields: Sequence[FieldSchema] = ()
        total: int | None = None
        size = 0
        jobs = self._service.jobs()
        request = jobs.getQueryResults(
            **job,
            maxResults=min(PAGE_SIZE, max_rows),
            timeoutMs=WAIT_MS,
            formatOptions_useInt64Timestamp=True,
        )
        while request is not None and len(rows) < max_rows and size <= self.max_bytes:
            page = await self.google.call(request)
            if not page.get("jobComplete"):
                await asyncio.sleep(0.1)
                continue
            fields = fields_of(page.get("schema") or {}) or fields
            total = int(page["totalRows"]) if "totalRows" in page else total
            came = [row_of(fields, each) for each in page.get("rows") or ()]
            rows += came
            size += sum(len(str(cell)) for row in came for cell in row)
            request = jobs.getQueryResults_next(request, page)
        columns = tuple(each.column() for each in fields)
        return Rows(columns, tuple(rows[:max_rows]), total, note)

    async def _cancel(self, job: dict[str, str]) -> None:
        with suppress(GoogleError, TimeoutError):  # BigQuery ends it by jobTimeoutMs otherwise
            async with asyncio.timeout(CANCEL_S):
                await self.google.call(self._service.jobs().cancel(**job))

    async def aclose(self) -> None:
        await self.google.aclose()


def _is_closed(error: GoogleError) -> bool:
    """Return whether the account may not read one table, rather than anything at all."""
    return error.reason == "accessDenied" and error.detail.startswith(ACCESS_DENIED_PREFIXES)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES: Final[Mapping[str, str]] = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL"}
"""Name of a type in the API -> its name in SQL."""


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """A column, or a field of a struct, as the API describes it."""

    name: str
    kind: str
    repeated: bool
    inner: tuple[FieldSchema, ...]
    """The fields of a struct."""
    description: str = ""
    digits: tuple[str, ...] = ()
    """Precision and scale of a number, if they are set."""

    @classmethod
    def of(cls, raw: Json) -> FieldSchema:
        set_to = (raw.get("precision"), raw.get("scale"))
        return cls(
            name=str(raw["name"]),
            kind=str(raw.get("type") or "STRING"),
            repeated=raw.get("mode") == "REPEATED",
            inner=fields_of(raw),
            description=str(raw.get("description") or ""),
            digits=tuple(str(each) for each in set_to if each),
        )

    def column(self) -> Column:
        """Return the column with all nested types: `ARRAY<STRUCT<sku STRING, n INT64>>`."""
        return Column(self.name, self.type, self.description)

    @property
    def type(self) -> str:
        """Return the type in SQL."""
        kind = NAMES.get(self.kind, self.kind)
        if self.kind in ("RECORD", "STRUCT"):
            kind = f"STRUCT<{', '.join(f'{each.name} {each.type}' for each in self.inner)}>"
        elif self.digits:
            kind = f"{self.kind}({','.join(self.digits)})"
        return f"ARRAY<{kind}>" if self.repeated else kind


def fields_of(schema: Json) -> tuple[FieldSchema, ...]:
    return tuple(FieldSchema.of(each) for each in schema.get("fields") or ())


def row_of(fields: Sequence[FieldSchema], row: Json) -> tuple[Value, ...]:
    """Return a row of a result: `{"f": [{"v": ...}, ...]}`. Raises ValueError if it is none."""
    cells = row.get("f") or ()
    return tuple(_cell(f, cell.get("v")) for f, cell in zip(fields, cells, strict=True))


def _cell(field: FieldSchema, value: Any) -> Value:
    """Return one value; lists and structs as compact JSON."""
    found = _read(field, value)
    if isinstance(found, list | dict):
        return json.dumps(found, default=format_exact, ensure_ascii=False, separators=(",", ":"))
    plain: Value = found
    return plain


def _read(field: FieldSchema, value: Any) -> Any:
    if value is None:
        return None
    if field.repeated:
        one = replace(field, repeated=False)
        return [_read(one, each.get("v")) for each in value]
    if field.inner:
        pairs = zip(field.inner, value.get("f") or (), strict=True)
        return {f.name: _read(f, cell.get("v")) for f, cell in pairs}
    return _VALUE_PARSERS.get(NAMES.get(field.kind, field.kind), str)(value)


_VALUE_PARSERS: Final[Mapping[str, Callable[[str], Value]]] = {
    "INT64": int,
    "FLOAT64": float,
    "NUMERIC": Decimal,
    "BIGNUMERIC": Decimal,
    "BOOL": lambda text: text == "true",
    "DATETIME": lambda text: text.replace("T", " "),
    "TIMESTAMP": lambda text: str(EPOCH + timedelta(microseconds=int(text))),
}
"""Type -> how to parse its text; all others stay text. Times are requested in microseconds."""


def kind_of(table: Json) -> str:
    """Return the kind of a table that is no plain one: `view`, `external`."""
    kind = str(table.get("type") or "TABLE")
    return "" if kind == "TABLE" else kind.lower().replace("_", " ")


def notes_of(table: Json) -> Iterator[str]:
    """Yield the description of a table, and how to make a query of it cheap."""
    if kind := kind_of(table):
        yield f"{kind.capitalize()}."
    if description := one_line(str(table.get("description") or "")):
        yield description
    time_, range_ = table.get("timePartitioning"), table.get("rangePartitioning")
    if column := (time_ or {}).get("field") or (range_ or {}).get("field"):
        yield f"Partitioned by {column}: filter by it."
    elif time_:
        yield "Partitioned by _PARTITIONTIME: filter by it."
    if size := int(table.get("numBytes") or 0):
        yield f"{size_of(size)} in all."
