"""BigQuery of the local Google: tables, and jobs that run real SQL.

The SQL is DuckDB's, in BigQuery's quotes: functions that BigQuery alone has are not there.
"""

import base64
import binascii
from collections.abc import Mapping

from bot.local.google.api import Answering, Call, GoogleRefused, Json
from standins.bigquery_jobs import BigQueryState, Job, allow, job_json, made
from standins.bigquery_rows import cells


def _project(call: Call[BigQueryState]) -> str:
    project = call.path["projectId"]
    if project != call.state.tables.project:
        why = f"Access Denied: Project {project}: User does not have permission in project"
        raise GoogleRefused("accessDenied", f"{why} {project}.")
    return project


def _list_tables(call: Call[BigQueryState]) -> Json:
    project, dataset = _project(call), call.path["datasetId"]
    found = sorted(call.state.tables.tables(dataset).items())
    start, size = _position(call.text("pageToken")), _count(call, "maxResults", 50)
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
    allow(state, dataset, table)
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
    asked = call.body.get("jobReference") or {}
    id = str(asked.get("jobId") or f"job_{next(state.numbers)}")
    if id in state.jobs:
        at = f"{project}:{state.tables.location}.{id}"
        raise GoogleRefused("duplicate", f"Already Exists: Job {at}")
    job = made(state, id, sql, configuration)
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
    start = _position(call.text("pageToken")) or _count(call, "startIndex", 0)
    size = _count(call, "maxResults", 10_000)
    rows, fields = job.answer.rows, job.answer.fields
    whole = call.flag("formatOptions.useInt64Timestamp")
    body |= {
        "schema": {"fields": fields}, "totalRows": str(len(rows)), "cacheHit": False,
        "totalBytesProcessed": str(job.bytes),
    }  # fmt: skip
    shown = [cells(fields, row, whole) for row in rows[start : start + size]]
    body |= {"rows": shown} if shown else {}
    return body | ({"pageToken": _token(start + size)} if start + size < len(rows) else {})


def _cancel(call: Call[BigQueryState]) -> Json:
    job, state = _job(call), call.state
    state.cancelled.append(job.id)
    if state.now() < job.ready:
        job.ready = state.now()
        job.ended.set()
        why = "Job execution was cancelled: User requested cancellation"
        job.refused = GoogleRefused("stopped", why)
    return {"kind": "bigquery#jobCancelResponse", "job": job_json(state, job)}


def _token(position: int) -> str:
    return base64.urlsafe_b64encode(f"row:{position}".encode()).decode()


def _position(token: str) -> int:
    if not token:
        return 0
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("row:"))
    except (binascii.Error, ValueError):
        raise GoogleRefused("invalid", "Invalid page token") from None


def _count(call: Call[BigQueryState], name: str, otherwise: int) -> int:
    text = call.text(name)
    if text and not text.isdigit():
        raise GoogleRefused("invalid", f"Invalid value for {name}: {text}")
    return int(text) if text else otherwise


RESULTS = "bigquery.jobs.getQueryResults"
METHODS: Mapping[str, Answering] = {
    "bigquery.tables.list": _list_tables,
    "bigquery.tables.get": _get_table,
    "bigquery.jobs.insert": _insert,
    RESULTS: _results,
    "bigquery.jobs.cancel": _cancel,
}
