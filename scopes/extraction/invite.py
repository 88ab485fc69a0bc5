"""A calendar invitation (RFC 5545, 5546) as the facts that a person reads in it.

Read here, not by a calendar library: of the format eight properties of one component are needed,
and libraries build the whole tree, resolve recurrences, and raise for what is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from scopes.extraction.characters import decoded, line

MAX_LINES = 5_000
MAX_COUNTED = 1_000  # attendees, events
MAX_FACT = 300  # characters

METHODS = {
    "REQUEST": "Calendar invitation",
    "CANCEL": "Calendar cancellation",
    "REPLY": "Reply to a calendar invitation",
    "COUNTER": "Proposal of another time for a calendar invitation",
    "DECLINECOUNTER": "Proposal of another time declined",
}
"""METHOD -> what it is (RFC 5546, 1.4); any other one is an event that is told of."""
COMPONENTS = frozenset({"VEVENT", "VTODO", "VJOURNAL"})

_FOLD = re.compile(r"\r?\n[ \t]|\r[ \t]")
_LINE = re.compile(r"([A-Za-z0-9-]{1,60})((?:;[^:\";]*(?:\"[^\"]*\"[^:\";]*)*)*):(.*)", re.DOTALL)
_PARAMETER = re.compile(r";([A-Za-z0-9-]{1,60})=(\"[^\"]*\"|[^;:\"]*)")
_WHEN = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)?(Z)?)?")
_LENGTH = re.compile(r"\+?P(?:(\d{1,4})W)?(?:(\d{1,4})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,4})M)?.*)?")
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,60}")
_ESCAPE = re.compile(r"\\([\\;,nN])")


@dataclass(frozen=True, slots=True)
class _Property:
    value: str
    parameters: Mapping[str, str]


@dataclass(slots=True)
class _Calendar:
    """What is read of one: its method, and the first event in it."""

    method: str = ""
    event: dict[str, _Property] = field(default_factory=dict)
    attendees: int = 0
    answer: str = ""
    """PARTSTAT of the first attendee: in a reply theirs who answers."""
    events: int = 0


@dataclass(frozen=True, slots=True)
class _Time:
    """A time as it is written, and in UTC where its zone is known."""

    local: datetime
    zone: str
    """Empty where none is named."""
    utc: datetime | None
    day: bool
    """A date without a time."""


def invitation(data: bytes, charset: str = "") -> str:
    """Return the facts in one paragraph; empty where there is no event. Raises nothing."""
    found = _read(decoded(data, charset))
    if not found.events:
        return ""
    head = METHODS.get(found.method, "Calendar event")
    facts = [f"{head}: {_text(found, 'SUMMARY') or '(no title)'}", *_when(found)]
    place, by = _text(found, "LOCATION"), _organiser(found)
    facts += [f"place: {place}"] if place else []
    facts += [f"organised by {by}"] if by else []
    people = found.attendees
    facts += [f"{people} {'person is' if people == 1 else 'people are'} invited"] if people else []
    facts += [f"answer: {line(found.answer.lower(), 40)}"] if found.method == "REPLY" else []
    status = _text(found, "STATUS").lower()
    facts += [f"status: {status}"] if status in ("cancelled", "tentative") else []
    facts += [f"{found.events - 1} more in it are not shown"] if found.events > 1 else []
    return "; ".join(facts) + "."


def _read(text: str) -> _Calendar:
    found, inside = _Calendar(), list[str]()
    for name, each in _properties(text):
        value = each.value.strip().upper()
        if name == "BEGIN":
            inside.append(value)
            found.events += value in COMPONENTS and found.events < MAX_COUNTED
        elif name == "END":
            if value in inside:
                del inside[inside.index(value) :]
        elif name == "METHOD" and not COMPONENTS & set(inside):
            found.method = found.method or value
        elif found.events == 1 and inside and inside[-1] in COMPONENTS:
            _take(found, name, each)
    return found


def _take(found: _Calendar, name: str, each: _Property) -> None:
    if name == "ATTENDEE":
        found.attendees = min(found.attendees + 1, MAX_COUNTED)
        found.answer = found.answer or each.parameters.get("PARTSTAT", "")
    else:
        found.event.setdefault(name, each)


def _properties(text: str) -> Iterator[tuple[str, _Property]]:
    """Name and value of each line, those that were folded in one piece."""
    for number, each in enumerate(re.split(r"\r\n|\r|\n", _FOLD.sub("", text))):
        if number >= MAX_LINES:
            return
        if match := _LINE.fullmatch(each[:10_000]):
            given = {k.upper(): v.strip('"') for k, v in _PARAMETER.findall(match[2])}
            yield match[1].upper(), _Property(match[3], given)


def _text(found: _Calendar, name: str) -> str:
    each = found.event.get(name)
    return line(_unescaped(each.value), MAX_FACT) if each else ""


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda m: " " if m[1] in "nN" else m[1], value)


def _organiser(found: _Calendar) -> str:
    each = found.event.get("ORGANIZER")
    if each is None:
        return ""
    address = line(re.sub(r"(?i)^mailto:|[<>\s]", "", each.value.strip()), MAX_FACT)
    name = re.sub(r"[<>]", "", line(each.parameters.get("CN", ""), MAX_FACT))
    return f"{name} <{address}>" if name and name != address else address


def _when(found: _Calendar) -> list[str]:
    start = _time(found.event.get("DTSTART"))
    if start is None:
        return ["when: not said"]
    end = _time(found.event.get("DTEND") or found.event.get("DUE")) or _after(found, start)
    again = found.event.get("RRULE")
    often = re.search(r"FREQ=([A-Za-z]{1,20})", again.value) if again else None
    facts = [f"from {_shown(start)}"]
    if start.day:
        facts = [f"on {start.local:%Y-%m-%d} (all day)"]
        if end and end.day and (end.local - start.local).days > 1:
            last = end.local - timedelta(days=1)
            facts = [f"from {start.local:%Y-%m-%d} to {last:%Y-%m-%d} (all day)"]
    elif end:
        facts = [f"from {_shown(start)} to {_shown(end)}"]
    return [*facts, *([f"repeats {often[1].lower()}"] if often else [])]


def _shown(at: _Time) -> str:
    text = f"{at.local:%Y-%m-%d %H:%M}"
    if at.zone == "UTC":
        return f"{text} UTC"
    utc = f", {at.utc:%Y-%m-%d %H:%M} UTC" if at.utc else ""
    return f"{text} ({at.zone or 'no time zone said'}{utc})"


def _time(given: _Property | None) -> _Time | None:
    """Return a DATE or DATE-TIME; None where it is none."""
    match = _WHEN.match(given.value.strip()) if given else None
    if given is None or match is None:
        return None
    numbers = [int(part or 0) for part in match.groups()[:6]]
    try:
        local = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    zone = "UTC" if match[7] else line(given.parameters.get("TZID", ""), 60)
    return _Time(local, zone, _in_utc(local, zone), match[4] is None)


def _in_utc(local: datetime, zone: str) -> datetime | None:
    """None where the zone is not in the time zone database, as those of Windows are not."""
    if not _ZONE.fullmatch(zone):
        return None
    try:
        return local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    except (ValueError, KeyError, OSError, OverflowError):
        return None


def _after(found: _Calendar, start: _Time) -> _Time | None:
    """Return the end by DURATION."""
    each = found.event.get("DURATION")
    match = _LENGTH.fullmatch(each.value.strip().upper()) if each else None
    if match is None:
        return None
    weeks, days, hours, minutes = (int(part or 0) for part in match.groups())
    length = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes)
    try:
        utc = start.utc + length if start.utc else None
        return _Time(start.local + length, start.zone, utc, start.day)
    except OverflowError:
        return None
