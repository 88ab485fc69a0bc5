"""The local Sheets and BigQuery, driven by Google's own client and held to its documents.

What the product asks of them is in test_sheets.py and test_bigquery.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google_data_kit import DATASET, PROJECT, SHEET, World, shop, unlike_the_document, world
from standins.bigquery import METHODS as BIGQUERY
from standins.google import FullGoogle
from standins.sheets import METHODS as SHEETS
from standins.sheets_state import Formula, SheetsState, Tab, Value, book_of

Json = dict[str, Any]
AT = {"projectId": PROJECT, "datasetId": DATASET}


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


def read(sheets: World, *ranges: str, **more: Any) -> Any:
    values = sheets.service.spreadsheets().values()
    return values.batchGet(spreadsheetId=SHEET, ranges=list(ranges), **more)


def change(sheets: World, *requests: Json) -> Any:
    body = {"requests": list(requests)}
    return sheets.service.spreadsheets().batchUpdate(spreadsheetId=SHEET, body=body)


def append(sheet: int, *rows: list[Json]) -> Json:
    made = [{"values": [{"userEnteredValue": v} if v else {} for v in row]} for row in rows]
    return {"appendCells": {"sheetId": sheet, "rows": made, "fields": "userEnteredValue"}}


def test_a_spreadsheet_tells_its_tabs_and_its_values_without_empty_cells_at_the_end(
    sheets: World,
) -> None:
    found = sheets.call(sheets.service.spreadsheets().get(spreadsheetId=SHEET))
    tabs = [each["properties"] for each in found["sheets"]]
    told = [(tab["sheetId"], tab["title"], tab["index"]) for tab in tabs]
    assert told == [(0, "Q1", 0), (1, "My tab", 1), (7, "it's", 2)]
    assert tabs[2]["gridProperties"] == {"rowCount": 5, "columnCount": 2}
    few = sheets.service.spreadsheets().get(spreadsheetId=SHEET, fields="properties/title")
    assert sheets.call(few) == {"properties": {"title": "Targets"}}
    whole, empty = sheets.call(read(sheets, "Q1", "Q1!F1:G9"))["valueRanges"]
    assert whole["range"] == "Q1!A1:Z1000"
    assert whole["values"] == [
        ["Region", "Target", "Done"],
        ["EMEA", "1200", "TRUE"],
        [],
        ["APAC", "7.5", "", "#FORMULA"],
    ]
    assert "values" not in empty


# ---- BigQuery


@pytest.fixture
def there() -> Iterator[World]:
    state = shop()
    with world(FullGoogle(bigquery=state), "bigquery", "v2") as made:
        yield made
    state.tables.close()


def insert(there: World, sql: str, *, id: str = "", dry: bool = False, **query: Any) -> Any:
    asked = {"query": sql, "useLegacySql": False, "defaultDataset": AT} | query
    body: Json = {"configuration": {"dryRun": dry, "query": asked}}
    if id:
        body["jobReference"] = {"projectId": PROJECT, "jobId": id}
    return there.service.jobs().insert(projectId=PROJECT, body=body)


def results(there: World, made: Json, **more: Any) -> Any:
    id = made["jobReference"]["jobId"]
    return there.service.jobs().getQueryResults(projectId=PROJECT, jobId=id, **more)


def test_a_query_gives_its_rows_in_pages_as_bigquery_sends_values(there: World) -> None:
    sql = "SELECT id, amount FROM `local-project.shop.orders` ORDER BY 1"
    made = there.call(insert(there, sql))
    first = there.call(results(there, made, maxResults=2))
    assert (first["totalRows"], len(first["rows"])) == ("3", 2)
    assert first["rows"][0] == {"f": [{"v": "1"}, {"v": "12.50"}]}
    rest = there.call(results(there, made, maxResults=2, pageToken=first["pageToken"]))
    assert ([row["f"][0]["v"] for row in rest["rows"]], "pageToken" in rest) == (["3"], False)
    sql = """SELECT NULL AS none, true AS yes, 1.5::DOUBLE AS half, 'x'::BLOB AS raw,
        [1, 2] AS many, {'a': 'b', 'c': [DATE '2024-07-01']} AS both,
        TIMESTAMPTZ '2024-07-01 00:00:01+00' AS at, TIMESTAMP '2024-07-01 00:00:01' AS here,
        'nan'::DOUBLE AS odd"""
    made = there.call(insert(there, sql))
    found = there.call(results(there, made, formatOptions_useInt64Timestamp=True))
    assert [cell["v"] for cell in found["rows"][0]["f"]] == [
        None,
        "true",
        "1.5",
        "eA==",
        [{"v": "1"}, {"v": "2"}],
        {"f": [{"v": "b"}, {"v": [{"v": "2024-07-01"}]}]},
        "1719792001000000",
        "2024-07-01T00:00:01",
        "NaN",
    ]
    kinds = [(f["type"], f["mode"]) for f in found["schema"]["fields"]]
    assert kinds[4:7] == [
        ("INTEGER", "REPEATED"), ("RECORD", "NULLABLE"), ("TIMESTAMP", "NULLABLE"),
    ]  # fmt: skip
    assert there.call(results(there, made))["rows"][0]["f"][6]["v"] == "1719792001.0"


def test_what_bigquery_would_refuse_is_refused(there: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    there.call(insert(there, "SELECT 1", id="a"))
    rows: list[tuple[str, Json, int, str, str]] = [
        ("SELECT nope FROM orders", {}, 400, "invalidQuery", "nope"),
        ("SELEC 1", {}, 400, "invalidQuery", "SELEC"),
        ("SELECT * FROM nowhere", {}, 404, "notFound", "local-project:shop.nowhere was not found"),
        ("SELECT * FROM other.orders", {}, 404, "notFound", "Dataset local-project:other"),
        ("DELETE FROM orders WHERE true", {}, 403, "accessDenied", "may not change"),
        ("SELECT 1", {"useLegacySql": True}, 400, "invalidQuery", "Legacy"),
        ("SELECT 1", {"id": "a"}, 409, "duplicate", "Already Exists: Job local-project:US.a"),
        (f"SELECT * FROM `{secret}`", {}, 404, "notFound", ""),
        (f"SELECT * FROM read_csv('{secret}')", {}, 400, "invalidQuery", ""),
        (f"SELECT 1; COPY (SELECT 1) TO '{tmp_path}/out.csv'", {}, 400, "invalidQuery", ""),
    ]
    for sql, more, code, reason, says in rows:
        found = there.refused(insert(there, sql, **more))
        assert (found[:2], says in found[2]) == ((code, reason), True), sql
    assert not (tmp_path / "out.csv").exists()
    there.google.bigquery.denied.add("shop.orders")  # type: ignore[union-attr]
    get = there.service.tables().get
    assert there.refused(get(**AT, tableId="orders"))[:2] == (403, "accessDenied")
    assert there.refused(insert(there, "SELECT * FROM orders"))[:2] == (403, "accessDenied")
    assert there.refused(get(**AT, tableId="nope"))[:2] == (404, "notFound")
    other = {"projectId": "other", "datasetId": DATASET}
    assert there.refused(there.service.tables().list(**other))[:2] == (403, "accessDenied")
