"""The offline model over a database: it lists tables and counts the rows of one.

It runs a SELECT that stands in the question, or is recorded for the sample database, and draws
what one gave; it composes no other query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from bot.local.model.answer import Answer
from bot.local.offline.conversation import OFFLINE, Conversation, Shown, counted, items_of, use
from bot.local.samples import QUESTIONS, SALES

MAX_ROWS = 20
"""Most rows of a result that are told."""
MAX_NAMED = 12
"""Most tables that are told."""
_LONGEST = 100
"""Longest value of a row that is quoted."""
COUNTED = "counted by:"
"""Stands before the statement by which rows were counted."""
SELECT = re.compile(r"\b(?:select\b.+\bfrom\b|with\b.+\bselect\b).*", re.IGNORECASE | re.DOTALL)
"""A statement in a question, to its end."""
_HINT = (
    "They count the rows of a table («How many orders are there?») and run a SELECT statement that"
    " the question holds. Tables:"
)
_UNREADABLE = ": not readable: "
_CHART = re.compile(r",? as an? (bar|line) chart\W*$", re.IGNORECASE)
_HANDLE = re.compile(r"\bdata:[\w.-]+")
_TABLE = re.compile(r"^(\"(?:[^\"]|\"\")+\"|[^\s(:\"]+)")
_ROW = re.compile(r"^\[(?P<id>q-\w+#row\d+)\] (?P<text>.*)$", re.MULTILINE)
_ROWS = re.compile(r"\b([\d,]+) rows?\b")
_FAILED = re.compile(r"^\[q-\w+#error\] (?P<why>.*)$", re.MULTILINE)
_COLUMNS = re.compile(r"^\[q-\w+#columns\] (?P<all>.*)$", re.MULTILINE)
_NUMBER = re.compile(r"DEC|NUM|FLOAT|DOUB|REAL|\w*INT(?!ERVAL)", re.IGNORECASE)
_COUNT = re.compile(
    r"^how many (?:rows (?:are )?in )?(?:the )?([\w.]+)(?: are there| do we have)?\W*$", re.I
)
_LIST = re.compile(r"^(?:which|what|list|show)\b(?: me)?(?: all)?(?: the)? tables?\b", re.I)


def as_data(talk: Conversation) -> Answer:
    """Return the next turn: the tables, the query, the chart, the result."""
    task = talk.section("TASK").strip()
    chart = _CHART.search(task)
    question = _CHART.sub("?", task)
    called = {exchange.name for exchange in talk.exchanges}
    sql, handle, why = _query(question, _tables(talk))
    if not talk.must_end and "list_tables" not in called:
        handles = dict.fromkeys(_HANDLE.findall(talk.section("MAY READ")))
        return Answer([use("list_tables", database=each) for each in handles])
    if not talk.must_end and sql and "execute_query" not in called:
        kept = {"keep": "rows.csv"} if chart else {}
        return Answer([use("execute_query", sql=sql, database=handle, **kept)])
    if not talk.must_end and chart and "make_chart" not in called and (axes := _axes(talk)):
        kind = chart[1].lower()
        return Answer([use("make_chart", file="rows.csv", kind=kind, x=axes[0], y=axes[1:])])
    if _LIST.match(question) and _tables(talk):
        return Answer([use("submit_result", **_listed(talk))])
    return Answer([use("submit_result", **_result(talk, why))])


def _shown(talk: Conversation) -> list[tuple[Shown, str]]:
    """Return what was listed, each with the handle of its database."""
    listed = [e for e in talk.exchanges if e.name == "list_tables"]
    return [(item, str(e.input["database"])) for e in listed for item in items_of(e.text)]


def _tables(talk: Conversation) -> list[tuple[str, str]]:
    """Return the readable tables that were listed, each with the handle of its database."""
    return [
        (found[0], handle)
        for item, handle in _shown(talk)
        if _UNREADABLE not in item.text and (found := _TABLE.match(item.text))
    ]


def _query(question: str, tables: Sequence[tuple[str, str]]) -> tuple[str, str, str]:
    """Return the statement, the handle of its database, and why there is none."""
    if not tables:
        return "", "", "The offline rules see no table"
    if select := SELECT.search(question):
        return select[0].rstrip(" ?.;`\n"), tables[0][1], ""
    sample = f"data:{SALES.name}"
    if sample in {handle for _, handle in tables} and (sql := _recorded(question)):
        return sql, sample, ""
    if not (asked := _COUNT.match(question)):
        return "", "", "The offline rules found no query for this question"
    name = asked[1].casefold()
    for table, handle in tables:
        bare = table.rpartition(".")[2].strip('"')
        if name in (table.casefold(), bare.casefold()):
            label = re.sub(r"\W", "_", bare)
            return f"SELECT COUNT(*) AS n_{label} FROM {table}", handle, ""
    return "", "", f"The offline rules find no table {asked[1]}"


def _recorded(question: str) -> str:
    """Return the SELECT on record for a question to the sample database; else an empty text."""
    known = yaml.safe_load(QUESTIONS.read_text("utf-8"))
    return next((s for s, many in known.items() if _plain(question) in map(_plain, many)), "")


def _plain(question: str) -> str:
    return " ".join(re.findall(r"\w+", question.casefold()))


def _axes(talk: Conversation) -> list[str]:
    """Return the columns to draw by and to draw: the first one, and the numbers behind it."""
    found = [c for e in talk.exchanges if e.input.get("keep") for c in _COLUMNS.findall(e.text)]
    named = [part.rpartition(" ") for part in (found[-1].split("; ") if found else ())]
    numbers = [name for name, _, kind in named[1:] if _NUMBER.match(kind)]
    return [named[0][0], *numbers] if numbers else []


def _left(talk: Conversation) -> list[str]:
    """Return the errors of tools, and the files of a folder that are no tables."""
    failed = [e for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    return [
        *(f"{e.input.get('database', e.name)}: {e.text}"[:300] for e in failed),
        *(item.text[:300] for item, _ in _shown(talk) if _UNREADABLE in item.text),
    ]


def _listed(talk: Conversation) -> dict[str, Any]:
    """Return the tables as findings."""
    every = [
        {"claim": item.text[:500], "evidence": [item.id], "quotes": [found[0]]}
        for item, _ in _shown(talk)
        if _UNREADABLE not in item.text and (found := _TABLE.match(item.text))
    ]
    more = len(every) - MAX_NAMED
    return {
        "text": f"{counted(len(every), 'table')}. {OFFLINE}",
        "findings": every[:MAX_NAMED],
        "not_covered": [*_left(talk), *([f"{more} more tables"] if more > 0 else [])],
        "needs": "",
    }


def _result(talk: Conversation, why: str) -> dict[str, Any]:
    """Return what the query gave, or why none was asked."""
    asked = [e for e in talk.exchanges if e.name == "execute_query"]
    left = _left(talk)
    if not asked or asked[-1].is_error:
        if left and not _tables(talk):
            return _open(left[0].rstrip("."))
        names = ", ".join([name for name, _ in _tables(talk)][:MAX_NAMED])
        return _open(why, f"{_HINT} {names or 'none'}.")
    last = asked[-1]
    if failed := _FAILED.search(last.text):
        return _open(f"The query was refused: {failed['why'][:200]}")
    rows = _ROW.findall(last.text)
    more = len(rows) - MAX_ROWS
    note = _ROWS.search(_ROW.sub("", last.text))
    told = f"{note[1]} rows" if note and note[1] != "1" else counted(len(rows), "row")
    told += f", kept as {last.input['keep']}" if last.input.get("keep") else ""
    return {
        "text": f"{told}, {COUNTED} {last.input['sql']} {OFFLINE}",
        "findings": [_finding(id, text) for id, text in rows[:MAX_ROWS]],
        "not_covered": [*left, *([f"{more} more rows"] if more > 0 else [])],
        "needs": "",
    }


def _finding(id: str, text: str) -> dict[str, Any]:
    cells = (cell.partition(": ") for cell in text.split("; "))
    told = [(name, value) for name, _, value in cells if value not in ("", "null")]
    values = [v if len(v.strip(" \"'.…")) > 1 else f"{name}: {v}" for name, v in told]
    short = [value for value in values if len(value) <= _LONGEST]
    return {"claim": text[:500], "evidence": [id], "quotes": short[:5]}


def _open(why: str, more: str = "") -> dict[str, Any]:
    text = " ".join(part for part in (f"{why}.", more, OFFLINE) if part)
    return {"text": text, "findings": [], "not_covered": [why], "needs": ""}
