"""The client of BigQuery, against a stand-in that follows Google's document."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from engine_kit import until
from google_data_kit import PROJECT, bigquery, shop
from standins.google_faults import Fault

from scopes.databases.bigquery import TIB, USD_PER_TIB
from scopes.databases.tables import Column, StatementFailed
from scopes.google.errors import GoogleError
from scopes.tool import ToolError


async def test_table_description_includes_rows_and_partitioning() -> None:
    state = shop(partitions={"shop.orders": "placed"})
    async with bigquery(state) as (base, _):
        found = await base.describe("orders")
        assert found is not None
        assert (found.name, found.rows) == ("orders", 3)
        assert found.columns[2] == Column("amount", "NUMERIC")
        assert found.note == "Partitioned by placed: filter by it. 108 B in all."
        assert await base.describe("`local-project.shop.orders`") == found
        view = await base.describe("pay_per_head")
        assert view is not None
        assert (view.rows, view.note) == (None, "View.")


async def test_query_returns_typed_rows_and_the_bytes_read() -> None:
    async with bigquery(shop()) as (base, google):
        found = await base.query("SELECT * FROM orders ORDER BY id", 10)
        assert [c.type for c in found.columns] == ["INT64", "STRING", "NUMERIC", "DATE", "BOOL"]
        assert found.rows[0] == (1, "Ana", Decimal("12.50"), "2024-06-30", True)
        assert found.rows[2][1] is None
        assert (found.total, found.note) == (3, "108 bytes read.")
        first, second, third = google.requests
        assert first.body["configuration"]["dryRun"] is True
        query = second.body["configuration"]["query"]
        assert query["maximumBytesBilled"] == str(int(0.05 / USD_PER_TIB * TIB))
        assert query["defaultDataset"] == {"projectId": PROJECT, "datasetId": "shop"}
        assert second.body["configuration"]["jobTimeoutMs"] == "30000"
        assert third.method == "bigquery.jobs.getQueryResults"


async def test_first_rows_of_a_large_result_are_fetched_over_several_pages() -> None:
    sql = "SELECT range AS n FROM range(12000) ORDER BY 1"
    async with bigquery(shop()) as (base, google):
        found = await base.query(sql, 10_000)
        assert [row[0] for row in found.rows] == list(range(10_000))
        assert (found.total, found.cut) == (12_000, True)
        assert [m.method for m in google.requests][2:] == ["bigquery.jobs.getQueryResults"] * 2
        few = await base.query(sql, 2)
        assert (len(few.rows), few.total) == (2, 12_000)
    async with bigquery(shop(), max_bytes=1_000) as (base, _):
        assert len((await base.query(sql, 10_000)).rows) == 5_000


async def test_too_expensive_query_is_not_run() -> None:
    async with bigquery(shop(scale=10**10)) as (base, google):
        with pytest.raises(ToolError) as error:
            await base.query("SELECT * FROM orders", 5)
        for part in ("1.1 TB", "$6.14", "may cost $0.05", "partition column"):
            assert part in str(error.value)
        assert len(google.requests) == 1
    async with bigquery(shop(scale=10**10), usd=7.0) as (base, _):
        assert len((await base.query("SELECT * FROM orders", 5)).rows) == 3


async def test_query_over_the_billed_bytes_limit_fails() -> None:
    async with bigquery(shop(), usd=0.00001) as (base, _):  # a table is billed as 10 MiB
        with pytest.raises(StatementFailed, match="exceeded limit for bytes billed"):
            await base.query("SELECT id FROM orders", 5)


async def test_a_lost_answer_starts_no_second_job() -> None:
    state = shop()
    async with bigquery(state) as (base, google):
        await base.query("SELECT 1", 1)
        google.faults.append(Fault("jobs.insert", "slow"))  # of the dry run
        google.faults.append(Fault("jobs.insert", "lost"))
        assert (await base.query("SELECT 2 AS two", 1)).rows == ((2,),)
        started = [m for m in google.requests if m.method.endswith("insert") and m.status == 409]
        assert (len(state.jobs), len(started)) == (2, 1)


async def test_another_dataset_of_the_same_account_is_not_read() -> None:
    async with bigquery(shop()) as (base, google):
        for sql in (
            "SELECT * FROM payroll.salaries",
            "SELECT * FROM orders WHERE id IN (SELECT pay FROM payroll.salaries)",
            "SELECT o.id FROM orders o, pay_per_head, payroll.salaries s",
        ):
            with pytest.raises(ToolError, match=r"Only tables of local-project\.shop can be"):
                await base.query(sql, 5)
        with pytest.raises(ToolError, match="Only one SELECT"):
            await base.query("DELETE FROM orders WHERE true", 5)
        assert len(google.requests) == 3  # no job was started
        for name in ("payroll.salaries", "../payroll/tables/salaries", "orders?x=1", "a%2fb", ""):
            assert await base.describe(name) is None
        assert len(google.requests) == 3
        assert await base.describe("nope") is None
        # a view may read another dataset
        view = await base.query("SELECT pay FROM pay_per_head", 5)
        assert view.rows == ((90000.0,),)


async def test_statement_error_contains_the_bigquery_message_but_its_cause_does_not() -> None:
    async with bigquery(shop()) as (base, _):
        for sql, says in (
            ("SELECT nope FROM orders", "nope"),
            ("SELECT * FROM nowhere", "Not found: Table local-project:shop.nowhere"),
            ("SELECT CAST(customer AS INT) FROM orders", "Ana"),
        ):
            with pytest.raises(StatementFailed, match=says) as error:
                await base.query(sql, 5)
            assert str(error.value).startswith("BigQuery: ")
            assert isinstance(error.value.__cause__, GoogleError)
            assert says not in str(error.value.__cause__)  # which may be logged


async def test_job_of_a_cancelled_query_is_cancelled() -> None:
    state = shop(job_s=60.0)
    async with bigquery(state) as (base, _):
        task = asyncio.create_task(base.query("SELECT 1", 5))
        await until(lambda: state.jobs)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert state.cancelled == list(state.jobs)
