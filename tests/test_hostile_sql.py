"""Hostile statements are each refused or stopped, within their time and memory."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import data_kit
import pytest
import tool_kit
from timing import cpu_limit, patient

from scopes.databases.duck import Duck
from scopes.databases.statement import refusal, tables_of
from scopes.databases.tables import Rows, StatementFailed
from scopes.tool import SourceFailed, ToolContext, ToolError, ToolResult

QUERY_S = 0.6
STOPPED_S = 3.0
"""Seconds until each statement has an answer."""
MEMORY_MB = 512

FORBIDDEN = (
    "SELECT * FROM read_text('/etc/passwd')", "FROM '/etc/passwd'",
    "SELECT * FROM orders, '/etc/hosts'", "FROM (VALUES (1, 'a')), '/etc/hosts'",
    "FROM a: '/etc/hosts'", "FROM ('/etc/hosts')", "FROM (PIVOT '/etc/hosts' ON a)",
    "SELECT * FROM read_csv('/etc/passwd', header = false)",
    "SELECT content FROM read_blob('/etc/*')", "SELECT * FROM parquet_scan('/tmp/x.parquet')",
    "SELECT * FROM read_json_auto('/etc/passwd')", "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')", "FROM 'https://example.com/x.parquet'",
    "FROM read_text('/proc/self/environ')", """SELECT * FROM "read_text"('/etc/passwd')""",
    "SELECT * FROM read_text /* x */ ('/etc/passwd')",
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    "SELECT * FROM query_table('/etc/passwd')", "COPY orders TO '{outside}/hostile.csv'",
    "EXPORT DATABASE '{outside}/hostile'", "ATTACH '{outside}/hostile.db'", "INSTALL httpfs",
    "LOAD httpfs", "SET enable_external_access = true", "PRAGMA memory_limit='10GB'",
    "CALL pragma_version()", "PREPARE p AS SELECT 1", "INSERT INTO orders VALUES (9, 'x', 1, NULL)",
    "WITH x AS (INSERT INTO orders VALUES (9) RETURNING *) SELECT * FROM x", "DELETE FROM orders",
    "CREATE TEMP TABLE t AS SELECT 1", "CREATE MACRO m() AS 1",
    "CREATE SECRET s (TYPE S3, KEY_ID 'x', SECRET 'y')", "SELECT 1; SELECT 2",
    "SELECT 1 /* ; */; DROP TABLE orders -- x", "SELECT getenv('PATH')", "", "-- nothing",
    "SELECT (SELECT count(*) FROM read_csv_auto('/etc/passwd'))", "LOAD '{outside}/hostile.so'",
    "SELECT * FROM parquet_metadata('/tmp/x.parquet')", "SELECT * FROM sniff_csv('/etc/passwd')",
    "COPY (SELECT 1) TO '{outside}/hostile.csv'", "ATTACH ':memory:' AS m", "SET VARIABLE a = 1",
    "RESET lock_configuration", "CHECKPOINT", "EXECUTE p", "USE memory", "BEGIN", "VACUUM",
    "CALL enable_logging()",
)  # fmt: skip
"""None is a single SELECT over the tables; each is refused with the gate and without it.

