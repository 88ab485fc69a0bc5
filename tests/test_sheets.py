"""The tools for sheets, called through the gate as a subagent calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from google_data_kit import SHEET, spreadsheet
from mcp_kit import Everyone
from standins.google import LocalGoogle
from standins.google_faults import Fault
from standins.sheets import Book, Value, book_of
from tool_kit import Caller, context

from bot.approvals.cards import arguments, title
from config.words import in_language
from scopes import sheets
from scopes.effects import Handles
from scopes.intent import Intent
from scopes.label import Label
from scopes.sheets import Sheets
from scopes.tool import SourceFailed, ToolError, ToolResult, estimate_tokens
from subagents.gate import Action, Card, Deny

HANDLE, ANA = "sheet:targets", "U0ANA"
OWN = Label(True, frozenset({ANA}), frozenset({HANDLE}), outside=True)
ROWS: list[list[Value]] = [["Region", "Target"], ["EMEA", 1200], [], ["APAC", 7.5, "new"]]


class SheetCaller(Caller):
    """A context that calls the tools of sheets."""

    def __init__(self, client: Sheets, google: LocalGoogle, home: str) -> None:
        ctx = context("data", {Sheets: client}, {HANDLE: "targets"}, intent=Intent(home=home))
        super().__init__(ctx, Everyone())
        self.google = google

    async def call_gate(self, name: str, /, **fields: Any) -> ToolResult | Deny | Card:
        return await super().call_gate(name, **{"sheet": HANDLE, **fields})

    async def read(self, tab: str = "", row: int = 1) -> ToolResult:
        return await self("read_sheet", tab=tab, row=row)

    async def execute_approved(self, action: Action) -> str:
        """Execute an approved action; return its note."""
        ctx = replace(self.ctx, handles=Handles(), key=f"action/{action.id}")
        found = await self.gate.perform(action, ctx, sheets.append_rows)
        assert isinstance(found, ToolResult), found
        return found.note

    def rows(self, tab: int = 0) -> list[list[Any]]:
        return self.google.sheets.books[SHEET].tabs[tab].rows


@asynccontextmanager
async def sheet_caller(
    book: Book | None = None, home: str = "D0ANA", **options: Any
) -> AsyncIterator[SheetCaller]:
    async with spreadsheet(book or book_of("Targets", Q1=ROWS), **options) as (client, google):
        yield SheetCaller(Sheets({HANDLE: client}, {HANDLE: OWN}), google, home)


async def test_each_row_is_an_item_with_its_columns() -> None:
    async with sheet_caller() as call:
        found = await call.read()
        assert [item.line() for item in found.items] == [
            f"[{HANDLE}#Q1!A1] Region; Target {{columns}}",
            f"[{HANDLE}#Q1!A2] Region: EMEA; Target: 1200",
            f"[{HANDLE}#Q1!A4] Region: APAC; Target: 7.5; C: new",
        ]
        assert {item.label for item in found.items} == {OWN}
        link = f"https://docs.google.com/spreadsheets/d/{SHEET}/edit#gid=0&range=A4"
        assert (found.items[2].link, found.note, found.truncated) == (link, "2 rows.", "")


async def test_long_sheet_is_truncated_and_can_be_continued_by_row() -> None:
    rest: list[list[Value]] = [[n, "word " * 8] for n in range(2, 2_601)]
    many: list[list[Value]] = [["n", "text"], *rest]
    book = book_of("T", Q1=many)
    book.tabs[0].row_count = 3_000
    async with sheet_caller(book) as call:
        call.ctx = replace(call.ctx, max_output_tokens=1_000)
        found = await call.read()
        assert sum(estimate_tokens(i.line()) for i in found.items) <= 1_000
        last = int(found.items[-1].id.rpartition("A")[2])
        assert f"Rows after {last} are left out" in found.truncated
        assert f"row={last + 1}" in found.truncated
        call.ctx = replace(call.ctx, max_output_tokens=10**6)
        found = await call.read("Q1", 3)
        assert (found.items[1].id[-2:], found.items[-1].id[-5:]) == ("A3", "A1002")
        assert found.truncated.startswith("Rows after 1002 are left out")
        assert (await call.read("q1", 2001)).truncated == ""
        assert "The tab has the rows 1 to 3000" in await call.refusal_reason(
            "read_sheet", tab="Q1", row=3_001
        )
    book = book_of("T", Q1=[["n"], *([n] for n in range(2, 1_000)), [], [1_001]])
    book.tabs[0].row_count = 1_500
    async with sheet_caller(book) as call:  # the last row that is read is empty
        call.ctx = replace(call.ctx, max_output_tokens=10**6)
        assert (await call.read()).truncated.startswith("Rows after 1000 are left out")
        assert [item.text for item in (await call.read("Q1", 1_001)).items] == ["n", "n: 1001"]


async def test_sheet_without_a_handle_is_reported_as_not_found() -> None:
    async with sheet_caller() as call:
        call.ctx = replace(call.ctx, handles=Handles({"sheet:other": "other"}))
        for name, more in (("read_sheet", {}), ("append_rows", {"tab": "Q1", "rows": [["a"]]})):
            for sheet in (HANDLE, "sheet:other"):
                reason = await call.refusal_reason(name, sheet=sheet, **more)
                assert reason.startswith(f"No sheet {sheet}")
        assert call.google.requests == []


@pytest.mark.parametrize(
    ("reason", "advice"),
    [("accessNotConfigured", "not switched on"), ("forbidden", "share it with its address")],
)
async def test_refused_sheet_says_what_to_do_in_any_language(reason: str, advice: str) -> None:
    async with sheet_caller() as call:
        call.google.faults.append(Fault("spreadsheets.get", reason))
        with in_language("de"), pytest.raises(SourceFailed) as refused:
            await call.read()
        assert advice in str(refused.value)


async def test_rows_are_appended_only_after_approval_and_only_once() -> None:
    async with sheet_caller() as call:
        rows = [["LATAM", 5], ["=HYPERLINK(1)", None]]
        action = await call.card("append_rows", tab="q1", rows=rows)
        assert len(call.rows()) == 4
        assert title(action) == "Append rows to sheet:targets (targets)"
        assert dict(action.told) == {
            "spreadsheet": "Targets",
            "tab": "Q1",
            "row 1": "Region: LATAM; Target: 5",
            "row 2": "Region: =HYPERLINK(1); Target: (empty)",
        }
        assert ("tab", "Q1", False) in list(arguments(action))
        again = Action.of(action.body())
        assert await call.execute_approved(again) == "Appended 2 rows."
        assert call.rows()[4:] == [["LATAM", 5], ["=HYPERLINK(1)", None]]
        assert await call.execute_approved(again) == "Had already appended 2 rows."
        assert len(call.rows()) == 6


@pytest.mark.parametrize("kind", ["lost", "503"])
async def test_lost_response_does_not_append_a_row_twice(kind: str) -> None:
    async with sheet_caller() as call:
        action = await call.card("append_rows", tab="Q1", rows=[["LATAM", 5]])
        call.google.faults.append(Fault("spreadsheets.batchUpdate", kind))
        assert await call.execute_approved(action) == "Appended 1 row."
        assert call.rows().count(["LATAM", 5]) == 1


async def test_unknown_append_outcome_is_reported_and_a_retry_finds_the_rows() -> None:
    async with sheet_caller(max_attempts=1) as call:
        action = await call.card("append_rows", tab="Q1", rows=[["LATAM", 5]])
        call.google.faults += [
            Fault("developerMetadata.search", "slow"),  # before the append
            Fault("spreadsheets.batchUpdate", "lost"),
            Fault("developerMetadata.search", "503", times=3),
        ]
        with pytest.raises(ToolError, match="It is not known whether the rows were appended"):
            await call.execute_approved(action)
        call.google.faults.clear()
        assert await call.execute_approved(action) == "Had already appended 1 row."
        assert call.rows().count(["LATAM", 5]) == 1


async def test_concurrent_executions_of_one_action_append_its_rows_once() -> None:
    async with sheet_caller() as call:
        action = await call.card("append_rows", tab="Q1", rows=[["LATAM", 5]])
        call.google.latency_s = 0.05
        notes = await asyncio.gather(*(call.execute_approved(action) for _ in range(3)))
        assert sorted(notes) == ["Appended 1 row.", *["Had already appended 1 row."] * 2]
        assert call.rows().count(["LATAM", 5]) == 1
