"""Format the senders, dates and deadlines of reports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from bot.citations import BARE, Links
from bot.reports.documents import Period
from bot.slack.blocks import with_spelling
from config.words import current, phrase
from scopes.clean import printable, redact
from scopes.tool import one_line

MAX_PERIODS = 3
"""Maximum number of windows shown for one answer; the rest is counted."""
NEAR_DEADLINE_DAYS = 14
"""Days before or after a deadline in which it decides the order."""
MAX_NAME, MAX_DOMAIN = 60, 100
MIN_LABEL = 4
"""Minimum letters of a domain's first label to search for it in names."""

MIN_WORD_OVERLAP = 0.7
"""Minimum share of the words of a sentence that must be in a text if it adds nothing new."""
STEM_LETTERS = 5
"""Number of first letters by which words are compared, so that endings do not count."""
MIN_WORD = 4
"""Minimum letters of a word that is compared."""

_CURRENCY_CODES = {"€": "EUR", "EURO": "EUR", "EUROS": "EUR", "$": "USD", "£": "GBP"}
_CURRENCY = r"€|\$|£|\b(?:EUR|Euros?|USD|GBP|CHF)\b"
_GROUP = r"[ '’.,\u00a0\u202f]"
_NUMBER = rf"(?<![\w.,-])(?:\d{{1,3}}(?:{_GROUP}\d{{3}})+|\d+)(?:[.,]\d{{1,2}})?(?![\w-]|[.,]\d)"
_AMOUNT = re.compile(rf"({_CURRENCY})\s?({_NUMBER})|({_NUMBER})\s?({_CURRENCY})(?!\s?\d)")
_ISO_DAY = re.compile(r"(?<![\w-])\d{4}-\d\d-\d\d(?![\w-])")
_NAME_AND_ADDRESS = re.compile(r"(.*?)\s*<([^<>\s]+)>\s*", re.DOTALL)
"""Name and address."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a mail: the name is only a claim, the domain is the origin."""

    name: str
    """The address if the mail has no name."""
    domain: str
    """Domain of the address; empty if there is none, or the name is the address."""
    claims: bool
    """Whether the name looks like another person's address, or like the reader's organisation."""
    address: str
    """The address in lower case."""

    @property
    def full(self) -> str:
        return f"{self.name} ({self.domain})" if self.domain else self.name

    @property
    def plain(self) -> str:
        """Return only the name, or with the domain if the name may be false."""
        return self.full if self.claims else self.name


@dataclass(frozen=True, slots=True)
class Due:
    """A deadline, relative to a certain day."""

    words: str
    """`due Fri 14 Mar, in 2 days`."""
    days: int
    """Days from that day, below 0 if it has passed."""


def clean_text(text: object, most: int) -> str:
    """Clean untrusted text to one line: nothing invisible, no secrets, no active address."""
    flat = one_line(Links().defang(redact(printable(str(text or "")))))
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def prose(text: object, most: int) -> str:
    """Clean text of a model; dates in ISO 8601 become `13 Mar 2025`."""
    return clean_text(_ISO_DAY.sub(_spell_out, str(text or "")), most)


def _spell_out(found: re.Match[str]) -> str:
    try:
        return day(date.fromisoformat(found[0]), year=True)
    except ValueError:
        return found[0]


def with_amounts(text: str) -> str:
    """Write amounts of money in the format of the reader's language: `1.850 €` becomes `€1,850`.

    These currencies have two decimal places, so a mark before three digits separates thousands.
    """
    return _AMOUNT.sub(_amount, text)


def _amount(found: re.Match[str]) -> str:
    symbol, after, before, name = found.groups()
    code, amount = (symbol or name).upper(), after or before
    whole, _, decimals = re.sub(r"[.,](\d{1,2})$", r"|\1", amount).partition("|")
    value = Decimal(".".join(filter(None, (re.sub(r"\D", "", whole), decimals))))
    return current().money(value, _CURRENCY_CODES.get(code, code))


def repeats(sentence: str, text: str) -> bool:
    """Return whether `text` contains all figures of a sentence, and nearly all of its words."""
    content = _content(sentence)
    new = content - _content(text)
    has_few_new = len(new) <= (1 - MIN_WORD_OVERLAP) * len(content)
    return bool(content) and not any(map(_is_figure, new)) and has_few_new


