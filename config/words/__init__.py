"""Translate the fixed texts that people see, and format numbers, days and lists by their language.

One message file (`*.po`) a language holds all of them, by key. A text that a language lacks is
English. Whoever answers a person sets their language once, with `in_language`; what is written
inside of it takes its texts from `phrase`.
"""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from functools import cache
from gettext import GNUTranslations, NullTranslations
from pathlib import Path
from typing import Literal

from babel import Locale, UnknownLocaleError
from babel.dates import (
    format_interval,
    format_skeleton,
    format_timedelta,
    get_day_names,
    get_month_names,
)
from babel.lists import format_list
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_currency, format_decimal
from babel.units import format_unit

FOLDER = Path(__file__).parent
ENGLISH = "en"
LOCALES = {ENGLISH: "en_GB"}
"""Language -> the locale of its formats, where that is not its own: `14 Mar 2025`, not `Mar 14`."""


class UnknownText(NullTranslations):
    """Refuses a key that no catalogue has."""

    def gettext(self, message: str) -> str:
        raise KeyError(message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        raise KeyError(msgid1)


@dataclass(frozen=True, slots=True)
class Words:
    """The texts and formats of one language."""

    language: str
    texts: NullTranslations
    locale: Locale

    def __call__(self, key: str, **values: object) -> str:
        """Return the text of a key, in the plural form that its number `n` needs."""
        number = values.get("n")
        if isinstance(number, int):
            text = self.texts.ngettext(key, key, number)
            values["n"] = self.number(number)
        else:
            text = self.texts.gettext(key)
        return text.format_map(values)

    def has(self, key: str) -> bool:
        """Return whether there is a text of this key, for names that others choose."""
        try:
            self(key)
        except KeyError:
            return False
        return True

    def number(self, value: int) -> str:
        return str(format_decimal(value, locale=self.locale))

    def usd(self, value: float, digits: int = 2) -> str:
        """Format US dollars, with so many decimal places."""
        pattern = f"#,##0.{'0' * digits}"
        return self("usd", amount=format_decimal(Decimal(value), pattern, locale=self.locale))

    def money(self, value: Decimal, currency: str) -> str:
        """Format an amount of a currency (ISO 4217), with as many decimal places as it has."""
        pattern = str(self.locale.currency_formats["standard"].pattern)
        places = -int(value.as_tuple().exponent)
        pattern = pattern.replace("0.00", f"0.{'0' * places}" if places > 0 else "0")
        told = str(format_currency(value, currency, pattern, self.locale, currency_digits=False))
        return re.sub(r"(?<=[A-Z])(?=\d)", "\N{NO-BREAK SPACE}", told)

    def date(self, day: dt.date, skeleton: str = "yMMMd") -> str:
        """Format a day; the skeleton names its parts (unicode.org/reports/tr35, `yMMMEd`)."""
        return str(format_skeleton(skeleton, day, locale=self.locale))

    def interval(self, first: dt.date, last: dt.date, skeleton: str = "yMMMd") -> str:
        """Format the days from the first to the last one: `3–14 Mar 2025`."""
        told = str(format_interval(first, last, skeleton, locale=self.locale))
        return told.replace("\N{THIN SPACE}", " ")

    def day(self, at: str, zone: tzinfo = UTC) -> str:
        """Format the day of a time in ISO 8601, in this time zone."""
        return self.date(datetime.fromisoformat(at).astimezone(zone).date())

    def minute(self, at: str, zone: tzinfo = UTC) -> str:
        """Format day and time, in this time zone; only UTC is named."""
        clock = f"{datetime.fromisoformat(at).astimezone(zone):%H:%M}"
        return f"{self.day(at, zone)} {clock}{' UTC' if str(zone) == 'UTC' else ''}"

    def calendar(self) -> Mapping[str, str]:
        """Return the names of days and months by their English ones."""
        return {
            name: names_of(locale=self.locale)[number]
            for names_of in (get_day_names, get_month_names)
            for number, name in names_of(locale=ENGLISH).items()
        }

    def duration(self, value: int, unit: str) -> str:
        """Format a length of time in one unit, as short as may be: `3 min`."""
        return format_unit(value, f"duration-{unit}", length="short", locale=self.locale)

    def distance(self, days: int) -> str:
        """Format how many days away: `in 2 days`, `2 days ago`."""
        seconds = days * 24 * 3600
        return format_timedelta(
            seconds, "day", threshold=1e9, add_direction=True, locale=self.locale
        )

    def list(self, parts: Sequence[str], style: Literal["standard", "or"] = "standard") -> str:
        """Join with commas and `and`; with the style `or`, with `or`."""
        return str(format_list(list(parts), style, locale=self.locale))


@cache
def languages() -> tuple[str, ...]:
    """Return the codes of all languages that have a catalogue."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.po")))


def catalog(language: str) -> Catalog:
    """Read the message file of a language."""
    with (FOLDER / f"{language}.po").open("rb") as file:
        return read_po(file, locale=language)


def words_of(language: str | None) -> Words:
    """Return the texts for a language code such as `pt-BR`; English if there are none."""
    code = str(language or ENGLISH).replace("_", "-").partition("-")[0].lower()
    return _words(code if code in languages() else ENGLISH)


@cache
def _words(language: str) -> Words:
    compiled = io.BytesIO()
    write_mo(compiled, catalog(language))
    compiled.seek(0)
    texts = GNUTranslations(compiled)
    texts.add_fallback(UnknownText() if language == ENGLISH else _words(ENGLISH).texts)
    return Words(language, texts, Locale.parse(LOCALES.get(language, language)))


def language_name(code: str) -> str:
    """Return the English name of a language code: `Portuguese (Brazil)`; the code if unknown."""
    try:
        return str(Locale.parse(code, sep="-").english_name)
    except (ValueError, UnknownLocaleError):
        return code


COMMON = {
    "de": "am auf bei bitte dem den der des die das ein eine einen einer es fehlt für gib gibt "
    "haben hat ich ihr im ist kannst kein keine mein mir mit nach nicht noch oder seit sind soll "
    "um und uns unsere von vom wann warum was welche welchen welcher welches wem wen wer werden "
    "wie wieviel wir wird wo wurde wurden zeig zum zur über",
    "en": "about and any are at can did do does for from give has have how is it its last many me "
    "much my not of on or our please show since still tell that the there these this to us "
    "was we were what when where which who why will with you your",
    "es": "al ayer como con cuál cuáles cuándo cuánta cuántas cuánto cuántos cómo de del desde "
    "dónde el en era es esta este está están fue ha han hay hoy la las lo los me mi muéstrame no "
    "nos nuestro para pero por porque qué que quién quiénes se ser sin sobre son su un una y",
    "fr": "à au aux avec ce ces cette combien comment dans de depuis des donne du elle en encore "
    "est et eu hier il ils je la le les leur ma me mon montre ne nos notre nous on ont où par pas "
    "pour pourquoi qu quand que quel quelle quelles quels qui quoi sa se son sont sur un une vous "
    "été y",
    "it": "al alla anche che chi ci come con cosa da dal dalla dei del della delle di dimmi dove "
    "e è gli ha hanno i ieri il in io la le lo ma mi mostra ne nel nella non nostri nostro oggi "
    "ogni per perché più qual quale quali quando quanta quante quanti quanto questa questo se "
    "senza si sono stato su un una",
}
"""Language -> words that most of its sentences hold, by which a text is told from the others."""
QUOTED_PARTS = re.compile(
    r"```.*?```|`[^`]*`|<[^<>]*>|https?://\S+|\([^()]*\)|^\s*(?:>|&gt;).*?$"
    r"|(?<!\w)'[^'\n]*'(?!\w)|[\"“„][^\"“”„]*[\"“”]|«[^«»]*»",
    re.DOTALL | re.MULTILINE,
)
"""Parts of a message that need not be in the language of who writes."""


def detect_language(text: str) -> str:
    """Return the language of a message if its common words tell it clearly; else empty.

    Clearly: two such words or more, and twice as many as of any other language.
    """
    said = re.findall(r"[^\W\d_]+", QUOTED_PARTS.sub(" ", text).lower())
    votes = {code: sum(word in common for word in said) for code, common in _COMMON.items()}
    (best, most), (_, second) = sorted(votes.items(), key=lambda vote: -vote[1])[:2]
    return best if most >= max(2, 2 * second) else ""


_COMMON = {code: frozenset(words.split()) for code, words in COMMON.items()}


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is written later, in the language that is current then."""

    key: str
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return phrase(self.key, **self.values)


_language: ContextVar[str] = ContextVar("language", default=ENGLISH)


@contextmanager
def in_language(language: str | None) -> Iterator[None]:
    """Take the texts from this language inside of it, and in the tasks that are started there."""
    token = _language.set(words_of(language).language)
    try:
        yield
    finally:
        _language.reset(token)


def current() -> Words:
    """Return the texts of the language that `in_language` has set; English where it has not."""
    return _words(_language.get())


def phrase(key: str, **values: object) -> str:
    """Return the text of a key in the current language; see `Words`."""
    return current()(key, **values)
