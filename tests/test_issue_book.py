"""The issue book: noted with the delivery that told them or not at all, in both databases."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from document_kit import sweep_report
from issue_kit import ES, Json, findings, found, report, week
from pg_kit import Kept, place

from bot.reports.issues import KEPT, IssueStore, compare_issues
from bot.storage.database import Database
from bot.storage.tables import issues

__all__ = ["place"]


@pytest.fixture
def file(tmp_path: Path) -> Kept:
    return Kept(tmp_path, None)


async def tell(book: IssueStore, number: int, *told: Json, schedule: str = "markets") -> Json:
    """The report of a week, compared and delivered."""
    last = week(number - 1) if number > 1 else None
    known = await book.known(schedule)
    document = compare_issues(sweep_report(report(number, told)), known, last, number - 1)
    await book.database.change(lambda c: book.save(c, schedule, document, week(number)))
    return document.to_json()


async def rows(database: Database) -> dict[str, Json]:
    return {row.id: row._asdict() for row in await database.read(sa.select(issues))}


async def test_the_book_says_next_time_what_was_told(place: Kept) -> None:
    async with place.stores() as (store, *_):
        book = IssueStore(store.database)
        await tell(book, 1, found("a b", claim="No button", severity="high", owner="Ana"))
        (known,) = await book.known("markets")
        assert (known.claim, known.item, known.state) == ("No button", "csm-es", "unsolved")
        assert (known.severity, known.owner, known.first, known.last) == (
            *("high", "Ana", week(0), week(1)),
        )
        assert known.trace.threads == {f"{ES}/a", f"{ES}/b"}
        later = await tell(book, 2, found("b c", "solved"))
        (now,) = await book.known("markets")
        assert (now.id, now.state, now.first, now.last) == (known.id, "solved", week(0), week(2))
        assert now.trace.threads == {f"{ES}/{name}" for name in "abc"}
        assert findings(later)[0]["issue"] == known.id


async def test_issues_of_two_schedules_are_two(file: Kept) -> None:
    async with file.stores() as (store, *_):
        book = IssueStore(store.database)
        await tell(book, 1, found("a"))
        document = await tell(book, 2, found("a"), schedule="other")
        assert findings(document)[0]["change"] == "new"
        assert len(await book.known("markets")) == len(await book.known("other")) == 1


async def test_what_was_not_delivered_is_not_noted(place: Kept) -> None:
    async with place.stores() as (store, *_):
        book = IssueStore(store.database)
        document = compare_issues(sweep_report(report(1, [found("a")])), [], None, 0)

        def cut_off(connection: sa.Connection) -> None:
            book.save(connection, "markets", document, week(1))
            raise RuntimeError("the delivery was not stored")

        with pytest.raises(RuntimeError):
            await store.database.change(cut_off)
        assert await book.known("markets") == []


async def test_noted_twice_is_noted_once(place: Kept) -> None:
    async with place.stores() as (store, *_):
        book = IssueStore(store.database)
        document = sweep_report(await tell(book, 1, found("a"), found("b")))
        before = await rows(store.database)
        await store.database.change(lambda c: book.save(c, "markets", document, week(1)))
        assert await rows(store.database) == before


async def test_issues_that_became_one_leave_one_behind(place: Kept) -> None:
    async with place.stores() as (store, *_):
        book = IssueStore(store.database)
        first = await tell(book, 1, found("a b"), found("c", since=week(-1)))
        keeps, goes = (f["issue"] for f in findings(first))
        await tell(book, 2, found("a b c"))
        (known,) = await book.known("markets")
        assert (known.id, known.first) == (keeps, week(-1))
        assert (await rows(store.database)).keys() == {keeps}
        assert goes != keeps
        again = await tell(book, 3, found("c"))
        assert findings(again)[0]["issue"] == keeps


async def test_what_is_told_again_as_still_open_is_kept_and_what_is_over_goes(
    place: Kept,
) -> None:
    async with place.stores() as (store, *_):
        book = IssueStore(store.database)
        told = await tell(book, 1, found("a"), found("b", "solved"))
        open_one, over = (f["issue"] for f in findings(told))
        await tell(book, 2)
        assert {i.id: i.last for i in await book.known("markets")} == {
            **{open_one: week(2), over: week(1)}
        }


async def test_what_is_no_issue_is_not_in_the_book(file: Kept) -> None:
    async with file.stores() as (store, *_):
        book = IssueStore(store.database)
        await tell(book, 1, found("a", "none"))
        assert await book.known("markets") == []


async def test_an_issue_of_many_weeks_keeps_its_threads_and_its_latest_messages(
    file: Kept,
) -> None:
    async with file.stores() as (store, *_):
        book = IssueStore(store.database)
        for number in range(1, 4):
            said = " ".join(f"m{number}{k:03}" for k in range(150))
            await tell(book, number, found("a", said=said))
        (known,) = await book.known("markets")
        assert KEPT <= len(known.trace.messages) <= KEPT + 1
        assert {f"{ES}/a", f"{ES}/m3000", f"{ES}/m3149"} <= known.trace.messages
        assert known.trace.threads == {f"{ES}/a"}
