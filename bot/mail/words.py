"""The words in which a digest tells who wrote, how long ago, and until when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

from bot.approval.exact import spelled
from bot.replies.cite import BARE, Links
from scopes.clean import printable, redacted
from scopes.tool import one_line

DAYS = "Mon Tue Wed Thu Fri Sat Sun".split()
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
NEAR = 14
"""Days to a deadline, or since it, within which it decides what comes first."""
MAX_NAME, MAX_DOMAIN = 60, 100
MIN_LABEL = 4
"""Letters of a domain's first label from which on it is looked for in names."""

_PERSON = re.compile(r"(?P<name>.*?)\s*<(?P<address>[^<>\s]+)>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who wrote, as far as a mail can tell: the name is a claim, the domain is where it is from."""

    name: str
    """The address where the mail gives no name."""
    domain: str
    """Of the address; empty where there is none, or where the name is the address."""
    claims: bool
    """The name reads like an address of somebody else, or like the reader's own organisation."""
    address: str
    """In small letters."""

    @property
    def full(self) -> str:
        return f"{self.name} ({self.domain})" if self.domain else self.name

    @property
    def plain(self) -> str:
        """The name alone, unless it is not to be trusted without the domain."""
        return self.full if self.claims else self.name


@dataclass(frozen=True, slots=True)
class Due:
    """A deadline, told on a certain day."""

    words: str
    """`due Fri 14 Mar, in 2 days`."""
    days: int | None
    """From that day on; below 0 it is over, and None is a date that is none."""

    @property
    def told(self) -> str:
        """As a sentence begins."""
        return self.words[0].upper() + self.words[1:]

    @property
    def near(self) -> bool:
        return self.days is not None and abs(self.days) <= NEAR


def said(text: object, most: int) -> str:
    """What others wrote, on one line: nothing unseen, no secrets, no address that acts."""
    flat = one_line(Links().defused(redacted(printable(str(text or "")))))
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"


def sender(written: str, owner: str = "") -> Sender:
    """The sender of `Name <address>`, or of an address alone, as the owner of a mailbox sees it."""
    found = _PERSON.fullmatch(written.strip())
    address = found["address"] if found else written.strip()
    name = found["name"].strip(' "') if found else ""
    domain = address.rpartition("@")[2].lower() if "@" in address else ""
    named = [m[0].lower() for m in BARE.finditer(name)]
    claims = any(not _same(host, domain) for host in named) or _poses(name, domain, owner)
    shown = said(name or address, MAX_NAME) or "unknown sender"
    place = spelled(said(domain, MAX_DOMAIN)) if name else ""
    return Sender(shown, place, claims, address.lower())


def _poses(name: str, domain: str, owner: str) -> bool:
    """Whether the name holds that of the owner's own domain, and is from elsewhere."""
    own = owner.rpartition("@")[2].lower()
    label = own.partition(".")[0]
    named = len(label) >= MIN_LABEL and re.search(rf"\b{re.escape(label)}\b", name.lower())
    return bool(named) and not _same(own, domain)


def _same(host: str, domain: str) -> bool:
    return host == domain or domain.endswith(f".{host}") or host.endswith(f".{domain}")


def age(at: str | None, now: datetime) -> str:
    """How long ago that was, in its largest unit; the day where it is months ago."""
    if not at:
        return "no date"
    then = datetime.fromisoformat(at).astimezone(UTC)
    minutes = int((now - then).total_seconds() // 60)
    for most, size, unit in ((60, 1, "min"), (24 * 60, 60, "h"), (14 * 1440, 1440, "d")):
        if minutes < most:
            return f"{max(minutes, 0) // size} {unit}"
    return f"{minutes // (7 * 1440)} w" if minutes < 9 * 7 * 1440 else day(then.date(), year=True)


def due(deadline: str | None, today: date) -> Due | None:
    """The deadline `YYYY-MM-DD` as it is told on that day; None where there is none."""
    if not deadline:
        return None
    try:
        at = date.fromisoformat(deadline)
    except ValueError:
        return Due(f"due {said(deadline, 20)}", None)
    days = (at - today).days
    named = f"{DAYS[at.weekday()]} {day(at, year=at.year != today.year)}"
    if days < 0:
        ago = {-1: ", yesterday"}.get(days, f", {-days} days ago" if days >= -NEAR else "")
        return Due(f"overdue: was due {named}{ago}", days)
    near = {0: f"due today, {named}", 1: f"due tomorrow, {named}"}
    far = f"due {named}" + (f", in {days} days" if days <= NEAR else "")
    return Due(near.get(days, far), days)


def day(at: date, year: bool) -> str:
    """`14 Mar`, in English wherever it runs."""
    return f"{at.day} {MONTHS[at.month - 1]}" + (f" {at.year}" if year else "")


def count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
