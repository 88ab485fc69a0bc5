"""The offline mind as a subagent over a database: tables, one SELECT, and what its rows say."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from bot.local.mind.calls import items_of, use, within
from bot.local.mind.chart import Wish, axes, wish_of
from bot.local.mind.hearing import Exchange, Heard
from bot.local.mind.orders import NOT_DONE, is_order
from bot.local.mind.phrases import OFFLINE
from bot.local.mind.schema import Place, Table, Values, stems
from bot.local.mind.sql import select
from bot.local.mind.sql_where import unknown
from bot.local.mind.written import COUNTED
from bot.local.model.answer import Answer

MAX_TABLES = 12
"""Most tables that are looked into; those that the question names come first."""
MAX_VALUES = 40
"""Most different texts of a column that are looked at for those that the question names."""
MAX_ROWS = 20
"""Most rows of a result that are told."""
UNDERSTOOD = "They understand: how many X, total or average Y by Z, top N X by Y. Tables:"
_RULES = "The offline rules"
_HANDLE = re.compile(r"\bdata:[\w.-]+")
_TABLE = re.compile(r"^\[t-\w+\] (?P<name>(?:\"(?:[^\"]|\"\")+\"|[^\s(:\"])+)")
_COLUMN = re.compile(
    r"^\[t-\w+#\d+\] (?P<name>.+?) (?P<type>[A-Z][A-Z0-9_ ]*(?:\(.*\))?)(?:: .*)?$"
)
_ROW = re.compile(r"^\[(?P<id>q-\w+#row\d+)\] (?P<text>.*)$", re.MULTILINE)
_FAILED = re.compile(r"^\[q-\w+#error\] (?P<why>.*)$", re.MULTILINE)
_VALUE = re.compile(r"^c: (?P<place>[^;]*); v: (?P<value>.*)$")
_ASKS_TABLES = re.compile(
    r"^(?:which|what|list|show|name)\b(?: me)?(?: all| the| of| its| your)*"
    r" (?:tables?(?: names)?|(?:names of (?:all )?(?:the )?tables))"
    r"(?: are there| exist| are available| do you (?:have|know|see)| can (?:i|you) \w+"
    r"| does it (?:have|hold))?(?: (?:are )?in (?:the|this|that|my) (?:database|file|folder))?\W*$",
    re.IGNORECASE,
)
_AGAIN = "Try again once"
"""What a tool tells a model to do where a database is held by somebody else."""
_UNREADABLE = ": not readable: "
_LOOK = "SELECT c, v FROM ("
"""How the query begins that looks at what columns hold."""


def as_data(heard: Heard) -> Answer:
    """The next turn: tables, columns, what is in them, the question, the result."""
    wish = wish_of(heard.section("TASK"))
    question = wish.question
    handle, others = _chosen(heard, question)
    called = {exchange.name for exchange in heard.exchanges}
    if not heard.must_end and not _failed_before(heard):
        if "list_tables" not in called:
            asked = [handle, *others] if _ASKS_TABLES.match(question) else [handle]
            return Answer([use("list_tables", database=each) for each in asked])
        names = [] if _ASKS_TABLES.match(question) else _listed(heard, question)
        if names and "describe_table" not in called:
            return Answer([use("describe_table", table=n, database=handle) for n in names])
        if names and (sql := _next(heard, question)):
            kept = {"keep": wish.file} if wish.file and not sql.startswith(_LOOK) else {}
            return Answer([use("execute_query", sql=sql, database=handle, **kept)])
        if wish.kind and (drawn := _drawing(heard, wish)):
            return Answer(drawn)
    return Answer([use("submit_result", **_result(heard, wish))])


def _chosen(heard: Heard, question: str) -> tuple[str, list[str]]:
    """The database that is asked, and those that nobody looks at then: of those that the question
    names, else of all."""
    held = list(dict.fromkeys(_HANDLE.findall(heard.section("MAY READ"))))
    said = stems(question)
    meant = [h for h in held if stems(h.removeprefix("data:")) & said] or held
    return next(iter(meant), ""), meant[1:]


def _drawing(heard: Heard, wish: Wish) -> list[dict[str, Any]]:
    """The call that draws the rows which were kept, once."""
    kept = [e for e in heard.exchanges if e.input.get("keep") and not _FAILED.search(e.text)]
    x, y = axes(kept[-1].text) if kept else ("", ())
    if not y or any(e.name == "make_chart" for e in heard.exchanges):
        return []
    return [use("make_chart", file=wish.file, kind=wish.kind, x=x, y=list(y))]


def _failed_before(heard: Heard) -> bool:
    return any(e.is_error and e.name != "submit_result" for e in heard.exchanges)


def _listed(heard: Heard, question: str) -> list[str]:
    """The tables to look into, those whose names the question says first."""
    said = stems(question)
    lines = [line for e in heard.exchanges if e.name == "list_tables" for line in _lines(e)]
    readable = [line for line in lines if _UNREADABLE not in line]
    names = [found["name"] for line in readable if (found := _TABLE.match(line))]
    names.sort(key=lambda name: -len(said & Table.of(name, []).words))
    return names[:MAX_TABLES]


def _lines(exchange: Exchange) -> list[str]:
    return [line.strip() for line in exchange.text.splitlines()]


def _tables(heard: Heard) -> list[Table]:
    """The tables as they were described; of several schemas the one that fits the question."""
    found: list[Table] = []
    for exchange in heard.exchanges:
        if exchange.name == "describe_table" and not exchange.is_error:
            columns = [c for line in _lines(exchange) if (c := _COLUMN.match(line))]
            pairs = [(c["name"], c["type"]) for c in columns]
            found.append(Table.of(str(exchange.input["table"]), pairs))
    return _schema(found, heard.section("TASK"))


def _schema(tables: list[Table], question: str) -> list[Table]:
    said = stems(question)
    groups: dict[str, list[Table]] = {}
    for table in tables:
        groups.setdefault(table.name.rpartition(".")[0], []).append(table)

    def fits(group: list[Table]) -> tuple[int, int]:
        words = {w for t in group for w in t.words}
        columns = {w for t in group for c in t.columns for w in c.words}
        return len(said & (words | columns)), len(said & words)

    return max(groups.values(), key=fits, default=[])


def _next(heard: Heard, question: str) -> str:
    """The query that is to be asked now; empty where none is left, or none is known."""
    asked = [str(e.input.get("sql", "")) for e in heard.exchanges if e.name == "execute_query"]
    tables = _tables(heard)
    texts = [Place(t, c) for t in tables for c in t.columns if c.is_text and not c.is_id]
    if not asked and texts:
        return _look(texts)
    if any(not sql.startswith(_LOOK) for sql in asked):
        return ""
    return select(question, tables, _values(heard), _today(heard))


def _look(places: Sequence[Place]) -> str:
    """One query for what stands in columns that hold few different texts."""
    parts = [
        f"SELECT '{n}' AS c, v FROM (SELECT DISTINCT {p.sql()} AS v FROM {p.table.name}) AS t{n} "
        f"WHERE v IS NOT NULL AND (SELECT COUNT(DISTINCT {p.sql()}) FROM {p.table.name}) "
        f"<= {MAX_VALUES}"
        for n, p in enumerate(places)
    ]
    return f"{_LOOK}{' UNION ALL '.join(parts)}) AS found ORDER BY c, v"


def _values(heard: Heard) -> Values:
    """Table and column -> the texts in it, as far as the look showed them."""
    places = [Place(t, c) for t in _tables(heard) for c in t.columns if c.is_text and not c.is_id]
    found: dict[tuple[str, str], list[str]] = {}
    for exchange in heard.exchanges:
        if str(exchange.input.get("sql", "")).startswith(_LOOK):
            for _, text in _ROW.findall(exchange.text):
                if (cell := _VALUE.match(text)) and cell["place"].isdigit():
                    place = places[int(cell["place"])]
                    key = (place.table.name, place.column.name)
                    found.setdefault(key, []).append(cell["value"])
    return found


def _today(heard: Heard) -> str:
    """When the request was made."""
    days = re.findall(r"\d{4}-\d\d-\d\d", heard.section("NOW"))
    return days[-1] if days else "1970-01-01"


def _result(heard: Heard, wish: Wish) -> dict[str, Any]:
    question = wish.question
    if _ASKS_TABLES.match(question) and (told := _tables_told(heard)):
        return told
    queries = [e for e in heard.exchanges if e.name == "execute_query"]
    last = queries[-1] if queries else None
    if last is None or str(last.input["sql"]).startswith(_LOOK):
        why = _why(heard, question)
        hint = _hint(heard) if why.startswith(_RULES) else ""
        return _nothing(why, hint, _unasked(heard, question))
    if failed := _FAILED.search(last.text):
        why = f"The query was refused: {failed['why'][:200]}"
        return _nothing(why, "", _unasked(heard, question))
    rows = _ROW.findall(last.text)
    findings = [_finding(id, text) for id, text in rows[:MAX_ROWS]]
    findings = within(findings, heard.max_bytes // 2 - 1000)
    left = [*_unreadable(heard), *_unasked(heard, question)]
    more = len(rows) - len(findings)
    left += [f"{more} more rows"] if more else []
    drawn = [e for e in heard.exchanges if e.name == "make_chart"]
    if wish.kind and not any(not e.is_error for e in drawn):
        why = f": {drawn[-1].text}"[:300] if drawn else ", for it takes a name and a number a row"
        left.append(f"No chart was drawn{why}")
    counted = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
    counted += f", kept as {wish.file}" if wish.file else ""
    text = f"{counted}, {COUNTED} {last.input['sql']} {OFFLINE}"
    return {**_prose(heard, rows, text), "findings": findings, "not_covered": left, "needs": ""}


def _prose(heard: Heard, rows: Sequence[tuple[str, str]], text: str) -> dict[str, Any]:
    if heard.section("CONTRACT") != "table":
        return {"text": text}
    cells = [dict(_cells(line)) for _, line in rows[:MAX_ROWS]]
    columns = list(cells[0]) if cells else []
    return {"columns": columns, "rows": [list(c.values()) for c in cells], "text": text}


def _cells(text: str) -> Iterator[tuple[str, str]]:
    for cell in text.split("; "):
        name, _, value = cell.partition(": ")
        yield name, value


def _finding(id: str, text: str) -> dict[str, Any]:
    told = [(name, value) for name, value in _cells(text) if value not in ("", "null")]
    values = [
        value if len(value.strip(" \"'.…")) > 1 else f"{name}: {value}" for name, value in told
    ]
    return {"claim": text, "evidence": [id], "quotes": values[:5]}


def _why(heard: Heard, question: str) -> str:
    """Why no query was asked, for whoever reads the result."""
    refused = next(
        (e.text for e in heard.exchanges if e.is_error and e.name != "submit_result"), ""
    )
    if refused:
        why = refused.partition(_AGAIN)[0].strip()[:300].rstrip(".")
        held = f"{why}; nothing was read. Ask again when that has ended"
        return held if _AGAIN in refused else why
    if is_order(heard.section("TASK")):
        return NOT_DONE[0]
    if (lost := _unreadable(heard)) and not _tables(heard):
        return "; ".join(lost).rstrip(".")
    words = unknown(question, _tables(heard), _values(heard))
    if words:
        named = ", ".join(dict.fromkeys(words))
        return f"{_RULES} do not know what to make of: {named}"
    return f"{_RULES} found no query for this question"


def _hint(heard: Heard) -> str:
    """What may be asked instead."""
    known = ", ".join(table.name for table in _tables(heard)[:MAX_TABLES])
    return f"{UNDERSTOOD} {known}." if known else ""


def _tables_told(heard: Heard) -> dict[str, Any] | None:
    """The tables as they were listed; None where there are none."""
    listed = [item for e in heard.exchanges if e.name == "list_tables" for item in items_of(e.text)]
    tables = [item for item in listed if _UNREADABLE not in item.text]
    every = [
        {
            "claim": item.text[:500],
            "evidence": [item.id],
            "quotes": [found["name"]]
            if (found := _TABLE.match(f"[{item.id}] {item.text}"))
            else [],
        }
        for item in tables
    ]
    findings = within(every, heard.max_bytes // 2)
    left = _unreadable(heard)
    left += [f"{more} more tables"] if (more := len(every) - len(findings)) else []
    text = f"{len(every)} tables. {OFFLINE}"
    result = {"text": text, "findings": findings, "not_covered": left, "needs": ""}
    return result if every else None


def _unasked(heard: Heard, question: str) -> list[str]:
    _, others = _chosen(heard, question)
    return [f"{h}: {_RULES} ask one database; name it in the question" for h in others]


def _unreadable(heard: Heard) -> list[str]:
    """Files of the folder that are no tables, with the reason."""
    lines = [line for e in heard.exchanges if e.name == "list_tables" for line in _lines(e)]
    return [line.partition("] ")[2][:300] for line in lines if _UNREADABLE in line]


def _nothing(why: str, more: str, unasked: Sequence[str]) -> dict[str, Any]:
    text = " ".join(part for part in (f"{why}.", more, OFFLINE) if part)
    return {"text": text, "findings": [], "not_covered": [why, *unasked], "needs": ""}
