"""Jobs of the local BigQuery: what a query reads, costs and gives."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from bot.local.google.api import GoogleRefused, Json
from standins.bigquery_rows import Answer, Read

if TYPE_CHECKING:  # DuckDB takes its time to load, and few who need Google need it
    from standins.bigquery_tables import Tables

PROJECT = "local-project"
LEAST_BYTES = 10 * 2**20
"""Billed for each table at least (cloud.google.com/bigquery/pricing)."""
HELD_MS = 10_000
"""How long a question for a result stays open where it does not say (jobs.getQueryResults)."""
WORD = re.compile(r"[\s(]*([a-z]+)\b", re.IGNORECASE)
CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")


@dataclass(slots=True)
class Job:
    """A job; its result is there from the start, and told from `ready` on."""

    id: str
    sql: str
    configuration: Json
    at: float
    """Seconds since 1970."""
    ready: float
    read: Read
    bytes: int
    answer: Answer
    refused: GoogleRefused | None = None
    """Why it failed."""
    kind: str = "SELECT"
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """It was cancelled before it was ready."""


@dataclass(slots=True)
class BigQueryState:
    """One project; `tables` and what is below are open to tests, under `lock`."""

    tables: "Tables"
    now: Callable[[], float] = time.time
    job_s: float = 0.0
    """How long a job takes."""
    scale: int = 1
    """As if all tables held so many times as much."""
    partitions: dict[str, str] = field(default_factory=dict)
    """`dataset.table` -> the column that it is partitioned by."""
    denied: set[str] = field(default_factory=set)
    """`dataset.table` that the account may not read."""
    jobs: dict[str, Job] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    """Ids of jobs, in the order in which they were cancelled."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    numbers: Any = field(default_factory=lambda: count(1))

    async def held(self, path: Mapping[str, str], query: Mapping[str, list[str]]) -> None:
        """Wait until a job is done, or as long as a question for its result stays open."""
        job = self.jobs.get(path.get("jobId", ""))
        asked = "".join(query.get("timeoutMs", ()))
        most = int(asked) / 1000 if asked.isdigit() else HELD_MS / 1000
        left = min(job.ready - self.now(), most) if job else 0.0
        if job and left > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await job.ended.wait()


def allow(state: BigQueryState, dataset: str, table: str) -> None:
    """Refuse a table that the account may not read."""
    if f"{dataset}.{table}" in state.denied:
        at = f"{state.tables.project}:{dataset}.{table}"
        why = f"Access Denied: Table {at}: User does not have permission to query table {at}, or "
        raise GoogleRefused("accessDenied", f"{why}perhaps it does not exist.")


def made(state: BigQueryState, id: str, sql: str, configuration: Json) -> Job:
    """A job that was run, or only weighed. Refuses what BigQuery refuses at once."""
    query, tables = configuration["query"], state.tables
    dataset = str((query.get("defaultDataset") or {}).get("datasetId") or "main")
    if dataset != "main":
        tables.tables(dataset)
    now = state.now()
    job = Job(id, sql, configuration, now, now + state.job_s, Read(), 0, Answer([]))
    word = WORD.match(sql)
    job.kind = word[1].upper() if word else ""
    if job.kind in CHANGES:  # a dry run tells so, and the account may only read
        if configuration.get("dryRun"):
            return job
        raise GoogleRefused("accessDenied", "Access Denied: User may not change tables.")
    job.kind = "SELECT"
    job.read = tables.read(sql, dataset)
    for each in job.read.tables:
        allow(state, *each)
    sizes = (tables.bytes(*each, job.read.columns) for each in job.read.tables)
    job.bytes = state.scale * sum(sizes)
    weighed = tables.answer(f"SELECT * FROM ({sql.strip().rstrip(';')}\n) LIMIT 0", dataset)
    if configuration.get("dryRun"):
        job.answer = Answer(weighed.fields)
        return job
    limit, least = query.get("maximumBytesBilled"), LEAST_BYTES * len(job.read.tables)
    if limit and max(job.bytes, least) > int(limit):
        why = f"Query exceeded limit for bytes billed: {limit}. {max(job.bytes, least)} or higher"
        job.refused = GoogleRefused("bytesBilledLimitExceeded", f"{why} required.")
        return job
    try:
        job.answer = tables.answer(sql, dataset)
    except GoogleRefused as refused:  # what goes wrong while it runs is told with its result
        job.refused = refused
    return job


def job_json(state: BigQueryState, job: Job) -> Json:
    """A job as the API shows it."""
    project, place = state.tables.project, state.tables.location
    done = not job.id or state.now() >= job.ready
    named = [_reference(project, each) for each in job.read.tables]
    query: Json = {"statementType": job.kind, "totalBytesProcessed": str(job.bytes)}
    query |= {"cacheHit": False, "referencedTables": named}
    if job.read.views:
        query["referencedLogicalViews"] = [_reference(project, each) for each in job.read.views]
    if not job.id:
        query["schema"] = {"fields": job.answer.fields}
    status: Json = {"state": "DONE" if done else "RUNNING"}
    if done and job.refused:
        status |= {"errorResult": _error(job.refused), "errors": [_error(job.refused)]}
    reference = {"projectId": project, "location": place} | ({"jobId": job.id} if job.id else {})
    times = {"creationTime": _millis(job.at), "startTime": _millis(job.at)}
    return {
        "kind": "bigquery#job", "id": f"{project}:{place}.{job.id}", "jobReference": reference,
        "configuration": {**job.configuration, "jobType": "QUERY"}, "status": status,
        "statistics": {**times, "totalBytesProcessed": str(job.bytes), "query": query},
    }  # fmt: skip


def _reference(project: str, table: tuple[str, str]) -> Json:
    return {"projectId": project, "datasetId": table[0], "tableId": table[1]}


def _error(refused: GoogleRefused) -> Json:
    return {"reason": refused.reason, "message": refused.message, "location": "query"}


def _millis(at: float) -> str:
    return str(int(datetime.fromtimestamp(at, UTC).timestamp() * 1000))
