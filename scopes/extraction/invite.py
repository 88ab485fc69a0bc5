"""A calendar invitation (RFC 5545, 5546) as the facts that a person reads in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from icalendar import Component, vBroken, vRecur

from scopes.clean import decode_text, line
from scopes.mail import DEFAULT_INVITATION_KIND, INVITATIONS

MAX_CHARS = 200_000
MAX_FACT = 300  # characters

_METHOD = re.compile(r"^METHOD:[ \t]*(\w+)", re.IGNORECASE | re.MULTILINE)
_EVENT = re.compile(
    r"^BEGIN:(VEVENT|VTODO|VJOURNAL)\b.*?(?:^END:\1\b|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


def invitation(data: bytes, charset: str = "") -> str:
    """Return the facts of the first event in one paragraph; empty if there is none.

    Raises nothing: a property that is broken counts as missing.
    """
    text = decode_text(data, charset)[:MAX_CHARS].replace("\r\n", "\n").replace("\r", "\n")
    events = list(_EVENT.finditer(text))
    event = _event(events[0][0]) if events else None
    if event is None:
        return ""
    method = _METHOD.search(text)
    kind = method[1].upper() if method else ""
    name = INVITATIONS.get(kind, DEFAULT_INVITATION_KIND)
    facts = [
        f"{name}: {_text(event, 'SUMMARY') or '(no title)'}",
        *_when(event),
        *_people(event, kind),
    ]
    facts += [f"{len(events) - 1} more in it are not shown"] if len(events) > 1 else []
    return "; ".join(facts) + "."


def _event(block: str) -> Component | None:
    name = block.partition(":")[2].split("\n")[0].strip().upper()
    closed = block if block.rstrip().upper().endswith(f"END:{name}") else f"{block}\nEND:{name}"
    try:
        parsed = Component.from_ical(closed)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return parsed if isinstance(parsed, Component) else None


def _people(event: Component, method: str) -> Iterator[str]:
    if place := _text(event, "LOCATION"):
        yield f"place: {place}"
    if by := _organizer(_first(event, "ORGANIZER")):
        yield f"organised by {by}"
    attendees = _all(event.get("ATTENDEE"))
    if attendees:
        count = len(attendees)
        yield f"{count} {'person is' if count == 1 else 'people are'} invited"
    if method == "REPLY":
        answers = [str(each.params.get("PARTSTAT", "")) for each in attendees]
        yield f"answer: {line((answers or [''])[0].lower(), 40)}"
    status = _text(event, "STATUS").lower()
    if status in ("cancelled", "tentative"):
        yield f"status: {status}"


def _all(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value is not None else []


def _first(event: Component, name: str) -> Any:
    """Return the first value of a property; None if it is missing."""
    return next(iter(_all(event.get(name))), None)


def _text(event: Component, name: str) -> str:
    return line(str(_first(event, name) or "").replace("\n", " "), MAX_FACT)


def _organizer(value: Any) -> str:
    if value is None or isinstance(value, vBroken):
        return ""
    address = line(re.sub(r"(?i)^mailto:|[<>\s]", "", str(value).strip()), MAX_FACT)
    name = re.sub(r"[<>]", "", line(str(value.params.get("CN", "")), MAX_FACT))
    return f"{name} <{address}>" if name and name != address else address


def _when(event: Component) -> Iterator[str]:
    start, end = _time(event, "DTSTART"), _time(event, "DTEND") or _time(event, "DUE")
    if start is None:
        yield f"when: {_text(event, 'DTSTART') or 'not said'}"
        return
    if end is None and isinstance(length := _value(event, "DURATION"), timedelta):
        try:
            end = start + length
        except OverflowError:
            end = None
    if not isinstance(start, datetime):
        whole = end is not None and not isinstance(end, datetime) and end > start
        last = end - timedelta(days=1) if end and whole else start
        yield f"from {start} to {last} (all day)" if last > start else f"on {start} (all day)"
    else:
        zone = _zone(event, start)
        until = f" to {_format_time(end, zone)}" if isinstance(end, datetime) else ""
        yield f"from {_format_time(start, zone)}{until}"
    rule = _first(event, "RRULE")
    if isinstance(rule, vRecur) and (often := _all(rule.get("FREQ"))):
        yield f"repeats {line(str(often[0]).lower(), 40)}"


def _value(event: Component, name: str) -> Any:
    """Return the Python value of a property; None if it is missing or broken."""
    first = _first(event, name)
    return None if isinstance(first, vBroken) else getattr(first, "dt", None)


def _time(event: Component, name: str) -> date | None:
    value = _value(event, name)
    return value if isinstance(value, date) else None


def _zone(event: Component, start: datetime) -> str:
    named = _first(event, "DTSTART").params.get("TZID")
    return line(str(named), 60) if named else str(start.tzinfo or "")


def _format_time(at: datetime, zone: str) -> str:
    text = f"{at:%Y-%m-%d %H:%M}"
    if at.tzinfo is not None and zone == "UTC":
        return f"{text} UTC"
    try:
        utc = f", {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at.tzinfo else ""
    except OverflowError:
        utc = ""
    return f"{text} ({zone or 'no time zone said'}{utc})"
