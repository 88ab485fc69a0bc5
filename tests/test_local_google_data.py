"""The local Sheets and BigQuery, driven by Google's own client and held to its documents.

What the product asks of them is in test_sheets.py and test_bigquery.py.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from google_data_kit import SHEET, World, unlike_the_document, world
from standins.bigquery import METHODS as BIGQUERY
from standins.google import FullGoogle
from standins.sheets import METHODS as SHEETS
from standins.sheets_state import Formula, SheetsState, Tab, Value, book_of

Json = dict[str, Any]


def test_every_method_is_the_one_of_googles_documents() -> None:
    assert unlike_the_document("sheets.v4", dict(SHEETS)) == []
    assert unlike_the_document("bigquery.v2", dict(BIGQUERY)) == []


# ---- Sheets


@pytest.fixture
def sheets() -> Iterator[World]:
    rows: list[list[Value]] = [
        ["Region", "Target", "Done"],
        ["EMEA", 1200, True],
        [],
        ["APAC", 7.5, None, Formula("=B2")],
    ]
    book = book_of("Targets", Q1=rows, My_tab=[["it's"]])
    book.tabs.append(Tab(7, "it's", [["here"]], 5, 2))
    served = FullGoogle(sheets=SheetsState({SHEET: book}))
    with world(served, "sheets", "v4") as made:
        yield made


def append(sheet: int, *rows: list[Json]) -> Json:
    made = [{"values": [{"userEnteredValue": v} if v else {} for v in row]} for row in rows]
    return {"appendCells": {"sheetId": sheet, "rows": made, "fields": "userEnteredValue"}}
