"""The local Sheets, driven by Google's own client and held to Google's own discovery document."""

from collections.abc import Iterator
from typing import Any

import pytest
from google_data_kit import SHEET, World, unlike_the_document, world
from standins.google import FullGoogle
from standins.sheets import METHODS
from standins.sheets_state import Formula, SheetsState, Tab, Value, book_of

from bot.local.google.faults import Fault

Json = dict[str, Any]


@pytest.fixture
def there() -> Iterator[World]:
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


def read(there: World, range: str, **more: Any) -> Any:
    values = there.service.spreadsheets().values()
    return values.get(spreadsheetId=SHEET, range=range, **more)


def change(there: World, *requests: Json) -> Any:
    body = {"requests": list(requests)}
    return there.service.spreadsheets().batchUpdate(spreadsheetId=SHEET, body=body)


def append(sheet: int, *rows: list[Json]) -> Json:
    made = [{"values": [{"userEnteredValue": v} if v else {} for v in row]} for row in rows]
    return {"appendCells": {"sheetId": sheet, "rows": made, "fields": "userEnteredValue"}}


def mark(id: int, value: str = "a") -> Json:
    made = {"metadataId": id, "metadataKey": "k", "metadataValue": value}
    made |= {"location": {"spreadsheet": True}, "visibility": "DOCUMENT"}
    return {"createDeveloperMetadata": {"developerMetadata": made}}


def search(there: World, **lookup: Any) -> Any:
    body = {"dataFilters": [{"developerMetadataLookup": lookup}]}
    return there.service.spreadsheets().developerMetadata().search(spreadsheetId=SHEET, body=body)


def test_every_method_is_the_one_of_googles_document() -> None:
    assert unlike_the_document("sheets.v4", dict(METHODS)) == []


def test_a_spreadsheet_tells_its_tabs(there: World) -> None:
    found = there.call(there.service.spreadsheets().get(spreadsheetId=SHEET))
    assert found["properties"]["title"] == "Targets"
    tabs = [each["properties"] for each in found["sheets"]]
    assert [(t["sheetId"], t["title"], t["index"]) for t in tabs] == [
        (0, "Q1", 0),
        (1, "My tab", 1),
        (7, "it's", 2),
    ]
    assert tabs[2]["gridProperties"] == {"rowCount": 5, "columnCount": 2}
    few = there.service.spreadsheets().get(spreadsheetId=SHEET, fields="properties/title")
    assert there.call(few) == {"properties": {"title": "Targets"}}


def test_empty_cells_at_the_end_are_left_out(there: World) -> None:
    found = there.call(read(there, "Q1"))
    assert found["range"] == "Q1!A1:Z1000"
    assert found["values"] == [
        ["Region", "Target", "Done"],
        ["EMEA", "1200", "TRUE"],
        [],
        ["APAC", "7.5", "", "#FORMULA"],
    ]
    assert "values" not in there.call(read(there, "Q1!F1:G9"))
    raw = there.call(read(there, "Q1!B2:D4", valueRenderOption="UNFORMATTED_VALUE"))
    assert raw["values"] == [[1200, True], [], [7.5, "", "#FORMULA"]]
    formulas = there.call(read(there, "Q1!D4", valueRenderOption="FORMULA"))
    assert formulas["values"] == [["=B2"]]
    columns = there.call(read(there, "Q1!A1:B2", majorDimension="COLUMNS"))
    assert columns["values"] == [["Region", "EMEA"], ["Target", "1200"]]


def test_ranges_are_written_in_a1(there: World) -> None:
    for asked, given, first in (
        ("Q1!A1:B2", "Q1!A1:B2", "Region"),
        ("A2", "Q1!A2", "EMEA"),
        ("Q1!B:B", "Q1!B1:B1000", "Target"),
        ("Q1!4:4", "Q1!A4:Z4", "APAC"),
        ("Q1!A4:C", "Q1!A4:C1000", "APAC"),
        ("Q1!$B$2:$B$2", "Q1!B2", "1200"),
        ("'My tab'!A1", "'My tab'!A1", "it's"),
        ("My tab", "'My tab'!A1:Z1000", "it's"),
        ("'it''s'!A1:B1", "'it''s'!A1:B1", "here"),
    ):
        found = there.call(read(there, asked))
        assert (found["range"], found["values"][0][0]) == (given, first)