`{outside}` is replaced by a folder that the tests may write into.
"""
MACHINE = (
    "FROM duckdb_databases", "SELECT path FROM system.main.duckdb_databases",
    'FROM "DuckDB_Databases"', "SUMMARIZE duckdb_databases", "FROM duckdb_logs", "FROM pg_settings",
    "SELECT * FROM pg_catalog.pg_settings", "SELECT current_setting('secret_directory')",
    "SELECT system.main.current_setting('temp_directory')", "FROM duckdb_settings()",
    "FROM duckdb_secrets()", "FROM duckdb_extensions()", "FROM pragma_database_list",
    "FROM pragma_platform()", "SELECT getenv('HOME')", "FROM duckdb_views",
    "SELECT sql FROM system.main.duckdb_views", "SELECT name FROM sqlite_master",
    "SUMMARIZE sqlite_schema", 'SELECT m FROM "SQLITE_TEMP_MASTER" m', "FROM sqlite_temp_schema",
    "FROM pg_views", "SELECT definition FROM pg_catalog.pg_views", "SELECT prosrc FROM pg_proc",
    "FROM information_schema.views", 'SELECT * FROM system."information_schema" . "VIEWS"',
    "FROM pragma_table_info('orders')", "FROM duckdb_functions()",
    "SELECT pg_get_viewdef(1)", "SHOW DATABASES", "FROM (SHOW DATABASES)", "FROM pg_class",
)  # fmt: skip
"""They reveal where the database lies and how it runs, and none of its data."""
NAMES_AS_TEXTS = (
    "FROM histogram('duckdb_databases', path)",
    "FROM histogram('duckdb_' || 'databases', path)",
    "FROM histogram_values(concat('duckdb_', 'databases'), path)",
    "FROM query_table('duckdb_' || 'databases')",
    "FROM query('FROM duckdb_' || 'databases')",
)
"""No check of words finds these: the program asks DuckDB how it parses them."""
BOMBS = {
    "repeat": "SELECT repeat('x', 1000000000)",
    "list": "SELECT list_sum(range(500000000))",
    "endless padding": "SELECT length(lpad('x', 2000000000, 'y'))",
    "cross join": "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000) c",
    "doubling": "WITH RECURSIVE t(s) AS (SELECT 'a' UNION ALL SELECT s || s FROM t) "
    "SELECT count(*) FROM t",
    "deep parentheses": f"SELECT {'(' * 9_000}1{')' * 9_000}",
    "a megabyte of SQL": f"SELECT length('{'x' * 1_000_000}')",
    "huge rows": "SELECT repeat('x', 1000000) AS a, repeat('y', 1000000) AS b FROM range(100000)",
}
MORE_BOMBS = {
    "repeat of repeat": "SELECT length(repeat(repeat('x', 1000000), 1000))",
    "endless recursion": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "
    "SELECT count(*) FROM t",
    "split": "SELECT len(string_split(repeat('a,', 100000000), ','))",
    "aggregate text": "SELECT string_agg(repeat('x', 1000), '') FROM range(10000000)",
    "sort": "SELECT md5(range::VARCHAR) AS m FROM range(100000000) ORDER BY m",
    "join": "SELECT count(*) FROM range(20000000) a JOIN range(20000000) b USING (range)",
    "bits": "SELECT bit_count(bitstring('1', 2000000000))",
    "lambda": "SELECT list_sum(list_transform(range(100000000), lambda x: x * 2))",
    "regex": "SELECT count(*) FROM range(100000) "
    "WHERE regexp_matches(repeat('a', 10000), '(a+)+b')",
    "similarity": "SELECT levenshtein(repeat('a', 100000), repeat('b', 100000))",
    "json": "SELECT json_extract(repeat('[', 100000) || repeat(']', 100000), '$')",
    "sum of ones": f"SELECT {'+'.join('1' * 50_000)}",
    "many columns": f"SELECT {','.join(map(str, range(100_000)))}",
    "many conditions": f"SELECT 1 FROM orders WHERE {' OR '.join('id = 1' for _ in range(50_000))}",
    "many joins": f"SELECT count(*) FROM {', '.join(f'orders o{n}' for n in range(60))}",
    "deep subqueries": f"SELECT * FROM {'(SELECT * FROM ' * 800}orders{')' * 800}",
    "deep functions": f"SELECT {'abs(' * 900}1{')' * 900}",
    "window": "SELECT sum(range) OVER (ORDER BY md5(range::VARCHAR)) FROM range(50000000)",
    "series": "SELECT count(*) FROM generate_series(TIMESTAMP '0001-01-01', "
    "TIMESTAMP '9999-01-01', INTERVAL 1 microsecond)",
    "cube": "SELECT count(*) FROM range(1000000) GROUP BY CUBE (range, range % 2, range % 3, "
    "range % 5, range % 7, range % 11, range % 13, range % 17, range % 19, range % 23)",
    "wide struct": "SELECT to_json(list_transform(range(10000000), lambda x: {'a': x, 'b': x}))",
    "one row of much": f"SELECT {', '.join(['repeat(chr(120), 3000000)'] * 99)}",
}


READS = (
    "select name from customers where note like '%delete my account%'",
    "with n as (select name, replace(note, ' ', '') x from customers) "
    "select name, length(x) as updated from n order by 2 desc",
    "select t.into, t . update from t",
    'select "into", "a.b" from "t" where "x" in (\'a\', \'b\')',
    "select count(*), 'all' as kind from t join u on t.id = u.id where u.name = 'x'",
    "select pg_size_pretty(pg_total_relation_size('t')), pg_typeof(a), coalesce(b, 'x') from t",
    "select date_trunc('month', day), sum(x) filter (where y > 0) from t group by 1, 2",
    "select 1 -- into\n, 2 /* into */ from t",
    "select query, glob, sleep from reads",
    "select a from t join u on coalesce(t.a, '') = u.a",
    "select * from t, unnest(string_to_array(a, ',')) as x, u where x = 'a' order by 1 desc, 'b'",
    "select * from (values (1, 'a'), (2, 'b')) as v(n, name)",
    "select extract(year from day), 'x' as kind from t join u on t.a::text = 'y'",
    "select * from t pivot (sum(n), count(*) for kind in ('a', 'b'))",
    "with a as (values (1, 'x'), (2, 'y')) select * from a, (select 1, 'z') as b",
    "select * from t join u on string_agg(x, ',' order by x desc) = 'a,b'",
)
ACTS = (
    "SELECT 1. INTO t", "SELECT a FROM t WHERE x=1. INTO OUTFILE 'x'",
    "SELECT a FROM t WHERE x=1.e2 INTO OUTFILE 'x'", "select pg_read_file('/etc/passwd')",
    "select PG_Read_Binary_File /* x */ ('/etc/passwd')",
    "select pg_catalog.pg_read_file('/etc/passwd')", "select \"pg_read_file\"('/etc/passwd')",
    "select U&\"\\0070g_read_file\"('/etc/passwd')", "select * from pg_ls_dir('.')",
    "select pg_terminate_backend(1), pg_sleep(1000)", "select lo_export(1, '/tmp/x')",
    "select * from dblink('x', 'drop table t') as t(a int)",
    "select dblink_exec('x', 'drop table t')",
    "select * from crosstab('select query from pg_stat' || '_activity') as t(a text)",
    "select * from connectby('t', 'a', 'b', 'x', 0) as t(a text, b text, c int)",
    "select nextval('s'), setval('s', 1)", "select set_config('role', 'postgres', false)",
    "select query_to_xml('drop table t', true, true, '')", "select * from t for share",
    "select * from t join 'x.csv' on true", 'select * from "/etc/passwd"',
    "from 'https://evil.example/x.csv'", "describe 'x.csv'",
    "from (select 1, 'a' from t order by 1) as a, 'x.csv'",
    "from t join u on coalesce(t.a, ('b')) = u.a, /* x */ 'x.csv'",
    "from t join u on row_number() over (order by 1) > 0, 'x.csv'",
    "from t join u on max(a) within group (order by 1) = t.limit, 'x.csv'",
    "from ((t cross join ('x.csv')))", "from values (1) as v, 'x.csv'",
    "from (values (1) as v cross join 'x.csv')", "from t tablesample 10%, 'x.csv'",
    "from t, a: 'x.csv'", "select * from t, lateral (from 'x.csv')", "select (table 'x.csv')",
    "from (desc 'x.csv')", "from (pivot 'x.csv' on a)", "with a as (unpivot 'x.csv' on a) select 1",
    "from (pivot_longer 'x.csv' on a)", "select 1from 'x.csv'", "select 1e+5from 'x.csv'",
    "select 1) from t, unnest((1), 'x.csv'",
    "select * from parquet_scan('x'), sqlite_scan('x', 't')",
    "select * from postgres_query('x', 'drop table t')",
    "select writefile('/tmp/x', 'y'), readfile('/etc/passwd')",
    "select 'a\\'' into outfile \"/tmp/x\" -- '", "select 1 as [a'], load_extension('x') as [b']",
    "select 1 /*!50000 into outfile 'x' */", "select $a$ ; drop table t; $a$",
    "select $$ ' $$ into t -- '", "select 1 /* /* */ into t */", "select 'a' \1 from t",
)  # fmt: skip

NOT_OF_POSTGRESQL = ("from (desc 'x.csv')", "select 'a\\'' into outfile \"/tmp/x\" -- '")
"""PostgreSQL's own parser refuses the first; the second is one string there."""
PLAIN_TEXTS = (
    "select 'a\\'' into outfile \"/tmp/x\" -- '",
    "select 1 /*!50000 into outfile 'x' */",
    "select $a$ ; drop table t; $a$",
    "select 1 /* /* */ into t */",
    "with a as (unpivot 'x.csv' on a) select 1",
)
"""Those of ACTS that are a text, a comment or ignored in DuckDB: they run and do nothing."""
POSTGRESQL_READS = (
    "select distinct on (a) a, b from t order by a desc nulls last limit 5 offset 2",
    "select sum(b) over w from t window w as (order by d rows between 1 preceding and current row)",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select * from r",
    "select * from a left join b using (id) cross join lateral (select 1) x natural join c",
    "select mode() within group (order by x) from t group by grouping sets ((a), (b)), cube (c, d)",
    "select (array[1, 2])[1], row(1, 2), (t).a, t.*, j->'a'->>'b', j #> '{a}', j @> '{}', a ~* 'x'",
    "select exists(select 1), a ^ b, a collate \"C\", position('a' in b), trim(both 'x' from a)",
    "select * from jsonb_to_recordset('[]') as x(a int), generate_series(1, 2) with ordinality",
    "select split_part(a, E'\\n', 1), E'it\\'s', b'101', U&'x', current_date, a::numeric(10, 2)",
    "select a is distinct from b, a = all (select 1), (a, b) overlaps (c, d), a ilike any (b)",
    "select now() at time zone 'utc' - interval '1 d', make_interval(days => 3), pg_catalog.pi()",
    "select * from json_table('{}', '$' columns (a int path '$.a')) x fetch first 5 rows only",
    'select glob, comment, type, user_id as "end" from only t tablesample bernoulli (10)',
    "select table_name from information_schema.columns where data_type = 'date'",
)
BIGQUERY_READS = (
    "select a, count(*) from `p.d.t` where _PARTITIONTIME > timestamp('2020-01-01') group by all",
    "select * except (a) replace (b + 1 as b) from `p-1`.d.t qualify rank() over (order by b) = 1",
    "select struct(1 as a).a, [1, 2][offset(0)], array<int64>[1], array(select as struct 1 as a)",
    "select * from unnest([1, 2]) as x with offset as o, t, t.items as i",
    "select extract(isoweek from d), safe_cast(a as int64), cast(a as string format 'YYYY') from t",
    "select * from t for system_time as of timestamp_sub(current_timestamp(), interval 1 hour)",
    "select * from t pivot (sum(a) for b in ('x' as x, 'y')) union distinct select 2",
    "select any_value(a having max b), string_agg(a, ',' order by b limit 3), safe.substr(a, 0)",
    "from t |> where a > 1 |> aggregate count(*) as n group by b |> order by n desc |> limit 5",
    "select net.host(u), hll_count.extract(x), r'\\d', 'it\\'s', '''it's''' from `events_*`",
)
POSTGRESQL_ACTS = (
    "select 1 from t for update", "select a from t for no key update skip locked",
    "table pg_stat_activity", "select * from (table pg_authid) a", "select * from only pg_shadow",
    "select * from rows from (pg_ls_dir('.'), unnest(a))", "select (select pg_sleep(9))",
    "select 1 order by pg_sleep(9)", "select 1 where pg_catalog.\"pg_sleep\"(9) is null",
    "select lower(pg_read_file('x')) over (partition by lo_import('y')) from t",
    "select query_to_xml($$select 1$$, true, true, '')", "select E'a\\'', pg_sleep(9) -- '",
    "select 'a' /* ' */ , pg_sleep(9) --'", "select 1 /* /* */ */, pg_sleep(9)",
    "select current_setting('data_directory')", "show all", "select inet_server_addr(), version()",
    "select public.lower('x')", "select mine.grow()", "select 1 into t", "values (nextval('s'))",
    "with a as (insert into t values (1) returning *), b as (select 1) select * from b",
    "with a as (select 1) merge into t using a on true when matched then delete",
    "select * from information_schema.views", "select * from information_schema.routines",
    "select * from pg_catalog.pg_class", "select * from pg_temp.x", "explain analyze delete from t",
    "select $1", "select :a", "select * from t where a = @b", "do $$ begin perform 1; end $$",
    "select * from u&\"pg_auth\\0069d\"", "select dblink_connect('x')", "copy t to program 'x'",
    "select xmlparse(document pg_read_file('x'))", "select 1 union select pg_backend_pid()",
    "select * from xmltable('/a' passing pg_read_file('x') columns b int)",
)  # fmt: skip
BIGQUERY_ACTS = (
    "declare x int64; select 1", "begin select 1; end", "if true then select 1; end if",
    "execute immediate 'drop table t'", "call p()", "create temp function f() as (1); select f()",
    "export data options (uri = 'gs://x/*') as select 1", "load data into t from files (uris = [])",
    "select * from external_query('c', 'select 1')", "select * from ml.predict(model m, table t)",
    "select * from ai.forecast(table t)", "select ml.generate_text(model m, table t)",
    "select `ml`.generate_embedding(model m, (select 1))", "select ai.generate('x')",
    "select * from vector_search(table t, 'a', (select 1))", "select session_user()",
    "select * from INFORMATION_SCHEMA.JOBS", "select * from d.information_schema.tables",
    "select * from `region-us`.INFORMATION_SCHEMA.JOBS", "from `p.d.INFORMATION_SCHEMA.TABLES`",
    "select * from `p\\x61yroll`.salaries", "select @@project_id", "select @p", "select d.f(1)",
    "from t |> call p()", "from t |> export data options (uri = 'gs://x/*')",
    "select keys.new_keyset('AEAD_AES_GCM_256')", "select 1; drop table t", "assert true",
    "with a as (select 1) insert into t select * from a", "select * from `/etc/passwd`",
)  # fmt: skip

