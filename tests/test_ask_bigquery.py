"""Questions at the command line over a dataset of BigQuery: three at once, each in isolation."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from bot_kit import Shell, configure, in_one_turn, model_at
from google_data_kit import asked_wrongly

from bot.local.google.bigquery_tables import bigquery_of
from bot.local.google.server import TOKEN, LocalGoogle
from bot.local.server import LocalServer

QUESTION = (
    "How many customers are there? How many transactions are there? How many tickers are there?"
)


def test_three_questions_at_once_are_asked_of_bigquery_by_three_subagents(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, dev_data: Path
) -> None:
    database = dev_data / "business.duckdb"
    state = bigquery_of(database)
    served = LocalGoogle(bigquery=state)
    configure("data: {databases: {broker: {bigquery: local-project.broker}}}")
    with LocalServer(served.app, "google") as server:
        monkeypatch.setenv("BIGQUERY_API_ENDPOINT", server.url)
        monkeypatch.setenv("GOOGLE_ACCESS_TOKEN", TOKEN)
        shell = Shell(capsys)
        with model_at(monkeypatch) as model:
            document = shell("ask", QUESTION, "--json").json
        audit = shell("audit", document["run_id"])
    assert "0 leaks" in audit.out
    assert in_one_turn(model) == ["run_subagent"] * 3
    assert [s["status"] for s in document["subagents"]] == ["complete"] * 3
    assert [s["scope"] for s in document["subagents"]] == ["data"] * 3
    with duckdb.connect(database, read_only=True) as base:
        for table in ("sbCustomer", "sbTransaction", "sbTicker"):
            (count,) = base.execute(f"SELECT count(*) FROM broker.{table}").fetchone() or (None,)
            assert f": {count}»" in document["answer"]
    assert asked_wrongly(served, "bigquery.v2") == []
    assert len(state.jobs) >= 3
    state.tables.close()
