"""Logging to stderr: one JSON object per line, or text, without any secret in it.

Texts of users are not logged at info or above; libraries, which may quote them, are logged only at
warning or above.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO
from urllib.parse import quote, unquote, urlsplit

from config.sections import ServeSettings
from config.settings import Secrets
from scopes.clean import SECRET_PLACEHOLDER, redact

OWN_LOGGERS = ("bot", "subagents", "scopes", "config")
"""Loggers that follow the configured level; all others are logged at warning or above."""

_MOST_CHARS = 8_000
"""Maximum characters of one message; a library may log a whole response."""
_MOST_READ = 64_000
"""Maximum characters of a message searched for secrets before it is cut, so that none is split."""
_LEAST_SECRET = 6
"""Minimum characters of an exact value to search for, because shorter ones occur by chance."""
_MOST_VALUES = 500
"""Maximum exact values to search for, the latest ones."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")

_log_context: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039


@contextmanager
def about(**fields: str | None) -> Iterator[None]:
    """Add these fields to lines logged inside, also by tasks started there; None adds no field.

    `with about(run=..., request=..., team=...):`
    """
    values = {name: value for name, value in fields.items() if value is not None}
    token = _log_context.set({**_log_context.get(), **values})
    try:
        yield
    finally:
        _log_context.reset(token)


class Redactor:
    """Removes secrets from text: text that looks like one, given exact values, and learned ones."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Add exact values, in all spellings of a log; only the latest are kept."""
        all_values = dict.fromkeys([*self._values, *values])
        if len(all_values) > len(self._values):
            self._values = dict.fromkeys(list(all_values)[-_MOST_VALUES:])
            parts = {p for v in self._values for p in _parts(v) if len(p) >= _LEAST_SECRET}
            longest = sorted(parts, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest))) if parts else None

    def cut(self, text: str) -> str:
        """Return a text without the exact values."""
        return self._pattern.sub(SECRET_PLACEHOLDER, text) if self._pattern else text

    def clean(self, text: str) -> str:
        return redact(_learned_secrets.cut(self.cut(text)))


_learned_secrets = Redactor()


def learn(secrets: Iterable[str]) -> None:
    """Remove these values, such as a user's tokens, from all future log lines."""
    _learned_secrets.add(secrets)


def _parts(value: str) -> Iterator[str]:
    """Yield a secret, the keys in a list, or an address's password, in the spellings of a log."""
    try:
        password = urlsplit(value).password or ""
    except ValueError:
        password = ""
    for part in {value, *value.split(","), password, unquote(password)}:
        yield from (part, quote(part, safe=""), repr(part)[1:-1], json.dumps(part)[1:-1])


def secret_values(secrets: Secrets) -> list[str]:
    """Return the texts of all secrets that are set."""
    values = (getattr(secrets, name) for name in Secrets.model_fields)
    return [value.get_secret_value() for value in values if value is not None]


class _Lines(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        """Return the fields of a line, in order, without secrets."""
        at = datetime.fromtimestamp(record.created, UTC)
        found = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shorten(_message(record), self._redactor),
            **_log_context.get(),
        }
        if error := self._error(record):
            found["error"] = error
        return {name: self._redactor.clean(value) for name, value in found.items()}

    def _error(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        stack = self.formatStack(record.stack_info) if record.stack_info else ""
        return "\n".join(filter(None, (trace, stack)))


class JsonLines(_Lines):
    """One object per line, in ASCII, so that no text can begin another line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record))


class TextLines(_Lines):
    """For people: further lines of one entry are indented, without terminal control characters."""

    def format(self, record: logging.LogRecord) -> str:
        found = self.fields(record)
        at, level, name = found.pop("at"), found.pop("level"), found.pop("logger")
        head, error = f"{at} {level:7} {name}: {found.pop('message')}", found.pop("error", "")
        tail = "".join(f" {name}={value}" for name, value in found.items())
        lines = _CONTROLS.sub("?", f"{head}{tail}\n{error}".strip()).split("\n")
        return "\n    ".join(line.rstrip() for line in lines)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # a mistake in a library must not print its arguments unredacted
        return f"{record.msg} ({type(error).__name__}: the arguments do not fit)"


def _shorten(text: str, redactor: Redactor) -> str:
    if len(text) <= _MOST_CHARS:
        return text
    return f"{redactor.clean(text[:_MOST_READ])[:_MOST_CHARS]} [cut, {len(text)} chars]"


class _OursOrSerious(logging.Filter):
    """Passes our records, and library records at warning or above, despite their own level."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.name.split(".")[0] in OWN_LOGGERS


@contextmanager
def log_to(serve: ServeSettings, secrets: Secrets, stream: TextIO | None = None) -> Iterator[None]:
    """Log to `stream` (None = stderr) inside, by `serve.log_format` and `serve.log_level`.

    Restores the previous logging afterwards.
    """
    redactor = Redactor(secret_values(secrets))
    level = getattr(logging, serve.log_level.upper())
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter({"json": JsonLines, "text": TextLines}[serve.log_format](redactor))
    handler.setLevel(level)
    handler.addFilter(_OursOrSerious())
    our_loggers = [logging.getLogger(name) for name in OWN_LOGGERS]
    root, dbos = logging.getLogger(), logging.getLogger("dbos")
    touched = (root, dbos, *our_loggers)
    before = [(each, each.level, each.handlers, each.propagate) for each in touched]
    # dbos adds its own handler to a logger that has none
    root.handlers, dbos.handlers, dbos.propagate = [handler], [handler], False
    root.setLevel(max(level, logging.WARNING))
    for logger in our_loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, former, handlers, propagate in before:
            logger.setLevel(former)
            logger.handlers, logger.propagate = handlers, propagate
        handler.flush()
