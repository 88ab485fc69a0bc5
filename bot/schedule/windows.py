"""Which time a report covers, channel by channel, so that nothing falls between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scopes.tool import iso

LONGEST = timedelta(days=31)
"""A channel that was not read whole for longer is read from here on, and that is said."""
NAMED = 5
"""Channels that one sentence names."""


@dataclass(frozen=True, slots=True)
class Windows:
    """From when each channel is to be read."""

    since: Mapping[str, datetime]
    """By channel id; the end is that of the tick for all of them."""
    oldest: datetime
    notes: tuple[str, ...] = ()
    """What the reader has to know of it, in sentences."""


def windows(
    names: Mapping[str, str], covered: Mapping[str, str], at: datetime, first: timedelta
) -> Windows:
    """Where each channel's window begins (`names`: by id): where it was last covered whole by a
    report that was delivered, else `first` before the tick."""
    known = {id: datetime.fromisoformat(covered[id]) for id in names if id in covered}
    since = {
        id: min(max(known[id], at - LONGEST), at) if id in known else at - first for id in names
    }
    late = [names[id] for id, begin in known.items() if begin < at - LONGEST]
    notes = (f"{_listed(late)} not read whole for more than 31 days: what is older is not in it.",)
    return Windows(since, min(since.values(), default=at - first), notes if late else ())


def covered_after(document: Mapping[str, Any], before: Mapping[str, str]) -> dict[str, str]:
    """Up to when each channel has been covered whole, once this report is delivered.

    One that was not read whole is read again from where this window began.
    """
    after = dict(before)
    for section in document["sections"]:
        window, channel = section["window"], section["channel"]
        if section["status"] == "complete":
            after[channel] = window["latest"]
        else:
            after[channel] = before.get(channel, window["oldest"])
    return after


def changes(
    now: Mapping[str, str], before: Mapping[str, str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Names of the channels that came and that went since the last report; by id."""
    if before is None:
        return (), ()
    came = sorted(name for id, name in now.items() if id not in before)
    return came, sorted(name for id, name in before.items() if id not in now)


def since_json(since: Mapping[str, datetime]) -> dict[str, str]:
    return {id: iso(at) for id, at in since.items()}


def _listed(names: Iterable[str]) -> str:
    """`#a, #b and 3 more channels were`."""
    found = sorted(names)
    shown = ", ".join(f"#{name}" for name in found[:NAMED])
    more = f" and {len(found) - NAMED} more channels" if len(found) > NAMED else ""
    return f"{shown}{more} {'were' if len(found) > 1 else 'was'}"
