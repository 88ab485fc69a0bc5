"""The issue book: what the delivered reports of a schedule told, each issue under one id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bot.schedule.identity import Issue, Trace
from bot.schedule.tables import issues
from bot.storage.database import Database

Row = dict[str, Any]

KEPT = 200
"""Messages by which an issue is known beside those of its last report, the latest ones; its threads
are all kept."""
CHUNK = 500
CHANGED = ("state", "body", "first", "last")


class IssueBook:
    """The issues of all schedules of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def known(self, schedule: str) -> list[Issue]:
        """All that its delivered reports told, solved ones too. Raises StoreError."""
        c = issues.c
        query = sa.select(issues).where(c.schedule == schedule).order_by(c.first, c.id)
        return [issue_of(row) for row in await self.database.read(query)]

    def noted(
        self, connection: sa.Connection, schedule: str, document: Mapping[str, Any], at: datetime
    ) -> None:
        """Note what a report told, in the transaction that says that it was delivered (`at`).

        `document` went through `compared`; another kind of report tells no issues. What it said is
        still open was told, too: it stays as long as it is told.
        """
        told = [f for s in document.get("sections", ()) for f in s["findings"] if f["issue"]]
        gone = absorbed_in(document)
        before = _rows(connection, schedule, [*(f["issue"] for f in told), *gone])
        rows = rows_after(schedule, document, at, before)
        if rows:
            insert = self.database.upsert(issues, ("schedule", "id"), CHANGED)
            connection.execute(insert, rows)
        for some in _some(schedule, gone):
            connection.execute(sa.delete(issues).where(some))
        for some in _some(schedule, [i["issue"] for i in document.get("still_open", ())]):
            connection.execute(sa.update(issues).where(some).values(last=at))


def absorbed_in(document: Mapping[str, Any]) -> list[str]:
    """Ids of the issues that became one with others: they are known by these from now on."""
    found = (f for section in document.get("sections", ()) for f in section["findings"])
    return [id for finding in found if finding["issue"] for id in finding["absorbed"]]


def rows_after(
    schedule: str, document: Mapping[str, Any], at: datetime, before: Mapping[str, Row]
) -> list[Row]:
    """The rows of the issues that a report told; `before`: those that were there, by id."""
    return [
        _row(schedule, section, finding, at, before)
        for section in document.get("sections", ())
        for finding in section["findings"]
        if finding["issue"]
    ]


def _some(schedule: str, ids: Sequence[str]) -> Iterator[sa.ColumnElement[bool]]:
    """These issues, as many at once as one query takes."""
    for start in range(0, len(ids), CHUNK):
        some = issues.c.id.in_(ids[start : start + CHUNK])
        yield sa.and_(issues.c.schedule == schedule, some)


def _rows(connection: sa.Connection, schedule: str, ids: Sequence[str]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for some in _some(schedule, ids):
        rows = connection.execute(sa.select(issues).where(some)).mappings()
        found |= {row["id"]: dict(row) for row in rows}
    return found


def _row(
    schedule: str,
    section: Mapping[str, Any],
    finding: Mapping[str, Any],
    at: datetime,
    before: Mapping[str, Row],
) -> Row:
    """The row of an issue after a report, with all threads that it was ever seen in."""
    earlier = [before[id] for id in (finding["issue"], *finding["absorbed"]) if id in before]
    told = Trace.of(section["channel"], finding)
    trace = told.joined(issue_of(row).trace for row in earlier)
    return {
        "schedule": schedule,
        "id": finding["issue"],
        "state": finding["state"],
        "first": datetime.fromisoformat(finding["first"]),
        "last": at,
        "body": {
            "channel": section["channel"],
            "item": section["item"],
            "claim": finding["claim"],
            "severity": finding["severity"],
            "owner": finding["owner"],
            "links": finding["links"],
            "threads": sorted(trace.threads),
            "messages": sorted({*told.messages, *sorted(trace.messages)[-KEPT:]}),
        },
    }


def issue_of(row: Mapping[str, Any]) -> Issue:
    """The issue of a stored row."""
    body = row["body"]
    return Issue(
        id=row["id"],
        trace=Trace(body["channel"], frozenset(body["threads"]), frozenset(body["messages"])),
        state=row["state"],
        severity=body["severity"],
        owner=body["owner"],
        first=row["first"],
        last=row["last"],
        claim=body["claim"],
        item=body["item"],
        links=tuple(body["links"]),
    )
