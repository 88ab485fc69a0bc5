"""The offline mind's SQL: what it understands it counts right, and what not it leaves alone."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bot.local.mind.schema import Table, Values
from bot.local.mind.sql import composed, select
from bot.local.mind.sql_place import Placed, fitting, schemas_in
from bot.local.mind.sql_where import unknown
from bot.local.sample_sales import SALES

MANY = 40


class Asked:
    """A database that questions are put to."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, schema: str, today: str) -> None:
        self.connection, self.today = connection, today
        self.tables: list[Table] = []
        self.values: dict[tuple[str, str], list[str]] = {}
        listed = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY 1",
            [schema],
        ).fetchall()
        for (name,) in listed:
            columns = connection.execute(f"DESCRIBE {schema}.{name}").fetchall()
            self.tables.append(Table.of(f"{schema}.{name}", [(c[0], c[1]) for c in columns]))
        for table in self.tables:
            for column in (c for c in table.columns if c.is_text):
                query = f'SELECT DISTINCT "{column.name}" FROM {table.name} ORDER BY 1'
                texts = [text for (text,) in connection.execute(query).fetchall() if text]
                if len(texts) <= MANY:
                    self.values[table.name, column.name] = texts

    def sql(self, question: str) -> str:
        values: Values = self.values
        return select(question, self.tables, values, self.today)

    def __call__(self, question: str) -> list[tuple[Any, ...]]:
        sql = self.sql(question)
        assert sql, f"no query; unknown: {unknown(question, self.tables, self.values)}"
        return self.connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def sales() -> Asked:
    connection = duckdb.connect()
    for file in sorted(SALES.glob("*.csv")):
        connection.execute(f"CREATE TABLE {file.stem} AS FROM read_csv('{file}')")
    return Asked(connection, "main", "2026-03-16")


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("Which market had the largest refunds in March, and how much?", [("Spain", 505.0)]),
        ("How many customers are there in Italy?", [(13,)]),
        ("How much was refunded to customers in Spain in March?", [(505.0,)]),
        ("How many orders were placed in January 2026?", [(85,)]),
        ("Which market has the most customers?", [("Spain", 17)]),
        ("How many distinct customers got a refund in March?", [(13,)]),
        (
            "How many refunds were there for each reason?",
            [("charged twice", 12), ("goods sent back", 12)],
        ),
        (
            "What is the total amount of refunds per market last month?",
            [
                ("France", 65.0),
                ("Germany", 268.0),
                ("Italy", 249.0),
                ("Switzerland", 65.0),
            ],
        ),
        (
            "What are the top 2 customers by total order amount? Return the name and the amount.",
            [("Taller Rueda Libre", 1425.0), ("Trattoria Da Nives", 1248.0)],
        ),
    ],
)
def test_plain_questions_about_the_sample_sales_are_counted(
    sales: Asked, question: str, rows: list[tuple[Any, ...]]
) -> None:
    assert sales(question) == rows


@pytest.mark.parametrize(
    "question",
    [
        "What do customers think of us?",
        "How many customers will leave next year?",
        "Which customers have no refunds?",
        "What is the CLV of each market?",
        "Which product was sold most often?",
    ],
)
def test_what_the_rules_do_not_understand_is_left_alone(sales: Asked, question: str) -> None:
    assert sales.sql(question) == ""


STOCK = """
CREATE TABLE products AS FROM (VALUES (1, 'Mug', 'Kitchen', 8.5, 2024), (2, 'Cup', 'Kitchen', 8.5,
  2025), (3, 'Lamp', 'Office', 39, 2025)) t(product_id, name, category, unit_price, year);
CREATE TABLE orders AS FROM (VALUES (1, 1, 'Lisbon', 3, DATE '2026-01-05', 'shipped'), (2, 3,
  'Porto', 1, DATE '2026-02-05', 'open'), (3, 1, 'Faro', 5, DATE '2026-02-09', 'cancelled'))
  t(order_id, product_id, city, quantity, order_date, status);
CREATE TABLE returns AS FROM (VALUES (1, 2, 'broken', 39)) t(return_id, order_id, reason, amount);
CREATE TABLE payments_made AS FROM (VALUES (1, 'cash')) t(id, method);
CREATE TABLE payments_received AS FROM (VALUES (1, 'cash'), (2, 'cash')) t(id, method)"""


@pytest.fixture(scope="module")
def stock() -> Asked:
    connection = duckdb.connect()
    connection.execute(STOCK)
    return Asked(connection, "main", "2026-03-16")


