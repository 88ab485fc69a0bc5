"""The offline mind's SQL: one SELECT for a plain question about tables, or none.

It knows counts, sums, averages, extremes, top lists, groups, periods, and what has no counterpart;
it names no table that it was not shown. Where it does not know what a word is for, it gives up.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from bot.local.mind.schema import Place, Table, Values, name_parts, path, quoted, stems
from bot.local.mind.sql_doubt import TOP, hangs, left_out
from bot.local.mind.sql_said import LIST, NP, find, shown_by, start_of, table_of
from bot.local.mind.sql_where import PERIODS, filters, spans, unknown

_BARE_TOP = re.compile(r"^(?:the )?(?P<top>top \d+)\b", re.IGNORECASE)
_BARE_SUM = re.compile(
    r"\btop \d+ [^?.,]*? by (?!(?:the )?(?:total|number|count|average|mean|avg|sum)\b)",
    re.IGNORECASE,
)
"""What stands before "sale price" in "top 3 cars by sale price"."""
_MOST = re.compile(
    r"^(?:which|what|who|return the|show the|name the)\b.*?\b"
    r"(most|highest|largest|biggest|fewest|lowest|smallest|least)\b"
)
_ROWS = re.compile(
    r"^how many (?:rows|records|entries|lines) (?:are there in|are in|in|does|do|has|have) "
    r"(?:the )?(?:(?:table|file) )?(?P<what>.+?)(?: have| hold)?\s*\?*$",
    re.IGNORECASE,
)
_HUMP = re.compile(r"[a-z][A-Z]")
_EXTREME = re.compile(
    r"^what(?:'s| is| was) the (?=(?:highest|largest|biggest|maximum|lowest|smallest|minimum)\b)",
    re.IGNORECASE,
)
"""What stands before "highest price", which is one number and no list."""
_FEW = ("fewest", "lowest", "smallest", "least")
_NONE = re.compile(rf"\b(?:no|without(?: any)?|not (?:have|make|made) any|never) {NP}")
_ASIDE = re.compile(
    r"\((?!based)[^)]*\)|, (?:by doing|based on|ordered|inclusive of)[^.?]*|\binclusive of [^.?]*|"
    r"\b(?:note that|represent each) [^.?]*",
    re.IGNORECASE,
)


@dataclass
class Select:
    """A query as it is put together."""

    tables: Sequence[Table]
    start: Table
    shown: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    used: list[Table] = field(default_factory=list)
    measures: dict[str, str] = field(default_factory=dict)
    """Name -> COUNT, SUM, ..."""

    def place(self, found: Place) -> str:
        self.used.append(found.table)
        return found.sql()

    @property
    def near(self) -> list[Table]:
        return list({t.name: t for t in [self.start, *self.used]}.values())

    def text(self, where: Sequence[str], order: str, limit: int) -> str:
        """The SELECT; empty where its tables do not hang together, or it shows nothing."""
        named = [t for t in self.tables if any(t.alias + "." in w for w in where)]
        joins = path(self.start, [*self.used, *named], self.tables)
        if joins is None or not self.shown:
            return ""
        if self._counts_two() or (hangs(" ".join(joins)) and not self._counted_once()):
            return ""
        distinct = "" if self.measures or not self.groups else "DISTINCT "
        groups = ", ".join(dict.fromkeys(self.groups)) if self.measures else ""
        parts = [
            f"SELECT {distinct}{', '.join(dict.fromkeys(self.shown))} FROM {self.start.name}",
            *joins,
            f"WHERE {' AND '.join(where)}" if where else "",
            f"GROUP BY {groups}" if groups else "",
            f"ORDER BY {order}" if order else "",
            f"LIMIT {limit}" if limit else "",
        ]
        return " ".join(part for part in parts if part)

    def _counts_two(self) -> bool:
        """What two tables hold is not counted side by side: a join drops what has no match."""
        return not self.groups and sum("COUNT" in shown for shown in self.shown) > 1

    def _counted_once(self) -> bool:
        """Where a row comes several times, by rows of another table, its own are counted once, but
        not for each of themselves; a sum of it cannot be had."""
        key = self.start.own_key
        once = f"COUNT(DISTINCT {Place(self.start, key).sql()})" if key else ""
        repeated = any("COUNT(*)" in shown for shown in self.shown)
        keys = {Place(t, c).sql() for t in self.tables for c in t.columns if c.is_id}
        self.shown = [shown.replace("COUNT(*)", once) for shown in self.shown]
        summed = {"SUM", "AVG"} & set(self.measures.values())
        return not summed and not (repeated and (not once or keys & set(self.groups)))


def select(question: str, tables: Sequence[Table], values: Values, today: str) -> str:
    """One SELECT that answers the question; empty where the rules find none.

    `today` is a date in ISO 8601, from which "last month" counts.
    """
    made, left = composed(question, tables, values, today)
    return "" if left else made


def composed(
    question: str, tables: Sequence[Table], values: Values, today: str
) -> tuple[str, list[str]]:
    """A SELECT, and what of the question it leaves out: then it answers another one."""
    asked = _ASIDE.sub("", " ".join(unicodedata.normalize("NFC", question).split()))
    asked = _ROWS.sub(r"How many \g<what> are there?", asked)
    asked = _EXTREME.sub("", asked)
    asked = _BARE_SUM.sub(r"\g<0>total ", _BARE_TOP.sub(r"What are the \g<top>", asked))
    asked, tables = _numbered(asked, tables)
    low = asked.lower()
    if unknown(asked, tables, values):
        return "", []
    if absent := _NONE.search(low):
        made = _without(low[: absent.start()], absent["what"], tables)
    else:
        made = _counting(asked, tables, values, today)
    return made, left_out(low, made, tables, values) if made else []


def _counting(asked: str, tables: Sequence[Table], values: Values, today: str) -> str:
    low = asked.lower()
    start = start_of(low, tables)
    if start is None or sum(t.words == start.words for t in tables) > 1:
        return ""
    reach = [t for t in tables if path(start, [t], tables) is not None]
    query = Select(reach, start)
    top, most = TOP.search(low), _MOST.search(low)
    for said in shown_by(low, start, reach, bool(top or most)):
        if isinstance(said, str):
            _show(query, said, low)
        else:
            _measure(query, *said)
    guessed = not query.measures and bool(most or top)
    if guessed:
        _measure(query, "COUNT", False, start)
    labels = {Place(start, column).sql() for column in start.labels}
    itself = set(query.groups) <= labels and set(query.measures.values()) == {"COUNT"}
    ranks = " by " in low or not (top and top[1])
    if (query.groups and itself) or (not query.groups and (top or guessed)) or not (ranks or most):
        return ""  # each row counted by itself, or nothing to rank or to rank by
    where = filters(low, asked, reach, values)
    where += spans(low, today, start, reach)
    order, limit = "", 0
    if query.measures and query.groups and (top or most):
        way = "ASC" if most and most[1] in _FEW else "DESC"
        order = f"{_ranked(low, query)} {way} NULLS LAST"
        limit = int(next(n for n in top.groups() if n)) if top else 1
    elif query.groups and query.measures:
        order = ", ".join(dict.fromkeys(query.groups))
    return query.text(where, order, limit)


def _numbered(asked: str, tables: Sequence[Table]) -> tuple[str, list[Table]]:
    """The question with `orders_2024` called orders, and the tables without those of other years.

    The figures of a name are no time that the question asks for. A name with spaces is one name,
    and so is `sbCustId`.
    """
    named: list[Table] = []
    for table in tables:
        own = table.alias.strip('"')
        words = " ".join(name_parts(own))
        parts = map(re.escape, re.split(r"[\W_]+", own))
        whole = rf"(?<!\w){'[ _-]'.join(parts)}(?:\.(?:csv|tsv|xlsx|parquet|db))?(?!\w)"
        one = re.search(r"[\d ]", own) or _HUMP.search(own)
        if one and len(words) > 2 and re.search(whole, asked, re.IGNORECASE):
            asked = re.sub(whole, words, asked, flags=re.IGNORECASE)
            named.append(table)
        for column in (c.name for c in table.columns if _HUMP.search(c.name)):
            spelled = " ".join(name_parts(column))
            asked = re.sub(
                rf"(?<!\w){re.escape(column)}(?!\w)", spelled, asked, flags=re.IGNORECASE
            )
    meant = [t for t in tables if t in named or not any(t.words <= n.words for n in named)]
    return asked, meant


def _show(query: Select, said: str, low: str) -> None:
    """Adds a column, the name of what a table holds, or a period, to what is shown."""
    dates = [Place(t, c) for t in query.near for c in t.columns if c.is_date]
    found = find(said, query.tables, low)
    period = next((p for p in PERIODS if re.fullmatch(rf"(?:calendar )?{p}s?", said)), "")
    if period and dates and not (found and found.column.words == stems(period)):
        date = max(dates, key=lambda d: "creat" not in d.column.words)
        query.shown.append(f"DATE_TRUNC('{period}', {query.place(date)}) AS {period}")
        query.groups.append(period)
        return
    whole = table_of(said, query.tables)
    plain = stems(said) - {"nam", "list"}
    named = "nam" in stems(said) and not stems(said) & {"first", "last"}
    if whole and (found is None or plain <= whole.words | {"id"} - ({"id"} & plain)):
        places = [Place(whole, c) for c in whole.labels]
    elif found and named and "first" in found.column.words:
        places = [Place(found.table, c) for c in found.table.labels]
    else:
        places = [found] if found else []
    for place in places:
        query.shown.append(query.place(place))
        query.groups.append(place.sql())


def _measure(query: Select, kind: str, distinct: bool, thing: Place | Table) -> None:
    if isinstance(thing, Place):
        name = quoted(f"{kind.lower()}_{thing.column.name.lower()}")
        made = f"{kind}({query.place(thing)}) AS {name}"
    else:
        key = Place(thing, thing.key)
        far = thing.name != query.start.name
        counted = f"DISTINCT {query.place(key)}" if distinct or far else "*"
        name = quoted(f"n_{thing.alias.strip(chr(34)).lower()}")
        made = f"COUNT({counted}) AS {name}"
    query.measures[name] = kind
    query.shown.append(made)


def _ranked(low: str, query: Select) -> str:
    """The measure that "by" or "most" names, else the first."""
    said = re.search(r"\bby (?:the )?(?P<what>(?:[^\W\d_]| )+)", low)
    counts = [name for name, kind in query.measures.items() if kind == "COUNT"]
    sums = [name for name in query.measures if name not in counts]
    by_count = said and re.match(r"(?:total )?number|count", said["what"])
    wanted = counts if by_count or (not said and "most" in low) else sums if said else []
    return next(iter(wanted), next(iter(query.measures)))


def _without(head: str, what: str, tables: Sequence[Table]) -> str:
    """What has no counterpart in another table."""
    missing = table_of(what, tables)
    others = [t for t in tables if t is not missing]
    whose = re.split(r"\b(?:of|for) ", head)[-1]
    start = table_of(whose, others) or table_of(head, others)
    joins = path(start, [missing], tables) if start and missing else None
    if start is None or missing is None or joins is None or len(joins) != 1:
        return ""
    query, listed = Select(tables, start), LIST.search(head)
    for said in re.split(r", and |,| and ", listed["what"].split(" of ")[0] if listed else ""):
        _show(Select([start], start), said, head)
        item = Select([start], start)
        _show(item, re.split(r" for | who| that", said)[0], head)
        query.shown += item.shown
    shown = query.shown or [Place(start, c).sql() for c in (start.key, *start.labels)]
    absent = Place(missing, missing.key).sql()
    return (
        f"SELECT {', '.join(dict.fromkeys(shown))} FROM {start.name} LEFT {joins[0]} "
        f"WHERE {absent} IS NULL"
    )
