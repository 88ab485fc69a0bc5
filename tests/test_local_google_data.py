"""The local Sheets and BigQuery, driven by Google's own client and held to its documents.

What the product asks of them is in test_sheets.py and test_bigquery.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from google_data_kit import DATASET, PROJECT, SHEET, World, shop, unlike_the_document, world
from standins.bigquery import METHODS as BIGQUERY
from standins.bigquery_tables import bigquery_of, ours
from standins.fields import selected
from standins.google import FullGoogle
from standins.sheets import METHODS as SHEETS
from standins.sheets_state import Formula, SheetsState, Tab, Value, book_of

from bot.local.google.errors import GoogleRefused
from bot.local.google.faults import Fault

Json = dict[str, Any]
AT = {"projectId": PROJECT, "datasetId": DATASET}


def test_every_method_is_the_one_of_googles_documents() -> None:
    assert unlike_the_document("sheets.v4", dict(SHEETS)) == []
    assert unlike_the_document("bigquery.v2", dict(BIGQUERY)) == []


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ("id", {"id": "1"}),
        ("id,payload(mimeType,parts/partId)", {
            "id": "1", "payload": {"mimeType": "m", "parts": [{"partId": "0"}]},
        }),
        ("payload/*/partId", {"payload": {"mimeType": "m", "parts": [{"partId": "0"}]}}),
        ("none", {}),
    ],
)  # fmt: skip
def test_fields_leave_the_rest_of_an_answer_out(fields: str, keys: Json) -> None:
    part = {"partId": "0", "filename": ""}
    body = {"id": "1", "snippet": "s", "payload": {"mimeType": "m", "parts": [part]}}
    assert selected(body, fields) == keys
    assert selected(body, "") == body
    for wrong in ("id(", "a//b", "(", "a b)", "a,,b", "<x>", "a(" * 30 + "b" + ")" * 30):
        with pytest.raises(GoogleRefused, match="Invalid field selection"):
            selected(body, wrong)


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


def mark(id: int, value: str = "a") -> Json:
    made = {"metadataId": id, "metadataKey": "k", "metadataValue": value}
    made |= {"location": {"spreadsheet": True}, "visibility": "DOCUMENT"}
    return {"createDeveloperMetadata": {"developerMetadata": made}}


def marks(sheets: World, **lookup: Any) -> list[int]:
    body = {"dataFilters": [{"developerMetadataLookup": lookup}]}
    metadata = sheets.service.spreadsheets().developerMetadata()
    found = sheets.call(metadata.search(spreadsheetId=SHEET, body=body))
    matched = found.get("matchedDeveloperMetadata", [])
    return [each["developerMetadata"]["metadataId"] for each in matched]


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


def test_ranges_are_written_in_a1_and_wrong_ones_are_refused(sheets: World) -> None:
    for asked, given, first in (
        ("A2", "Q1!A2", "EMEA"),
        ("Q1!B:B", "Q1!B1:B1000", "Target"),
        ("Q1!4:4", "Q1!A4:Z4", "APAC"),
        ("Q1!A4:C", "Q1!A4:C1000", "APAC"),
        ("Q1!$B$2:$B$2", "Q1!B2", "1200"),
        ("'My tab'!A1", "'My tab'!A1", "it's"),
        ("'it''s'!A1:B1", "'it''s'!A1:B1", "here"),
    ):
        (found,) = sheets.call(read(sheets, asked))["valueRanges"]
        assert (found["range"], found["values"][0][0]) == (given, first)
    for asked, says in (
        ("Nope!A1", "Unable to parse range: Nope!A1"),
        ("Q1!", "Unable to parse range"),
        ("Q1!A1:ZZ9", "exceeds grid limits. Max rows: 1000, max columns: 26"),
    ):
        code, _, message = sheets.refused(read(sheets, asked))
        assert (code, says in message) == (400, True)
    get = sheets.service.spreadsheets().get
    assert sheets.refused(get(spreadsheetId="nope"))[:2] == (404, "notFound")
    sheets.google.sheets.denied.add(SHEET)
    assert sheets.refused(get(spreadsheetId=SHEET))[0] == 403
    sheets.google.faults.append(Fault("spreadsheets.get", "429"))
    assert sheets.refused(get(spreadsheetId=SHEET))[0] == 429


def test_rows_are_appended_below_the_last_that_holds_anything(sheets: World) -> None:
    sheets.call(change(sheets, append(0, [{"stringValue": "=1+1"}, {"numberValue": 3}, {}])))
    tab = sheets.google.sheets.books[SHEET].tabs[0]
    assert tab.rows[4] == ["=1+1", 3, None]  # a text, no formula
    sheets.call(change(sheets, append(0, [{"formulaValue": "=A1"}])))
    assert tab.rows[5] == [Formula("=A1")]
    sheets.call(change(sheets, append(7, *[[{"stringValue": str(n)}] for n in range(9)])))
    assert sheets.google.sheets.books[SHEET].tabs[2].row_count == 10


def test_of_several_changes_all_are_made_or_none_and_marks_are_found(sheets: World) -> None:
    sheets.call(change(sheets, mark(5), mark(6, "b"), append(0, [{"stringValue": "a"}])))
    filled = sheets.google.sheets.books[SHEET].tabs[0].filled()
    for bad, says in (
        (mark(5, "b"), "Metadata with ID 5 already exists"),
        (append(99, []), "No grid with id: 99"),
        ({"mergeCells": {}}, "does not know it"),
    ):
        made = change(sheets, append(0, [{"stringValue": "b"}]), mark(7), bad)
        code, _, message = sheets.refused(made)
        assert (code, says in message) == (400, True)
    assert sheets.google.sheets.books[SHEET].tabs[0].filled() == filled
    assert sheets.refused(change(sheets))[0] == 400
    assert marks(sheets, metadataKey="k") == [5, 6]
    assert marks(sheets, metadataKey="k", metadataValue="b") == [6]
    gone = {"dataFilter": {"developerMetadataLookup": {"metadataId": 5}}}
    sheets.call(change(sheets, {"deleteDeveloperMetadata": gone}))
    assert marks(sheets, metadataKey="k") == [6]
    assert marks(sheets, metadataKey="other") == []


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


def test_tables_are_told_as_they_are(there: World) -> None:
    page = there.call(there.service.tables().list(**AT, maxResults=1))
    assert [t["tableReference"]["tableId"] for t in page["tables"]] == ["orders"]
    assert page["totalItems"] == 2
    rest = there.call(there.service.tables().list(**AT, pageToken=page["nextPageToken"]))
    (view,) = rest["tables"]
    assert (view["tableReference"]["tableId"], view["type"]) == ("pay_per_head", "VIEW")
    table = there.call(there.service.tables().get(**AT, tableId="orders"))
    fields = {field["name"]: field["type"] for field in table["schema"]["fields"]}
    assert (fields["id"], fields["amount"], fields["paid"]) == ("INTEGER", "NUMERIC", "BOOLEAN")
    assert (table["numRows"], table["numBytes"]) == ("3", str(24 + 9 + 48 + 24 + 3))


def test_a_dry_run_tells_the_bytes_of_the_columns_that_are_named(there: World) -> None:
    for sql, bytes in (
        ("SELECT id FROM orders", 24),
        ("SELECT sum(amount) FROM orders WHERE paid", 48 + 3),
        ("SELECT * FROM orders LIMIT 1", 108),
        ("SELECT count(*) FROM orders", 0),
    ):
        made = there.call(insert(there, sql, dry=True))
        assert "jobId" not in made["jobReference"]
        assert int(made["statistics"]["query"]["totalBytesProcessed"]) == bytes


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


def test_a_job_takes_its_time_costs_and_can_be_cancelled(there: World) -> None:
    assert there.google.bigquery is not None
    made = there.call(insert(there, "SELECT id FROM orders", maximumBytesBilled="1000"))
    assert made["status"]["errorResult"]["reason"] == "bytesBilledLimitExceeded"
    code, reason, says = there.refused(results(there, made))
    assert (code, reason) == (400, "bytesBilledLimitExceeded")
    assert "10485760 or higher required" in says
    there.google.bigquery.job_s = 0.3
    made = there.call(insert(there, "SELECT 1 AS one"))
    assert made["status"]["state"] == "RUNNING"
    early = there.call(results(there, made, timeoutMs=0))
    assert (early["jobComplete"], "rows" in early) == (False, False)
    assert there.call(results(there, made, timeoutMs=5000))["totalRows"] == "1"
    there.google.bigquery.job_s = 60
    made = there.call(insert(there, "SELECT 2", id="b"))
    there.call(there.service.jobs().cancel(projectId=PROJECT, jobId="b"))
    assert there.refused(results(there, made))[1] == "stopped"


def test_a_file_of_duckdb_is_served_as_a_project(tmp_path: Path) -> None:
    file = tmp_path / "it's.duckdb"
    with duckdb.connect(file) as base:
        base.execute("CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 7 AS n")
    state = bigquery_of(file, "of-a-file")
    assert state.tables.datasets() == ["s"]
    assert state.tables.answer("SELECT n FROM t", "s").rows == [(7,)]
    state.tables.close()
    assert ours('SELECT "it\'s" FROM `a-b.c.d` WHERE x = 1;') == (
        'SELECT \'it\'\'s\' FROM "a-b"."c"."d" WHERE x = 1'
    )
