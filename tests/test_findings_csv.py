"""Findings as a table: one row each, readable where tables are opened, and no formula in it."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from document_kit import sweep_report
from hypothesis import given, settings
from report_kit import BEFORE, LINK, finding, section, still, sweeps, swept

from bot.reports.files import COLUMNS, QUIET, findings_csv, harmless

Json = dict[str, Any]


def rows(document: Json, parts_by: str = ",") -> list[dict[str, str]]:
    text = findings_csv(sweep_report(document)).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text), delimiter=parts_by))


def test_a_row_holds_all_that_is_known_of_a_finding() -> None:
    tracker = {"status": "closed", "key": "BUG-1", "title": "Twice", "link": f"{LINK}7"}
    one = finding(
        "F1.1",
        change="open",
        age_days=3,
        first="2025-03-12T00:00:00Z",
        issue="i-0a1b2c3d",
        customers=["Café Sol", "Bar Luna"],
        tracker=tracker,
        quotes=["Uno", "Dos"],
    )
    (row,) = rows(swept(section("csm-es", one), compared=BEFORE))
    assert row == {
        "number": "1",
        "market": "csm-es",
        "change": "open",
        "state": "unsolved",
        "severity": "high",
        "severity_reason": "money is lost",
        "claim": "Issue F1.1",
        "customers": "Café Sol; Bar Luna",
        "people": "1",
        "owner": "nobody",
        "next_step": "Answer Ana.",
        "messages": "2",
        "since": "2025-03-04T09:00:00Z",
        "first_seen": "2025-03-12T00:00:00Z",
        "age_days": "3",
        "tracker_status": "closed",
        "tracker_key": "BUG-1",
        "tracker_title": "Twice",
        "tracker_link": f"{LINK}7",
        "quotes": "Uno | Dos",
        "link": one["links"][0],
        "links": one["links"][0],
        "finding": "F1.1",
        "issue": "i-0a1b2c3d",
    }


def test_excel_sees_that_it_is_utf_8() -> None:
    assert findings_csv(sweep_report(swept())).startswith(b"\xef\xbb\xbf")
    assert findings_csv(sweep_report(swept())).decode("utf-8-sig").splitlines() == [
        ",".join(f'"{name}"' for name in COLUMNS)
    ]


@given(sweeps())
@settings(max_examples=60, deadline=None)
def test_every_finding_and_every_issue_without_news_has_its_row(document: Json) -> None:
    ids = [f["id"] for s in document["sections"] for f in s["findings"]]
    found = rows(document)
    assert sorted(row["finding"] for row in found if row["finding"]) == sorted(ids)
    assert sum(row["change"] == QUIET for row in found) == len(document["still_open"])
    assert [int(row["number"]) for row in found if row["number"]] == list(range(1, len(ids) + 1))


@given(sweeps())
@settings(max_examples=60, deadline=None)
def test_no_cell_is_a_formula_also_where_cells_are_parted_otherwise(document: Json) -> None:
    text = findings_csv(sweep_report(document)).decode("utf-8-sig")
    cells = [cell for between in ",;\t" for row in _read(text, between) for cell in row]
    assert [cell for cell in cells if re.match(r"[\s\"']*[=+\-@\t\r]", cell.split("'")[0])] == []


def _read(text: str, between: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter=between))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+49 30 1234", "'+49 30 1234"),
        ("-5 %", "'-5 %"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'=1"),
        ("\uff1d1+1", "'=1+1"),
        ('"=1"', '"\'=1"'),
        ("a;=1", "a;'=1"),
        ("a; b", "a; b"),
        ("two\r\n=lines", "two =lines"),
        ("a=b", "a=b"),
        (None, ""),
    ],
)
def test_what_would_be_a_formula_is_text(text: object, shown: str) -> None:
    assert harmless(text) == shown


def test_addresses_that_strangers_wrote_are_no_links() -> None:
    one = finding("F1.1", claim="See https://evil.example/x", links=["https://evil.example/"])
    (row,) = rows(swept(section("a", one)))
    assert (row["claim"], row["link"], row["links"]) == ("See evil[.]example/x", "", "")


def test_an_issue_without_news_is_known_by_its_id() -> None:
    (row,) = rows(swept(still_open=[still()]))
    assert (row["market"], row["issue"], row["first_seen"], row["age_days"]) == (
        "csm-es",
        "i-0a1b2c3d",
        "2025-03-03T08:00:00Z",
        "12",
    )
