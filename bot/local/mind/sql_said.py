"""What a question about tables says: what it counts, what by, and which columns it names."""

import re
from collections.abc import Iterator, Sequence

from bot.local.mind.schema import Place, Table, path, stems

_AGGREGATES = (
    ("COUNT", r"how many|(?:total )?number of|count of|the count"),
    ("SUM", r"how much|total of|total|sum of"),
    ("AVG", r"(?:average|mean|avg)(?: number of)?"),
    ("MAX", r"highest|largest|biggest|maximum"),
    ("MIN", r"lowest|smallest|minimum"),
)
_END = (
    r"(?= (?:are|were|was|is|did|do|does|have|has|had|made|by|per|for|in|from|of|who|whose|with|"
    r"that|which|occurred|to|on|and|where|between|since|over|after|there|each|using|than|through|"
    r"when|during)\b|[,.?;:(]|$)"
)
NP = rf"(?P<what>[^\W\d_](?:[^\W\d]|[' -])*?){_END}"
_SAID = re.compile("|".join(rf"(?P<{kind}>\b(?:{words})\b)" for kind, words in _AGGREGATES))
_PHRASE = re.compile(rf"\s+(?:the |all )?(?P<distinct>distinct |unique |different )?{NP}")
_BY = re.compile(rf"\b(?:each|per|grouped by|split by|broken down by|by) (?:the |of the )?{NP}")
_NOUN = re.compile(
    r"^(?:which|what|who|return|show)(?: (?:is|are|were|was|had|made))?(?: the)?(?: top)?"
    rf"(?: \d+)? {NP}"
)
LIST = re.compile(
    r"\b(?:return|show|showing|list|give)(?: me)?(?: only)?"
    r"(?: (?:the|their|its|his|her|distinct|list|of|all))* "
    r"(?P<what>(?:(?!\b(?:return|show|showing)\b)[^.?;])*)"
)
_OF = re.compile(r" (?:for|that|who|whose|which|from|with|where) ")
_EVERY = re.compile(r"\b(?P<period>dai|week|month|quarter|year)ly\b")


def find(phrase: str, tables: Sequence[Table], low: str, *, number: bool = False) -> Place | None:
    """The column that a phrase of the question names best; `number`: one that can be summed."""
    words, said = stems(phrase), stems(low)
    best: tuple[float, Place] | None = None
    for table in tables:
        near = len(words & table.words) + 0.5 * len(said & table.words)
        near -= 0.2 * len(table.words - said)
        for column in table.columns:
            if number and (not column.is_number or column.is_id):
                continue
            hit = words & column.words
            if not hit:
                continue
            score = 2 * len(hit - {"nam"}) + 1.5 * len(hit & {"nam"}) + near
            score += 0.5 * bool(column.words & {"amount", "total"}) if number else 0
            score -= 0.4 * len(column.words - words)
            if best is None or score > best[0]:
                best = (score, Place(table, column))
    return best[1] if best else None


def table_of(phrase: str, tables: Sequence[Table]) -> Table | None:
    """The table whose name the phrase says."""
    words = stems(phrase)
    scored = [(len(words & t.words) - 0.3 * len(t.words - words), t) for t in tables]
    best = max(scored, key=lambda pair: pair[0], default=None)
    return best[1] if best and best[0] > 0.1 else None


Said = tuple[str, bool, Place | Table]


def _aggregate(text: str, tables: Sequence[Table], low: str) -> Said | None:
    """What a phrase that begins with an aggregate counts or sums."""
    found = _SAID.match(text)
    if not found:
        return None
    kind = str(found.lastgroup)
    if found[0] == "the count":
        thing = table_of(low, tables)
        return ("COUNT", False, thing) if thing else None
    rest = _PHRASE.match(text, found.end())
    if not rest:
        return None
    what = rest["what"]
    number = find(what, tables, low, number=True)
    table = table_of(what, tables)
    if not number and kind == "SUM" and found[0] != "total":
        number = find(f"{what} amount", tables, low, number=True)
    said = stems(re.sub(r"\bsales\b(?= (?:count|number))", "sale", what))
    whole = table is not None and said <= table.words | {"count", "number"}
    if kind == "COUNT" or (found[0] == "total" and (whole or not number)):
        return ("COUNT", bool(rest["distinct"]), table) if table else None
    return (kind, False, number) if number else None


