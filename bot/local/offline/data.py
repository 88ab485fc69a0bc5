"""The offline model as a subagent over a database.

It lists tables, counts the rows of one, runs a SELECT that stands in the question, and asks the
recorded questions of the sample database. It composes no query of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from bot.local.model.answer import Answer
from bot.local.offline.calls import counted, items_of, use, within
from bot.local.offline.conversation import OFFLINE, Conversation
from bot.local.offline.orders import NOT_DONE, is_order
from bot.local.samples import QUESTIONS, SALES

_AS = re.compile(
    r"[,;.?]?\s*(?:(?:and|then)\s+)*(?:please\s+)?"
    r"(?:(?:keep|save|give|export|return|show|draw|plot|make|put)\s+(?:me\s+)?"
    r"(?:it|this|that|them|the (?:result|rows))?\s*)?(?:as|into|to)\s+(?:an?\s+)?"
    r"(?:(?P<kind>csv(?: file)?|(?:bar|line) chart)"
    r"(?:\s+(?:called|named)\s+[`'\"]?(?P<name>[\w-]+)(?:\.\w+)?[`'\"]?)?"
    r"|[`'\"]?(?P<file>[\w-]+)\.csv[`'\"]?)\s*[.?!]*$",
    re.IGNORECASE,
)
_OF = re.compile(
    r"^(?:please\s+)?(?:draw|make|plot|create|show)(?:\s+me)?\s+an?\s+"
    r"(?P<kind>bar|line) chart of\s+",
    re.IGNORECASE,
)
_COLUMNS = re.compile(r"^\[q-\w+#columns\] (?P<all>.*)$", re.MULTILINE)
_COLUMN = re.compile(r"^(?P<name>.+?) (?P<type>[A-Z][A-Z0-9_ ]*(?:\(.*\))?)$")
_NUMBER = re.compile(r"DEC|NUM|FLOAT|DOUB|REAL|\w*INT(?!ERVAL)", re.IGNORECASE)


@dataclass(frozen=True)
class Wish:
    """A question to a database, and what is to become of its rows."""

    question: str
    file: str = ""
    """Name of the CSV file that keeps the rows; empty where none does."""
    kind: str = ""
    """Of the chart: bar or line; empty where none is drawn."""


def wish_of(task: str) -> Wish:
    """Return a task without the words on what to make of the rows."""
    task = task.strip()
    if found := _AS.search(task):
        kind = (found["kind"] or "csv").lower().partition(" ")[0]
        name = found["name"] or found["file"] or "rows"
        question = task[: found.start()].rstrip() + "?"
        return Wish(question, f"{name}.csv", "" if kind == "csv" else kind)
    if found := _OF.match(task):
        return Wish(f"What is {task[found.end() :]}", "rows.csv", found["kind"].lower())
    return Wish(task)


def axes(text: str) -> tuple[str, Sequence[str]]:
    """Return the columns of a result to draw by and to draw: the first, and the numbers behind it.

    Empty where there is nothing to draw.
    """
    found = _COLUMNS.search(text)
    named = [
        c for part in (found["all"].split("; ") if found else ()) if (c := _COLUMN.match(part))
    ]
    numbers = [c["name"] for c in named[1:] if _NUMBER.match(c["type"])]
    return (named[0]["name"], numbers) if numbers else ("", ())


MAX_ROWS = 20
"""Most rows of a result that are told."""
UNDERSTOOD = (
    "They count the rows of a table («How many orders are there?») and run a SELECT statement that"
    " the question holds. Tables:"
)
MAX_NAMED = 12
"""Most tables that the hint names."""
_RULES = "The offline rules"
_UNREADABLE = ": not readable: "
_AGAIN = "Try again once"
"""How a tool tells a model that another program holds the database."""
COUNTED = "counted by:"
"""Stands before the statement by which rows were counted."""
_HANDLE = re.compile(r"\bdata:[\w.-]+")
_TABLE = re.compile(r"^\[t-\w+\] (?P<name>(?:\"(?:[^\"]|\"\")+\"|[^\s(:\"])+)", re.MULTILINE)
_ROW = re.compile(r"^\[(?P<id>q-\w+#row\d+)\] (?P<text>.*)$", re.MULTILINE)
_FAILED = re.compile(r"^\[q-\w+#error\] (?P<why>.*)$", re.MULTILINE)
SELECT = re.compile(r"\b(?:select\b.+\bfrom\b|with\b.+\bselect\b).*", re.IGNORECASE | re.DOTALL)
"""A statement in a question, to its end."""
_ROWS = re.compile(r"\b([\d,]+) rows?\b")
_COUNT = re.compile(
    r"^how many (?:rows (?:are )?in )?(?:the )?(?P<table>[\w.]+)(?: are there| do we have)?\W*$",
    re.IGNORECASE,
)
_IN = re.compile(r"^in [\w.-]+[:,] *", re.IGNORECASE)
_LIST = re.compile(
    r"^(?:which|what|list|show)\b(?: me)?(?: all)?(?: the)? tables?(?: are there)?\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Query:
    sql: str
    handle: str
    why_not: str = ""


def as_data(talk: Conversation) -> Answer:
    """Return the next turn: the tables, the query, the chart, the result."""
    wish = wish_of(talk.section("TASK"))
    handles = list(dict.fromkeys(_HANDLE.findall(talk.section("MAY READ"))))
    called = {exchange.name for exchange in talk.exchanges}
    query = _query(wish.question, _tables(talk))
    if not talk.must_end and not _refusal(talk):
        if "list_tables" not in called:
            return Answer([use("list_tables", database=handle) for handle in handles])
        if query.sql and "execute_query" not in called:
            kept = {"keep": wish.file} if wish.file else {}
            return Answer([use("execute_query", sql=query.sql, database=query.handle, **kept)])
        if wish.kind and (drawn := _drawing(talk, wish)):
            return Answer(drawn)
    if _LIST.match(wish.question) and _tables(talk):
        return Answer([use("submit_result", **_listed(talk))])
    return Answer([use("submit_result", **_result(talk, wish, query))])


def _tables(talk: Conversation) -> list[tuple[str, str]]:
    """Return the readable tables that were listed, each with the handle of its database."""
    return [
        (found["name"], str(exchange.input["database"]))
        for exchange in talk.exchanges
        if exchange.name == "list_tables"
        for line in exchange.text.splitlines()
        if _UNREADABLE not in line and (found := _TABLE.match(line.strip()))
    ]


def _query(question: str, tables: Sequence[tuple[str, str]]) -> _Query:
    """Return the query that a question holds, or counts by, or has on record."""
    handles = list(dict.fromkeys(handle for _, handle in tables))
    if not handles:
        return _Query("", "", f"{_RULES} see no table")
    if select := SELECT.search(question):
        named = _named(question[: select.start()], handles) or handles
        return _Query(select[0].rstrip(" ?.;`\n"), named[0])
    if sql := _recorded(question, handles):
        return _Query(sql, f"data:{SALES.name}")
    if not (counts := _COUNT.match(_IN.sub("", question.strip()))):
        return _Query("", "", f"{_RULES} found no query for this question")
    name = counts["table"].casefold()
    meant = _named(question, handles) or handles
    alike = [t for t in tables if name in (t[0].casefold(), _bare(t[0]).casefold())]
    inside = [t for t in alike if t[1] in meant] or alike
    fits = [t for t in inside if t[0].casefold() == name] or inside
    if len(fits) == 1:
        table, handle = fits[0]
        label = re.sub(r"\W", "_", _bare(table))
        return _Query(f"SELECT COUNT(*) AS n_{label} FROM {table}", handle)
    if fits:
        several = ", ".join(table for table, _ in fits)
        return _Query("", "", f"{_RULES} find several tables of that name: {several}")
    return _Query("", "", f"{_RULES} find no table {counts['table']}")


def _named(text: str, handles: Sequence[str]) -> list[str]:
    """Return the databases that a text names by their titles."""
    said = re.findall(r"[\w.-]+", text)
    return [handle for handle in handles if handle.removeprefix("data:") in said]


def _bare(table: str) -> str:
    """Return a table's name without its schema and its quotes."""
    return table.rpartition(".")[2].strip('"')


