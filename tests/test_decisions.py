"""The gate's log: it can be read by what matters, and nothing that it holds ever changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from bot_kit import Shell, refused
from pg_kit import Kept, bare, in_file, place

from bot.cli.runs import read_log, run_of
from bot.privacy import Forget, tidy
from bot.runs.checkpoint import RunLog
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.deletions import ForgetTarget
from bot.storage.tables import runs
from config.settings import load_settings
from subagents.gate import Decision

__all__ = ["bare", "in_file", "place"]

NOW = datetime(2026, 4, 15, 9, 30, tzinfo=UTC)
LABEL = {"untrusted": True, "readers": ["U0ANA"], "sources": ["C1"]}


def decision(
    run: str = "r1", tool: str = "read", verdict: str = "allow", minutes: int = 0
) -> Decision:
    at = NOW + timedelta(minutes=minutes)
    return Decision(run, "s1", tool, "abcd", verdict, "within all rules", at, "U0ANA", LABEL)


async def logged(place: Kept, *log: Decision) -> Store:
    store = await place.store(*{each.run for each in log})
    sink = RunLog(store, "r1")
    for each in log:
        sink.log_decision(each)
    await sink.flush()
    return store


async def attempt(database: Database, statement: str) -> None:
    await database.change(lambda connection: connection.exec_driver_sql(statement))


async def test_nothing_in_the_log_can_be_changed_or_deleted(place: Kept) -> None:
    store = await logged(place, decision(verdict="deny"))

    for statement in (
        "UPDATE decisions SET verdict = 'allow'",
        "UPDATE decisions SET at = at",
        "DELETE FROM decisions",
        "DELETE FROM decisions WHERE verdict = 'deny'",
        *(["TRUNCATE decisions"] if place.shared else []),
    ):
        with pytest.raises(Exception, match="append-only"):
            await attempt(store.database, statement)
    assert [d.verdict for d in await read_log(store.database)] == ["deny"]
    await store.aclose()


async def test_the_log_outlives_its_runs_and_all_that_is_forgotten(bare: Kept) -> None:
    log = [decision("r1"), decision("r2")]
    store = await logged(bare, *log)
    settings = load_settings(env={})
    short = {"trajectories_days": 1, "results_days": 7, "actions_days": 1}
    old = sa.update(runs).values(started=datetime(2020, 1, 1, tzinfo=UTC))

    await store.database.write(old)
    await tidy(store.database, settings.retention.model_copy(update=short))
    await Forget(store.database)(ForgetTarget("user", "U0ANA"))
    await store.database.write(sa.delete(runs).where(runs.c.id == "r1"))

    assert [run.id for run in await store.runs()] == ["r2"]
    assert await read_log(store.database) == log
    assert await run_of(store.database, "r1") == "r1"
    await store.aclose()


def test_the_command_shows_and_exports_the_log(shell: Shell, data_dir: Path) -> None:
    for question in (
        "Which questions in #csm-spain are unanswered?",
        "What is open in #csm-italy?",
    ):
        shell("ask", question, "--sample", "--model", "offline")
    everything = shell("decisions", "--json").json
    run, tool = everything[0]["run"], everything[0]["tool"]
    mine = [row for row in everything if row["run"] == run]

    keys = {"run", "context", "tool", "args_hash", "verdict", "rule", "at", "requester", "label"}
    assert all(row.keys() == keys for row in everything)
    assert shell("decisions", run[:6], "--json").json == mine != everything
    assert shell("decisions", "--tool", tool, "--limit", 1, "--json").json[0]["tool"] == tool
    assert shell("decisions", "--verdict", "deny", "--json").json == []
    assert shell("decisions", "--since", "1h", "--json").json == everything
    table = shell("decisions", run, "--limit", 1)
    assert (table.code, len(table.out.splitlines())) == (0, 1)
    assert all(run in each and "allow" in each for each in table.out.splitlines())
    assert "No such decisions" in shell("decisions", "--tool", "nothing").err
    refused(shell("decisions", "zzz", "--json"), "unknown_run")
    refused(shell("decisions", "--since", "soon", "--json"), "bad_length")
