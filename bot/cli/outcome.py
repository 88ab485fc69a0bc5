"""How a command ends: what it prints where, and its exit code.

Exit 0 = done, 1 = done but something failed or was not covered, 2 = wrong use or set-up. What the
user's own `--limit` left out is named and is no failure. stdout carries the result only; all else
goes to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bot.cli.report import printable
from bot.cli.streams import Unwritten
from bot.errors import SetupError
from config.settings import SettingsError
from scopes.tool import iso

DONE, INCOMPLETE, WRONG_USE = 0, 1, 2

Document = dict[str, Any]


def guarded(run: Callable[[], int], as_json: bool) -> int:
    """Faults of use and set-up as one sentence on stderr (and a document with --json)."""
    try:
        return run()
    except SetupError as error:
        code, message, hint = error.code, error.message, error.hint
    except SettingsError as error:
        code, message, hint = "bad_settings", str(error), ""
    except KeyboardInterrupt:
        code, message, hint = "stopped", "Stopped.", ""
    if as_json:
        with suppress(Unwritten):
            dump({"error": {"code": code, "message": message, "hint": hint}})
    tell(f"error: {message} {hint}".strip())
    return WRONG_USE


def present(document: Document, as_json: bool, text: Callable[[Document], str]) -> None:
    if as_json:
        dump(document)
    else:
        say(text(document))


def say(text: str) -> None:
    print(printable(text), flush=True)


def tell(text: str) -> None:
    print(printable(text), file=sys.stderr)


def dump(value: Any) -> None:
    encoding = sys.stdout.encoding or "utf-8"  # a stream in memory has none
    ascii_only = encoding.lower() not in ("utf-8", "utf8")
    print(json.dumps(value, ensure_ascii=ascii_only, indent=2, default=iso), flush=True)
