"""The small checks that the shapes of blocks, chunks and views are made of."""

from collections.abc import Sequence
from typing import Any

from bot.local.slack.records import Json

TEXTS = ("plain_text", "mrkdwn")


class Misfit(Exception):
    """A value that Slack would not take: the JSON pointer to it and what is wrong with it."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what


def string(value: Any, key: str, at: str, most: int, *, required: bool = True) -> str:
    """A string of 1 to `most` characters below `key`; "" if there is none and need not be."""
    found = _mapping(value, at).get(key)
    where = f"{at}/{key}"
    if found is None or (found == "" and not required):
        if required:
            raise Misfit(at, f"missing required field: {key}")
        return ""
    if not isinstance(found, str):
        raise Misfit(where, "must provide a string")
    if not found:
        raise Misfit(where, "must be more than 0 characters")
    if len(found) > most:
        raise Misfit(where, f"must be less than {most + 1} characters")
    return found


def text(
    value: Any,
    key: str | int,
    at: str,
    most: int,
    kinds: Sequence[str] = TEXTS,
    *,
    required: bool = True,
) -> None:
    """A text object of one of these kinds, of 1 to `most` characters."""
    found = value[key] if isinstance(key, int) else _mapping(value, at).get(key)
    where = f"{at}/{key}"
    if found is None:
        if required:
            raise Misfit(at, f"missing required field: {key}")
        return
    choice(found, "type", where, kinds)
    string(found, "text", where, most)


def choice(value: Any, key: str, at: str, allowed: Sequence[str]) -> str:
    """One of these words below `key`."""
    found = _mapping(value, at).get(key)
    if found not in allowed:
        raise Misfit(f"{at}/{key}", f"must be a valid enum value: {', '.join(allowed)}")
    return str(found)


def items(
    value: Any, key: str, at: str, most: int | None, *, least: int = 1, required: bool = True
) -> list[Json]:
    """A list of objects below `key`; None as `most` sets no limit."""
    found = _mapping(value, at).get(key)
    where = f"{at}/{key}"
    if found is None and not required:
        return []
    if not isinstance(found, list):
        raise Misfit(at, f"missing required field: {key}")
    if most is not None and len(found) > most:
        raise Misfit(where, f"no more than {most} items allowed")
    if len(found) < least:
        raise Misfit(where, f"no fewer than {least} items allowed")
    for number, each in enumerate(found):
        _mapping(each, f"{where}/{number}")
    return found


def only(value: Any, at: str, keys: Sequence[str]) -> None:
    """Nothing but these keys."""
    for key in _mapping(value, at):
        if key not in keys:
            raise Misfit(f"{at}/{key}", f"invalid additional property: {key}")


def flag(value: Any, key: str, at: str) -> None:
    """True or false below `key`, if there is anything."""
    if not isinstance(_mapping(value, at).get(key), bool | None):
        raise Misfit(f"{at}/{key}", "must provide a boolean")


def whole_number(value: Any, key: str, at: str, most: int) -> None:
    """A whole number from 0 to `most` below `key`, if there is anything."""
    found = _mapping(value, at).get(key)
    if found is None:
        return
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        raise Misfit(f"{at}/{key}", f"must be a whole number from 0 to {most}")


def _mapping(value: Any, at: str) -> Json:
    if not isinstance(value, dict):
        raise Misfit(at, "must provide an object")
    return value
