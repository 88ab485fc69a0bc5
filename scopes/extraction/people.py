"""Who a mail is from and to, and when it was written, read from headers that may be anything."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import getaddresses, parsedate_to_datetime

from scopes.extraction.characters import line
from scopes.extraction.mime import MimePart, words

MAX_LISTED = 200  # people

_ONE_PERSON = re.compile(r"([^<>,\"]*|\s*\"[^<>\"]*\"\s*)<([^<>\s]+@[^<>\s]+)>\s*")
"""The usual form, read here: `getaddresses` takes an unquoted address in the name for a person."""


def sender_of(part: MimePart) -> str:
    """Return who wrote it; of several the first five."""
    return ", ".join(people_in(part.raw("from"))[:5])


def people_in(value: str) -> tuple[str, ...]:
    """Return the people of an address header, each as `Name <address>` or the address alone."""
    only = _ONE_PERSON.fullmatch(value)
    try:
        pairs = [(only[1].strip('" '), only[2])] if only else getaddresses([value])
    except (RecursionError, ValueError, IndexError):
        pairs = []
    if not any("@" in address for _, address in pairs):
        rest = line(words(value), 300)
        return (rest,) if rest else ()
    people, before = [], ""
    for name, address in pairs[:MAX_LISTED]:
        if "@" not in address and not name:  # `Weber, Ann <a@x.example>`, a name that was unquoted
            before += f"{address}, " if address else ""
            continue
        name = re.sub(r"[<>\"]", "", line(words(before + name), 200)).strip(" ,")
        before = ""
        address = re.sub(r"[<>\s]", "", line(address, 320))
        people.append(f"{name} <{address}>" if name and name != address else address or name)
    return tuple(each for each in people if each)


def date_in(value: str) -> datetime | None:
    """Return the time of a Date header in UTC; None where it cannot be read."""
    try:
        found = parsedate_to_datetime(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