@pytest.mark.parametrize(
    "question",
    [
        "How many orders were not shipped?",
        "How many orders except those from Porto?",
        "How many orders were returned?",
        "How many products have orders?",
        "How many orders this month?",
        "How many orders from Lisbon in January and in February?",
        "How many products cost between 5 and 10?",
        "How many orders have quantity 3 or 5?",
        "Which city has the second most orders?",
        "What is the average number of orders per city?",
        "How many orders have more than 3 returns?",
        "How many products and how many orders are there?",
        "How many broken products are there?",
        "What is the average unit price of products by reason of returns?",
        "What is the total revenue?",
        "How many payments are in cash?",
    ],
)
def test_a_question_of_which_a_part_would_be_left_out_is_left_alone(
    stock: Asked, question: str
) -> None:
    assert stock.sql(question) == ""


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("How many orders from Lisbon or Faro are there?", [(2,)]),
        ("How many cancelled or open orders are there?", [(2,)]),
        ("How many orders have a quantity of 5?", [(1,)]),
        ("How many products have unit price 8.50?", [(2,)]),
        ("How many products are of the year 2025?", [(2,)]),
        ("How many products in 2024?", [(1,)]),
        ("What is the highest unit price?", [(Decimal(39),)]),
        ("What's the lowest unit price?", [(Decimal("8.5"),)]),
        ("How many products have orders with status shipped or cancelled?", [(1,)]),
        ("How many payments were received in cash?", [(2,)]),
        ("Which products have no orders?", [(2, "Cup")]),
    ],
)
def test_filters_and_joins_count_each_row_once(
    stock: Asked, question: str, rows: list[tuple[Any, ...]]
) -> None:
    assert stock(question) == rows


def test_what_a_query_would_leave_out_is_told(stock: Asked) -> None:
    made, left = composed("How many orders this month?", stock.tables, stock.values, stock.today)
    assert made.startswith("SELECT COUNT(*)")
    assert left == ["this month"]


@pytest.mark.parametrize(
    "question", ["top 2 products by quantity", "The top 2 products by total quantity"]
)
def test_the_first_of_a_list_are_ranked_by_what_is_named(sales: Asked, question: str) -> None:
    assert sales.sql(question).endswith("ORDER BY sum_quantity DESC NULLS LAST LIMIT 2")


def test_where_nothing_can_be_ranked_nothing_is_counted_instead(sales: Asked) -> None:
    assert sales.sql("What are the top 3?") == ""
    assert sales.sql("top 3 orders") == ""


def test_words_that_no_column_has_are_named(sales: Asked) -> None:
    words = unknown("How many unhappy customers are in Spain?", sales.tables, sales.values)
    assert words == ["unhappy"]


@pytest.mark.parametrize(
    ("said", "start", "end"),
    [
        ("in March", "2026-03-01", "2026-04-01"),
        ("in February 2025", "2025-02-01", "2025-03-01"),
        ("in 2025", "2025-01-01", "2026-01-01"),
        ("in the first quarter of 2025", "2025-01-01", "2025-04-01"),
        ("last week", "2026-03-09", "2026-03-16"),
        ("last month", "2026-02-01", "2026-03-01"),
        ("between 2026-01-05 and 2026-01-07", "2026-01-05", "2026-01-08"),
        ("on or after Mar 2, 2026", "2026-03-02", ""),
        ("before 2026-02-01", "", "2026-02-01"),
        ("in the past 10 days", "2026-03-06", ""),
    ],
)
def test_times_become_half_open_spans(sales: Asked, said: str, start: str, end: str) -> None:
    sql = sales.sql(f"How many refunds were there {said}?")
    assert (f">= DATE '{start}'" in sql) == bool(start)
    assert (f"< DATE '{end}'" in sql) == bool(end)
    assert "refund_date" in sql


def test_a_quote_in_a_value_stays_in_the_value(sales: Asked) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE shops AS SELECT 1 AS id, 'L''Orto' AS city")
    shops = Asked(connection, "main", "2026-03-16")
    assert shops("How many shops are in L'Orto?") == [(1,)]


