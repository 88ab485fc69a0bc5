"""The local BigQuery, driven by Google's own client and held to Google's own discovery document."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from google_data_kit import DATASET, PROJECT, World, shop, unlike_the_document, world
from standins.bigquery import METHODS
from standins.bigquery_tables import bigquery_of, ours
from standins.google import FullGoogle

from bot.local.google.faults import Fault

Json = dict[str, Any]
AT = {"projectId": PROJECT, "datasetId": DATASET}


@pytest.fixture
def there() -> Iterator[World]:
    state = shop()
    with world(FullGoogle(bigquery=state), "bigquery", "v2") as made:
        yield made
    state.tables.close()


def job(sql: str, *, id: str = "", dry: bool = False, **query: Any) -> Json:
    asked = {"query": sql, "useLegacySql": False, "defaultDataset": AT} | query
    reference = {"jobReference": {"projectId": PROJECT, "jobId": id}} if id else {}
    return reference | {"configuration": {"dryRun": dry, "query": asked}}


def insert(there: World, sql: str, **more: Any) -> Any:
    return there.service.jobs().insert(projectId=PROJECT, body=job(sql, **more))


def results(there: World, made: Json, **more: Any) -> Any:
    id = made["jobReference"]["jobId"]
    return there.service.jobs().getQueryResults(projectId=PROJECT, jobId=id, **more)


def test_every_method_is_the_one_of_googles_document() -> None:
    assert unlike_the_document("bigquery.v2", dict(METHODS)) == []


def test_datasets_and_tables_are_told_as_they_are(there: World) -> None:
    dataset = there.call(there.service.datasets().get(**AT))
    assert dataset["id"] == f"{PROJECT}:{DATASET}"
    page = there.call(there.service.tables().list(**AT, maxResults=1))
    assert [t["tableReference"]["tableId"] for t in page["tables"]] == ["orders"]
    assert page["totalItems"] == 2
    rest = there.call(there.service.tables().list(**AT, pageToken=page["nextPageToken"]))
    assert [(t["tableReference"]["tableId"], t["type"]) for t in rest["tables"]] == [
        ("pay_per_head", "VIEW")
    ]
    table = there.call(there.service.tables().get(**AT, tableId="orders"))
    assert [(f["name"], f["type"]) for f in table["schema"]["fields"]] == [
        ("id", "INTEGER"),
        ("customer", "STRING"),
        ("amount", "NUMERIC"),
        ("placed", "DATE"),
        ("paid", "BOOLEAN"),
    ]
    assert (table["numRows"], table["numBytes"]) == ("3", str(24 + 9 + 48 + 24 + 3))


def test_a_dry_run_tells_the_bytes_of_the_columns_that_are_named(there: World) -> None:
    def read(sql: str) -> int:
        made = there.call(insert(there, sql, dry=True))
        assert "jobId" not in made["jobReference"]
        return int(made["statistics"]["query"]["totalBytesProcessed"])

    assert read("SELECT id FROM orders") == 24
    assert read("SELECT sum(amount) FROM orders WHERE paid") == 48 + 3
    assert read("SELECT * FROM orders LIMIT 1") == 108
    assert read("SELECT count(*) FROM orders") == 0
    assert read("WITH o AS (SELECT id FROM shop.orders) SELECT * FROM o") == 108
    assert there.google.bigquery is not None
    assert there.google.bigquery.jobs == {}


def test_a_query_gives_its_rows_in_pages(there: World) -> None:
    made = there.call(
        insert(there, "SELECT id, amount FROM `local-project.shop.orders` ORDER BY 1")
    )
    first = there.call(results(there, made, maxResults=2))
    assert (first["totalRows"], len(first["rows"])) == ("3", 2)
    assert first["rows"][0] == {"f": [{"v": "1"}, {"v": "12.50"}]}
    rest = there.call(results(there, made, maxResults=2, pageToken=first["pageToken"]))
    assert [row["f"][0]["v"] for row in rest["rows"]] == ["3"]
    assert "pageToken" not in rest
    assert there.call(results(there, made, startIndex=1))["rows"][0]["f"][0]["v"] == "2"


def test_values_are_sent_as_bigquery_sends_them(there: World) -> None:
    sql = """SELECT NULL AS none, true AS yes, 1.5::DOUBLE AS half, 'x'::BLOB AS raw,
        [1, 2] AS many, {'a': 'b', 'c': [DATE '2024-07-01']} AS both,
        TIMESTAMPTZ '2024-07-01 00:00:01+00' AS at, TIMESTAMP '2024-07-01 00:00:01' AS here,
        'nan'::DOUBLE AS odd"""
    made = there.call(insert(there, sql))
    found = there.call(results(there, made, formatOptions_useInt64Timestamp=True))
    values = [cell["v"] for cell in found["rows"][0]["f"]]
    assert values == [
        None,
        "true",
        "1.5",
        "eA==",
        [{"v": "1"}, {"v": "2"}],
        {"f": [{"v": "b"}, {"v": [{"v": "2024-07-01"}]}]},
        "1719792001000000",
        "2024-07-01T00:00:01",
        "NaN",
    ]
    kinds = [(f["type"], f["mode"]) for f in found["schema"]["fields"]]
    assert kinds[4:8] == [
        ("INTEGER", "REPEATED"),
        ("RECORD", "NULLABLE"),
        ("TIMESTAMP", "NULLABLE"),
        ("DATETIME", "NULLABLE"),
    ]
    seconds = there.call(results(there, made))["rows"][0]["f"][6]["v"]
    assert seconds == "1719792001.0"


def test_what_is_wrong_with_a_query_is_told_at_once(there: World) -> None:
    for sql, code, reason, says in (
        ("SELECT nope FROM orders", 400, "invalidQuery", "nope"),
        ("SELEC 1", 400, "invalidQuery", "SELEC"),
        ("SELECT * FROM nowhere", 404, "notFound", "local-project:shop.nowhere was not found"),
        ("SELECT * FROM other.orders", 404, "notFound", "Dataset local-project:other"),
        ("DELETE FROM orders WHERE true", 403, "accessDenied", "may not change"),
    ):
        found = there.refused(insert(there, sql))
        assert found[:2] == (code, reason)
        assert says in found[2]


def test_legacy_sql_is_what_the_api_takes_where_it_is_not_told_otherwise(there: World) -> None:
    body = job("SELECT 1")
    del body["configuration"]["query"]["useLegacySql"]
    request = there.service.jobs().insert(projectId=PROJECT, body=body)
    assert there.refused(request)[:2] == (400, "invalidQuery")


def test_a_job_that_is_there_already_is_not_run_again(there: World) -> None:
    there.call(insert(there, "SELECT 1", id="a"))
    code, reason, says = there.refused(insert(there, "SELECT 1", id="a"))
    assert (code, reason) == (409, "duplicate")
    assert says == "Already Exists: Job local-project:US.a"


def test_a_job_fails_that_would_be_billed_more_than_it_may(there: World) -> None:
    sql = "SELECT id FROM orders"
    made = there.call(insert(there, sql, id="a", maximumBytesBilled="1000"))
    assert made["status"]["errorResult"]["reason"] == "bytesBilledLimitExceeded"
    code, reason, says = there.refused(results(there, made))
    assert (code, reason) == (400, "bytesBilledLimitExceeded")
    assert "10485760 or higher required" in says


def test_a_job_takes_its_time_and_can_be_cancelled(there: World) -> None:
    assert there.google.bigquery is not None
    there.google.bigquery.job_s = 0.3
    made = there.call(insert(there, "SELECT 1 AS one", id="a"))
    assert made["status"]["state"] == "RUNNING"
    early = there.call(results(there, made, timeoutMs=0))
    assert early["jobComplete"] is False
    assert "rows" not in early
    assert there.call(results(there, made, timeoutMs=5000))["totalRows"] == "1"
    there.google.bigquery.job_s = 60
    made = there.call(insert(there, "SELECT 2", id="b"))
    there.call(there.service.jobs().cancel(projectId=PROJECT, jobId="b"))
    assert there.refused(results(there, made))[1] == "stopped"
    done = there.call(there.service.jobs().get(projectId=PROJECT, jobId="b"))
    assert done["status"]["errorResult"]["reason"] == "stopped"


def test_parameters_have_types(there: World) -> None:
    parameters = [
        {
            "name": "least",
            "parameterType": {"type": "NUMERIC"},
            "parameterValue": {"value": "10"},
        },
        {
            "name": "names",
            "parameterType": {"type": "ARRAY", "arrayType": {"type": "STRING"}},
            "parameterValue": {"arrayValues": [{"value": "Ana"}, {"value": "Bo"}]},
        },
    ]
    sql = "SELECT id FROM orders WHERE amount > @least AND list_contains(@names, customer)"
    made = there.call(insert(there, sql, parameterMode="NAMED", queryParameters=parameters))
    assert [r["f"][0]["v"] for r in there.call(results(there, made))["rows"]] == ["1"]
    bad = [{**parameters[0], "parameterValue": {"value": "ten"}}]
    assert there.refused(insert(there, sql, queryParameters=bad))[:2] == (400, "invalid")


def test_what_is_not_there_or_not_open_is_refused(there: World) -> None:
    assert there.google.bigquery is not None
    there.google.bigquery.denied.add("shop.orders")
    get = there.service.tables().get
    assert there.refused(get(**AT, tableId="orders"))[:2] == (403, "accessDenied")
    assert there.refused(insert(there, "SELECT * FROM orders"))[:2] == (403, "accessDenied")
    assert there.refused(get(**AT, tableId="nope"))[:2] == (404, "notFound")
    other = {"projectId": "other", "datasetId": DATASET}
    assert there.refused(there.service.tables().list(**other))[:2] == (403, "accessDenied")
    there.google.faults.append(Fault("jobs.insert", "quotaExceeded"))
    assert there.refused(insert(there, "SELECT 1"))[:2] == (403, "quotaExceeded")


def test_a_query_reaches_no_file_and_changes_nothing(there: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for sql in (
        f"SELECT * FROM `{secret}`",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT 1; COPY (SELECT 1) TO '{tmp_path}/out.csv'",
    ):
        assert there.refused(insert(there, sql))[0] in (400, 404)
    assert not (tmp_path / "out.csv").exists()


def test_a_file_of_duckdb_is_served_as_a_project(tmp_path: Path) -> None:
    file = tmp_path / "it's.duckdb"
    with duckdb.connect(file) as base:
        base.execute("CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 7 AS n")
    state = bigquery_of(file, "of-a-file")
    assert state.tables.datasets() == ["s"]
    assert state.tables.answer("SELECT n FROM t", "s").rows == [(7,)]
    state.tables.close()


def test_quotes_are_those_of_bigquery() -> None:
    assert ours('SELECT "it\'s" FROM `a-b.c.d` WHERE x = @y;') == (
        'SELECT \'it\'\'s\' FROM "a-b"."c"."d" WHERE x = $y'
    )
