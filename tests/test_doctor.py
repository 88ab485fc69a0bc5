"""`assistant doctor`: one line for each check, and for each fault one sentence with what to do."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pygit2
import pytest
from bot_kit import Done, Shell, configure, model_at
from engine_kit import MUX, channel_of, say
from serve_kit import free_port
from slack_sdk import WebClient
from slack_sdk.oauth.installation_store import Installation
from standins.slack import API_PATH, LocalSlack
from standins.slack_faults import Fault
from standins.slack_scopes import BOT_SCOPES, Identity
from standins.slack_teams import CLIENT_SECRET, SeveralSlacks, token_of
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from websockets.sync.client import connect

from bot.__main__ import main
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_ID, BOT_USER
from bot.local.workspace import Team, User, Workspace
from bot.slack.installations import Installations
from bot.storage.database import Database
from bot.terminal import INCOMPLETE, WRONG_USE
from scopes.clean import SECRET_PLACEHOLDER

HTTP = "slack: {mode: http}\nserve: {port: 0}\n"
SOCKETS = "serve: {port: 0}\n"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A configured machine, with a model that answers and no Slack yet."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-local")
    monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-local")
    monkeypatch.setenv("SLACK_SIGNING_SECRET", "local-secret")
    configure(HTTP)
    with model_at(monkeypatch, lambda body: say("ok")):
        yield Shell(capsys)


def workspace(threads: int = 25) -> Workspace:
    """Two public channels with more messages than a distributed app gets in one call."""
    channels = [channel_of(number, threads) for number in (1, 2)]
    users = (User("U0ANA", "ana", "Ana Ruiz"),)
    return Workspace(Team("T0LOCAL", "Acme", "acme"), users, tuple(channels), ())


@contextmanager
def slack_served(
    monkeypatch: pytest.MonkeyPatch, slack: LocalSlack, app: ASGIApp | None = None
) -> Iterator[LocalSlack]:
    with LocalServer(app or slack.app, "slack") as server:
        monkeypatch.setenv("SLACK_API_URL", server.url + API_PATH)
        yield slack


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSlack]:
    few = Identity(BOT_USER, BOT_ID, BOT_SCOPES - {"channels:history"})
    fewer = Identity(BOT_USER, BOT_ID, BOT_SCOPES - {"channels:history", "im:read", "groups:read"})
    slack = LocalSlack(workspace(), tokens={"xoxb-few": few, "xoxb-fewer": fewer})
    with slack_served(monkeypatch, slack):
        yield slack


def lines(done: Done) -> dict[str, str]:
    assert "Traceback" not in done.err
    texts = {line[:11].strip(): line[12:] for line in done.out.splitlines()}
    for text in texts.values():
        assert text, "each check has a text"
    return texts


def problem(shell: Shell, check: str) -> str:
    """Return the sentence of a check that found a problem; the exit code must be 1."""
    done = shell("doctor")
    assert done.code == 1, done.out
    says = lines(done)[check]
    assert not says.startswith(("ok:", "not checked:")), says
    assert says.endswith(".")
    return says


def test_doctor_reports_ok_for_a_configured_bot(slack: LocalSlack, shell: Shell) -> None:
    done = shell("doctor")
    assert done.code == 0, done.out
    found = lines(done)
    odd = {c: says for c, says in found.items() if not says.startswith("ok: ") and c != "clock"}
    assert odd == {}
    assert found["token"] == "ok: @assistant in Acme"
    assert found["channels"] == "ok: in 2 of 2"
    assert "no `serve` is running" in found["database"]
    assert found["model main"] == "ok: claude-sonnet-5-5 answers"
    assert found["programs"].startswith("ok: those that read pages and files ")


def test_doctor_reports_too_many_open_sockets(slack: LocalSlack, shell: Shell) -> None:
    configure(SOCKETS)
    with ExitStack() as others:
        for _ in range(9):
            others.enter_context(connect(new_socket()))
        says = problem(shell, "sockets")
        assert says.startswith("9 sockets are open and Slack allows 10: stop another")
        others.enter_context(connect(new_socket()))
        assert problem(shell, "events").startswith("10 sockets are open, Slack's limit")


def new_socket() -> str:
    client = WebClient(base_url=os.environ["SLACK_API_URL"])
    return str(client.apps_connections_open(app_token="xapp-local")["url"])


def test_doctor_json_lists_each_check_with_its_state(slack: LocalSlack, shell: Shell) -> None:
    slack.faults.append(Fault("auth.test", "error:token_revoked"))
    document = shell("doctor", "--json").json
    assert document["ok"] is False
    assert [c["check"] for c in document["checks"]][:2] == ["token", "scopes"]
    token = document["checks"][0]
    assert token["state"] == "problem"
    assert "was revoked" in token["says"]
    assert {c["state"] for c in document["checks"]} == {"ok", "problem", "unchecked"}
    assert shell("doctor", "--json").json["ok"] is True


def test_invalid_token_is_one_problem_and_dependent_checks_are_skipped(
    slack: LocalSlack, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-wrong")
    assert problem(shell, "token").startswith("SLACK_BOT_TOKEN is not valid: copy it again")
    found = lines(shell("doctor"))
    assert found["scopes"] == "not checked: see token"
    assert found["channels"] == "not checked: see token"
    assert found["database"].startswith("ok: ")


def test_each_slack_error_says_what_to_do(slack: LocalSlack, shell: Shell) -> None:
    for kind, words in (
        ("error:token_revoked", "was revoked: reinstall the app"),
        ("error:internal_error", "look up internal_error at docs.slack.dev"),
        ("error:missing_scope", "reinstall the app"),
        ("429", "try again in a minute"),
        ("malformed", "no proper answer to auth.test"),
        ("drop", "Slack cannot be reached at 127.0.0.1"),
    ):
        slack.faults.append(Fault("auth.test", kind))
        assert words in problem(shell, "token")


def test_missing_scopes_are_named(
    slack: LocalSlack, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-few")
    says = problem(shell, "scopes")
    assert says.startswith("The app lacks the scope channels:history: add it under OAuth")
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-fewer")
    several = "The app lacks the scopes channels:history, groups:read and im:read: add them"
    assert problem(shell, "scopes").startswith(several)
    assert problem(shell, "channels").startswith("The app lacks the scope groups:read: add it")


def test_user_token_is_checked_if_set(
    slack: LocalSlack, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_USER_TOKEN", "xoxp-U0ANA")
    assert lines(shell("doctor"))["user token"] == "ok: searches as ana"
    monkeypatch.setenv("SLACK_USER_TOKEN", "xoxp-U0NOBODY")
    assert "SLACK_USER_TOKEN is not valid" in problem(shell, "user token")


def test_wrong_clock_is_measured_against_slacks_time(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack = LocalSlack(workspace())
    for ahead, way in ((75, "ahead of"), (-400, "behind")):
        with slack_served(monkeypatch, slack, app_with_clock_offset(slack.app, -ahead)):
            match = re.fullmatch(
                rf"This machine's clock is (\d+) s {way} Slack's, .* set it right\.",
                problem(shell, "clock"),
            )
        assert match
        assert abs(int(match[1]) - abs(ahead)) < 10
    with slack_served(monkeypatch, slack, app_with_clock_offset(slack.app, 0)):
        assert lines(shell("doctor"))["clock"] == "ok: right to the minute"


def app_with_clock_offset(app: ASGIApp, offset_s: int) -> ASGIApp:
    """The app with a date in its answers that is this far from the machine's."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = formatdate(time.time() + offset_s, usegmt=True).encode()
                message = {**message, "headers": [*message["headers"], (b"date", date)]}
            await send(message)

        await app(scope, receive, send_dated)

    return call


