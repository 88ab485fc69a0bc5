"""The findings of a sweep as a table: a row each, and no cell that a program would run."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bot.mail.words import said
from bot.reports.findings import linked
from bot.reports.sweep_view import numbered

MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""By it Excel sees that the file is UTF-8."""
CELL = 2_000
FORMULA = re.compile(r"(?:^|[;\t|])[\s\"']*(?=[=+\-@\N{FULLWIDTH EQUALS SIGN}])")
"""Where a cell would begin with what Excel, Calc and Sheets take for a formula; where the system
parts cells by `;`, within one of ours, too (owasp.org/www-community/attacks/CSV_Injection)."""
QUIET = "no news"
"""The change of an issue that is still open although the window shows nothing of it."""
COLUMNS = (
    *("number", "market", "change", "state", "severity", "severity_reason", "claim"),
    *("customers", "people", "owner", "next_step", "messages", "since", "first_seen"),
    *("age_days", "tracker_status", "tracker_key", "tracker_title", "tracker_link", "quotes"),
    *("link", "links", "finding", "issue"),
)
TEXTS = frozenset(
    ("market", "severity_reason", "claim", "customers", "owner", "next_step", "quotes")
) | {"tracker_key", "tracker_title"}
"""Columns of what people or models wrote; the others are of code."""

Json = Mapping[str, Any]


def findings_csv(document: Json) -> bytes:
    """A row for each finding, then one for each known issue of which there is no news.

    UTF-8 with a mark at its beginning, columns as in `COLUMNS`.
    """
    sheet, rows = io.StringIO(), _rows(document)
    table = csv.DictWriter(sheet, COLUMNS, restval="", quoting=csv.QUOTE_ALL)
    table.writeheader()
    table.writerows({k: harmless(v) if k in TEXTS else v for k, v in row.items()} for row in rows)
    return f"{MARK}{sheet.getvalue()}".encode()


def harmless(value: object) -> str:
    """A text as a cell shows it: one line that no program takes for a formula."""
    return FORMULA.sub(r"\g<0>'", said(value, CELL)) if value else ""


def _rows(document: Json) -> Iterator[Json]:
    numbers = numbered(document)
    found = [(s["item"], f) for s in document["sections"] for f in s["findings"]]
    for market, finding in sorted(found, key=lambda each: numbers[each[1]["id"]]):
        yield {"number": numbers[finding["id"]], **_finding(market, finding)}
    for issue in document.get("still_open") or ():
        yield {
            **_common(issue["item"], issue),
            "change": QUIET,
            "first_seen": issue["first"],
        }


def _finding(market: str, finding: Json) -> Json:
    tracker = finding.get("tracker") or {}
    return {
        **_common(market, finding),
        "change": finding.get("change"),
        "severity_reason": finding.get("severity_reason"),
        "customers": _joined(finding["customers"]),
        "people": finding["people"],
        "next_step": finding["next_step"],
        "messages": finding["messages"],
        "since": finding.get("since"),
        "first_seen": finding.get("first"),
        "tracker_status": tracker.get("status"),
        "tracker_key": tracker.get("key"),
        "tracker_title": tracker.get("title"),
        "tracker_link": linked([tracker.get("link")]),
        "quotes": _joined(finding.get("quotes") or (), " | "),
        "finding": finding["id"],
    }


def _common(market: str, issue: Json) -> dict[str, Any]:
    return {
        "market": market,
        "state": issue["state"],
        "severity": issue["severity"],
        "claim": issue["claim"],
        "owner": issue["owner"] or "nobody",
        "age_days": issue.get("age_days"),
        "link": linked(issue["links"]),
        "links": " ".join(filter(None, (linked([each]) for each in issue["links"]))),
        "issue": issue.get("issue"),
    }


def _joined(texts: Sequence[object], between: str = "; ") -> str:
    return between.join(str(each) for each in texts)
