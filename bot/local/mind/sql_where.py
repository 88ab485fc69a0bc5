"""The conditions that a question names: times, values, bounds; and the words that name nothing."""

import re
from collections.abc import Sequence
from datetime import date, timedelta

from bot.local.mind.schema import Place, Table, Values, stem, stems

_MONTHS = (
    "january february march april may june july august september october november december".split()
)
_NAME = "|".join(f"{m[:3]}(?:{m[3:]})?" if m[3:] else m for m in _MONTHS)
_DAY = rf"(?:\d{{4}}-\d\d-\d\d|(?:{_NAME})\.? \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}})"
_BETWEEN = re.compile(rf"(?:between|from) (?P<a>{_DAY}) (?:and|to|until) (?P<b>{_DAY})")
_EDGE = re.compile(rf"\b(?P<how>on or after|since|after|before|on or before|on) (?P<day>{_DAY})")
_PAST = re.compile(r"\b(?:past|last|previous) (?P<n>\d+ )?(?P<unit>day|week|month|year)s?\b")
_QUARTER = re.compile(r"\b(?:(?P<n>1st|first|2nd|second|3rd|third|4th|fourth) quarter"
                      r"|q(?P<q>[1-4]))"
                      r"(?: (?:of )?(?P<year>\d{4}))?")  # fmt: skip
_MONTH = re.compile(rf"\b(?:in|for|of|during) (?P<name>{_NAME})\b(?: (?P<year>\d{{4}}))?")
_YEAR = re.compile(r"\b(?:in|of|during|for) (?:the year )?(?P<year>(?:19|20)\d\d)\b")
TIMES = (_BETWEEN, _EDGE, _QUARTER, _MONTH, _YEAR, _PAST)
"""What says a time; the first one that is found counts."""
_WEEKEND = re.compile(r"\bon (?:the )?weekends?\b")
_LIMIT = re.compile(
    r"(?P<what>(?:[^\W\d_]| )+?) (?:is |of |was )?(?P<sign>over|above|more than|greater than|"
    r"at least|under|below|less than) \$?(?P<n>\d[\d,]*(?:\.\d+)?)"
)
_EQUALS = re.compile(
    r"(?P<what>(?:[^\W\d_]+[ _])?(?P<last>[^\W\d_]+)) "
    r"(?:is |was |of |= ?|equals |equal to |exactly )?"
    r"(?P<n>\d[\d,]*(?:\.\d+)?)(?![\w.,]*\w)(?! (?:day|week|month|year)s?\b)"
)
_BOUNDS = {"at least": ">=", "under": "<", "below": "<", "less than": "<"}
_INSIDE = re.compile(
    r"['‘\"](?P<text>[^'’\"]+)['’\"] in (?:its|their|the) (?P<what>(?:[^\W\d_]| )+)"
)
PERIODS = ("day", "week", "month", "quarter", "year")
_PLAIN = frozenset(
    map(
        stem,
        "the and how many much what which who whom whose when where are were was did does have "
        "has had been for from with without that this there their his her its she each per top "
        "most placed often named avg bought sold least number count counts total sum average "
        "mean highest largest biggest maximum lowest smallest minimum fewest distinct unique "
        "different return show list give name names all any not never only between over above "
        "more than greater under below less made make by into out during last past previous "
        "first second third fourth quarter day days week weeks month months year years daily "
        "weekly monthly quarterly yearly calendar today since after before best selling split "
        "grouped broken down order ordered by starting combinations combination record records "
        "value values type info details using table tables data database please tell find get "
        "across among both either split based showing received frequently spend spent bring "
        "brought get got money people whole current excluding including exclusive inclusive "
        "inclusively occurred occur happened time times went come came going per weekend "
        "weekends largest every euros dollars eur usd".split(),
    )
)
"""Stems of words that need no column: what asks, counts, sorts and dates."""
_SIGNS = {"on or after": ">=", "since": ">=", "after": ">", "before": "<", "on or before": "<="}


