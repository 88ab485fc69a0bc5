"""BigQuery of the local Google: tables, and jobs that run real SQL.

The SQL is DuckDB's, in BigQuery's quotes, without the functions that only BigQuery has.
"""

import base64
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from bot.local.google.api import Call, GoogleRefused, Json, MethodHandler

if TYPE_CHECKING:  # DuckDB is slow to load, and few tests with Google need it
    from standins.bigquery_tables import Tables

PROJECT = "local-project"
LEAST_BYTES = 10 * 2**20
"""Billed for each table at least (cloud.google.com/bigquery/pricing)."""


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


def cells(row: Sequence[Any]) -> Json:
    """A row as it is sent."""
    return {"f": [{"v": None if value is None else _text(value)} for value in row]}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class Job:
    """A job; its result is computed at once, and returned from `ready` on."""

    id: str
    ready: float
    """Seconds since 1970."""
    read: Read
    bytes: int
    answer: Answer
    refused: GoogleRefused | None = None
    """Why it failed."""


@dataclass(slots=True)
class BigQueryState:
    """One project; `tables` and what is below are open to tests, under `lock`."""

    tables: "Tables"
    now: Callable[[], float] = time.time
    job_s: float = 0.0
    """How long a job takes."""
    scale: int = 1
    """The size of all tables is multiplied by this."""
    partitions: dict[str, str] = field(default_factory=dict)
    """`dataset.table` -> the column that it is partitioned by."""
    jobs: dict[str, Job] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    """Ids of jobs, in the order in which they were cancelled."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    numbers: Any = field(default_factory=lambda: count(1))


def create_job(state: BigQueryState, id: str, sql: str, configuration: Json) -> Job:
    """Run a job, or only estimate it; refuse what BigQuery refuses at once."""
    query, tables = configuration["query"], state.tables
    dataset = str((query.get("defaultDataset") or {}).get("datasetId") or "main")
    if dataset != "main":
        tables.tables(dataset)
    job = Job(id, state.now() + state.job_s, Read(), 0, Answer([]))
    job.read = tables.read(sql, dataset)
    sizes = (tables.bytes(*each, job.read.columns) for each in job.read.tables)
    job.bytes = state.scale * sum(sizes)
    tables.answer(f"SELECT * FROM ({sql.strip().rstrip(';')}\n) LIMIT 0", dataset)
    if configuration.get("dryRun"):
        return job
    limit, least = query.get("maximumBytesBilled"), LEAST_BYTES * len(job.read.tables)
    if limit and max(job.bytes, least) > int(limit):
        why = f"Query exceeded limit for bytes billed: {limit}. {max(job.bytes, least)} or higher"
        job.refused = GoogleRefused("bytesBilledLimitExceeded", f"{why} required.")
        return job
    try:
        job.answer = tables.answer(sql, dataset)
    except GoogleRefused as refused:  # an error while it runs comes with its result
        job.refused = refused
    return job


def job_json(state: BigQueryState, job: Job) -> Json:
    """A job as the API shows it, with the fields that the product reads."""
    project, place = state.tables.project, state.tables.location
    tables = [_reference(project, each) for each in job.read.tables]
    query: Json = {"statementType": "SELECT", "totalBytesProcessed": str(job.bytes)}
    query |= {"referencedTables": tables}
    if job.read.views:
        query["referencedLogicalViews"] = [_reference(project, each) for each in job.read.views]
    reference = {"projectId": project, "location": place} | ({"jobId": job.id} if job.id else {})
    return {"kind": "bigquery#job", "jobReference": reference, "statistics": {"query": query}}


def _reference(project: str, table: tuple[str, str]) -> Json:
    return {"projectId": project, "datasetId": table[0], "tableId": table[1]}


def _project(call: Call[BigQueryState]) -> str:
    project = call.path["projectId"]
    if project != call.state.tables.project:
        why = f"Access Denied: Project {project}: User does not have permission in project"
        raise GoogleRefused("accessDenied", f"{why} {project}.")
    return project


def _list_tables(call: Call[BigQueryState]) -> Json:
    project, dataset = _project(call), call.path["datasetId"]
    found = sorted(call.state.tables.tables(dataset).items())
    start, size = _position(call.text("pageToken")), int(call.text("maxResults"))
    rows = [
        {
            "kind": "bigquery#table", "id": f"{project}:{dataset}.{name}", "type": kind,
            "tableReference": {"projectId": project, "datasetId": dataset, "tableId": name},
        }
        for name, kind in found[start : start + size]
    ]  # fmt: skip
    body: Json = {"kind": "bigquery#tableList", "tables": rows, "totalItems": len(found)}
    more = start + size < len(found)
    return body | ({"nextPageToken": _token(start + size)} if more else {})


def _get_table(call: Call[BigQueryState]) -> Json:
    project, dataset, table = _project(call), call.path["datasetId"], call.path["tableId"]
    state = call.state
    kind = state.tables.tables(dataset).get(table)
    if kind is None:
        raise GoogleRefused("notFound", f"Not found: Table {project}:{dataset}.{table}")
    body: Json = {
        "kind": "bigquery#table", "id": f"{project}:{dataset}.{table}", "type": kind,
        "tableReference": {"projectId": project, "datasetId": dataset, "tableId": table},
        "schema": {"fields": state.tables.fields(dataset, table)},
        "location": state.tables.location,
    }  # fmt: skip
    if column := state.partitions.get(f"{dataset}.{table}"):
        body["timePartitioning"] = {"type": "DAY", "field": column}
    if kind == "TABLE":
        size = state.scale * state.tables.bytes(dataset, table, frozenset("*"))
        rows = state.scale * state.tables.rows(dataset, table)
        body |= {"numRows": str(rows), "numBytes": str(size)}
    return body


def _insert(call: Call[BigQueryState]) -> Json:
    project, state = _project(call), call.state
    configuration = call.body.get("configuration") or {}
    query = configuration.get("query") or {}
    sql = str(query.get("query") or "")
    if not sql:
        raise GoogleRefused("invalid", "Required parameter is missing: query")
    if query.get("useLegacySql", True):  # the API's own default
        why = "Legacy SQL has no tables here: useLegacySql must be false"
        raise GoogleRefused("invalidQuery", why)
    reference = call.body.get("jobReference") or {}
    id = str(reference.get("jobId") or f"job_{next(state.numbers)}")
    if id in state.jobs:
        at = f"{project}:{state.tables.location}.{id}"
        raise GoogleRefused("duplicate", f"Already Exists: Job {at}")
    job = create_job(state, id, sql, configuration)
    if configuration.get("dryRun"):
        job.id = ""
        return job_json(state, job)
    state.jobs[id] = job
    return job_json(state, job)


def _job(call: Call[BigQueryState]) -> Job:
    project, id = _project(call), call.path["jobId"]
    found = call.state.jobs.get(id)
    place = call.text("location")
    if found is None or place not in ("", call.state.tables.location):
        raise GoogleRefused("notFound", f"Not found: Job {project}:{id}")
    return found


def _results(call: Call[BigQueryState]) -> Json:
    state, job = call.state, _job(call)
    where = {"projectId": state.tables.project, "location": state.tables.location}
    body: Json = {
        "kind": "bigquery#getQueryResultsResponse", "jobReference": {**where, "jobId": job.id},
        "jobComplete": state.now() >= job.ready,
    }  # fmt: skip
    if not body["jobComplete"]:
        return body
    if job.refused:
        raise job.refused
    start, size = _position(call.text("pageToken")), int(call.text("maxResults"))
    rows, fields = job.answer.rows, job.answer.fields
    body |= {
        "schema": {"fields": fields}, "totalRows": str(len(rows)), "cacheHit": False,
        "totalBytesProcessed": str(job.bytes),
    }  # fmt: skip
    shown = [cells(row) for row in rows[start : start + size]]
    body |= {"rows": shown} if shown else {}
    return body | ({"pageToken": _token(start + size)} if start + size < len(rows) else {})


def _cancel(call: Call[BigQueryState]) -> Json:
    job, state = _job(call), call.state
    state.cancelled.append(job.id)
    if state.now() < job.ready:
        job.ready = state.now()
        why = "Job execution was cancelled: User requested cancellation"
        job.refused = GoogleRefused("stopped", why)
    return {"kind": "bigquery#jobCancelResponse", "job": job_json(state, job)}


def _token(position: int) -> str:
    return base64.urlsafe_b64encode(f"row:{position}".encode()).decode()


def _position(token: str) -> int:
    return int(base64.urlsafe_b64decode(token).decode().removeprefix("row:")) if token else 0


METHODS: Mapping[str, MethodHandler] = {
    "bigquery.tables.list": _list_tables,
    "bigquery.tables.get": _get_table,
    "bigquery.jobs.insert": _insert,
    "bigquery.jobs.getQueryResults": _results,
    "bigquery.jobs.cancel": _cancel,
}
