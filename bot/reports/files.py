"""Export a sweep: findings as CSV without executable cells, and a chart of open issues."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bot.reports.documents import KnownIssue, SweepFinding, SweepReport, TrackerEntry
from bot.reports.formats import clean_text
from bot.reports.problems import is_urgent, number_findings, problems_of, slack_link
from scopes.chart_model import Axis, Chart
from scopes.charts import DrawingFailed, render_chart

FINDINGS_FILE = "findings.csv"
MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""Byte order mark that Excel needs to recognize UTF-8."""
MAX_CELL_CHARS = 2_000
FORMULA = re.compile(r"(?:^|[;\t|])[\s\"']*(?=[=+\-@\N{FULLWIDTH EQUALS SIGN}])")
"""Starts of cells that Excel, Calc and Sheets treat as a formula.

Also inside one of our cells, for systems that separate cells by `;`
(owasp.org/www-community/attacks/CSV_Injection).
"""
NO_NEWS = "no news"
"""The change of an issue that is still open but not mentioned in the window."""
COLUMNS = """number problem urgent market change state severity severity_reason claim
    customers people owner next_step messages since first_seen
    waits waits_since wants deadline amounts
    age_days tracker_status tracker_key tracker_title tracker_link quotes
    link links finding issue""".split()
TEXTS = """market severity_reason claim customers owner next_step quotes waits
    tracker_key tracker_title problem wants amounts""".split()
"""Columns with text from people or models; the others come from code."""

Row = Mapping[str, Any]


def findings_csv(document: SweepReport) -> bytes:
    """Return one row for each finding, then one for each known issue without news.

    UTF-8 with a byte order mark, columns as in `COLUMNS`.
    """
    sheet, rows = io.StringIO(), _rows(document)
    table = csv.DictWriter(sheet, COLUMNS, restval="", quoting=csv.QUOTE_ALL)
    table.writeheader()
    table.writerows({k: harmless(v) if k in TEXTS else v for k, v in row.items()} for row in rows)
    return f"{MARK}{sheet.getvalue()}".encode()


def harmless(value: object) -> str:
    """Return a text as one line that no program treats as a formula."""
    return FORMULA.sub(r"\g<0>'", clean_text(value, MAX_CELL_CHARS)) if value else ""


def _rows(document: SweepReport) -> Iterator[Row]:
    numbers, at = number_findings(document), document.local_end
    problems = {f.id: p.title for p in problems_of(document) for f in p.findings}
    found = [(s.item, f) for s in document.sections for f in s.findings]
    last = len(found) + 1
    for market, finding in sorted(found, key=lambda each: numbers.get(each[1].id, last)):
        yield {
            "number": numbers.get(finding.id, ""),
            "problem": problems.get(finding.id, ""),
            "urgent": "yes" if is_urgent(finding, at) else "",
            **_finding_row(market, finding),
        }
    for issue in document.still_open or ():
        yield {
            **_common(issue.item, issue),
            "change": NO_NEWS,
            "first_seen": issue.first,
        }


def _finding_row(market: str, finding: SweepFinding) -> Row:
    tracker = finding.tracker or TrackerEntry(status="")
    return {
        **_common(market, finding),
        "change": finding.change,
        "severity_reason": finding.severity_reason,
        "customers": _join(finding.customers),
        "people": finding.people,
        "next_step": finding.next_step,
        "messages": finding.messages,
        "since": finding.since,
        "first_seen": finding.first,
        "waits": _join(finding.waits),
        "waits_since": finding.waits_since,
        "wants": finding.wants,
        "deadline": finding.deadline,
        "amounts": _join([f"{c.customer}: {c.amount}" for c in finding.cases if c.amount]),
        "tracker_status": tracker.status,
        "tracker_key": tracker.key,
        "tracker_title": tracker.title,
        "tracker_link": slack_link([tracker.link]),
        "quotes": _join(finding.quotes or (), " | "),
        "finding": finding.id,
    }


def _common(market: str, issue: SweepFinding | KnownIssue) -> dict[str, Any]:
    return {
        "market": market,
        "state": issue.state,
        "severity": issue.severity,
        "claim": issue.claim,
        "owner": issue.owner or "nobody",
        "age_days": issue.age_days,
        "link": slack_link(issue.links),
        "links": " ".join(filter(None, (slack_link([each]) for each in issue.links))),
        "issue": issue.issue,
    }


def _join(texts: Sequence[object], between: str = "; ") -> str:
    return between.join(str(each) for each in texts)


CHART_HEIGHT_IN = 3.2
"""Inches."""
FEWEST, MOST = 3, 400
"""Minimum and maximum points of a chart; if there are more, the last ones are drawn."""
MAX_TITLE_CHARS = 70
CHART_NAME = "The chart of open issues"


async def open_issues_chart(points: Sequence[tuple[datetime, int]], title: str) -> bytes:
    """Draw the number of open issues over time as PNG; `points` may be in any order.

    Raises DrawingFailed, also for fewer than `FEWEST` points.
    """
    if len(points) < FEWEST:
        raise DrawingFailed(f"A chart needs {FEWEST} reports, there are {len(points)}.")
    shown = sorted(points)[-MOST:]
    times = [at.astimezone(UTC).isoformat() for at, _ in shown]
    numbers = {"": [number for _, number in shown]}
    name, axis = clean_text(title, MAX_TITLE_CHARS), Axis("", "time", times)
    chart = Chart("line", name, CHART_HEIGHT_IN, axis, numbers, from_zero=True)
    return await render_chart(chart, CHART_NAME)
