"""Commands as people type them: results on stdout, faults in one sentence, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from bot_kit import AS_OF, Json, Shell, configure, refusal_text, slack_at, small_export
from engine_kit import MUX
from fork_server import forked_command
from standins.model import ModelServer
from standins.model_faults import Fault, Faults
from standins.slack import LocalSlack
from standins.slack_faults import Fault as SlackFault
from standins.slack_scopes import Identity
from timing import Patience

from bot.context import App, open_app
from bot.local.export import load_export
from bot.local.offline.model import answer as offline_model
from bot.local.slack.state import BOT_ID, BOT_USER
from bot.options import Options
from config.settings import load_settings
from subagents.events import ignore

ROOT = Path(__file__).resolve().parent.parent
OFFLINE = ("--as-of", AS_OF, "--since", "30d", "--model", "offline")


def test_demo_shows_a_sweep_a_triage_and_an_answer_despite_a_proxy(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    done = shell("demo")
    assert done.code == 0
    text = " ".join(done.out.split())
    sweep, _, rest = text.partition("Mail triage for ")
    digest, _, answer = rest.partition("=== A question to a database: ")
    more = "more lines: assistant show "
    for part, expected in (
        (sweep, ("DO FIRST", "without a language model", "· 5 channels ·", more)),
        (digest, ("DO FIRST", more)),
        (answer, ("Spain", "505", "nothing was paid", "Next: `assistant serve --local --open`")),
    ):
        assert [words for words in expected if words not in part] == []
    assert len(done.out.splitlines()) < 100
    assert done.err.count(" Read #") == 5
    assert " Read #" not in done.out


# ---- stored runs


def test_a_stored_triage_is_shown_as_it_was_printed(shell: Shell) -> None:
    printed = shell("triage", "--sample", "--limit", 3, "--model", "offline").out
    run = re.findall(r"run ([0-9a-f]{12})$", printed, re.MULTILINE)[0]
    shown = shell("show", run)
    assert shown.code == 0
    assert shown.out.endswith(printed)


def test_stored_run_is_shown_with_its_subagents(shell: Shell, tmp_path: Path) -> None:
    document = shell.sweep(small_export(tmp_path))
    shown = shell("show", document["run_id"])
    assert shown.code == 0
    assert "s1 complete/none" in shown.out
    assert ", 1 finding · " in shown.out
    assert re.search(r"^run \w+  sweep  complete  \S+Z$", shown.out, re.MULTILINE)
    assert " · 2 channels · " in " ".join(shown.out.split())
    whole = shell("show", document["run_id"][:6], "--json").json
    assert whole["result"] == document
    assert [s["id"] for s in whole["subagents"]] == ["s1", "s2"]
    answer = shell.ask(small_export(tmp_path), "Which questions in #support-es are unanswered?")
    assert answer["question"] in shell("show", answer["run_id"]).out
    done = shell("show", answer["run_id"], "--files", tmp_path / "out")
    assert done.err == "This run has kept no files.\n"
    assert not (tmp_path / "out").exists()


def test_audit_command_finds_a_block_added_to_a_parent(
    shell: Shell, tmp_path: Path, data_dir: Path
) -> None:
    run = shell.sweep(small_export(tmp_path))["run_id"]
    with closing(sqlite3.connect(data_dir / "assistant.sqlite")) as database, database:
        rows = database.execute(
            "select ledger.hash from ledger where run = ? and context = 's1' "
            "and origin = 'material'",
            (run,),
        ).fetchall()
        seq, parts = database.execute(
            "select rowid, parts from requests where run = ? and context = 'p1'", (run,)
        ).fetchone()
        changed = json.dumps([*json.loads(parts), ["user", rows[0][0]]])
        database.execute("update requests set parts = ? where rowid = ?", (changed, seq))
    done = shell("audit", run)
    assert done.code == 1
    assert "LEAK in p1, by provenance" in done.out
    assert done.out.strip().endswith(" leaks")
    found = shell("audit", run, "--json")
    assert found.code == 1
    assert {leak["kind"] for leak in found.json["leaks"]} == {"provenance", "content"}
    assert {leak["context"] for leak in found.json["leaks"]} == {"p1"}


# ---- bad input


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--model", "gpt"), "bad_model", "--model claude or --model offline"),
        (("--as-of", "yesterday"), "bad_date", "2025-04-15"),
        (("--as-of", "0001-01-01T00:00+14:00"), "bad_date", "2025-04-15"),
        (("--as-of", "1066-10-14"), "bad_date", "1970"),
        (("--since", "0d"), "bad_length", "30d"),
        (("--sample",), "two_sources", "--sample or --slack-export"),
        (("--channels", "suport-*"), "no_channels", "#support-es"),
        (("--as-user", "U0NOBODY"), "slack", "U0NOBODY"),
    ],
)
def test_invalid_arguments_are_rejected_with_a_correction(
    shell: Shell, tmp_path: Path, args: Sequence[str], code: str, words: str
) -> None:
    channels = () if "--channels" in args else ("--channels", "support-es")
    zip_file = small_export(tmp_path)
    command = ("sweep", *channels, "--slack-export", zip_file, *OFFLINE, *args)
    sentence = refusal_text(shell(*command), code)
    assert words in sentence
    assert len(sentence.splitlines()) == 1
    assert refusal_text(shell(*command, "--json"), code) == sentence


def test_unknown_run_error_suggests_a_similar_id(shell: Shell, tmp_path: Path) -> None:
    assert "assistant runs" in refusal_text(shell("show", "abc", "--json"), "unknown_run")
    run = shell.sweep(small_export(tmp_path))["run_id"]
    typo = run[:-1] + ("0" if run[-1] != "0" else "1")
    for command in ("show", "audit"):
        assert run in refusal_text(shell(command, typo), "unknown_run")


def test_missing_key_or_workspace_error_names_the_setting(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    zip_file = small_export(tmp_path)
    done = shell("sweep", "--channels", "*", "--slack-export", zip_file, "--json")
    assert "ANTHROPIC_API_KEY" in refusal_text(done, "no_api_key")
    done = shell("sweep", "--channels", "*", "--model", "offline", "--json")
    assert "SLACK_BOT_TOKEN" in refusal_text(done, "no_slack_token")
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    done = shell("sweep", "--channels", "*", "--model", "offline", "--as-user", "U1", "--json")
    assert "--slack-export" in refusal_text(done, "as_user")


SWEEP, ASK = ("sweep", "--channels", "*"), ("ask", "What is open in #support-es?")


@pytest.mark.parametrize(
    ("command", "at", "words"),
    [
        (SWEEP, "", ("authentication_error", "ANTHROPIC_API_KEY")),
        (ASK, "http://127.0.0.1:9", ("connection lost", "ANTHROPIC_BASE_URL")),
    ],
    ids=["invalid key", "unreachable"],
)
def test_invalid_api_key_or_unreachable_model_is_reported_in_one_sentence(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: Sequence[str],
    at: str,
    words: Sequence[str],
) -> None:
    configure("models: {max_attempts: 1}")
    with MUX.served_app(ModelServer(offline_model, api_key="sk-right").app) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", at or url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-wrong-secret")
        window = ("--slack-export", small_export(tmp_path), "--as-of", AS_OF, "--since", "30d")
        done = shell(*command, *window, "--json")
    assert done.code == 1
    (sentence,) = [x for x in done.err.splitlines() if x.startswith("error: ")]
    assert all(word in sentence for word in words)
    assert "Traceback" not in done.err
    assert "sk-wrong-secret" not in done.out + done.err
    assert (done.json["status"], done.json["cost_usd"]) == ("failed", 0)


@pytest.mark.parametrize(
    ("command", "faults", "env", "hint"),
    [
        (ASK, [SlackFault("*", "500")] * 3, {}, "Slack"),
        (SWEEP, [SlackFault("*", "malformed")] * 3, {}, "Slack"),
        (SWEEP, [], {"SLACK_API_URL": "http://127.0.0.1:9/api/"}, "reached"),
        (SWEEP, [], {"SLACK_BOT_TOKEN": "xoxb-stolen"}, "SLACK_BOT_TOKEN"),
        (SWEEP, [], {}, "channels:read"),
    ],
    ids=["500", "malformed", "unreachable", "invalid token", "missing scope"],
)
def test_slack_failure_is_reported_in_one_sentence(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: Sequence[str],
    faults: Sequence[SlackFault],
    env: dict[str, str],
    hint: str,
) -> None:
    configure("slack: {retry_attempts: 0}")
    narrow = {"xoxb-local": Identity(BOT_USER, BOT_ID, frozenset({"users:read"}))}
    slack = LocalSlack(load_export(small_export(tmp_path)), tokens=narrow)
    slack.faults += faults
    with slack_at(monkeypatch, slack):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        sentence = refusal_text(shell(*command, *OFFLINE, "--json"), "slack")
    assert len(sentence.splitlines()) == 1
    assert hint in sentence
    assert "xoxb-stolen" not in sentence
    assert [r["status"] for r in shell("runs", "--json").json] in ([], ["failed"])


def test_unusable_data_folder_is_rejected(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "taken"
    file.write_text("a file")
    monkeypatch.setenv("ASSISTANT_DATA_DIR", str(file))
    for command in (("demo", "--json"), ("runs", "--json"), ("audit", "x", "--json")):
        assert "data_dir" in refusal_text(shell(*command), "store")


# ---- processes: signals, disks, pipes


def wait_for_requests(server: ModelServer, in_flight: int) -> None:
    patience = Patience()
    while server.requests < in_flight:
        assert not patience.over, f"{server.requests} requests arrived"
        time.sleep(0.05)


@pytest.mark.system
def test_ctrl_c_shows_and_stores_the_findings_so_far(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def choose(index: int, body: Json) -> Fault | None:
        return Fault("slow") if "#support-en" in json.dumps(body["messages"][0]) else None

    window = ("--slack-export", str(small_export(tmp_path)), "--as-of", AS_OF, "--since", "30d")
    with MUX.served_app(ModelServer(offline_model, faults=Faults(choose)).app) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        with forked_command("sweep", "--channels", "*", *window, "--json") as process:
            patience = Patience()
            while "✓ s2 Read #support-es" not in process.read_output():
                assert not patience.over, process.read_output()
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait() == 1
    printed = process.read_output()
    assert "Traceback" not in printed
    assert '"status": "cancelled"' in printed
    (run,) = shell("runs", "--json").json
    document = shell("show", run["id"], "--json").json["result"]
    by_name = {s["item"]: s for s in document["sections"]}
    assert by_name["support-es"]["status"] == "complete"
    assert by_name["support-es"]["findings"]
    assert by_name["support-en"]["status"] == "cancelled"
    assert document["top_lines"]
    assert shell("audit", run["id"]).code == 0


@pytest.mark.slow
def test_full_disk_during_a_run_loses_the_record_but_not_the_result(shell: Shell) -> None:
    shell("runs")  # creates the store
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_100_000, 1_100_000)); "
        "from bot.__main__ import main; main(['demo'])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DO FIRST" in done.stdout
    assert "was not stored" in done.stderr
    assert "Traceback" not in done.stderr


async def test_crashed_run_is_stored_as_failed(tmp_path: Path) -> None:
    options = Options("offline", slack_export=small_export(tmp_path))
    async with open_app(load_settings(), options, ignore) as app:
        with pytest.raises(RuntimeError):
            await crash_in_run(app)
        (stored,) = await app.store.runs()
        assert stored.status == "failed"
        assert stored.error is not None
        assert stored.error["code"] == "RuntimeError"


async def crash_in_run(app: App) -> None:
    async with app.run("ask", "What?"):
        assert [r.status for r in await app.store.runs()] == ["running"]
        raise RuntimeError("kaput")