UNITS = ("/*", "'a", "(", "from (", "from t, f(a, ", "a.", "query_to_")
NESTED = ("array[" * 40 + "1" + "]" * 40, "struct(" * 2_700, "(" * 19_000)
"""A parser that backtracks at each level never finishes these, or overflows its stack."""


@pytest.mark.parametrize(
    ("dialect", "statements"),
    [("PostgreSQL", (*READS, *POSTGRESQL_READS)), ("BigQuery", BIGQUERY_READS)],
)
def test_read_only_statements_are_accepted(dialect: str, statements: tuple[str, ...]) -> None:
    assert [each for each in statements if refusal(each, dialect)] == []


@pytest.mark.parametrize(
    ("dialect", "statements"),
    [
        ("PostgreSQL", POSTGRESQL_ACTS),
        ("BigQuery", BIGQUERY_ACTS),
        ("PostgreSQL", [each for each in ACTS if each not in NOT_OF_POSTGRESQL]),
        ("", [each for each in ACTS if each not in NOT_OF_POSTGRESQL]),
    ],
)
def test_statements_that_can_do_more_than_read_are_rejected(
    dialect: str, statements: list[str]
) -> None:
    assert [each for each in statements if not refusal(each, dialect)] == []


async def test_duckdb_rejects_statements_that_can_do_more_than_read(tmp_path: Path) -> None:
    async with data_kit.duck(data_kit.duck_file(tmp_path / "a.duckdb")) as database:
        for sql in ACTS:
            if sql not in PLAIN_TEXTS:
                with pytest.raises(ToolError):
                    await database.query(sql, 5)
        assert await count_orders(database) == ((3,),)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("select 1; select 2", "Only one SELECT"),
        ("drop table t", "Only one SELECT"),
        ("select comment from t where comment is not null and insert = 1", "needs quotes"),
        ("select * from duckdb_columns()", "duckdb_columns() cannot be used here"),
        ("select pg_read_file ('a')", "pg_read_file() cannot be used here"),
        ('select "pg_sleep"(9)', "pg_sleep() cannot be used here"),
        ("select * from pg_stat_activity", "list_tables"),
        ('select * from "a/b.csv"', "A path in quotes"),
        ("select a b c from t", "as PostgreSQL: line 1, column 12"),
        ("select $a$ x $a$", "single quotes"),
        ("select 1 --" + "x" * 20_000, "20,000 characters"),
    ],
)
def test_rejection_of_a_statement_says_why(statement: str, reason: str) -> None:
    assert reason in refusal(statement, "PostgreSQL")


