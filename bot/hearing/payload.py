"""Parts of what Slack sends, of any shape: a value of the right form, or nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 40_000
"""Characters of any text kept; Slack itself cuts a message's text there."""
MAX_DEPTH = 40
"""Levels of nesting kept of an event; Slack's own have fewer than 15."""

_TS = re.compile(r"[0-9]{10}\.[0-9]{6}")
_ID = re.compile(r"[A-Z][A-Z0-9]{1,40}")


def storable(value: Any, depth: int = 0) -> Any:
    """JSON that each database takes: no NUL, no NaN, nothing endless."""
    if isinstance(value, str):
        return value[:MAX_TEXT].replace("\0", "")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, Mapping | list):
        return value
    if depth >= MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [storable(each, depth + 1) for each in value]
    return {storable(str(k)): storable(each, depth + 1) for k, each in value.items()}


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def first(value: Any) -> Mapping[str, Any]:
    """The first object of a list."""
    return mapping(value[0]) if isinstance(value, list) and value else {}


def id_of(value: Any, kinds: str = "") -> str:
    """An id of one of these kinds (first letters), or nothing."""
    fits = isinstance(value, str) and _ID.fullmatch(value) and (not kinds or value[0] in kinds)
    return value if fits else ""


def ts_of(value: Any) -> str:
    return value if isinstance(value, str) and _TS.fullmatch(value) else ""