def test_several_ranges_come_at_once(there: World) -> None:
    request = (
        there.service.spreadsheets()
        .values()
        .batchGet(spreadsheetId=SHEET, ranges=["Q1!A1:A2", "'My tab'!A1"])
    )
    found = there.call(request)["valueRanges"]
    assert [each["values"] for each in found] == [[["Region"], ["EMEA"]], [["it's"]]]


def test_what_cannot_be_read_is_refused(there: World) -> None:
    for range, says in (
        ("Nope!A1", "Unable to parse range: Nope!A1"),
        ("Q1!", "Unable to parse range"),
        ("Q1!A1:ZZ9", "exceeds grid limits. Max rows: 1000, max columns: 26"),
        ("'it''s'!A6", "exceeds grid limits. Max rows: 5, max columns: 2"),
    ):
        code, _, message = there.refused(read(there, range))
        assert code == 400
        assert says in message
    get = there.service.spreadsheets().get
    assert there.refused(get(spreadsheetId="nope"))[:2] == (404, "notFound")
    there.google.sheets.denied.add(SHEET)
    assert there.refused(get(spreadsheetId=SHEET))[0] == 403
    there.google.sheets.denied.clear()
    there.google.faults.append(Fault("spreadsheets.get", "429"))
    assert there.refused(get(spreadsheetId=SHEET))[0] == 429


def test_rows_are_appended_below_the_last_that_holds_anything(there: World) -> None:
    there.call(change(there, append(0, [{"stringValue": "=1+1"}, {"numberValue": 3}, {}])))
    found = there.call(read(there, "Q1!A4:C9", valueRenderOption="FORMULA"))["values"]
    assert found == [["APAC", 7.5], ["=1+1", 3]]
    tab = there.google.sheets.books[SHEET].tabs[0]
    assert tab.rows[4] == ["=1+1", 3, None]  # a text, no formula
    there.call(change(there, append(0, [{"formulaValue": "=A1"}])))
    assert tab.rows[5] == [Formula("=A1")]
    there.call(change(there, append(7, *[[{"stringValue": str(n)}] for n in range(9)])))
    grid = there.call(there.service.spreadsheets().get(spreadsheetId=SHEET))["sheets"][2]
    assert grid["properties"]["gridProperties"]["rowCount"] == 10


def test_of_several_changes_all_are_made_or_none(there: World) -> None:
    there.call(change(there, mark(5), append(0, [{"stringValue": "a"}])))
    filled = there.google.sheets.books[SHEET].tabs[0].filled()
    for bad, says in (
        (mark(5, "b"), "Metadata with ID 5 already exists"),
        (append(99, []), "No grid with id: 99"),
        ({"mergeCells": {}}, "does not know it"),
    ):
        code, _, message = there.refused(
            change(there, append(0, [{"stringValue": "b"}]), mark(6), bad)
        )
        assert code == 400
        assert says in message
    assert there.google.sheets.books[SHEET].tabs[0].filled() == filled
    assert there.refused(change(there))[0] == 400


def test_marks_are_found_and_taken_away(there: World) -> None:
    there.call(change(there, mark(5, "a"), mark(6, "b")))
    found = there.call(search(there, metadataKey="k"))["matchedDeveloperMetadata"]
    assert [m["developerMetadata"]["metadataId"] for m in found] == [5, 6]
    one = there.call(search(there, metadataKey="k", metadataValue="b"))
    assert len(one["matchedDeveloperMetadata"]) == 1
    gone = {"dataFilter": {"developerMetadataLookup": {"metadataId": 5}}}
    there.call(change(there, {"deleteDeveloperMetadata": gone}))
    assert there.call(search(there, metadataKey="other")) == {}
    assert len(there.call(search(there, metadataKey="k"))["matchedDeveloperMetadata"]) == 1
