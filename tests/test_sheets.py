"""The tools for sheets, called through the gate as a subagent calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from google_data_kit import SHEET, spreadsheet
from standins.google import LocalGoogle
from standins.google_faults import Fault
from standins.sheets import Book, Value, book_of
from tool_kit import Caller, context

from bot.approvals.cards import arguments, title
from scopes import sheets
from scopes.effects import Handles
from scopes.intent import Intent
from scopes.label import Label
from scopes.sheets import Sheets
from scopes.tool import ToolError, ToolResult, estimate_tokens
from subagents.directory import Operator
from subagents.gate import Action, Card, Deny

HANDLE, ANA = "sheet:targets", "U0ANA"
OWN = Label(True, frozenset({ANA}), frozenset({HANDLE}), outside=True)
ROWS: list[list[Value]] = [["Region", "Target"], ["EMEA", 1200], [], ["APAC", 7.5, "new"]]


class Known(Operator):
    """A directory that knows who may read the sheet."""

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        return user == ANA and thing == HANDLE


class Desk(Caller):
    """A context that calls the tools of sheets."""

    def __init__(self, client: Sheets, google: LocalGoogle, home: str) -> None:
        ctx = context("data", {Sheets: client}, {HANDLE: "targets"}, intent=Intent(home=home))
        super().__init__(ctx, Known())
        self.google = google

    async def call_gate(self, name: str, /, **given: Any) -> ToolResult | Deny | Card:
        return await super().call_gate(name, **{"sheet": HANDLE, **given})

    async def read(self, tab: str = "", row: int = 1) -> ToolResult:
        return await self("read_sheet", tab=tab, row=row)

    async def execute_approved(self, action: Action) -> str:
        """What is said when somebody has approved of it."""
        ctx = replace(self.ctx, handles=Handles(), key=f"action/{action.id}")
        found = await self.gate.perform(action, ctx, sheets.append_rows)
        assert isinstance(found, ToolResult), found
        return found.note

    def rows(self, tab: int = 0) -> list[list[Any]]:
        return self.google.sheets.books[SHEET].tabs[tab].rows


@asynccontextmanager
async def desk(
    book: Book | None = None, home: str = "D0ANA", **options: Any
) -> AsyncIterator[Desk]:
    async with spreadsheet(book or book_of("Targets", Q1=ROWS), **options) as (made, google):
        yield Desk(Sheets({HANDLE: made}, {HANDLE: OWN}), google, home)


async def test_each_row_is_an_item_with_its_columns() -> None:
    async with desk() as at:
        found = await at.read()
        assert [item.line() for item in found.items] == [
            f"[{HANDLE}#Q1!A1] Region; Target {{columns}}",
            f"[{HANDLE}#Q1!A2] Region: EMEA; Target: 1200",
            f"[{HANDLE}#Q1!A4] Region: APAC; Target: 7.5; C: new",
        ]
        assert {item.label for item in found.items} == {OWN}
        link = f"https://docs.google.com/spreadsheets/d/{SHEET}/edit#gid=0&range=A4"
        assert (found.items[2].link, found.note, found.truncated) == (link, "2 rows.", "")
        assert [m.method for m in at.google.requests] == [
            "sheets.spreadsheets.get",
            "sheets.spreadsheets.values.batchGet",
        ]


async def test_long_sheet_is_truncated_and_can_be_continued_by_row() -> None:
    rest: list[list[Value]] = [[n, "word " * 8] for n in range(2, 2_601)]
    many: list[list[Value]] = [["n", "text"], *rest]
    book = book_of("T", Q1=many)
    book.tabs[0].row_count = 3_000
    async with desk(book) as at:
        at.ctx = replace(at.ctx, max_output_tokens=1_000)
        found = await at.read()
        assert sum(estimate_tokens(i.line()) for i in found.items) <= 1_000
        last = int(found.items[-1].id.rpartition("A")[2])
        assert f"Rows after {last} are left out" in found.truncated
        assert f"row={last + 1}" in found.truncated
        at.ctx = replace(at.ctx, max_output_tokens=10**6)
        found = await at.read("Q1", 3)
        assert found.items[1].id.endswith("!A3")
        assert found.items[-1].id.endswith("!A1002")
        assert found.truncated.startswith("Rows after 1002 are left out")
        assert (await at.read("q1", 2001)).truncated == ""
        assert "The tab has the rows 1 to 3000" in await at.refusal_reason(
            "read_sheet", tab="Q1", row=3_001
        )
    book = book_of("T", Q1=[["n"], *([n] for n in range(2, 1_000)), [], [1_001]])
    book.tabs[0].row_count = 1_500
    async with desk(book) as at:  # the last row that is read is empty
        at.ctx = replace(at.ctx, max_output_tokens=10**6)
        assert (await at.read()).truncated.startswith("Rows after 1000 are left out")
        assert [item.text for item in (await at.read("Q1", 1_001)).items] == ["n", "n: 1001"]
    async with desk(book_of("T", Q1=[])) as at:
        found = await at.read()
        assert (found.items, found.note, found.label) == ((), "These cells are empty.", OWN)


async def test_sheet_without_a_handle_is_reported_as_not_found() -> None:
    async with desk() as at:
        at.ctx = replace(at.ctx, handles=Handles({"sheet:other": "other"}))
        for name, more in (("read_sheet", {}), ("append_rows", {"tab": "Q1", "rows": [["a"]]})):
            assert (await at.refusal_reason(name, **more)).startswith(f"No sheet {HANDLE}.")
            assert (await at.refusal_reason(name, sheet="sheet:other", **more)).startswith(
                "No sheet "
            )
        assert at.google.requests == []


async def test_rows_are_appended_only_after_approval_and_only_once() -> None:
    async with desk() as at:
        rows = [["LATAM", 5], ["=HYPERLINK(1)", None]]
        action = await at.card("append_rows", tab="q1", rows=rows)
        assert len(at.rows()) == 4
        assert title(action) == "Append rows to sheet:targets (targets)"
        assert dict(action.told) == {
            "spreadsheet": "Targets",
            "tab": "Q1",
            "row 1": "Region: LATAM; Target: 5",
            "row 2": "Region: =HYPERLINK(1); Target: (empty)",
        }
        assert ("tab", "Q1", False) in list(arguments(action))
        again = Action.of(action.body())
        assert await at.execute_approved(again) == "Appended 2 rows."
        assert at.rows()[4:] == [["LATAM", 5], ["=HYPERLINK(1)", None]]
        assert await at.execute_approved(again) == "Had already appended 2 rows."
        assert len(at.rows()) == 6
        assert [m.method for m in at.google.requests].count("sheets.spreadsheets.batchUpdate") == 1


@pytest.mark.parametrize("kind", ["lost", "drop", "503"])
async def test_lost_response_does_not_append_a_row_twice(kind: str) -> None:
    async with desk() as at:
        action = await at.card("append_rows", tab="Q1", rows=[["LATAM", 5]])
        at.google.faults.append(Fault("spreadsheets.batchUpdate", kind))
        assert await at.execute_approved(action) == "Appended 1 row."
        assert at.rows().count(["LATAM", 5]) == 1


async def test_unknown_append_outcome_is_reported_and_a_retry_finds_the_rows() -> None:
    async with desk(max_attempts=1) as at:
        action = await at.card("append_rows", tab="Q1", rows=[["LATAM", 5]])
        at.google.faults += [
            Fault("developerMetadata.search", "slow"),  # before anything is done
            Fault("spreadsheets.batchUpdate", "lost"),
            Fault("developerMetadata.search", "503", times=3),
        ]
        with pytest.raises(ToolError, match="It is not known whether the rows were appended"):
            await at.execute_approved(action)
        at.google.faults.clear()
        assert await at.execute_approved(action) == "Had already appended 1 row."
        assert at.rows().count(["LATAM", 5]) == 1


async def test_concurrent_executions_of_one_action_append_its_rows_once() -> None:
    async with desk() as at:
        action = await at.card("append_rows", tab="Q1", rows=[["LATAM", 5]])
        at.google.latency_s = 0.05
        said = await asyncio.gather(*(at.execute_approved(action) for _ in range(3)))
        assert sorted(said) == ["Appended 1 row.", *["Had already appended 1 row."] * 2]
        assert at.rows().count(["LATAM", 5]) == 1