def start_of(low: str, tables: Sequence[Table]) -> Table | None:
    """The table that holds what is counted or summed: the others are reached from it."""
    found = [_aggregate(low[m.start() :], tables, low) for m in _SAID.finditer(low)]
    places = [f[2].table for f in found if f and isinstance(f[2], Place)]
    counted = [f[2] for f in found if f and isinstance(f[2], Table) and not f[1]]
    named = sorted(
        (t for t in tables if stems(low) & t.words),
        key=lambda t: (-len(stems(low) & t.words), -sum(c.is_id for c in t.columns)),
    )
    whole = [t for t in named if t.words <= stems(low)]
    return next(
        (t for t in (*places, *counted, *named) if path(t, whole, tables) is not None), None
    )


def shown_by(low: str, start: Table, tables: Sequence[Table], ranked: bool) -> Iterator[str | Said]:
    """What the result shows, in order: phrases that name columns, and what is counted."""
    counted = list(_counted(low, tables, ranked))
    listed = list(LIST.finditer(low))
    known = _items(listed[-1]["what"], low, tables, counted) if listed else []
    if not known:
        yield from _groups(low, start, ranked)
        yield from counted
        return
    if not any(isinstance(part, str) for part in known):
        yield from _groups(low, start, ranked)
    yield from known
    if ranked and all(isinstance(part, str) for part in known):
        yield from counted


def _items(
    listed: str, low: str, tables: Sequence[Table], counted: Sequence[Said]
) -> list[str | Said]:
    """The parts of "return the name and the amount" of which it is known what they are."""
    items = re.split(r", and |,| and ", _OF.split(listed.replace("_", " "))[0])
    summed = {said[2].sql(): said for said in counted if isinstance(said[2], Place)}
    found: list[str | Said] = []
    for item in (item.strip() for item in items if item.strip()):
        place = find(item, tables, low)
        same = place and summed.get(place.sql())
        if part := _aggregate(item, tables, low) or same:
            found.append(part)
        elif place or table_of(item, tables):
            found.append(item)
    return found


def _counted(low: str, tables: Sequence[Table], ranked: bool) -> Iterator[Said]:
    """What is counted and summed in the question itself, each once."""
    seen: set[str] = set()
    for found in _SAID.finditer(low):
        said = _aggregate(low[found.start() :], tables, low)
        sorts = ranked and found.lastgroup in ("MAX", "MIN")
        if said and f"{said}" not in seen and not sorts:
            seen.add(f"{said}")
            yield said
    if ranked and not seen and (number := _ranked_by(low, tables)):
        yield number


def _ranked_by(low: str, tables: Sequence[Table]) -> Said | None:
    """What "the largest refunds" are largest by: their sum, where they have amounts."""
    found = re.search(rf"(?:highest|largest|biggest|lowest|smallest) {NP}", low)
    if not found:
        return None
    table = table_of(found["what"], tables)
    number = find(found["what"] + " amount", [table] if table else tables, low, number=True)
    return ("SUM", False, number) if number else None


def _groups(low: str, start: Table, ranked: bool) -> Iterator[str]:
    noun = _NOUN.search(low)
    if noun and ranked:
        yield noun["what"]
    for found in _EVERY.finditer(low):
        if stems(found[0]).isdisjoint(start.words):
            yield {"dai": "day"}.get(found["period"], found["period"])
    for found in _BY.finditer(low):
        people = re.match(r" (?:who|from|that|with)", low[found.end() :])
        plain_by = found[0].startswith("by ") and (people or ranked)
        if not _SAID.match(found["what"]) and not plain_by:
            yield found["what"]