def test_channels_named_in_the_policy_need_the_bot_as_member(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack = LocalSlack(workspace())
    for members in slack.state.members.values():
        members.pop(BOT_USER, None)
    name = workspace().channels[0].name
    with slack_served(monkeypatch, slack):
        done = shell("doctor")
        assert done.code == 0, "a bot for direct messages only needs no channel"
        assert lines(done)["channels"] == "ok: in none: /invite @assistant in some"
        configure(HTTP + f"policy: {{channels: {{'{name}': {{cost_usd: 2.0}}}}}}")
        says = problem(shell, "channels")
        assert says == f"The policy names #{name}: type /invite @assistant there."
        configure(HTTP + f"policy: {{channels: {{'{name}': {{answer: false}}}}}}")
        assert shell("doctor").code == 0


# ---- this machine


def test_missing_secrets_are_named_and_exit_with_2(
    slack: LocalSlack, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "ANTHROPIC_API_KEY")
    for name in (*names, "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name)
    configure(SOCKETS)
    done = shell("doctor")
    assert done.code == 2
    for name in names:
        assert f"{name} is not set: run `assistant setup`." in done.out
    monkeypatch.delenv("SLACK_SIGNING_SECRET")
    configure(HTTP)
    done = shell("doctor")
    assert "SLACK_SIGNING_SECRET is not set" in done.out
    assert done.code == 2


def test_invalid_settings_are_reported_by_doctor(slack: LocalSlack, shell: Shell) -> None:
    configure("serve: {prt: 1}")
    done = shell("doctor", "--json")
    assert done.code == 2
    assert done.json["error"]["code"] == "bad_settings"
    configure(HTTP + "policy: {direct: {scopes: [salck]}}")
    assert problem(shell, "settings").startswith("There is no scope salck: fix it in `policy`")


def test_running_serve_is_recognised_with_its_pid(
    slack: LocalSlack, shell: Shell, data_dir: Path
) -> None:
    data_dir.mkdir(exist_ok=True)
    with (data_dir / "serve.lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "`serve` is running (pid 4711)" in lines(shell("doctor"))["database"]


def test_nearly_full_disk_is_reported(
    slack: LocalSlack, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 5 * 2**20))
    says = problem(shell, "database")
    assert "nearly full (5 MB free, 100 MB needed)" in says
    assert says.endswith("set data_dir to another disk.")


# ---- the model


def test_each_model_api_error_says_what_to_do(
    slack: LocalSlack, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for status, kind, words in (
        (401, "authentication_error", "ANTHROPIC_API_KEY is not valid"),
        (404, "not_found_error", "There is no model claude-sonnet-5-5: fix models.main"),
        (429, "rate_limit_error", "try again in a minute"),
        (529, "overloaded_error", "try again in a minute"),
        (400, "invalid_request_error", "check `models` and your account there"),
    ):
        with MUX.served_app(error_api(status, kind, "no")) as url:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
            assert words in problem(shell, "model main")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{free_port()}")
    assert problem(shell, "model fast").startswith("The model API cannot be reached at 127.0.0.1")


def error_api(status: int, kind: str, message: str) -> ASGIApp:
    """A Messages API that answers with one error."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        body = {"type": "error", "error": {"type": kind, "message": message}}
        await JSONResponse(body, status)(scope, receive, send)

    return call


def test_secrets_quoted_by_a_service_are_redacted(
    slack: LocalSlack, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-quoted")
    with MUX.served_app(error_api(400, "invalid_request_error", "bad key sk-ant-quoted")) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        done = shell("doctor")
        document = json.dumps(shell("doctor", "--json").json)
    assert f"bad key {SECRET_PLACEHOLDER}" in done.out
    for secret in ("sk-ant-quoted", "xoxb-local", "xapp-local", "local-secret"):
        assert secret not in done.out + done.err + document


Doctor = Callable[[str], dict[str, tuple[str, str]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Settings -> check -> its state and text. Slack and model are not set up."""
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "DATABASE_URL", "BRAVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def examine(text: str) -> dict[str, tuple[str, str]]:
        configure(f"serve: {{port: 0}}\n{text}")
        with pytest.raises(SystemExit) as ended:
            main(["doctor", "--json"])
        assert ended.value.code in (INCOMPLETE, WRONG_USE)
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return {each["check"]: (each["state"], each["says"]) for each in document["checks"]}

    return examine


def test_working_sources_are_ok_and_unconfigured_ones_are_omitted(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not {"databases", "sheets", "files", "web", "mcp"} & doctor("").keys()
    (tmp_path / "orders.csv").write_text("id,total\n1,9.5\n", "utf-8")
    pygit2.init_repository(str(tmp_path))
    monkeypatch.setenv("BRAVE_API_KEY", "key")
    source = f"{{path: {tmp_path}, readers: [members]"
    found = doctor(
        f"data: {{databases: {{sales: {source}}}}}}}\n"
        f"files: {{projects: {{handbook: {source}, push: true}}}}}}\nweb: {{search: brave}}\n"
    )
    assert found["databases"] == ("ok", "sales (DuckDB, 1 table)")
    assert found["files"] == ("ok", "handbook (git)")
    assert found["web"][0] == "ok"


def test_each_failing_source_is_named_with_its_problem(doctor: Doctor, tmp_path: Path) -> None:
    open_, bare, elsewhere = tmp_path / "open", tmp_path / "bare", tmp_path / "elsewhere"
    for folder in (open_, bare, elsewhere):
        folder.mkdir()
    (open_ / "orders.csv").write_text("id\n1\n", "utf-8")
    (elsewhere / ".git").write_text("gitdir: somewhere")
    (tmp_path / "notes.duckdb").write_text("no database", "utf-8")
    found = doctor(
        f"""
data:
  databases:
    good: {{path: {open_}, readers: [members]}}
    gone: {{path: {tmp_path}/gone.duckdb}}
    bare: {{path: {bare}}}
    text: {{path: {tmp_path}/notes.duckdb}}
    big: {{bigquery: project.events}}
  sheets: {{targets: {{id: 1AbC}}}}
files:
  projects: {{absent: {{path: {bare}/no}}, plain: {{path: {bare}, push: true}},
    linked: {{path: {elsewhere}}}}}
web: {{search: brave}}
mcp: {{servers: {{clock: {{command: [{sys.executable}, -c, pass], scope: web}}}}}}
"""
    )
    for check, sentences in {
        "databases": (
            "gone: The file of the database is not there. Fix data.databases.gone.",
            "data.databases.bare",
            "text: notes.duckdb is not readable: it is no DuckDB file.",
            "big has no credentials: name a key file",
        ),
        "sheets": ("data.sheets.targets has no credentials:",),
        "files": (
            "absent: there is no folder",
            "plain is not the top of a git",
            "its .git is no folder",
        ),
        "web": ("web.search is brave: set BRAVE_API_KEY.",),
        "mcp": ("clock ended before it answered: fix mcp.",),
    }.items():
        state, says = found[check]
        assert state == "problem"
        assert [each for each in sentences if each not in says] == []
    assert "good" not in found["databases"][1]


@pytest.mark.parametrize(
    ("text", "check", "says"),
    [
        ("data: {databases: {sales: {path: .}}}", "databases", "nobody in Slack may read it: name"),
        (
            'files: {sandbox: [no-such, "{command}"]}',
            "files",
            "There is no program no-such in /usr",
        ),
        ("files: {sandbox: [sh, -c, ls]}", "files", 'files.sandbox runs nothing: put "{command}"'),
        ('files: {sandbox: [sh, -c, "{command}"]}', "files", "commands run in sh"),
        (
            "mcp: {servers: {clock: {command: [x], scope: webb}}}",
            "mcp",
            "assistant.yaml: 'mcp.servers.clock.scope' is 'webb'.",
        ),
    ],
)
def test_doctor_explains_the_configuration_of_a_source(
    doctor: Doctor, text: str, check: str, says: str
) -> None:
    Path("orders.csv").write_text("id\n1\n", "utf-8")
    assert says in doctor(text)[check][1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_read_only_folder_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    _, says = doctor(f"files: {{projects: {{handbook: {{path: {closed}}}}}}}")["files"]
    assert says.endswith("change its rights.")


INSTALLED = (
    "slack: {mode: http, client_id: '1.2'}\n"
    "serve: {port: 0, public_url: 'https://bot.example.com'}\n"
)


@pytest.fixture
def several(shell: Shell, monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> Iterator[LocalSlack]:
    """A bot that one workspace installed by OAuth, and a token that Slack no longer knows."""
    configure(INSTALLED)
    monkeypatch.delenv("SLACK_BOT_TOKEN")
    monkeypatch.setenv("SLACK_CLIENT_SECRET", CLIENT_SECRET)
    slack = LocalSlack(workspace())
    slack.tokens.clear()
    slack.tokens[token_of("T0LOCAL")] = Identity(BOT_USER, BOT_ID)
    invalid = Installation(team_id="T0GONE", user_id="U0ANA", bot_token="xoxb-gone")
    valid = Installation(team_id="T0LOCAL", user_id="U0ANA", bot_token=token_of("T0LOCAL"))

    async def install() -> None:
        database = await Database.open(data_dir)
        for each in (valid, invalid):
            await Installations(database).async_save(each)
        await database.aclose()

    asyncio.run(install())
    with slack_served(monkeypatch, slack, SeveralSlacks({"T0LOCAL": slack})):
        yield slack


def test_an_oauth_installation_is_checked_for_each_workspace(
    several: LocalSlack, shell: Shell, data_dir: Path
) -> None:
    texts = lines(shell("doctor"))
    back = "https://bot.example.com/slack/oauth_redirect"
    assert texts["install"] == f"ok: the client is known, browsers come back to {back}"
    assert texts["workspaces"] == "ok: 2 installed the app"
    assert texts["T0LOCAL"].startswith("ok: @assistant in Acme; ")
    assert str(data_dir / "teams" / "T0LOCAL") in texts["T0LOCAL"]
    assert texts["T0GONE"].startswith("The token of T0GONE is not valid")
    assert shell("--team", "T0LOCAL", "doctor").out.count("without --team") == 1


@pytest.mark.parametrize(
    ("secret", "settings", "says"),
    [
        (None, INSTALLED, "SLACK_CLIENT_SECRET is not set"),
        ("wrong", INSTALLED, "SLACK_CLIENT_SECRET is not the secret of slack.client_id"),
        (CLIENT_SECRET, INSTALLED.replace("1.2", "9.9"), "slack.client_id is of no app"),
        (CLIENT_SECRET, "slack: {mode: http, client_id: '1.2'}\n", "serve.public_url is not set"),
        (
            CLIENT_SECRET,
            INSTALLED.replace("https://bot.example.com", "http://localhost:3000"),
            "serve.public_url is http://localhost:3000, where Slack sends nobody back",
        ),
        (
            CLIENT_SECRET,
            INSTALLED + "policy: {admins: [U0ANA]}\n",
            "'policy.admins' is of one workspace",
        ),
    ],
)
def test_each_oauth_configuration_error_is_explained(
    several: LocalSlack,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    secret: str | None,
    settings: str,
    says: str,
) -> None:
    configure(settings)
    if secret is None:
        monkeypatch.delenv("SLACK_CLIENT_SECRET")
    else:
        monkeypatch.setenv("SLACK_CLIENT_SECRET", secret)
    done = shell("doctor")
    assert lines(done)["install"].startswith(says)
    assert done.code in (INCOMPLETE, WRONG_USE)
