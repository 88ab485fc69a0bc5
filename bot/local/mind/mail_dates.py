"""Finds the deadlines that a mail states, as dates or in words such as "by Friday"."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache

from bot.local.mind.cues import fold
from bot.local.mind.mail_cues import spelled, words

_ISO = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_DOTTED = re.compile(r"(?<!\d)(\d{1,2})\.\s?(\d{1,2})\.(\d{4}|\d\d)?(?!\d)")
_SLASHED = re.compile(r"(?<!\d)(\d{1,2})/(\d{1,2})(?:/(\d{4}|\d\d))?(?![\d/])")
_GAP = 25
"""Most letters between a word such as "by" and its date: "by the morning of 3 May"."""
_PAST = 60
"""Days by which a date without a year may lie behind the mail that names it."""


def deadlines(sentence: str, language: str, written: date, *, asks: bool) -> list[date]:
    """The dates by which something is wanted, none before the mail was written.

    A bare "today" or "this week" is a deadline only where the sentence `asks` for something.
    """
    folded = fold(sentence)
    marks = [found.end() for found in words(language, "by").finditer(folded)]
    due = []
    for start, day, near in _dates(folded, language, written):
        marked = any(0 <= start - mark <= _GAP for mark in marks)
        if day >= written and (marked or (near and asks)):
            due.append(day)
    return sorted(set(due))


def _dates(text: str, language: str, written: date) -> Iterator[tuple[int, date, bool]]:
    """Where a date stands, the date, and whether it is said as seen from the day of writing."""
    for found in _ISO.finditer(text):
        yield from _placed(found, _day(int(found[1]), int(found[2]), int(found[3])))
    for found in _DOTTED.finditer(text):
        yield from _placed(found, _near(int(found[1]), int(found[2]), found[3], written))
    for found in _SLASHED.finditer(text):
        one, two = int(found[1]), int(found[2])
        if language == "en" and one <= 12 and two <= 12 and one != two:
            continue  # 3/4 is a day in March or in April: not to be guessed
        day, month = (two, one) if two > 12 else (one, two)
        yield from _placed(found, _near(day, month, found[3], written))
    yield from _named(text, language, written)
    yield from _seen(text, language, written)


def _placed(found: re.Match[str], day: date | None) -> Iterator[tuple[int, date, bool]]:
    if day:
        yield found.start(), day, False


@cache
def _months(language: str) -> re.Pattern[str]:
    names = "|".join(f"(?P<m{n}>{m})" for n, m in enumerate(spelled(language, "months").split(), 1))
    of = r"(?:st|nd|rd|th|er|\.|º)?(?: (?:de|of))? "
    again = names.replace("?P<m", "?P<n")
    return re.compile(
        rf"(?<!\w)(?:(?P<day>\d{{1,2}}){of}(?:{names})"
        rf"|(?:{again}) (?P<last>\d{{1,2}})(?:st|nd|rd|th)?)"
        r"(?!\w)(?:,? (?:de )?(?P<year>\d{4})(?!\d))?"
    )


@cache
def _weekdays(language: str) -> re.Pattern[str]:
    names = "|".join(f"(?P<d{n}>{d})" for n, d in enumerate(spelled(language, "days").split()))
    return re.compile(rf"(?<!\w)(?:{names})(?!\w)")


def _named(text: str, language: str, written: date) -> Iterator[tuple[int, date, bool]]:
    """`20 March`, `March 20th`; else the weekdays that stand beside no such date."""
    taken: list[tuple[int, int]] = []
    for found in _months(language).finditer(text):
        groups = found.groupdict()
        month = next(int(k[1:]) for k, v in groups.items() if v and re.fullmatch(r"[mn]\d+", k))
        day = _near(int(found["day"] or found["last"]), month, found["year"], written)
        taken.append((found.start() - 12, found.end() + 12))
        yield from _placed(found, day)
    for found in _weekdays(language).finditer(text):
        if not any(start <= found.start() <= end for start, end in taken):
            number = next(int(k[1:]) for k, v in found.groupdict().items() if v)
            yield found.start(), written + timedelta((number - written.weekday()) % 7), False


def _seen(text: str, language: str, written: date) -> Iterator[tuple[int, date, bool]]:
    friday = written + timedelta((4 - written.weekday()) % 7)
    after = date(written.year + written.month // 12, written.month % 12 + 1, 1)
    for kind, day in (
        ("today", written),
        ("tomorrow", written + timedelta(1)),
        ("week", friday),
        ("month", after - timedelta(1)),
    ):
        for found in words(language, kind).finditer(text):
            yield found.start(), day, True


def _near(day: int, month: int, year: str | None, written: date) -> date | None:
    """The day in the year that is told, else in that which brings it closest after the mail."""
    if year:
        return _day(int(year) + (2000 if len(year) == 2 else 0), month, day)
    found = _day(written.year, month, day)
    if found and found < written - timedelta(_PAST):
        return _day(written.year + 1, month, day)
    return found


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
