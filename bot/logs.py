"""What the process says on stderr: one JSON object a line, or text, without any secret in it.

Texts of users are not logged at info or above; libraries, which may quote them, speak from
warnings on.
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
from typing import Any, TextIO, TypeGuard
from urllib.parse import quote, unquote, urlsplit

from config.settings import Secrets, Serve
from scopes.clean import REMOVED, redacted

OURS = ("bot", "subagents", "scopes", "config")
"""Loggers that follow the set level; all others are heard from warnings on."""

CUT = REMOVED
_MOST_CHARS = 8_000
"""Of one message; a library may log a whole response."""
_MOST_READ = 64_000
"""Of one message, in which secrets are looked for before it is cut, so that none is cut in two."""
_LEAST_SECRET = 6
"""Characters from which on an exact value is looked for: shorter ones occur by chance."""
_MOST_LEARNT = 500
"""Values learnt while running that are looked for: the latest."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")

_about: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039


@contextmanager
def about(**fields: str | None) -> Iterator[None]:
    """Lines logged inside, also by tasks started there, carry these fields; None adds none.

    `with about(run=..., request=..., team=...):`
    """
    given = {name: value for name, value in fields.items() if value is not None}
    token = _about.set({**_about.get(), **given})
    try:
        yield
    finally:
        _about.reset(token)


class _Exact:
    """Finds exact values, however a log spells them."""

    def __init__(self, values: Iterable[str] = (), most: int | None = None) -> None:
        self._values, self._most = dict.fromkeys(values), most
        self._pattern = self._compiled()

    def add(self, values: Iterable[str]) -> None:
        """Know these, too; of more than `most` the latest."""
        known = dict.fromkeys([*self._values, *values])
        if len(known) > len(self._values):
            self._values = dict.fromkeys(list(known)[-self._most :] if self._most else known)
            self._pattern = self._compiled()

    def cut(self, text: str) -> str:
        pattern = self._pattern
        return pattern.sub(CUT, text) if pattern else text

    def _compiled(self) -> re.Pattern[str] | None:
        parts = {part for value in self._values for part in _parts(value)}
        known = sorted((p for p in parts if len(p) >= _LEAST_SECRET), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, known))) if known else None


_learnt = _Exact(most=_MOST_LEARNT)


def learn(secrets: Iterable[str]) -> None:
    """Take these values out of all that this process logs from now on, such as a user's tokens."""
    _learnt.add(secrets)


class Redactor:
    """Takes secrets out of text: what looks like one, the exact values given, and those learnt."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._exact = _Exact(values)

    def clean(self, text: str) -> str:
        return redacted(_learnt.cut(self._exact.cut(text)))


def _parts(value: str) -> Iterator[str]:
    """A secret, the keys in a list of them, an address's password: however a log spells them."""
    try:
        password = urlsplit(value).password or ""
    except ValueError:
        password = ""
    for part in {value, *value.split(","), password, unquote(password)}:
        yield from (part, quote(part, safe=""), repr(part)[1:-1], json.dumps(part)[1:-1])


def secret_values(secrets: Secrets) -> list[str]:
    """The texts of all secrets that are set."""
    values = (getattr(secrets, name) for name in Secrets.model_fields)
    return [value.get_secret_value() for value in values if value is not None]


class _Lines(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        """What a line says, in order, clean."""
        at = datetime.fromtimestamp(record.created, UTC)
        said = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shortened(_message(record), self._redactor),
            **_about.get(),
        }
        if error := self._error(record):
            said["error"] = error
        return {name: self._redactor.clean(value) for name, value in said.items()}

    def _error(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        stack = self.formatStack(record.stack_info) if record.stack_info else ""
        return "\n".join(filter(None, (trace, stack)))


class JsonLines(_Lines):
    """One object a line, in ASCII, so that no text can begin another line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record))


class TextLines(_Lines):
    """For people: further lines of one entry are indented, and nothing steers the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        said = self.fields(record)
        head = f"{said.pop('at')} {said.pop('level'):7} {said.pop('logger')}: {said.pop('message')}"
        error = said.pop("error", "")
        tail = "".join(f" {name}={value}" for name, value in said.items())
        lines = _CONTROLS.sub("?", f"{head}{tail}\n{error}".strip()).split("\n")
        return "\n    ".join(line.rstrip() for line in lines)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # a library's slip must not print its arguments, unredacted
        return f"{record.msg} ({type(error).__name__}: the arguments do not fit)"


def _shortened(text: str, redactor: Redactor) -> str:
    if len(text) <= _MOST_CHARS:
        return text
    return f"{redactor.clean(text[:_MOST_READ])[:_MOST_CHARS]} [cut, {len(text)} chars]"


class _OursOrSerious(logging.Filter):
    """Libraries set levels of their own; here it is decided anew."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.name.split(".")[0] in OURS


@contextmanager
def written(serve: Serve, secrets: Secrets, stream: TextIO | None = None) -> Iterator[None]:
    """Log to `stream` (None = stderr) inside, as `serve.log_format` and `serve.log_level` say.

    Afterwards logging is as it was.
    """
    redactor = Redactor(secret_values(secrets))
    level = getattr(logging, serve.log_level.upper())
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter({"json": JsonLines, "text": TextLines}[serve.log_format](redactor))
    handler.setLevel(level)
    handler.addFilter(_OursOrSerious())
    ours = [logging.getLogger(name) for name in OURS]
    root, dbos = logging.getLogger(), logging.getLogger("dbos")
    known = list(logging.root.manager.loggerDict.values())
    others = [each for each in known if _speaks_for_itself(each)]
    before = [_State(logger) for logger in {root, dbos, *ours, *others}]
    for logger in others:
        logger.handlers, logger.propagate = [], True
    # dbos adds a handler of its own to a logger that has none
    root.handlers, dbos.handlers, dbos.propagate = [handler], [handler], False
    root.setLevel(max(level, logging.WARNING))
    for logger in ours:
        logger.setLevel(level)
    try:
        yield
    finally:
        for state in before:
            state.restore()
        handler.flush()


def _speaks_for_itself(logger: logging.Logger | logging.PlaceHolder) -> TypeGuard[logging.Logger]:
    """A library's logger whose lines would be written as they are, beside ours."""
    return isinstance(logger, logging.Logger) and bool(logger.handlers or not logger.propagate)


class _State:
    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._was: dict[str, Any] = {
            "level": logger.level,
            "handlers": logger.handlers,
            "propagate": logger.propagate,
        }

    def restore(self) -> None:
        self._logger.setLevel(self._was["level"])
        self._logger.handlers = self._was["handlers"]
        self._logger.propagate = self._was["propagate"]
