"""The offline mind as a subagent over a database: tables, one SELECT, and what its rows say."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from bot.local.mind.calls import use
from bot.local.mind.hearing import Exchange, Heard
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
_HANDLE = re.compile(r"\bdata:[\w.-]+")
_TABLE = re.compile(r"^\[t-\w+\] (?P<name>[^\s(:]+)")
_COLUMN = re.compile(
    r"^\[t-\w+#\d+\] (?P<name>.+?) (?P<type>[A-Z][A-Z0-9_ ]*(?:\(.*\))?)(?:: .*)?$"
)
_ROW = re.compile(r"^\[(?P<id>q-\w+#row\d+)\] (?P<text>.*)$", re.MULTILINE)
_FAILED = re.compile(r"^\[q-\w+#error\] (?P<why>.*)$", re.MULTILINE)
_VALUE = re.compile(r"^c: (?P<place>[^;]*); v: (?P<value>.*)$")
_UNREADABLE = ": not readable: "
_LOOK = "SELECT c, v FROM ("
"""How the query begins that looks at what columns hold."""


def as_data(heard: Heard) -> Answer:
    """The next turn: tables, columns, what is in them, the question, the result."""
    question = heard.section("TASK")
    handle = next(iter(_HANDLE.findall(heard.section("MAY READ"))), "")
    called = {exchange.name for exchange in heard.exchanges}
    if not heard.must_end and not _failed_before(heard):
        if "list_tables" not in called:
            return Answer([use("list_tables", database=handle)])
        names = _listed(heard, question)
        if names and "describe_table" not in called:
            return Answer([use("describe_table", table=n, database=handle) for n in names])
        if sql := _next(heard, question):
            return Answer([use("execute_query", sql=sql, database=handle)])
    return Answer([use("submit_result", **_result(heard, question))])


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


def _result(heard: Heard, question: str) -> dict[str, Any]:
    queries = [e for e in heard.exchanges if e.name == "execute_query"]
    last = queries[-1] if queries else None
    if last is None or str(last.input["sql"]).startswith(_LOOK):
        return _nothing(_why(heard, question))
    if failed := _FAILED.search(last.text):
        return _nothing(f"The query was refused: {failed['why'][:200]}")
    rows = _ROW.findall(last.text)
    findings = [_finding(id, text) for id, text in rows[:MAX_ROWS]]
    left = _unreadable(heard)
    left += [f"{len(rows) - MAX_ROWS} more rows"] if len(rows) > MAX_ROWS else []
    counted = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
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
    values = [value for _, value in _cells(text) if len(value) > 1 and value != "null"]
    return {"claim": text, "evidence": [id], "quotes": values[:5]}


def _why(heard: Heard, question: str) -> str:
    """Why no query was asked, for whoever reads the result."""
    refused = next(
        (e.text for e in heard.exchanges if e.is_error and e.name != "submit_result"), ""
    )
    if refused:
        return refused[:300].rstrip(".")
    if (lost := _unreadable(heard)) and not _tables(heard):
        return "; ".join(lost).rstrip(".")
    words = unknown(question, _tables(heard), _values(heard))
    if words:
        named = ", ".join(dict.fromkeys(words))
        return f"The offline rules do not know what to make of: {named}"
    return "The offline rules found no query for this question"


def _unreadable(heard: Heard) -> list[str]:
    """Files of the folder that are no tables, with the reason."""
    lines = [line for e in heard.exchanges if e.name == "list_tables" for line in _lines(e)]
    return [line.partition("] ")[2][:300] for line in lines if _UNREADABLE in line]


def _nothing(why: str) -> dict[str, Any]:
    return {"text": f"{why}. {OFFLINE}", "findings": [], "not_covered": [why], "needs": ""}