@pytest.mark.parametrize("unit", UNITS)
def test_statement_check_is_fast_for_repeated_fragments(unit: str) -> None:
    with cpu_limit(0.5):
        refusal("select " + unit * (19_000 // len(unit)), "PostgreSQL")


@pytest.mark.parametrize("nested", NESTED)
def test_deeply_nested_statements_do_not_crash_the_check(nested: str) -> None:
    assert "nested too deeply" in refusal(f"select {nested}", "PostgreSQL")
    assert not tables_of(f"select {nested}")


def test_tables_of_a_statement_exclude_its_ctes() -> None:
    sql = (
        "WITH many AS (SELECT customer, count(*) AS n FROM shop.orders GROUP BY customer) "
        "SELECT customer, n FROM many JOIN customers USING (customer) WHERE n > 1 AND market = 'ES'"
    )
    assert set(tables_of(sql)) == {"orders", "customers"}


async def query_in_time(database: Duck, name: str, sql: str) -> object:
    """Return the answer or error, which must come in time, also on busy processors."""
    try:
        async with patient(STOPPED_S):
            return await database.query(sql, 1_000)
    except (ToolError, SourceFailed) as error:
        return error
    except TimeoutError:
        pytest.fail(f"{name} was not stopped in {STOPPED_S} s")


def peak_mb(database: Duck) -> float:
    """Return the peak memory of the processes of the pool."""
    peaks = [0.0]
    for pid in (worker.pid for _, worker in database.pool._idle if worker.pid):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                peaks.append(int(line.split()[1]) / 1024)
    return max(peaks)


async def count_orders(database: Duck) -> object:
    """Count the orders in the same processes, with more time."""
    return (await replace(database, query_s=10).query("SELECT count(*) FROM orders", 5)).rows


async def survives(database: Duck, name: str, sql: str) -> None:
    """Check that a query ends within its time and memory, and that the next query works."""
    ending = await query_in_time(database, name, sql)
    if isinstance(ending, Rows):
        assert sum(len(str(c)) for row in ending.rows for c in row) < 6_000_000, name
    else:
        assert isinstance(ending, ToolError), (name, ending)
        assert str(ending)
    assert peak_mb(database) < MEMORY_MB, name
    assert await count_orders(database) == ((3,),)


async def is_refused(ctx: ToolContext, sql: str) -> bool:
    """Return whether the gate, the tool or the database refuses a statement."""
    try:
        result = await tool_kit.use(ctx, "execute_query", sql=sql)
    except ToolError:
        return True
    return not isinstance(result, ToolResult) or [
        item.id.partition("#")[2] for item in result.items
    ] == ["error"]


async def test_forbidden_statements_are_rejected_with_and_without_the_gate(
    tmp_path: Path,
) -> None:
    path = data_kit.duck_file(tmp_path / "a.duckdb")
    outside = tmp_path / "outside"
    outside.mkdir()
    async with data_kit.duck(path, query_s=QUERY_S) as database:
        ctx = data_kit.context({"data:shop": database})
        for template in FORBIDDEN:
            sql = template.replace("{outside}", str(outside))
            assert await is_refused(ctx, sql), sql
            ending = await query_in_time(database, sql, sql)
            assert isinstance(ending, ToolError), (sql, ending)
        with pytest.raises(ToolError, match="Only one SELECT"):
            await database.query("CREATE TEMP TABLE t AS SELECT 1", 5)
        assert await count_orders(database) == ((3,),)
    assert not list(outside.iterdir())


async def test_queries_about_the_machine_are_rejected_and_about_the_data_allowed(
    tmp_path: Path,
) -> None:
    path = data_kit.duck_file(
        tmp_path / "a.duckdb", data_kit.SHOP, "CREATE MACRO mine() AS TABLE FROM orders"
    )
    async with data_kit.duck(path) as database:
        ctx = data_kit.context({"data:shop": database})
        for sql in MACHINE:
            assert await is_refused(ctx, sql), sql
        for sql in (*MACHINE, *NAMES_AS_TEXTS):
            with pytest.raises(ToolError, match="list_tables"):
                await database.query(sql, 5)
        with pytest.raises(ToolError, match="flatter"):
            await database.query(f"SELECT {'abs(' * 600}1{')' * 600}", 5)
        for sql in (
            "SELECT table_name FROM information_schema.tables",
            "SELECT table_name FROM duckdb_tables",
            "DESCRIBE orders",
            "SHOW TABLES",
            "SELECT customer AS duckdb FROM mine()",
            "SELECT histogram(customer), 'duckdb_settings' FROM orders, range(2)",
        ):
            assert (await tool_kit.done(ctx, "execute_query", sql=sql)).items[1:], sql


async def test_duckdb_catalog_reveals_no_paths_and_no_unlisted_tables(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere" / "secret.csv"
    secret.parent.mkdir()
    secret.write_text("a,b\n1,2\n")
    path = data_kit.duck_file(
        tmp_path / "a.duckdb",
        data_kit.SHOP,
        f"CREATE VIEW late AS SELECT a FROM read_csv('{secret}')",
        f"CREATE MACRO rows() AS TABLE SELECT * FROM read_csv('{secret}')",
    )
    async with data_kit.duck(path) as database:
        listed = {table.name for table in await database.tables()}
        assert "late" in listed
        for source in CATALOGS:
            try:
                text = str((await database.query(f"SELECT * FROM {source}", 500)).rows)
            except ToolError as error:
                text = str(error)
            assert "elsewhere" not in text, source
            assert set(re.findall(r"\b(?:orders|customers|late)\b", text)) <= listed


CATALOGS = (
    *("duckdb_tables", "duckdb_tables()", "duckdb_views", "duckdb_views()", "duckdb_columns"),
    *("duckdb_constraints", "duckdb_indexes", "duckdb_schemas", "duckdb_types", "duckdb_functions"),
    *("sqlite_master", "sqlite_schema", "sqlite_temp_master", "pragma_table_info('orders')"),
    *("pragma_show('late')", "pg_catalog.pg_tables", "pg_catalog.pg_class", "pg_catalog.pg_views"),
    *("pg_catalog.pg_proc", "pg_catalog.pg_attribute", "pg_catalog.pg_indexes"),
    *("information_schema.tables", "information_schema.columns", "information_schema.views"),
    *("information_schema.schemata", "duckdb_databases()", "pg_catalog.pg_database"),
)


@pytest.mark.parametrize(
    "bombs", [BOMBS, pytest.param(MORE_BOMBS, marks=pytest.mark.slow)], ids=["few", "many"]
)
async def test_resource_bomb_queries_are_stopped_and_the_next_query_works(
    tmp_path: Path, bombs: dict[str, str]
) -> None:
    path = data_kit.duck_file(tmp_path / "a.duckdb")
    async with data_kit.duck(path, query_s=QUERY_S, memory_mb=MEMORY_MB) as database:
        for name, sql in bombs.items():
            await survives(database, name, sql)


async def test_database_process_sees_no_bot_environment_or_python_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    async with data_kit.duck(data_kit.duck_file(tmp_path / "a.duckdb")) as database:
        for sql in ("SELECT * FROM pool", "SELECT * FROM connection", "SELECT * FROM request"):
            with pytest.raises(StatementFailed, match="does not exist"):
                await database.query(sql, 5)
        ((_, worker),) = database.pool._idle
        environ = await asyncio.to_thread(Path(f"/proc/{worker.pid}/environ").read_text)
        assert {line.split("=")[0] for line in environ.split("\0")} == {
            "",
            "MALLOC_ARENA_MAX",
            "LC_ALL",
        }
