"""`assistant setup`: each secret is checked at once, and `.env` is written whole or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bot_kit import configure, model_at, slack_at
from engine_kit import say
from engine_kit import workspace as small
from standins.slack import API_PATH, LocalSlack
from standins.slack_scopes import Identity
from standins.slack_teams import SeveralSlacks
from typer.testing import CliRunner, Result

from bot.__main__ import app
from bot.cli.setup import storable, write_env
from bot.errors import SetupError
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_ID, BOT_USER
from config.settings import load_settings

SECRET = "0123456789abcdef0123456789abcdef"
ENV = Path(".env")


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSlack]:
    """A workspace and a model to check secrets against; none is set, and events come by HTTP."""
    few = Identity(BOT_USER, BOT_ID, frozenset({"chat:write"}))
    local = LocalSlack(small(), tokens={"xoxb-few": few})
    with slack_at(monkeypatch, local), model_at(monkeypatch, lambda body: say("ok")):
        for name in ("SLACK_BOT_TOKEN", "ANTHROPIC_API_KEY", "DATABASE_URL"):
            monkeypatch.delenv(name, raising=False)
        configure("slack: {mode: http}")
        yield local


def run_setup(*lines: str) -> Result:
    return CliRunner().invoke(app, ["setup"], input="".join(f"{line}\n" for line in lines))


def read_env() -> dict[str, str]:
    lines = ENV.read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_setup_asks_for_each_secret_and_writes_an_owner_only_env_file(slack: LocalSlack) -> None:
    result = run_setup("xoxb-local", SECRET, "sk-ant-secret", "")
    assert result.exit_code == 0, result.output
    assert "https://api.slack.com/apps?new_app=1&manifest_yaml=" in result.output
    assert read_env() == {
        "SLACK_BOT_TOKEN": "xoxb-local",
        "SLACK_SIGNING_SECRET": SECRET,
        "ANTHROPIC_API_KEY": "sk-ant-secret",
    }
    assert ENV.stat().st_mode & 0o777 == 0o600
    assert not [p for p in Path.cwd().iterdir() if p.name.startswith(".tmp_")]
    for secret in read_env().values():
        assert secret not in result.output, "nothing is printed back"
    assert slack.calls["auth.test"] == 1


def test_invalid_secret_is_explained_and_asked_for_again(slack: LocalSlack) -> None:
    result = run_setup(
        *("xapp-1", "xoxb-wrong", "xoxb-few", "xoxb-local"),
        *("short", SECRET, "k", "mysql://db", ""),
    )
    assert result.exit_code == 0, result.output
    output = result.output + result.stderr
    assert "This cannot be SLACK_BOT_TOKEN: the bot token begins with xoxb-. Try again." in output
    assert "SLACK_BOT_TOKEN is not valid" in output
    assert "it lacks app_mentions:read" in output
    assert "the signing secret has 32 characters" in output
    assert "the address is written postgresql://" in output
    assert "xoxb-wrong" not in output
    assert read_env()["SLACK_BOT_TOKEN"] == "xoxb-local"


def test_setup_keeps_existing_lines_and_can_keep_a_set_secret(slack: LocalSlack) -> None:
    before = (
        "# ours\nOTHER='a b'\nexport SLACK_BOT_TOKEN=xoxb-local\n\nSLACK_BOT_TOKEN=xoxb-local\n"
        "LAST=1"
    )
    ENV.write_text(before)
    ENV.chmod(0o644)
    result = run_setup("y", SECRET, "sk-ant-1", "")
    assert result.exit_code == 0, result.output
    assert ENV.read_text() == (
        "# ours\nOTHER='a b'\nSLACK_BOT_TOKEN=xoxb-local\nSLACK_BOT_TOKEN=xoxb-local\nLAST=1\n"
        f"SLACK_SIGNING_SECRET={SECRET}\nANTHROPIC_API_KEY=sk-ant-1\n"
    )
    assert ENV.stat().st_mode & 0o777 == 0o600


def test_end_of_input_leaves_the_env_file_unchanged(slack: LocalSlack) -> None:
    ENV.write_text("OTHER=1\n")
    result = run_setup("xoxb-local", SECRET)
    assert result.exit_code == 2
    assert "Stopped. Nothing was written." in result.output + result.stderr
    assert ENV.read_text() == "OTHER=1\n"
    assert sorted(p.name for p in Path.cwd().iterdir() if "env" in p.name) == [".env"]


def test_setup_for_several_workspaces_asks_for_a_client_secret_instead_of_a_token(
    slack: LocalSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("slack: {mode: http, client_id: '1.2'}\nserve: {public_url: 'https://a.example.com'}")
    router = SeveralSlacks({"T0ACME": slack}, secret=SECRET)
    with LocalServer(router, "slack") as server:
        monkeypatch.setenv("SLACK_API_URL", server.url + API_PATH)
        result = run_setup("f" * 32, SECRET, "a" * 32, "sk-ant-secret", "")
    assert result.exit_code == 0, result.output
    assert "SLACK_CLIENT_SECRET is not the secret of slack.client_id" in result.output
    assert "a.example.com%2Fslack%2Foauth_redirect" in result.output
    assert read_env() == {
        "SLACK_CLIENT_SECRET": SECRET,
        "SLACK_SIGNING_SECRET": "a" * 32,
        "ANTHROPIC_API_KEY": "sk-ant-secret",
    }


@pytest.mark.parametrize(
    "value",
    ["with 'space'", "ha#sh", "dollar$HOME", "back\\slash", "p@ss:w/rd?x=%20&y", "ü"],
)
def test_env_values_are_read_back_unchanged(value: str) -> None:
    assert storable(value)
    write_env(ENV, {"SLACK_BOT_TOKEN": value})
    token = load_settings().secrets.slack_bot_token
    assert token
    assert token.get_secret_value() == value


def test_a_value_that_cannot_be_read_back_is_refused() -> None:
    assert not any(map(storable, ("", "a\nb", "a${HOME}", "a\0b")))


def test_write_error_is_reported_and_the_old_env_file_is_unchanged(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be written: no such file or directory"):
        write_env(tmp_path / "gone" / ".env", {"A": "1"})
    ENV.write_bytes(b"A=\xff\n")
    with pytest.raises(SetupError, match="not UTF-8"):
        write_env(ENV, {"A": "1"})
    assert ENV.read_bytes() == b"A=\xff\n"
