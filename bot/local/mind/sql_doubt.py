"""What of a question a SELECT makes no use of: then it answers another one."""

import re
from collections.abc import Iterator, Sequence

from bot.local.mind.schema import LETTERS, Place, Table, Values, stem, stems
from bot.local.mind.sql_where import TIMES, plain, without_values

TOP = re.compile(r"\btop (\d+)\b|\b(?:the )?(\d+) (?:most|best|largest|highest)\b")
_FIGURE = re.compile(r"(?<!\w)\d[\d.,]*(?!\w)")
_BOUND = re.compile(
    r"\b(?:over|above|more than|greater than|at least|under|below|less than) \$?(\d[\d.,]*)"
)
_BEFORE_NOW = re.compile(r"\b(?:excluding|not including|exclusive of) the current \w+")
_NEEDS = (
    (r"\b(?:not|except|excluding|exclude|other than|neither|nor|never|no|without)\b|n't\b",
     r"IS NULL"),
    (r"\b(?:average|mean|avg)\b", r"AVG\("),
    (r"\b(?:highest|largest|biggest|most|lowest|smallest|fewest|least)\b", r"ORDER BY|MAX\(|MIN\("),
    (r"\b(?:distinct|unique|different)\b", r"DISTINCT|GROUP BY"),
    (r"\b(?:each|per)\b", r"GROUP BY|DISTINCT"),
    (r"\bor\b", r" IN \("),
    (r"\breturned\b", r"(?i)return"),
    (r"\b(?:this|current|next) (?:day|week|month|quarter|year)\b|\btoday\b", r"$ never"),
)  # fmt: skip
"""Words -> what a statement has that makes use of them."""
_ORDINALS = frozenset(map(stem, "first second third fourth last past previous".split()))


def left_out(low: str, sql: str, tables: Sequence[Table], values: Values) -> list[str]:
    """The words and figures of a question that a statement does not use; `low` in small letters."""
    texts = {key: [v for v in told if _literal(v) in sql] for key, told in values.items()}
    rest = without_values(_BEFORE_NOW.sub(" ", low), texts)
    time = next((found for regex in TIMES if (found := regex.search(rest))), None)
    if time and ("DATE '" in sql or any(_is_in(f, sql) for f in _FIGURE.findall(time[0]))):
        rest = f"{rest[: time.start()]} {rest[time.end() :]}"
    if "LIMIT" in sql:
        rest = TOP.sub(" top ", rest, count=1)
    rest = _BOUND.sub(lambda f: f[0] if f" {_number(f[1])}" not in sql else " over ", rest)
    figures = [f for f in _FIGURE.findall(rest) if not _is_in(_number(f), sql)]
    times = [found[0] for time in TIMES if (found := time.search(rest))]
    needs = [f[0] for said, used in _NEEDS
             if (f := re.search(said, rest)) and not re.search(used, sql)]  # fmt: skip
    froms = [t for t in tables if re.search(rf"\b(?:FROM|JOIN) {re.escape(t.name)}(?!\S)", sql)]
    start = next((t for t in froms if f"FROM {t.name} " in f"{sql} "), None)
    doubts = [*_rivals(low, sql, start, tables), *_afar(low, sql, start, texts)] if start else []
    doubts += _guessed(low, sql, start) if start else []
    return [*figures, *times, *needs, *_unused(rest, sql, froms, tables), *doubts]


def _rivals(low: str, sql: str, start: Table, tables: Sequence[Table]) -> Iterator[str]:
    """Other tables that the question may mean as well as the one that is counted."""
    said = stems(low)
    used = [c.words for c in start.columns if Place(start, c).sql() in sql]
    if start.words <= said:
        return
    for table in tables:
        alike = said & table.words == said & start.words != frozenset()
        columns = [c.words for c in table.columns]
        if table is not start and alike and all(words in columns for words in used):
            yield table.name


def _guessed(low: str, sql: str, start: Table) -> list[str]:
    """The table of a sum where no word of it, or of what is summed, is said as it is written."""
    summed = [
        c
        for c in start.columns
        if re.search(rf"(?:SUM|AVG)\({re.escape(Place(start, c).sql())}\)", sql)
    ]
    words = start.words.union(*(column.words for column in summed))
    said = {stem(word) for word in LETTERS.findall(low)}
    return [start.name] if summed and said.isdisjoint(words) else []


def _afar(low: str, sql: str, start: Table, texts: Values) -> Iterator[str]:
    """Values that are said right before what is counted, and are of what only hangs on it."""
    if not hangs(sql):
        return
    for (table, _), told in texts.items():
        for value in told if table != start.name else ():
            noun = re.search(rf"(?<!\w){re.escape(value.lower())}\w*\s+([^\W\d_]+)", low)
            if noun and stem(noun[1]) in start.words:
                yield value


def _unused(rest: str, sql: str, froms: Sequence[Table], tables: Sequence[Table]) -> Iterator[str]:
    """Words that stand for a table or column which the statement does not have."""
    used = {word for table in froms for word in table.words} | {"nam"}
    used |= {"amount"} if "SUM(" in sql else set()
    for table in froms:
        for column in table.columns:
            if re.search(rf"{re.escape(Place(table, column).sql())}(?!\w)", sql):
                used |= column.words
    others = {word for table in tables for word in table.words}
    for word in re.findall(r"(?<![\w'])[^\W\d_]{3,}", rest):
        things = word.endswith("s") and stem(word) in others  # "order by" orders, "orders" are some
        free = plain(word) and stem(word) not in _ORDINALS and not things
        if not free and used.isdisjoint(stems(word)):
            yield word


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _number(said: str) -> str:
    return said.replace(",", "").rstrip(".")


def hangs(sql: str) -> bool:
    """Whether tables are joined that have several rows for one of those before them."""
    joins = re.findall(r"JOIN (\S+|\S*\"[^\"]*\") ON (\w+|\"[^\"]*\")\.", sql)
    return any(name == alias or name.endswith(f".{alias}") for name, alias in joins)


def _is_in(figure: str, sql: str) -> bool:
    return re.search(rf" = {re.escape(figure)}(?![\d.])", sql) is not None
