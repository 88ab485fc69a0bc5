"""What the offline mind hands in of a database: rows and what they say, or why there are none."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from bot.local.mind.calls import items_of, within
from bot.local.mind.chart import Wish
from bot.local.mind.data_heard import (
    LOOK,
    MAX_TABLES,
    ROW,
    TABLE,
    UNREADABLE,
    Asked,
    lines_of,
)
from bot.local.mind.hearing import Heard
from bot.local.mind.orders import NOT_DONE, is_order
from bot.local.mind.phrases import OFFLINE
from bot.local.mind.sql_place import schema_of
from bot.local.mind.sql_where import unknown
from bot.local.mind.written import COUNTED

MAX_ROWS = 20
"""Most rows of a result that are told."""
UNDERSTOOD = "They understand: how many X, total or average Y by Z, top N X by Y. Tables:"
FAILED = re.compile(r"^\[q-\w+#error\] (?P<why>.*)$", re.MULTILINE)
_RULES = "The offline rules"
_AGAIN = "Try again once"
"""What a tool tells a model to do where a database is held by somebody else."""


def unclear(asked: Asked) -> str:
    """Why it is not known which schema is meant; empty where it is, as far as words tell."""
    if len(asked.where.names) > 1:
        named = ", ".join(asked.where.names)
        return f"{_RULES} ask one schema at a time, and the question names {named}"
    if name := asked.where.doubtful:
        return f'{_RULES} cannot tell whether "{name}" is the schema: say "in the schema {name}"'
    return ""


def told(asked: Asked, wish: Wish) -> dict[str, Any]:
    """What a query gave, or why none was asked."""
    heard = asked.heard
    queries = [e for e in heard.exchanges if e.name == "execute_query"]
    last = queries[-1] if queries else None
    if last is None or str(last.input["sql"]).startswith(LOOK):
        why = _why(asked)
        hint = _hint(asked) if why.startswith(_RULES) else ""
        return _nothing(why, hint, _unasked(asked))
    if failed := FAILED.search(last.text):
        why = f"The query was refused: {failed['why'][:200]}"
        return _nothing(why, "", _unasked(asked))
    rows = ROW.findall(last.text)
    findings = [_finding(id, text) for id, text in rows[:MAX_ROWS]]
    findings = within(findings, heard.max_bytes // 2 - 1000)
    left = [*_unreadable(heard), *_unasked(asked)]
    left += [
        f"{schema}: it has an answer, too; name the schema in the question"
        for schema in asked.selects
        if schema and "" in asked.selects
    ]
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


def _why(asked: Asked) -> str:
    """Why no query was asked, for whoever reads the result."""
    heard = asked.heard
    refused = next(
        (e.text for e in heard.exchanges if e.is_error and e.name != "submit_result"), ""
    )
    if refused:
        why = refused.partition(_AGAIN)[0].strip()[:300].rstrip(".")
        held = f"{why}; nothing was read. Ask again when that has ended"
        return held if _AGAIN in refused else why
    if is_order(heard.section("TASK")):
        return NOT_DONE[0]
    if (lost := _unreadable(heard)) and not asked.tables:
        return "; ".join(lost).rstrip(".")
    if why := unclear(asked):
        return why
    if len(schemas := list(asked.selects)) > 1:
        say = f'name one, as in "In the schema {schemas[0]}: ..."'
        return f"{_RULES} find an answer in several schemas ({', '.join(schemas)}): {say}"
    words = unknown(asked.question, asked.best, asked.values)
    if words := words or next((left for _, left in asked.made.values() if left), []):
        named = ", ".join(dict.fromkeys(words))
        return f"{_RULES} do not know what to make of: {named}"
    return f"{_RULES} found no query for this question"


def _hint(asked: Asked) -> str:
    """What may be asked instead."""
    known = ", ".join(table.name for table in asked.tables[:MAX_TABLES])
    return f"{UNDERSTOOD} {known}." if known else ""


def tables_told(asked: Asked) -> dict[str, Any] | None:
    """The tables as they were listed; None where there are none."""
    heard = asked.heard
    listed = [item for e in heard.exchanges if e.name == "list_tables" for item in items_of(e.text)]
    every = [
        {"claim": item.text[:500], "evidence": [item.id], "quotes": [found["name"]]}
        for item in listed
        if UNREADABLE not in item.text and (found := TABLE.match(f"[{item.id}] {item.text}"))
        if not asked.where.names or schema_of(found["name"]) in asked.where.names
    ]
    findings = within(every, heard.max_bytes // 2)
    left = _unreadable(heard)
    left += [f"{more} more tables"] if (more := len(every) - len(findings)) else []
    text = f"{len(every)} tables. {OFFLINE}"
    result = {"text": text, "findings": findings, "not_covered": left, "needs": ""}
    return result if every else None


def _unasked(asked: Asked) -> list[str]:
    return [f"{h}: {_RULES} ask one database; name it in the question" for h in asked.others]


def _unreadable(heard: Heard) -> list[str]:
    """Files of the folder that are no tables, with the reason."""
    lines = [line for e in heard.exchanges if e.name == "list_tables" for line in lines_of(e)]
    return [line.partition("] ")[2][:300] for line in lines if UNREADABLE in line]


def _nothing(why: str, more: str, unasked: Sequence[str]) -> dict[str, Any]:
    text = " ".join(part for part in (f"{why}.", more, OFFLINE) if part)
    return {"text": text, "findings": [], "not_covered": [why, *unasked], "needs": ""}