def _content(text: str) -> set[str]:
    """Return the figures of a text, and the beginnings of its longer words."""
    words = re.findall(r"\w+", text.casefold())
    return {
        w if _is_figure(w) else w[:STEM_LETTERS]
        for w in words
        if _is_figure(w) or len(w) >= MIN_WORD
    }


def _is_figure(word: str) -> bool:
    return any(map(str.isdigit, word))


def sender(written: str, owner: str = "") -> Sender:
    """Parse `Name <address>`, or only an address, from the view of the mailbox's owner."""
    found = _NAME_AND_ADDRESS.fullmatch(written.strip())
    name, address = found.groups() if found else ("", written.strip())
    name = name.strip(' "')
    domain = address.rpartition("@")[2].lower() if "@" in address else ""
    hosts = [m[0].lower() for m in BARE.finditer(name)]
    claims = any(not _same(host, domain) for host in hosts) or _poses(name, domain, owner)
    shown = clean_text(name or address, MAX_NAME) or phrase("digest.unknown_sender")
    place = with_spelling(clean_text(domain, MAX_DOMAIN)) if name else ""
    return Sender(shown, place, claims, address.lower())


def _poses(name: str, domain: str, owner: str) -> bool:
    """Return whether the name contains the owner's domain, but the mail is from another one."""
    own = owner.rpartition("@")[2].lower()
    label = own.partition(".")[0]
    named = len(label) >= MIN_LABEL and re.search(rf"\b{re.escape(label)}\b", name.lower())
    return bool(named) and not _same(own, domain)


def _same(host: str, domain: str) -> bool:
    return host == domain or domain.endswith(f".{host}") or host.endswith(f".{domain}")


def age(at: str | None, now: datetime) -> str:
    """Format how long ago it was, in the largest unit; the date if it is months ago."""
    if not at:
        return phrase("digest.no_date")
    then, words = datetime.fromisoformat(at).astimezone(UTC), current()
    minutes = int((now - then).total_seconds() // 60)
    for most, size, unit in ((60, 1, "minute"), (24 * 60, 60, "hour"), (14 * 1440, 1440, "day")):
        if minutes < most:
            return words.duration(max(minutes, 0) // size, unit)
    weeks = minutes // (7 * 1440)
    return words.duration(weeks, "week") if weeks < 9 else words.date(then.date())


def due(deadline: str | None, today: date) -> Due | None:
    """Format the deadline `YYYY-MM-DD` relative to that day; None if there is none."""
    if not deadline:
        return None
    at = date.fromisoformat(deadline)
    days, words = (at - today).days, current()
    date_text = words.date(at, "MMMEd" if at.year == today.year else "yMMMEd")
    if days in (-1, 0, 1):
        key = {-1: "due.yesterday", 0: "due.today", 1: "due.tomorrow"}[days]
        return Due(phrase(key, day=date_text), days)
    near = f", {words.distance(days)}" if abs(days) <= NEAR_DEADLINE_DAYS else ""
    return Due(phrase("due.overdue" if days < 0 else "due.on", day=f"{date_text}{near}"), days)


def day(at: date, year: bool) -> str:
    """Format as `14 Mar`, with the year if wanted."""
    return current().date(at, "yMMMd" if year else "MMMd")


def periods(windows: Sequence[Period], zone: str) -> str:
    """Format the windows that were read, in the given time zone."""
    texts = [_period(each, ZoneInfo(zone)) for each in windows[:MAX_PERIODS]]
    more = len(windows) - len(texts)
    return "; ".join(texts) + (f" {phrase('more', n=more)}" if more else "")


def _period(window: Period, zone: ZoneInfo) -> str:
    """Format the days of a window, only the last if the first is in 1970; with the times if it is
    part of a day."""
    bounds = (window.oldest, window.latest)
    start, end = (datetime.fromisoformat(at).astimezone(zone) for at in bounds)
    first, last = start.date(), (end - timedelta(microseconds=1)).date()
    if first == last and end - start != timedelta(days=1):
        return f"{day(first, year=True)}, {start:%H:%M}–{end:%H:%M}"
    if first.year <= 1970:
        return phrase("period.until", day=day(last, year=True))
    return current().interval(first, last)
