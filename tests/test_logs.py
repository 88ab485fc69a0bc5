"""Logs: one object a line, with the ids of the run, and never a secret."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from bot.log import about, log_to, secret_values
from config.sections import ServeSettings
from config.settings import Secrets, load_settings
from scopes.clean import SECRET_PLACEHOLDER

SECRETS = Secrets(
    anthropic_api_key=SecretStr("k-Anthropic 'quoted' \\ one"),
    slack_bot_token=SecretStr("plain-words-only-token"),
    slack_user_token=SecretStr("caf\u00e9-user-token"),
    slack_app_token=SecretStr("app/level+token=="),
    slack_signing_secret=SecretStr("8f742231b10e8888abcd99yyyzzz85a5"),
    database_url=SecretStr("postgresql://bot:p%40ss-word-1@db.example/assistant"),
    assistant_encryption_key=SecretStr("first-key-of-two,second-key-of-two"),
)
SHAPES = (
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    *("xoxb-2345-6789-aBcDeF", "xoxp-1-2-3-abc", "xoxe.xoxp-1-Mi0yLTk"),
    *("xapp-1-A012-345-abcdef", "sk-ant-api03-AbC_d-9"),
)
"""Secrets that are known by their shape alone."""


def serve_settings(**changes: Any) -> ServeSettings:
    return load_settings(env={}).serve.model_copy(update=changes)


class Lines(io.StringIO):
    def objects(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@contextmanager
def log_lines(**changes: Any) -> Iterator[Lines]:
    lines = Lines()
    with log_to(serve_settings(**changes), SECRETS, lines):
        yield lines


def test_log_line_is_json_with_the_ids_of_its_run() -> None:
    log = logging.getLogger("bot.request")
    with log_lines() as lines:
        with about(run="r1", request="T0/C0/1.0", team=None):
            log.info("took %d rows", 3)
            with about(child="c2"):
                log.warning("slow")
        log.info("alone")
    first, second, third = lines.objects()
    assert first.pop("at").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "bot.request",
        "message": "took 3 rows",
        "run": "r1",
        "request": "T0/C0/1.0",
    }
    assert (second["run"], second["child"], second["level"]) == ("r1", "c2", "warning")
    assert "run" not in third


def spellings(value: str) -> list[str]:
    """Return the forms in which a secret may appear in a log."""
    return [value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value, safe="")]


def log_secret(log: logging.Logger, secret: str) -> None:
    """Log a secret by every route."""
    log.warning("as an argument: %s, by its repr: %r, in JSON: %s", secret, secret, [secret])
    message = f"in the message {secret}"
    log.warning(message)
    log.warning({"headers": {"Authorization": secret}})
    log.warning("by name: %(token)s", {"token": secret})
    log.warning("in a field", extra={"token": secret})
    log.warning("with a stack", stack_info=True)
    log.error("the arguments do not fit %d", secret)
    try:
        try:
            raise KeyError(secret)
        except KeyError as error:
            raise ExceptionGroup(
                f"of {secret}", [ValueError(secret), OSError(1, secret)]
            ) from error
    except ExceptionGroup:
        log.exception("failed")
    record = log.makeRecord(log.name, logging.ERROR, __file__, 1, "of another handler", (), None)
    record.exc_text = f"Traceback of {secret}"
    record.stack_info = f"Stack of {secret}"
    log.handle(record)


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("name", ["bot.x", "slack_sdk.web.client", "dbos"])
def test_secrets_are_redacted_in_every_logging_route(name: str, log_format: str) -> None:
    lines = Lines()
    values = [v for s in secret_values(SECRETS) for v in (s, *s.split(","))]
    values += ["p@ss-word-1", *SHAPES]
    with log_to(serve_settings(log_format=log_format), SECRETS, lines):
        for value in values:
            with about(request=value):
                log_secret(logging.getLogger(name), value)
                logging.getLogger(name).error("spelt %s", " ".join(spellings(value)))
    output = lines.getvalue()
    assert output.count("failed") >= len(values)
    assert output.count(SECRET_PLACEHOLDER) >= 3 * len(values)
    assert "Traceback of" in output
    assert "Stack of" in output
    for value in values:
        assert not [s for s in spellings(value) if s in output or json.dumps(s)[1:-1] in output]


def test_truncation_does_not_split_a_secret() -> None:
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    for before in range(7_970, 8_000):
        with log_lines() as lines:
            logging.getLogger("bot.x").error("%s%s%s", "x" * before, secret, "y" * 100)
        assert secret[:4] not in lines.getvalue()


def test_logged_text_cannot_forge_a_line_or_control_a_terminal() -> None:
    nasty = "one\ntwo\r\x1b[31mred\u2028three \ud83d"
    with log_lines() as lines:
        logging.getLogger("bot.x").info("%s", nasty)
    assert len(lines.getvalue().splitlines()) == 1
    assert lines.objects()[0]["message"] == nasty
    with log_lines(log_format="text") as text:
        logging.getLogger("bot.x").info("%s", nasty)
    first, second = text.getvalue().splitlines()
    assert first.endswith("bot.x: one")
    assert second.startswith("    two??[31mred?three")
