"""What a statement in SQL reads, as its source names it."""

from __future__ import annotations

import pytest

from scopes.databases.statement_sources import StatementSources, sources_of


@pytest.mark.parametrize(
    ("sql", "tables", "groups", "filters"),
    [
        ("SELECT 1", (), (), ()),
        ("SELECT * FROM main.orders o WHERE o.day > '2026'", ("orders",), (), ("day",)),
        (
            "WITH r AS (SELECT id, sum(x) s FROM refunds WHERE y GROUP BY id) -- per order\n"
            "SELECT c.name AS customer, sum(s) FROM customers c LEFT JOIN r ON r.id = c.id\n"
            "GROUP BY c.name",
            ("customers", "refunds"),
            ("customer",),
            (),
        ),
        ("SELECT market, kind, count(*) FROM a GROUP BY 1, kind", ("a",), ("market", "kind"), ()),
        ("SELECT a FROM `p.d.x` UNION ALL SELECT b FROM y", ("x", "y"), (), ()),
        ("SELECT a FROM x WHERE b IN (SELECT b FROM y)", ("x", "y"), (), ("b",)),
        ("SELECT STRUCT<x INT64>(1) FROM orders", ("orders",), (), ()),
        ("SELECT a FROM x WHERE (b->>'c')::int = 1", ("x",), (), ("b",)),
        (f"SELECT {'NOT ' * 950}true FROM deep", (), (), ()),
        ("no statement '", (), (), ()),
    ],
)
def test_a_source_names_tables_groups_and_filters(
    sql: str, tables: tuple[str, ...], groups: tuple[str, ...], filters: tuple[str, ...]
) -> None:
    assert sources_of(sql) == StatementSources(tables, groups, filters)
