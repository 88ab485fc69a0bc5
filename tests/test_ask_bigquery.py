"""Questions at the command line over a dataset of BigQuery: three at once, each in isolation."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from bot_kit import Shell, configure, in_one_turn, model_at
from google_data_kit import asked_wrongly
from standins.bigquery_tables import bigquery_of
from standins.google import FullGoogle

from bot.local.google.server import TOKEN
from bot.local.server import LocalServer

TABLES = ("sbCustomer", "sbTransaction", "sbTicker")
QUESTION = " ".join(f"How many {table} are there?" for table in TABLES)


def test_three_questions_at_once_are_asked_of_bigquery_by_three_subagents(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, dev_data: Path
) -> None:
    database = dev_data / "business.duckdb"
    state = bigquery_of(database)
    served = FullGoogle(bigquery=state)
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
        for table in TABLES:
            (count,) = base.execute(f"SELECT count(*) FROM broker.{table}").fetchone() or (None,)
            assert f": {count}»" in document["answer"]
    assert asked_wrongly(served, "bigquery.v2") == []
    assert len(state.jobs) >= 3
    state.tables.close()


NO_CREDENTIALS = "data.databases.broker has no credentials: name a key file in"
BROKEN = "data.databases.broker.service_account names no usable key file (MalformedError)"
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
    dev_data: Path,
    tmp_path: Path,
    token: str,
    key: str,
    fault: str,
) -> None:
    state = bigquery_of(dev_data / "business.duckdb")
    file = tmp_path / "key.json"
    file.write_text(key)
    own = f", service_account: {file}" if key else ""
    configure(f"data: {{databases: {{broker: {{bigquery: local-project.broker{own}}}}}}}")
    with LocalServer(FullGoogle(bigquery=state).app, "google") as server:
        monkeypatch.setenv("BIGQUERY_API_ENDPOINT", server.url)
        if token:
            monkeypatch.setenv("GOOGLE_ACCESS_TOKEN", token)
        shell = Shell(capsys)
        with model_at(monkeypatch):
            asked = shell("ask", "How many sbCustomer are there?")
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
        assert databases["says"].startswith("broker (BigQuery, ")
        assert "`serve` needs a key file" in databases["says"]
