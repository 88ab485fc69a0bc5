"""A PostgreSQL database as a source: exact, bounded and never changed, with any role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pg_kit
import psycopg
import pytest
from sqlalchemy import make_url

from scopes.databases import postgres
from scopes.databases.postgres import Postgres
from scopes.tool import SourceFailed, ToolError

SETUP = (
    "CREATE TABLE orders (id int, customer text, amount numeric(10,2), placed date)",
    "INSERT INTO orders VALUES (1, 'Ana', 12.50, '2024-01-01'), (2, 'Ben', 7.25, NULL)",
    "COMMENT ON TABLE orders IS 'all of them'",
    "COMMENT ON COLUMN orders.amount IS 'in euros'",
    "CREATE VIEW big AS SELECT * FROM orders WHERE amount > 10",
    "CREATE TYPE level AS ENUM ('low', 'high')",
    "CREATE SCHEMA hr",
    'CREATE TABLE hr."Staff" (name text)',
    "CREATE TABLE secret (pin int)",
    "CREATE SEQUENCE counter",
    """CREATE FUNCTION grow() RETURNS int SECURITY DEFINER LANGUAGE sql AS
      'INSERT INTO orders (id) VALUES (9) RETURNING id'""",
)


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[str, str, str]]:
    """Address of a database, with a role that may read some of it and its password."""
    with pg_kit.role() as (name, password), pg_kit.database() as url:
        for statement in SETUP:
            pg_kit.execute(statement, url)
        for grant in ("SELECT ON orders, big", "USAGE ON SCHEMA hr", 'SELECT ON hr."Staff"'):
            pg_kit.execute(f"GRANT {grant} TO {{name}}", url, name=name)
        yield pg_kit.of(url, username=name, password=None), password, url


@pytest.fixture
async def source(shop: tuple[str, str, str], tmp_path: Path) -> AsyncIterator[Postgres]:
    url, password, _ = shop
    secret = tmp_path / "password"
    secret.write_text(f"{password}\n")
    opened = Postgres(url, None, secret, 1, 1_000_000)
    yield opened
    await opened.aclose()


async def test_only_tables_readable_by_the_role_are_listed_under_queryable_names(
    source: Postgres,
) -> None:
    tables = {t.name: t.note for t in await source.tables()}
    assert tables == {"big": "a view", 'hr."Staff"': "", "orders": "all of them"}
    for name in tables:
        await source.query(f"SELECT * FROM {name}", 5)
    described = await source.describe("public.Orders")
    assert described
    assert [(c.name, c.type, c.note) for c in described.columns][1:3] == [
        ("customer", "text", ""),
        ("amount", "numeric(10,2)", "in euros"),
    ]
    assert await source.describe("secret") is None


async def test_a_column_of_a_type_of_the_database_has_no_number_as_type(source: Postgres) -> None:
    found = await source.query("SELECT 'low'::level AS risk, 1 AS n", 3)
    assert [(c.name, c.type) for c in found.columns] == [("risk", "text"), ("n", "int4")]
    assert found.rows == (("low", 1),)


async def test_a_result_is_bounded_in_rows_bytes_cells_and_time(source: Postgres) -> None:
    few = await source.query("SELECT n FROM generate_series(1, 1000) AS n", 3)
    assert (len(few.rows), few.total) == (3, None)
    wide = await source.query("SELECT repeat('x', 9000) FROM generate_series(1, 9000)", 9_000)
    assert wide.cut
    assert 100 < len(wide.rows) < 120
    huge = await source.query("SELECT repeat('x', 9000000)", 3)
    assert len(str(huge.rows[0][0])) == 32_767
    with pytest.raises(ToolError, match="took too long"):
        await source.query("SELECT count(*) FROM generate_series(1, 10000000000)", 3)
    assert (await source.query("SELECT 1", 3)).total == 1


OF_OTHERS = (
    "SELECT query FROM pg_stat_activity", 'SELECT query FROM PG_Catalog . "pg_stat_activity"',
    "SELECT query FROM U&\"pg_st!0061t_activity\" UESCAPE '!'",
    "SELECT * FROM (TABLE pg_stat_activity) AS a", "SELECT * FROM pg_stat_get_activity(NULL)",
    'SELECT "pg_stat_get_backend_activity"(1)', "SELECT query FROM monitoring.pg_stat_statements",
)  # fmt: skip


async def test_statements_of_other_sessions_cannot_be_read(source: Postgres) -> None:
    for sql in OF_OTHERS:
        with pytest.raises(ToolError, match=r"cannot be used here|cannot be read"):
            await source.query(sql, 5)


async def test_statements_are_hidden_from_other_sessions_if_the_role_may_hide_them(
    source: Postgres, shop: tuple[str, str, str]
) -> None:
    name = str(make_url(shop[0]).username)
    seen = f"SELECT state, query FROM pg_stat_activity WHERE usename = '{name}'"
    pg_kit.execute("GRANT SET ON PARAMETER track_activities TO {name}", shop[2], name=name)
    try:
        assert (await source.query("SELECT 'merger'", 5)).total == 1
        assert pg_kit.execute(seen) == [("disabled", "")]
    finally:
        pg_kit.execute("REVOKE SET ON PARAMETER track_activities FROM {name}", shop[2], name=name)


CHANGES = (
    "INSERT INTO orders (id) VALUES (9)",
    "WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone",
    "SELECT 1) AS q; DELETE FROM orders; SELECT (2",
    "SELECT grow()", "SELECT nextval('counter')", "SELECT * FROM orders FOR UPDATE",
    "SELECT set_config('transaction_read_only', 'off', false), grow()",
    "SELECT * INTO copied FROM orders", "COPY orders TO '/tmp/x'", "SET TRANSACTION READ WRITE",
)  # fmt: skip


async def test_queries_change_nothing_even_without_the_statement_filter(
    shop: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "refusal", lambda sql, dialect: "")
    owner = Postgres(shop[2], None, None, 1, 1_000_000)
    for sql in CHANGES:
        with pytest.raises(ToolError):
            await owner.query(sql, 5)
        assert (await owner.query("SELECT lo_from_bytea(0, 'x')", 5)).total == 1  # is rolled back
    await owner.aclose()
    assert pg_kit.execute("SELECT count(*), max(id) FROM orders", shop[2]) == [(2, 2)]
    assert pg_kit.execute("SELECT is_called FROM counter", shop[2]) == [(False,)]
    assert pg_kit.execute("SELECT count(*) FROM pg_largeobject_metadata", shop[2]) == [(0,)]


async def test_query_on_a_locked_table_fails_until_the_lock_is_released(
    source: Postgres, shop: tuple[str, str, str]
) -> None:
    with psycopg.connect(shop[2]) as other:
        other.execute("LOCK TABLE orders")
        with pytest.raises(ToolError, match=r"took too long|is locked"):
            await source.query("SELECT * FROM orders", 5)
    assert (await source.query("SELECT * FROM orders", 5)).total == 2


async def test_a_connection_that_the_server_closed_is_replaced(
    source: Postgres, shop: tuple[str, str, str]
) -> None:
    await source.query("SELECT 1", 5)
    pid = source._idle[0].info.backend_pid
    pg_kit.execute(f"SELECT pg_terminate_backend({pid}, 30000)", shop[2])
    assert (await source.query("SELECT 2", 5)).rows == ((2,),)


async def test_connection_error_reveals_no_part_of_the_address_or_password(
    shop: tuple[str, str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("wr0ng")
    at = make_url(shop[0])
    for url in (pg_kit.of(shop[0], port=1), pg_kit.of(shop[0], username="nobody_here")):
        source = Postgres(url, None, wrong, 1, 1_000_000)
        with pytest.raises(SourceFailed, match="cannot be reached") as raised:
            await source.tables()
        text = str(raised.value) + caplog.text
        for part in ("nobody_here", "wr0ng", *map(str, (at.host, at.port, at.database))):
            assert part not in text


async def test_database_with_another_encoding_is_queried_correctly() -> None:
    with pg_kit.database("template0", "LATIN1") as url:
        pg_kit.execute('CREATE TABLE "größe" (name text)', url)
        pg_kit.execute("INSERT INTO größe VALUES ('Müller')", url)
        source = Postgres(url, None, None, 5, 1_000_000)
        assert [t.name for t in await source.tables()] == ['"größe"']
        sql = "SELECT name, count(*) FROM größe WHERE name = 'Müller' GROUP BY 1"
        assert (await source.query(sql, 5)).rows == (("Müller", 1),)
        with pytest.raises(ToolError, match="another encoding"):
            await source.query("SELECT '\ud800'", 5)
        assert (await source.query("SELECT 1", 5)).total == 1
        await source.aclose()
