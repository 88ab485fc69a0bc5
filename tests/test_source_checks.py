"""`assistant doctor` on the sources of the settings: each fault is a sentence with what to do."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pygit2
import pytest
from bot_kit import configure

from bot.__main__ import main
from bot.terminal import INCOMPLETE, WRONG_USE

Doctor = Callable[[str], dict[str, tuple[str, str]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Settings -> check -> how it ended and what it says. Slack and model are not set up."""
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "DATABASE_URL", "BRAVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def examine(text: str) -> dict[str, tuple[str, str]]:
        configure(f"serve: {{port: 0}}\n{text}")
        with pytest.raises(SystemExit) as ended:
            main(["doctor", "--json"])
        assert ended.value.code in (INCOMPLETE, WRONG_USE)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return {each["check"]: (each["state"], each["says"]) for each in found["checks"]}

    return examine


def test_what_is_not_set_has_no_line(doctor: Doctor) -> None:
    assert not {"databases", "sheets", "files", "web", "mcp"} & doctor("").keys()


def test_databases_are_opened_and_all_that_are_wrong_are_named(
    doctor: Doctor, tmp_path: Path
) -> None:
    folder = tmp_path / "sales"
    folder.mkdir()
    (folder / "orders.csv").write_text("id,total\n1,9.5\n", "utf-8")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.duckdb").write_text("no database", "utf-8")
    good = f"data: {{databases: {{sales: {{path: {folder}, readers: [members]}}"
    assert doctor(f"{good}}}}}")["databases"] == ("ok", "sales (DuckDB, 1 table)")
    state, says = doctor(
        f"{good}, gone: {{path: {tmp_path}/gone.duckdb}}, bare: {{path: {tmp_path}/empty}}, "
        f"text: {{path: {tmp_path}/notes.duckdb}}, big: {{bigquery: project.events}}}}}}"
    )["databases"]
    assert state == "problem"
    assert "gone: The file of the database is not there. Fix data.databases.gone." in says
    assert "data.databases.bare" in says
    assert "text: notes.duckdb is not readable: it is no DuckDB file." in says
    assert "big has no credentials: name a key file" in says
    assert "sales" not in says


def test_a_source_that_nobody_in_slack_may_read_is_told(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n", "utf-8")
    _, says = doctor(f"data: {{databases: {{sales: {{path: {tmp_path}}}}}}}")["databases"]
    assert says.endswith("1 table, nobody in Slack may read it: name readers)")


def test_a_sheet_without_credentials_is_told(doctor: Doctor) -> None:
    state, says = doctor("data: {sheets: {targets: {id: 1AbC}}}")["sheets"]
    assert (state, says[:39]) == ("problem", "data.sheets.targets has no credentials:")


def test_folders_are_there_may_be_written_and_are_git_where_they_are_pushed(
    doctor: Doctor, tmp_path: Path
) -> None:
    def files(path: object, more: str = "") -> tuple[str, str]:
        said = f"{{path: {path}, readers: [members]{more}}}"
        return doctor(f"files: {{projects: {{handbook: {said}}}}}")["files"]

    assert files(tmp_path) == ("ok", "handbook (no git)")
    assert files(tmp_path / "gone")[1].startswith("handbook: there is no folder")
    assert files(tmp_path, ", push: true")[1].startswith("handbook is not the top of a git")
    pygit2.init_repository(str(tmp_path))
    assert files(tmp_path, ", push: true") == ("ok", "handbook (git)")
    shutil.rmtree(tmp_path / ".git")
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    assert "its .git names another repository" in files(tmp_path)[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_folder_that_may_not_be_written_is_told(doctor: Doctor, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    _, says = doctor(f"files: {{projects: {{handbook: {{path: {closed}}}}}}}")["files"]
    assert says.endswith("change its rights.")


def test_a_sandbox_that_is_not_installed_or_runs_nothing_is_told(doctor: Doctor) -> None:
    found = {
        command: doctor(f"files: {{sandbox: {command}}}")["files"]
        for command in ('[no-such, "{command}"]', "[sh, -c, ls]", '[sh, -c, "{command}"]')
    }
    absent, nothing, good = found.values()
    assert absent[1].startswith("There is no program no-such in /usr/local/bin")
    assert nothing == (
        "problem",
        'files.sandbox runs nothing: put "{command}" where the command belongs.',
    )
    assert good == ("ok", "commands run in sh")


def test_a_search_engine_without_its_key_is_told(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor("web: {search: brave}")["web"] == (
        "problem",
        "web.search is brave: set BRAVE_API_KEY.",
    )
    monkeypatch.setenv("BRAVE_API_KEY", "key")
    assert doctor("web: {search: brave}")["web"][0] == "ok"


def test_servers_of_tools_are_asked(doctor: Doctor) -> None:
    for command, scope, words in (
        (
            f"{sys.executable}, -c, pass",
            "web",
            "clock ended before it answered: fix mcp.",
        ),
        ("x", "webb", "assistant.yaml: 'mcp.servers.clock.scope' is 'webb'."),
    ):
        server = f"{{clock: {{command: [{command}], scope: {scope}}}}}"
        state, says = doctor(f"mcp: {{servers: {server}}}")["mcp"]
        assert state == "problem"
        assert says.startswith(words)
