"""Settings: the files and variables they come from, and the errors for invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from config.settings import Settings, SettingsError, load_settings

SECRET = "xoxb-do-not-show-me"


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ASSISTANT_DATA_DIR")
    return tmp_path


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "assistant.yaml"
    path.write_text(text, "utf-8")
    return load_settings(path, env={})


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(SettingsError) as error:
        load(tmp_path, text)
    return str(error.value).replace(f"{tmp_path}/", "")


def test_a_file_changes_only_the_keys_that_it_names(tmp_path: Path) -> None:
    settings = load(tmp_path, "models:\n  roles:\n    parent: {effort: high}\nlimits: {seconds: 9}")
    assert settings.models.roles.parent.effort == "high"
    assert settings.models.roles.parent.max_tokens == 8000
    assert settings.limits.seconds == 9
    assert settings.limits.tokens == 5_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("limits: {cost_us: 2}", "unknown key 'limits.cost_us'. Did you mean 'limits.cost_usd'?"),
        ("qwertz: 1", "unknown key 'qwertz'. config/default.yaml lists the valid ones."),
        ("limits: {tokens: true}", "'limits.tokens' is True, but it must be a valid integer"),
        ("models: {base_url: localhost}", "'models.base_url' is 'localhost', but it must be an"),
        ("files: {projects: {a: {path: 2026}}}", "path' is 2026, but it must be text in quotes"),
        ("report: {language: 2026-11-30}", "is 2026-11-30, but it must be text in quotes"),
        ("report: {language: no}", "'report.language' is False, but it must be text in quotes"),
        ("data_dir: 3", "'data_dir' is 3, but it must be text in quotes."),
        ("triage: {categories: {}}", "is {}, but it must have at least 1 item"),
        ("limits: {remind_at: 0.9}", "'limits': remind_at must be smaller than handoff_at"),
        (
            "data: {databases: {shop: {path: a.db, password_file: p}}}",
            "'data.databases.shop': password_file is of a postgres database alone",
        ),
        (
            "data: {query_s: 61, databases: {shop: {path: a.db}}}",
            "'data': query_s must be at most limits.tool_timeout_s",
        ),
        (
            "mcp: {servers: {crm: {command: [x], scope: web, readers: memebers}}}",
            "'mcp.servers.crm.readers' is 'memebers', but it must be `public` or a list",
        ),
        ("data: {databases: {Sales: {path: x}}}", "the key 'data.databases.Sales' must be small"),
        ("- 1", "expected sections such as 'limits:' at the top level"),
        (
            "limits: {seconds: 1}\nslack: {}\nlimits: {tokens: 1}",
            "line 3, column 1: this is not valid YAML (the key 'limits' occurs twice)",
        ),
        ("{[a]: 1}", "line 1, column 2: this is not valid YAML (found unhashable key)"),
        ("limits:\n  seconds: [1", "line 2, column 14: this is not valid YAML (expected ',' or"),
        ("a: 2025-13-45", "cannot be read: month must be in 1..12"),
        ("a: \0", "is not valid YAML: unacceptable character #x0000"),
    ],
)
def test_invalid_settings_file_is_explained_in_one_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    sentence = complaint(tmp_path, text)
    assert sentence.startswith("assistant.yaml")
    assert words in sentence
    assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"secrets: {{slack_bot_token: {SECRET}}}",
        f"slack: {{bot_token: {SECRET}}}",
        f"models: {{api_key: {SECRET}}}",
    ],
)
def test_a_secret_in_a_file_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    sentence = complaint(tmp_path, text)
    assert "Secrets are read only from the environment or .env" in sentence
    assert SECRET not in sentence


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("mcp: {servers: {a: {url: 'http://u:%s@h/x', scope: web}}}", "token_file"),
        ("data: {databases: {a: {postgres: 'postgresql://u:%s@h/x'}}}", "password_file"),
        ("data: {databases: {a: {postgres: 'postgresql://u@h/x?password=%s'}}}", "password_file"),
        ("models: {base_url: 'https://u:%s@h/x'}", "ANTHROPIC_BASE_URL"),
        ("web: {searxng_url: 'https://u:%s@h/x'}", "without one"),
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(
    tmp_path: Path, text: str, instead: str
) -> None:
    sentence = complaint(tmp_path, text % SECRET)
    assert "no password or token is allowed in an address" in sentence
    assert instead in sentence
    assert SECRET not in sentence


def test_secrets_are_read_from_the_environment_and_not_printed() -> None:
    settings = load_settings(env={"SLACK_BOT_TOKEN": SECRET, "ANTHROPIC_API_KEY": ""})
    assert settings.secrets.slack_bot_token is not None
    assert settings.secrets.slack_bot_token.get_secret_value() == SECRET
    assert settings.secrets.anthropic_api_key is None
    assert SECRET not in repr(settings)
    assert SECRET not in settings.model_dump_json()


def test_settings_file_is_chosen_by_argument_then_environment_then_default(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("assistant.yaml", 1), ("named.yaml", 2), ("given.yaml", 3)):
        (cwd / name).write_text(f"limits: {{seconds: {seconds}}}", "utf-8")
    assert load_settings().limits.seconds == 1
    monkeypatch.setenv("ASSISTANT_CONFIG", "named.yaml")
    assert load_settings().limits.seconds == 2
    assert load_settings(Path("given.yaml")).limits.seconds == 3


def test_error_for_an_invalid_address_in_the_environment_names_its_variable() -> None:
    with pytest.raises(SettingsError) as error:
        load_settings(env={"SLACK_API_URL": "slack.local"})
    assert "SLACK_API_URL must be an address" in str(error.value)


def test_data_dir_is_absolute_and_the_environment_wins(cwd: Path) -> None:
    path = cwd / "assistant.yaml"
    path.write_text("data_dir: state", "utf-8")
    assert load_settings().data_dir == cwd / "state"
    path.write_text("data_dir: ~/state", "utf-8")
    assert load_settings().data_dir == Path.home() / "state"
    settings = load_settings(path, env={"ASSISTANT_DATA_DIR": str(cwd / "elsewhere")})
    assert settings.data_dir == cwd / "elsewhere"
    assert not settings.data_dir.exists()


SWEEP: dict[str, Any] = {
    "kind": "sweep",
    "cron": "0 9 * * mon-fri",
    "zone": "Europe/Madrid",
    "channels": ["csm-*"],
    "to": "#reports",
    "owner": "U0ANA",
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cron": "61 * * * *"}, "'schedules.m': the first field of '61 * * * *' (minute)"),
        ({"to": "rep"}, "'schedules.m.to' is 'rep', but it must be dm (to its owner), #channel"),
        ({"owner": "ana"}, "'schedules.m.owner' is 'ana', but it must be a Slack user id"),
        ({"budget_usd": 0}, "'schedules.m.budget_usd' is 0, but it must be greater than 0"),
        ({"channels": []}, "'schedules.m': a sweep needs channels"),
        ({"cron": ""}, "'schedules.m': it needs either a crontab in `cron` to repeat"),
        ({"cron": "", "at": "noon"}, "'schedules.m': 'noon' is not a time of a day, such as 2026-"),
        (
            {"cron": "", "at": "9999-12-31T23:59", "zone": "Pacific/Niue"},
            "'schedules.m': '9999-12-31T23:59' is not a time of a day",
        ),
        ({"request": "Why?"}, "'schedules.m': only kind `ask` has a `request`, and only kind"),
        ({"kind": "ask"}, "'schedules.m': a question needs a `request`: what is asked each time"),
        ({"kind": "ask", "request": "Why?"}, "'schedules.m': a question has no channels, tracker,"),
        ({"kind": "reminder"}, "'schedules.m': a reminder needs a `text`: what it says"),
        ({"to": "U0LUIS"}, "'schedules.m': only a reminder goes to another person: write dm or"),
        ({"kind": "triage"}, "'schedules.m': a triage reads its owner's mailbox: leave channels"),
        ({"ownr": "U0ANA"}, "'schedules.m.ownr'. Did you mean 'schedules.m.owner'?"),
    ],
)
def test_invalid_schedule_settings_are_rejected_with_a_specific_error(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    sentence = complaint(tmp_path, yaml.safe_dump({"schedules": {"m": {**SWEEP, **changes}}}))
    assert words in sentence
    assert len(sentence.splitlines()) == 1
