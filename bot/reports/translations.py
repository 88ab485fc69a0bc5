"""Translate the fixed words of a report, and format senders, dates and deadlines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from bot.citations import BARE, Links
from bot.slack.blocks import with_spelling
from scopes.clean import printable, redacted
from scopes.tool import one_line

WORDS = Path(__file__).with_name("words.yaml")
ENGLISH = "en"
FEW = range(2, 5)
"""Numbers with a form of their own in languages with three forms."""


@dataclass(frozen=True, slots=True)
class Words:
    """The fixed words of reports, in one language."""

    language: str
    table: Mapping[str, Any]

    def __call__(self, key: str, **values: object) -> str:
        """Return the words of a key, in the form that their number `n` needs."""
        forms = self.table[key]
        number = values.get("n")
        if isinstance(number, int):
            values["n"] = self.number(number)
            forms = forms if isinstance(forms, str) else forms[self._form(number, len(forms))]
        return str(forms).format_map(values)

    @staticmethod
    def _form(number: int, forms: int) -> int:
        if number == 1:
            return 0
        return 1 if forms == 3 and number in FEW else forms - 1

    def number(self, value: int) -> str:
        """Format a number with its thousands separated, outside English by a narrow space."""
        text = f"{value:,}"
        return text if self.language == ENGLISH else text.replace(",", "\N{NARROW NO-BREAK SPACE}")

    def day(self, at: str) -> str:
        """Format the day of a time in ISO 8601, in UTC."""
        day = datetime.fromisoformat(at).astimezone(UTC).date()
        month = self.table["months"][day.month - 1]
        return str(self.table["date"]).format(d=day.day, m=month, y=day.year)

    def minute(self, at: str) -> str:
        """Format day and time, in UTC."""
        return f"{self.day(at)} {datetime.fromisoformat(at).astimezone(UTC):%H:%M} UTC"


@lru_cache(maxsize=1)
def languages() -> Mapping[str, Mapping[str, Any]]:
    """Load the words of all languages."""
    table: dict[str, Mapping[str, Any]] = yaml.safe_load(WORDS.read_text("utf-8"))
    return table


def words_of(language: object) -> Words:
    """Return the words for a language code such as `pt-BR`; English if there are none."""
    code = str(language or ENGLISH).replace("_", "-").partition("-")[0].lower()
    known = languages()
    code = code if code in known else ENGLISH
    return Words(code, known[code])


DAYS = "Mon Tue Wed Thu Fri Sat Sun".split()
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
NEAR = 14
"""Days before or after a deadline in which it decides the order."""
MAX_NAME, MAX_DOMAIN = 60, 100
MIN_LABEL = 4
"""Minimum letters of a domain's first label for matching it in names."""

_PERSON = re.compile(r"(?P<name>.*?)\s*<(?P<address>[^<>\s]+)>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a mail: the name is only a claim, the domain is where it comes from."""

    name: str
    """The address if the mail has no name."""
    domain: str
    """Domain of the address; empty if there is none, or the name is the address."""
    claims: bool
    """Whether the name looks like somebody else's address, or like the reader's organisation."""
    address: str
    """The address in lower case."""

    @property
    def full(self) -> str:
        return f"{self.name} ({self.domain})" if self.domain else self.name

    @property
    def plain(self) -> str:
        """The name alone, unless it is not trustworthy without the domain."""
        return self.full if self.claims else self.name


@dataclass(frozen=True, slots=True)
class Due:
    """A deadline, relative to a certain day."""

    words: str
    """`due Fri 14 Mar, in 2 days`."""
    days: int | None
    """Days from that day on, below 0 if it is over; None if it is not a date."""

    @property
    def sentence(self) -> str:
        """The words with a capital first letter."""
        return self.words[0].upper() + self.words[1:]

    @property
    def near(self) -> bool:
        return self.days is not None and abs(self.days) <= NEAR


def clean_text(text: object, most: int) -> str:
    """Clean text of others to one line: nothing invisible, no secrets, no active address."""
    flat = one_line(Links().defang(redacted(printable(str(text or "")))))
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"


def sender(written: str, owner: str = "") -> Sender:
    """Parse `Name <address>`, or an address alone, as the owner of a mailbox sees it."""
    found = _PERSON.fullmatch(written.strip())
    address = found["address"] if found else written.strip()
    name = found["name"].strip(' "') if found else ""
    domain = address.rpartition("@")[2].lower() if "@" in address else ""
    named = [m[0].lower() for m in BARE.finditer(name)]
    claims = any(not _same(host, domain) for host in named) or _poses(name, domain, owner)
    shown = clean_text(name or address, MAX_NAME) or "unknown sender"
    place = with_spelling(clean_text(domain, MAX_DOMAIN)) if name else ""
    return Sender(shown, place, claims, address.lower())


def _poses(name: str, domain: str, owner: str) -> bool:
    """Return whether the name contains that of the owner's domain, but comes from elsewhere."""
    own = owner.rpartition("@")[2].lower()
    label = own.partition(".")[0]
    named = len(label) >= MIN_LABEL and re.search(rf"\b{re.escape(label)}\b", name.lower())
    return bool(named) and not _same(own, domain)


def _same(host: str, domain: str) -> bool:
    return host == domain or domain.endswith(f".{host}") or host.endswith(f".{domain}")


def age(at: str | None, now: datetime) -> str:
    """Format how long ago it was, in its largest unit; the day if it is months ago."""
    if not at:
        return "no date"
    then = datetime.fromisoformat(at).astimezone(UTC)
    minutes = int((now - then).total_seconds() // 60)
    for most, size, unit in ((60, 1, "min"), (24 * 60, 60, "h"), (14 * 1440, 1440, "d")):
        if minutes < most:
            return f"{max(minutes, 0) // size} {unit}"
    return f"{minutes // (7 * 1440)} w" if minutes < 9 * 7 * 1440 else day(then.date(), year=True)


def due(deadline: str | None, today: date) -> Due | None:
    """Format the deadline `YYYY-MM-DD` relative to that day; None if there is none."""
    if not deadline:
        return None
    try:
        at = date.fromisoformat(deadline)
    except ValueError:
        return Due(f"due {clean_text(deadline, 20)}", None)
    days = (at - today).days
    named = f"{DAYS[at.weekday()]} {day(at, year=at.year != today.year)}"
    if days < 0:
        ago = {-1: ", yesterday"}.get(days, f", {-days} days ago" if days >= -NEAR else "")
        return Due(f"overdue: was due {named}{ago}", days)
    near = {0: f"due today, {named}", 1: f"due tomorrow, {named}"}
    far = f"due {named}" + (f", in {days} days" if days <= NEAR else "")
    return Due(near.get(days, far), days)


def day(at: date, year: bool) -> str:
    """Format as `14 Mar`, in English on every system."""
    return f"{at.day} {MONTHS[at.month - 1]}" + (f" {at.year}" if year else "")


def count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
