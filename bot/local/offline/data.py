"""The offline model over a database: it lists tables and counts the rows of one.

It runs a SELECT that the question contains and draws the result; it writes no query of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import (
    OFFLINE,
    Conversation,
    ShownItem,
    format_count,
    items_of,
    use,
)

MAX_ROWS = 20
"""Most rows or tables in a result."""
SELECT = re.compile(r"\b(?:select\b.+\bfrom\b|with\b.+\bselect\b).*", re.IGNORECASE | re.DOTALL)
"""A statement in a question, to its end."""
COUNT = re.compile(r"how many (?:rows in )?(?:the )?([\w.]+)(?: are there)?\W*$", re.IGNORECASE)
TABLES_QUESTION = re.compile(
    r"(?:which|what|list|show)\b(?: me)?(?: all)?(?: the)? tables?\b", re.IGNORECASE
)
_UNREADABLE = ": not readable: "
_CHART = re.compile(r",? as an? (bar|line) chart\W*$", re.IGNORECASE)
_HANDLE = re.compile(r"\bdata:[\w.-]+")
_TABLE = re.compile(r"^(\"(?:[^\"]|\"\")+\"|[^\s(:\"]+)")
_ROW = re.compile(r"^\[(?P<id>q-\w+#row\d+)\] (?P<text>.*)$", re.MULTILINE)
_ERROR_ITEM = re.compile(r"^\[q-\w+#error\] (?P<why>.*)$", re.MULTILINE)
_COLUMNS = re.compile(r"^\[q-\w+#columns\] (?P<all>.*)$", re.MULTILINE)
_NUMERIC_TYPE = re.compile(r"DEC|NUM|FLOAT|DOUB|REAL|\w*INT(?!ERVAL)", re.IGNORECASE)

Finding = dict[str, Any]


def as_data(talk: Conversation) -> Answer:
    """Return the next turn: list the tables, run the query, draw the chart or submit the result."""
    task = talk.section("TASK").strip()
    chart = _CHART.search(task)
    question = _CHART.sub("", task)
    called = {exchange.name for exchange in talk.exchanges}
    if not talk.must_end and "list_tables" not in called:
        handles = dict.fromkeys(_HANDLE.findall(talk.section("MAY READ")))
        return Answer([use("list_tables", database=each) for each in handles])
    sql, handle = _query(question, _tables(talk))
    if not talk.must_end and sql and "execute_query" not in called:
        options = {"keep": "rows.csv"} if chart else {}
        return Answer([use("execute_query", sql=sql, database=handle, **options)])
    if not talk.must_end and chart and "make_chart" not in called and (axes := _axes(talk)):
        kind = chart[1].lower()
        return Answer([use("make_chart", file="rows.csv", kind=kind, x=axes[0], y=axes[1:])])
    return Answer([use("submit_result", **_result(talk, bool(TABLES_QUESTION.match(question))))])


def _list_tables(talk: Conversation) -> list[tuple[ShownItem, str]]:
    """Return the listed items, each with the handle of its database."""
    calls = [e for e in talk.exchanges if e.name == "list_tables"]
    return [(item, str(e.input["database"])) for e in calls for item in items_of(e.text)]


def _tables(talk: Conversation) -> list[tuple[str, str]]:
    """Return the readable tables that were listed, each with the handle of its database."""
    return [
        (found[0], handle)
        for item, handle in _list_tables(talk)
        if _UNREADABLE not in item.text and (found := _TABLE.match(item.text))
    ]


def _query(question: str, tables: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the statement and the handle of its database; both empty if no rule applies."""
    if tables and (select := SELECT.search(question)):
        return select[0].rstrip(" ?.;`\n"), tables[0][1]
    counted = COUNT.match(question)
    for table, handle in tables if counted else ():
        bare = table.rpartition(".")[2].strip('"')
        if counted and counted[1].casefold() in (table.casefold(), bare.casefold()):
            label = re.sub(r"\W", "_", bare)
            return f"SELECT COUNT(*) AS n_{label} FROM {table}", handle
    return "", ""


def _axes(talk: Conversation) -> list[str]:
    """Return the columns of the x and y axes: the first column, and the numeric ones after it."""
    found = [c for e in talk.exchanges if e.input.get("keep") for c in _COLUMNS.findall(e.text)]
    columns = [part.rpartition(" ") for part in (found[-1].split("; ") if found else ())]
    numbers = [name for name, _, kind in columns[1:] if _NUMERIC_TYPE.match(kind)]
    return [columns[0][0], *numbers] if numbers else []


def _result(talk: Conversation, lists: bool) -> dict[str, Any]:
    """Return the tables, the rows of the query, or the reason why there are none."""
    queries = [e for e in talk.exchanges if e.name == "execute_query"]
    tables = _tables(talk)
    found: list[Finding] = []
    text = why = ""
    if queries:
        last = queries[-1]
        failed = _ERROR_ITEM.search(last.text)
        found = [{"claim": text[:500], "evidence": [id]} for id, text in _ROW.findall(last.text)]
        text = f"The result of: {last.input['sql']}"
        if last.is_error or failed:
            why = f"The query was refused: {(failed['why'] if failed else last.text)[:260]}"
    elif lists and tables:
        found = [
            {"claim": item.text[:500], "evidence": [item.id]}
            for item, _ in _list_tables(talk)
            if _UNREADABLE not in item.text
        ]
        text = f"{format_count(len(found), 'table')}."
    else:
        names = ", ".join([name for name, _ in tables][:MAX_ROWS])
        why = f"The offline rules have no query for this question to the tables {names or '(none)'}"
    more = len(found) - MAX_ROWS
    reported = ("execute_query", "submit_result")
    gaps = [why] if why else []
    gaps += [e.text for e in talk.exchanges if e.is_error and e.name not in reported]
    gaps += [item.text for item, _ in _list_tables(talk) if _UNREADABLE in item.text]
    gaps += [f"{more} more items"] if more > 0 else []
    return {
        "text": f"{why.rstrip('.')}. {OFFLINE}" if why else f"{text} {OFFLINE}",
        "findings": found[:MAX_ROWS],
        "not_covered": [each[:300] for each in gaps],
        "needs": "",
    }