def test_a_word_that_ends_in_top_asks_for_no_ranking() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE laptop_orders AS SELECT 1 AS id")
    laptops = Asked(connection, "main", "2026-03-16")
    assert laptops("How many laptop orders are there?") == [(1,)]


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("How many Aufträge are there?", [(2,)]),
        ("How many Aufträge 2024 are there?", [(2,)]),
        ("How many rows are in Aufträge 2024.csv?", [(2,)]),
        ("What is the average Betrag per Größe?", [("L", 20.0), ("M", 4.0)]),
        ("How many orders 2024 are there?", [(3,)]),
        ("How many open claims are there?", [(4,)]),
    ],
)
def test_names_in_any_letters_with_years_and_spaces_are_understood(
    question: str, rows: list[tuple[Any, ...]]
) -> None:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE Aufträge_2024 AS "
        "FROM (VALUES (1, 'L', 20), (2, 'M', 4)) t(id, Größe, Betrag);"
        "CREATE TABLE orders_2023 AS SELECT 1 AS id;"
        "CREATE TABLE orders_2024 AS FROM range(3) t(id);"
        'CREATE TABLE "open claims" AS FROM range(4) t(id)'
    )
    names = ("Aufträge_2024", "orders_2023", "orders_2024", '"open claims"')
    asked = Asked(connection, "none", "2026-03-16")
    described = [(n, connection.execute(f"DESCRIBE {n}").fetchall()) for n in names]
    asked.tables = [Table.of(n, [(c[0], c[1]) for c in columns]) for n, columns in described]
    assert asked(question) == rows
    assert asked.sql("How many orders are there?") == ""
    assert asked.sql("What is the average Betrag per Länge?") == ""


SCHEMAS = [
    Table.of("broker.sbCustomer", [("sbCustId", "VARCHAR"), ("sbCustState", "VARCHAR")]),
    Table.of("broker.sbDailyPrice", [("sbDpId", "VARCHAR"), ("sbDpHigh", "DOUBLE")]),
    Table.of("car_dealership.customers", [("id", "INTEGER"), ("state", "VARCHAR")]),
    Table.of("hr.staff", [("id", "INTEGER"), ("broker", "VARCHAR")]),
    Table.of("teams", [("id", "INTEGER")]),
]


@pytest.mark.parametrize(
    ("question", "left", "schema"),
    [
        ("In the schema broker: How many customers?", "How many customers?", "broker"),
        ("In broker: How many customers?", "How many customers?", "broker"),
        ("How many customers are in the broker schema?", "How many customers are?", "broker"),
        ('How many rows has "broker"."sbCustomer"?', 'How many rows has "sbCustomer"?', "broker"),
        ("How many customers in car dealership have state CA?", "How many customers have state CA?",
         "car_dealership"),
        ("At the Car_Dealership, how many customers?", "how many customers?", "car_dealership"),
    ],
)  # fmt: skip
def test_a_schema_is_named_in_many_ways(question: str, left: str, schema: str) -> None:
    assert schemas_in(question, SCHEMAS) == Placed(left, (schema,))


def test_a_schema_that_is_not_there_is_none_and_one_that_may_be_a_word_is_doubted() -> None:
    assert schemas_in("In the schema sales: how many customers?", SCHEMAS).names == ()
    assert schemas_in("How many staff of broker are there?", SCHEMAS).names == ()
    assert schemas_in("How many customers are in broker?", SCHEMAS).doubtful == "broker"
    two = schemas_in("How many customers has broker.sbCustomer, and the schema hr?", SCHEMAS)
    assert set(two.names) == {"broker", "hr"}


def test_of_schemas_that_know_the_same_words_none_is_preferred() -> None:
    both = fitting("How many customers are there by state?", SCHEMAS)
    assert [group[0].name for group in both] == ["broker.sbCustomer", "car_dealership.customers"]
    one = fitting("How many customers have a high price?", SCHEMAS)
    assert [group[0].name for group in one] == ["broker.sbCustomer"]


@pytest.mark.parametrize("form", ["{}", "In the schema {1}: {0}", "{0} (in {1})"])
def test_of_the_gold_questions_it_answers_many_right_and_none_wrong(
    dev_data: Path, form: str
) -> None:
    entries = json.loads((dev_data / "labels" / "sql_gold.json").read_text("utf-8"))
    connection = duckdb.connect(str(dev_data / "business.duckdb"), read_only=True)
    asked = [Asked(connection, db, "2024-07-01") for db in ("broker", "car_dealership")]
    tables = [table for each in asked for table in each.tables]
    values = {place: texts for each in asked for place, texts in each.values.items()}
    right, wrong = 0, []
    for entry in entries:
        where = schemas_in(form.format(entry["question"], entry["db"]), tables)
        meant = [t for t in tables if t.name.startswith((*where.names, "")[0])]
        groups = fitting(where.question, meant)
        made = [select(where.question, group, values, "2024-07-01") for group in groups]
        if len(queries := [sql for sql in made if sql]) == 1:
            rows = connection.execute(queries[0]).fetchall()
            same = _plain(rows) == _plain(entry["answer"])
            right += same
            wrong += [] if same else [entry["question"]]
    assert wrong == []
    assert right >= 30


def _plain(rows: list[Any]) -> list[str]:
    def cell(value: Any) -> Any:
        number = isinstance(value, float | Decimal)
        return round(float(value), 4) if number else value if isinstance(value, int) else str(value)

    return sorted(str([cell(value) for value in row]) for row in rows)
