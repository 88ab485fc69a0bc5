"""The client of BigQuery, against a stand-in that is held to Google's document."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Shell, configure, model_at
from google_data_kit import ACCOUNT, PROJECT, bigquery, key_file, shop
from google_kit import until
from standins.google import FullGoogle
from standins.google_faults import Fault
from standins.google_oauth import LocalGoogleOauth
from standins.sheets_state import SheetsState, book_of

from bot.local.google.server import TOKEN
from bot.local.server import LocalServer
from bot.tooling.data import SheetTools, bigquery_of
from config.settings import load_settings
from scopes.databases.bigquery import TIB, USD_PER_TIB, column_of, row_of
from scopes.databases.tables import Column, StatementFailed
from scopes.google.errors import GoogleBusy, GoogleError
from scopes.sheets import Sheets
from scopes.tool import ToolError


async def test_tables_are_listed_page_by_page() -> None:
    state = shop()
    state.tables.run("".join(f"CREATE TABLE shop.t{n:04} (a INT);" for n in range(60)))
    async with bigquery(state) as (base, google):
        pages = [*await base.tables()]
        assert [t.name for t in pages][:3] == ["orders", "pay_per_head", "t0000"]
        assert (len(pages), pages[1].note) == (62, "view")
        assert [m.method for m in google.requests] == ["bigquery.tables.list"]


async def test_a_table_is_described_with_its_rows_and_what_makes_a_query_cheap() -> None:
    state = shop(partitions={"shop.orders": "placed"})
    async with bigquery(state) as (base, _):
        found = await base.describe("orders")
        assert found is not None
        assert (found.name, found.rows) == ("orders", 3)
        assert found.columns[2] == Column("amount", "NUMERIC")
        assert found.note == "Partitioned by placed: filter by it. 108 B in all."
        for name in ("shop.orders", "`local-project.shop.orders`", "local-project:shop.orders"):
            assert await base.describe(name) == found
        view = await base.describe("pay_per_head")
        assert view is not None
        assert (view.rows, view.note) == (None, "View.")


async def test_a_query_gives_typed_rows_and_what_it_read() -> None:
    async with bigquery(shop()) as (base, google):
        found = await base.query("SELECT * FROM orders ORDER BY id", 10)
        assert [c.type for c in found.columns] == ["INT64", "STRING", "NUMERIC", "DATE", "BOOL"]
        assert found.rows[0] == (1, "Ana", Decimal("12.50"), date(2024, 6, 30), True)
        assert found.rows[2][1] is None
        assert (found.total, found.note) == (3, "108 bytes read.")
        first, second, third = google.requests
        assert first.body["configuration"]["dryRun"] is True
        asked = second.body["configuration"]
        assert asked["query"]["useLegacySql"] is False
        assert asked["query"]["maximumBytesBilled"] == str(int(0.05 / USD_PER_TIB * TIB))
        assert asked["query"]["defaultDataset"] == {"projectId": PROJECT, "datasetId": "shop"}
        assert asked["labels"] == {"app": "assistant"}
        assert asked["jobTimeoutMs"] == "30000"
        assert second.body["jobReference"]["location"] == "US"
        assert third.method == "bigquery.jobs.getQueryResults"


async def test_of_many_rows_the_first_are_taken_over_pages() -> None:
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


async def test_values_of_all_kinds_come_as_what_they_are() -> None:
    sql = """SELECT TIMESTAMPTZ '2024-07-01 00:00:01.000005+02' AS at, [1, NULL, 2] AS many,
        TIMESTAMP '2024-07-01 00:00:01' AS here, TIME '09:30:00' AS early, 'inf'::DOUBLE AS odd,
        [{'sku': 'a', 'n': 1.5::DECIMAL(3,1)}] AS lines, {'x': {'y': NULL::INT}} AS deep"""
    async with bigquery(shop()) as (base, _):
        found = await base.query(sql, 5)
    assert found.rows[0] == (
        datetime(2024, 6, 30, 22, 0, 1, 5, UTC),
        "[1,null,2]",
        datetime.fromisoformat("2024-07-01T00:00:01"),
        time(9, 30),
        float("inf"),
        '[{"sku":"a","n":"1.5"}]',
        '{"x":{"y":null}}',
    )
    assert [c.type for c in found.columns][1::4] == [
        "ARRAY<INT64>",
        "ARRAY<STRUCT<sku STRING, n NUMERIC>>",
    ]


async def test_a_query_that_is_too_dear_is_not_run() -> None:
    async with bigquery(shop(scale=10**10)) as (base, google):
        with pytest.raises(ToolError) as error:
            await base.query("SELECT * FROM orders", 5)
        for said in ("1.1 TB", "$6.14", "may cost $0.05", "partition column"):
            assert said in str(error.value)
        assert len(google.requests) == 1
    async with bigquery(shop(scale=10**10), usd=7.0) as (base, _):
        assert len((await base.query("SELECT * FROM orders", 5)).rows) == 3


async def test_what_is_billed_is_held_to_the_budget_by_google_too() -> None:
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
            "SELECT * FROM `payroll`.`salaries`",
            "SELECT o.id FROM orders o, pay_per_head, payroll.salaries s",
        ):
            with pytest.raises(ToolError, match=r"Only tables of local-project\.shop can be"):
                await base.query(sql, 5)
        with pytest.raises(ToolError, match="Only one SELECT"):
            await base.query("DELETE FROM orders WHERE true", 5)
        assert len(google.requests) == 5  # no job was started
        for name in ("payroll.salaries", "../payroll/tables/salaries", "orders?x=1", "a%2fb", ""):
            assert await base.describe(name) is None
        assert len(google.requests) == 5
        assert await base.describe("nope") is None
        view = await base.query("SELECT pay FROM pay_per_head", 5)  # it may read beyond its own
        assert view.rows == ((90000.0,),)


async def test_what_tells_of_others_or_costs_by_another_measure_is_not_asked() -> None:
    async with bigquery(shop()) as (base, google):
        for sql in (
            "SELECT * FROM INFORMATION_SCHEMA.JOBS",
            "SELECT * FROM `region-us`.INFORMATION_SCHEMA.JOBS_BY_PROJECT",
            r"SELECT * FROM `p\x61yroll`.salaries",
            "SELECT * FROM EXTERNAL_QUERY('c', 'SELECT 1')",
            "SELECT ML.GENERATE_TEXT(MODEL m, TABLE t)",
            "SELECT AI.GENERATE('x')",
            "SELECT `AI` . `GENERATE` ('x')",
        ):
            with pytest.raises(ToolError, match="cannot be used here"):
                await base.query(sql, 5)
        assert google.requests == []


async def test_what_bigquery_says_of_a_query_is_for_the_model() -> None:
    async with bigquery(shop()) as (base, _):
        for sql, says in (
            ("SELECT nope FROM orders", "nope"),
            ("SELECT FROM", "yntax"),
            ("SELECT * FROM nowhere", "Not found: Table local-project:shop.nowhere"),
            ("SELECT CAST(customer AS INT) FROM orders", "Ana"),
        ):
            with pytest.raises(StatementFailed, match=says) as error:
                await base.query(sql, 5)
            assert str(error.value).startswith("BigQuery: ")
            assert isinstance(error.value.__cause__, GoogleError)
            assert says not in str(error.value.__cause__)  # which may be logged


async def test_a_table_that_is_closed_is_no_failure_of_the_set_up() -> None:
    async with bigquery(shop(denied={"shop.orders"})) as (base, google):
        with pytest.raises(StatementFailed, match="Access Denied: Table"):
            await base.query("SELECT * FROM orders", 5)
        assert await base.describe("orders") is None
        google.faults += [Fault("jobs.insert", "accessDenied"), Fault("tables.get", "accessDenied")]
        with pytest.raises(GoogleError, match=r"403 accessDenied"):
            await base.describe("orders")
        with pytest.raises(GoogleError, match=r"403 accessDenied") as error:
            await base.query("SELECT 1", 5)
        assert not isinstance(error.value, GoogleBusy)


async def test_what_passes_is_asked_for_again() -> None:
    state = shop()
    async with bigquery(state) as (base, google):
        for kind in ("quotaExceeded", "rateLimitExceeded", "503", "drop", "malformed"):
            state.jobs.clear()
            google.faults += [Fault("jobs.insert", kind), Fault("jobs.getQueryResults", kind)]
            assert (await base.query("SELECT 1 AS one", 5)).rows == ((1,),)
            assert (len(state.jobs), google.faults) == (1, [])
        google.faults.append(Fault("*", "quotaExceeded", times=9))
        with pytest.raises(GoogleBusy, match="BigQuery asks to be called less often"):
            await base.tables()
        google.faults[:] = [Fault("tables.list", "insufficientPermissions")]
        with pytest.raises(GoogleError, match="OAuth scope that BigQuery needs"):
            await base.tables()


async def test_a_query_that_takes_too_long_is_cancelled() -> None:
    state = shop(job_s=60.0)
    async with bigquery(state, query_s=0.4) as (base, _):
        with pytest.raises(ToolError, match=r"longer than 0\.4 s and was ended"):
            await base.query("SELECT 1", 5)
        assert state.cancelled == list(state.jobs)


async def test_a_job_that_nobody_waits_for_any_more_is_cancelled() -> None:
    state = shop(job_s=60.0)
    async with bigquery(state) as (base, _):
        task = asyncio.create_task(base.query("SELECT 1", 5))
        await until(lambda: bool(state.jobs), "a job")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert state.cancelled == list(state.jobs)


async def test_queries_run_beside_each_other() -> None:
    state = shop(job_s=60.0)
    async with bigquery(state) as (base, _):
        tasks = [asyncio.create_task(base.query(f"SELECT {n} AS n", 1)) for n in range(4)]
        await until(lambda: len(state.jobs) == 4, "four jobs of which none is done")
        for job in state.jobs.values():
            job.ready = 0.0
            job.ended.set()
        assert [(await task).rows for task in tasks] == [((n,),) for n in range(4)]
        assert state.cancelled == []


async def test_a_service_account_opens_its_dataset_and_its_sheet(tmp_path: Path) -> None:
    accounts = LocalGoogleOauth()
    book = book_of("Targets", Q1=[["Region"], ["EMEA"]])
    state = shop()
    google = FullGoogle(bigquery=state, sheets=SheetsState({"1AbC": book}), whose=accounts.whose)
    config = "data: {databases: {shop: {bigquery: local-project.shop}}, sheets: {s: {id: 1AbC}}}"
    config += f"\ngoogle: {{service_account: {key_file(tmp_path)}}}"
    with LocalServer(google.app, "google") as api, LocalServer(accounts.app, "oauth") as oauth:
        ends = {"BIGQUERY_API_ENDPOINT": api.url, "SHEETS_API_ENDPOINT": api.url}
        file = tmp_path / "assistant.yaml"
        file.write_text(config)
        settings = load_settings(file, env={"GOOGLE_OAUTH_ENDPOINT": oauth.url, **ends})
        base = bigquery_of(settings, "shop", settings.data.databases["shop"], operator=False)
        assert base is not None
        assert [t.name for t in await base.tables()] == ["orders", "pay_per_head"]
        await base.aclose()
        database: Any = None  # no sheet needs it
        kit = SheetTools(settings, database, None)
        opened = await kit.open("r1", "U0ANA")
        assert (await kit.open("r2", "U0EVA")).clients == opened.clients  # connections are kept
        client = opened.clients[Sheets]
        assert isinstance(client, Sheets)
        assert (await client.by_handle["sheet:s"].about())[0] == "Targets"
        await kit.aclose()
    assert {made.user for made in google.requests} == {ACCOUNT}
    state.tables.close()


NO_CREDENTIALS = "data.databases.shop has no credentials: name a key file in"
BROKEN = "data.databases.shop.service_account names no usable key file (MalformedError)"
ENDED = "Google does not accept GOOGLE_ACCESS_TOKEN"


@pytest.mark.parametrize(
    ("token", "key", "fault"),
    [
        ("", "", NO_CREDENTIALS),
        (TOKEN, "", ""),
        ("ended", "", ENDED),
        ("", "{}", BROKEN),
    ],
    ids=["nothing", "a token", "a token that has ended", "a broken key"],
)
def test_ask_and_doctor_say_the_same_of_the_credentials(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    token: str,
    key: str,
    fault: str,
) -> None:
    state = shop()
    file = tmp_path / "key.json"
    file.write_text(key)
    own = f", service_account: {file}" if key else ""
    configure(f"data: {{databases: {{shop: {{bigquery: local-project.shop{own}}}}}}}")
    with LocalServer(FullGoogle(bigquery=state).app, "google") as server:
        monkeypatch.setenv("BIGQUERY_API_ENDPOINT", server.url)
        if token:
            monkeypatch.setenv("GOOGLE_ACCESS_TOKEN", token)
        shell = Shell(capsys)
        with model_at(monkeypatch):
            asked = shell("ask", "How many orders are there?")
            doctor = shell("doctor", "--json")
    state.tables.close()
    (databases,) = [c for c in doctor.json["checks"] if c["check"] == "databases"]
    told = " ".join(f"{asked.out} {asked.err}".split())
    if fault:
        assert asked.code in (1, 2)
        assert databases["state"] == "problem"
        assert fault in told
        assert fault in databases["says"]
    else:
        assert asked.code == 0
        assert databases["state"] == "ok"
        assert databases["says"].startswith("shop (BigQuery, ")
        assert "`serve` needs a key file" in databases["says"]


def test_types_and_rows_follow_the_schema() -> None:
    field = {"name": "n", "type": "NUMERIC", "precision": "10", "scale": "2", "description": "x"}
    assert column_of(field) == Column("n", "NUMERIC(10,2)", "x")
    assert column_of({"name": "g", "type": "GEOGRAPHY"}).type == "GEOGRAPHY"
    with pytest.raises(ValueError, match="zip"):
        row_of([field], {"f": []})
    many = {**field, "mode": "REPEATED"}
    assert row_of([many], {"f": [{"v": [{"v": "0.00000001"}]}]}) == ('["0.00000001"]',)