def spans(low: str, today: str, start: Table, tables: Sequence[Table]) -> list[str]:
    """The conditions, none where the question names no time or nothing holds dates."""
    dates = [Place(t, c) for t in (start, *tables) for c in t.columns if c.is_date]
    found = _span(low, date.fromisoformat(today[:10]))
    weekend = _WEEKEND.search(low)
    if not dates or (found is None and not weekend):
        return []
    words = stems(low)
    told = [len(words & p.column.words - {"dat", "day"} - start.words) for p in dates]
    ranked = [(n, "creat" not in p.column.words) for n, p in zip(told, dates, strict=True)]
    best = dates[ranked.index(max(ranked))]
    begin, end = found or (None, None)
    column = best.sql()
    whole = next(
        (Place(start, c) for c in start.columns if c.is_number and c.words == {"year"}), None
    )
    if whole and begin and end and end == begin.replace(year=begin.year + 1) and _YEAR.search(low):
        return [f"{whole.sql()} = {begin.year}"]
    return [
        *([f"{column} >= DATE '{begin}'"] if begin else []),
        *([f"{column} < DATE '{end}'"] if end else []),
        *([f"EXTRACT(dow FROM {column}) IN (0, 6)"] if weekend else []),
    ]


def _span(low: str, today: date) -> tuple[date | None, date | None] | None:
    """From a day, to the day after the last; None on a side that is open."""
    if found := _BETWEEN.search(low):
        return _day(found["a"]), _day(found["b"]) + timedelta(1)
    if found := _EDGE.search(low):
        return _edge(found["how"], _day(found["day"]))
    if found := _QUARTER.search(low):
        named = found["q"] or "first second third fourth".split().index(_ordinal(found["n"])) + 1
        year = int(found["year"] or today.year)
        return _months(year, int(named) * 3 - 2, 3)
    if found := _MONTH.search(low):
        month = next(i for i, m in enumerate(_MONTHS, 1) if m.startswith(found["name"][:3]))
        return _months(int(found["year"] or today.year), month, 1)
    if found := _YEAR.search(low):
        return _months(int(found["year"]), 1, 12)
    if found := _PAST.search(low):
        n, unit = int(found["n"] or 1), found["unit"]
        if found["n"] is None and not found[0].startswith("past"):
            return _previous(unit, today)
        if unit in ("month", "year"):
            months = today.year * 12 + today.month - 1 - n * (12 if unit == "year" else 1)
            return date(months // 12, months % 12 + 1, min(today.day, 28)), None
        return today - timedelta(n * (7 if unit == "week" else 1)), None
    return None


def _previous(unit: str, today: date) -> tuple[date, date]:
    """The whole week (from Monday), month, year or day before the one of today."""
    if unit in ("month", "year"):
        first = today.replace(day=1, month=1 if unit == "year" else today.month)
        before = first - timedelta(1)
        return before.replace(day=1, month=1 if unit == "year" else before.month), first
    end = today - timedelta(today.weekday() if unit == "week" else 0)
    return end - timedelta(7 if unit == "week" else 1), end


def _ordinal(said: str) -> str:
    return {"1st": "first", "2nd": "second", "3rd": "third", "4th": "fourth"}.get(said, said)


def _edge(how: str, day: date) -> tuple[date | None, date | None]:
    if how == "on":
        return day, day + timedelta(1)
    sign = _SIGNS[how]
    after = day + timedelta(1)
    return (
        (day if sign == ">=" else after, None)
        if sign[0] == ">"
        else (None, day if sign == "<" else after)
    )


def _day(text: str) -> date:
    if text[0].isdigit():
        return date.fromisoformat(text)
    month = next(i for i, m in enumerate(_MONTHS, 1) if m.startswith(text[:3]))
    day, year = re.findall(r"\d+", text)
    return date(int(year), month, int(day))


def _months(year: int, month: int, count: int) -> tuple[date, date]:
    last = year * 12 + month - 1 + count
    return date(year, month, 1), date(last // 12, last % 12 + 1, 1)


def filters(low: str, asked: str, tables: Sequence[Table], values: Values) -> list[str]:
    """Conditions on texts that the question names, and on numbers that it bounds."""
    inside = [
        f"{best.sql()} ILIKE '%{found['text'].replace(chr(39), chr(39) * 2)}%'"
        for found in _INSIDE.finditer(asked.lower())
        if (best := _best(found["what"], tables))
    ]
    made = {"inside": f"({' OR '.join(inside)})"} if inside else {}
    if not inside:
        made |= _equal(low, asked, tables, values)
    for found in _LIMIT.finditer(low):
        if place := _best(found["what"], tables, number=True):
            sign = _BOUNDS.get(found["sign"], ">")
            made[found[0]] = f"{place.sql()} {sign} {found['n'].replace(',', '')}"
    for found in _EQUALS.finditer(low):
        place = _best(found["what"], tables, number=True)
        if place and stem(found["last"]) in place.column.words:
            made[found[0]] = f"{place.sql()} = {found['n'].replace(',', '')}"
    return list(made.values())


def _equal(low: str, asked: str, tables: Sequence[Table], values: Values) -> dict[str, str]:
    """Column -> the condition on the values that the question names of it.

    A value that stands in several columns is of the one that the question names, else of none.
    """
    said = stems(low)
    held: dict[str, list[tuple[int, Place, str]]] = {}
    for table in tables:
        for column in table.columns:
            fits = 2 * len(said & column.words) + bool(said & table.words)
            for value in values.get((table.name, column.name), ()):
                if _names(value, low, asked):
                    place = Place(table, column)
                    held.setdefault(value.lower(), []).append((fits, place, value))
    found: dict[str, list[str]] = {}
    for places in held.values():
        most = max(fits for fits, _, _ in places)
        best = [(place.sql(), value) for fits, place, value in places if fits == most]
        if len({place for place, _ in best}) == 1:
            found.setdefault(best[0][0], []).extend(value for _, value in best)
    return {place: _among(place, texts) for place, texts in found.items()}


def _among(place: str, texts: Sequence[str]) -> str:
    told = ["'" + text.replace("'", "''") + "'" for text in texts]
    return f"{place} = {told[0]}" if len(told) == 1 else f"{place} IN ({', '.join(told)})"


def _best(phrase: str, tables: Sequence[Table], *, number: bool = False) -> Place | None:
    words = stems(phrase)
    places = [
        (len(words & c.words) - 0.1 * len(c.words - words), Place(t, c))
        for t in tables
        for c in t.columns
        if words & c.words and not c.is_id and (c.is_number if number else c.is_text)
    ]
    return max(places, key=lambda pair: pair[0])[1] if places else None


def _names(value: str, low: str, asked: str) -> bool:
    """Whether the question says this value: short ones as they are written, words in any form."""
    plain = value.lower().replace("_", " ").strip()
    if len(plain) < 2 or plain.isdigit():
        return False
    if len(plain) < 4 and value.isupper():
        return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", asked) is not None
    ending = r"(?:s|ful|ed|ing)?" if plain.isalpha() else ""
    said = re.search(rf"(?<!\w){re.escape(plain)}{ending}(?!\w)", low)
    return bool(said) or (plain in ("buy", "sell") and stem(plain) in stems(low))


def unknown(asked: str, tables: Sequence[Table], values: Values) -> list[str]:
    """The words of a question of which the rules do not know what they are for."""
    known = {word for table in tables for word in table.words}
    known |= {word for table in tables for column in table.columns for word in column.words}
    rest = re.sub(rf"{_DAY}|\b(?:{_NAME})\b", " ", asked.lower())
    rest = without_values(rest, values, asked)
    words = re.findall(r"(?<![\w'])[^\W\d_]{2,}", rest)
    short = re.findall(r"(?<![\w'])[A-Z]{2,5}(?![\w'])", asked)
    signs = [w for w in short if w.lower() in rest and w != "ID" and not stems(w) & known]
    return signs + [w for w in words if not (len(w) < 3 or plain(w) or stems(w) & known)]


def plain(word: str) -> bool:
    """Whether it asks, counts, sorts or dates, and names nothing."""
    return stem(word) in _PLAIN


def without_values(rest: str, values: Values, asked: str = "") -> str:
    """A question in small letters without the texts of columns that it names."""
    whole = asked or rest
    for texts in values.values():
        for value in texts:
            if not asked or _names(value, whole.lower(), whole):
                said = re.escape(value.lower().replace("_", " "))
                rest = re.sub(rf"(?<!\w){said}\w*", " ", rest)
    return _INSIDE.sub(" ", rest)
