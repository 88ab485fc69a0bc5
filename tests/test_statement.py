"""A statement that only reads passes; one that may do anything else does not, nor one in doubt."""

from __future__ import annotations

import pytest
from timing import computed_within

from scopes.databases.statement import refusal

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
    "select * from t, unnest(string_split(tags, ',')) as x, u where x = 'a' order by 1 desc, 'b'",
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

UNITS = (
    *("/*", "'a", '"', "''a", "$a$", "--", "[", "(", ", ", "x "),
    *("from ", "from a,", "from (", "from t, f(a, ", "with ", "a."),
    *("query_to_", "xml", "a_scan", "pg_"),
)


@pytest.mark.parametrize("statement", READS)
def test_a_statement_that_only_reads_passes(statement: str) -> None:
    assert not refusal(statement)


@pytest.mark.parametrize("statement", ACTS)
def test_what_may_do_more_than_read_does_not_pass(statement: str) -> None:
    assert refusal(statement)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("select 1; select 2", "Only one SELECT"),
        ("drop table t", "Only one SELECT"),
        ("select comment from t where comment is not null and update = 1", "t.update"),
        ("select * from duckdb_columns()", "duckdb_columns() may not be called"),
        ("select pg_read_file ('a')", "pg_read_file() may not be called"),
        ('select "pg_sleep"(9)', "A name in quotes"),
        ("select * from 'a/b.csv'", "A path in quotes"),
        ("select 'a", "Where its quotes"),
        ("select 1 --" + "x" * 20_000, "20,000 characters"),
    ],
)
def test_what_keeps_a_statement_from_running_is_told(statement: str, told: str) -> None:
    assert told in refusal(statement)


@pytest.mark.parametrize("unit", UNITS)
def test_it_is_looked_at_in_linear_time(unit: str) -> None:
    with computed_within(0.5):
        refusal("select " + unit * (19_000 // len(unit)))
