"""Output for the terminal: readable documents, and threads similar to Slack's."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bot.errors import SetupError
from config.settings import SettingsError
from scopes.tool import iso

UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text that may contain strangers' words, safe to print."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


DONE, INCOMPLETE, WRONG_USE = 0, 1, 2


@contextmanager
def errors_reported(as_json: bool) -> Iterator[None]:
    """Print errors of use and set-up as one sentence on stderr, and a document with --json.

    Exits with WRONG_USE after one.
    """
    try:
        yield
        return
    except SetupError as error:
        code, message, hint = error.code, error.message, error.hint
    except SettingsError as error:
        code, message, hint = "bad_settings", str(error), ""
    except KeyboardInterrupt:
        code, message, hint = "stopped", "Stopped.", ""
    if as_json:
        dump({"error": {"code": code, "message": message, "hint": hint}})
    tell(f"error: {message} {hint}".strip())
    raise SystemExit(WRONG_USE)


BOLD, PLAIN = "\ue010", "\ue011"
"""Start and end of bold text for `say`: private characters, which `scopes.clean` removes."""


def without_bold(text: str) -> str:
    return text.replace(BOLD, "").replace(PLAIN, "")


def say(text: str) -> None:
    """Print a text; with bold only on a terminal."""
    text = printable(text)
    if sys.stdout.isatty():
        text = text.replace(BOLD, "\x1b[1m").replace(PLAIN, "\x1b[0m")
    _print(without_bold(text))


def tell(text: str) -> None:
    print(printable(text), file=sys.stderr)


def dump(value: Any) -> None:
    encoding = sys.stdout.encoding or "utf-8"  # a stream in memory has no encoding
    ascii_only = encoding.lower() not in ("utf-8", "utf8")
    _print(json.dumps(value, ensure_ascii=ascii_only, indent=2, default=iso))


def _print(text: str) -> None:
    """Print a result. Exits with 1 if stdout fails, as on a full disk."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise  # click ends the command without a traceback
    except OSError as error:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # Python flushes stdout as it exits
        raise SystemExit(f"error: Cannot write the result to stdout: {error.strerror}.") from error