def _recorded(question: str, handles: Sequence[str]) -> str:
    """Return the SELECT on record for a question to the sample database; else an empty text."""
    if f"data:{SALES.name}" not in handles:
        return ""
    known = yaml.safe_load(QUESTIONS.read_text("utf-8"))
    queries: dict[str, str] = {_plain(asked): sql for sql, many in known.items() for asked in many}
    return queries.get(_plain(question), "")


def _plain(question: str) -> str:
    return " ".join(re.findall(r"\w+", question.casefold()))


def _drawing(talk: Conversation, wish: Wish) -> list[dict[str, Any]]:
    """Return the call that draws the rows which were kept, once."""
    kept = [e for e in talk.exchanges if e.input.get("keep") and not _FAILED.search(e.text)]
    x, y = axes(kept[-1].text) if kept else ("", ())
    if not y or any(e.name == "make_chart" for e in talk.exchanges):
        return []
    return [use("make_chart", file=wish.file, kind=wish.kind, x=x, y=list(y))]


def _failures(talk: Conversation) -> list[str]:
    """Return the errors of tools, each with what it was about."""
    failed = [e for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    return [f"{e.input.get('database', e.name)}: {e.text}"[:300] for e in failed]


def _refusal(talk: Conversation) -> str:
    """Return the first error if no table can be read for it; else an empty text."""
    failed = [e.text for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    return failed[0] if failed and not _tables(talk) else ""


def _listed(talk: Conversation) -> dict[str, Any]:
    """Return the tables as findings."""
    listed = [item for e in talk.exchanges if e.name == "list_tables" for item in items_of(e.text)]
    every = [
        {"claim": item.text[:500], "evidence": [item.id], "quotes": [found["name"]]}
        for item in listed
        if _UNREADABLE not in item.text and (found := _TABLE.match(f"[{item.id}] {item.text}"))
    ]
    findings = within(every, talk.max_bytes // 2)
    more = len(every) - len(findings)
    left = [*_failures(talk), *_unreadable(talk), *([f"{more} more tables"] if more else [])]
    text = f"{counted(len(every), 'table')}. {OFFLINE}"
    return {"text": text, "findings": findings, "not_covered": left, "needs": ""}


def _result(talk: Conversation, wish: Wish, query: _Query) -> dict[str, Any]:
    """Return what the query gave, or why none was asked."""
    asked = [e for e in talk.exchanges if e.name == "execute_query"]
    if not asked or asked[-1].is_error:
        return _nothing(talk, query)
    last = asked[-1]
    if failed := _FAILED.search(last.text):
        return _open(talk, f"The query was refused: {failed['why'][:200]}", "")
    rows = _ROW.findall(last.text)
    findings = [_finding(id, text) for id, text in rows[:MAX_ROWS]]
    findings = within(findings, talk.max_bytes // 2 - 1000)
    more = len(rows) - len(findings)
    left = [*_failures(talk), *_unreadable(talk), *([f"{more} more rows"] if more else [])]
    drawn = [e for e in talk.exchanges if e.name == "make_chart"]
    if wish.kind and not any(not e.is_error for e in drawn):
        why = f": {drawn[-1].text}"[:300] if drawn else ", for it takes a name and a number a row"
        left.append(f"No chart was drawn{why}")
    note = _ROWS.search(_ROW.sub("", last.text))
    told = f"{note[1]} rows" if note and note[1] != "1" else counted(len(rows), "row")
    told += f", kept as {wish.file}" if wish.file else ""
    text = f"{told}, {COUNTED} {last.input['sql']} {OFFLINE}"
    return {**_prose(talk, rows, text), "findings": findings, "not_covered": left, "needs": ""}


def _prose(talk: Conversation, rows: Sequence[tuple[str, str]], text: str) -> dict[str, Any]:
    if talk.section("CONTRACT") != "table":
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


def _nothing(talk: Conversation, query: _Query) -> dict[str, Any]:
    """Return a result without findings that says why no query was asked."""
    if refused := _refusal(talk):
        why = refused.partition(_AGAIN)[0].strip()[:300].rstrip(".")
        held = f"{why}; nothing was read. Ask again when that has ended"
        return _open(talk, held if _AGAIN in refused else why, "")
    if is_order(talk.section("TASK")):
        return _open(talk, NOT_DONE[0], "")
    tables = [name for name, _ in _tables(talk)]
    if not tables and (lost := _unreadable(talk)):
        return _open(talk, "; ".join(lost).rstrip("."), "")
    return _open(talk, query.why_not, f"{UNDERSTOOD} {', '.join(tables[:MAX_NAMED]) or 'none'}.")


def _open(talk: Conversation, why: str, more: str) -> dict[str, Any]:
    text = " ".join(part for part in (f"{why}.", more, OFFLINE) if part)
    return {"text": text, "findings": [], "not_covered": [why], "needs": ""}


def _unreadable(talk: Conversation) -> list[str]:
    """Return the files of the folder that are no tables, each with the reason."""
    lines = [
        line for e in talk.exchanges if e.name == "list_tables" for line in e.text.splitlines()
    ]
    return [line.partition("] ")[2][:300] for line in lines if _UNREADABLE in line]
