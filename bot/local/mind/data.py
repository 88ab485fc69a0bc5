"""The offline mind as a subagent over a database: tables, one SELECT, and what its rows say."""

import re
from typing import Any

from bot.local.mind.calls import use
from bot.local.mind.chart import Wish, axes, wish_of
from bot.local.mind.data_heard import LOOK, Asked, asked_of, look
from bot.local.mind.data_told import FAILED, tables_told, told, unclear
from bot.local.mind.hearing import Heard
from bot.local.model.answer import Answer

_ASKS_TABLES = re.compile(
    r"^(?:which|what|list|show|name)\b(?: me)?(?: all| the| of| its| your)*"
    r" (?:tables?(?: names)?|(?:names of (?:all )?(?:the )?tables))"
    r"(?: are(?: there)?| exist| are available| do you (?:have|know|see)| can (?:i|you) \w+"
    r"| does it (?:have|hold))?(?: (?:are )?in (?:the|this|that|my) (?:database|file|folder))?\W*$",
    re.IGNORECASE,
)


def as_data(heard: Heard) -> Answer:
    """The next turn: tables, columns, what is in them, the question, the result."""
    wish = wish_of(heard.section("TASK"))
    asked = asked_of(heard, wish.question)
    lists = _ASKS_TABLES.match(asked.question) is not None
    called = {exchange.name for exchange in heard.exchanges}
    if not heard.must_end and not _failed_before(heard):
        if "list_tables" not in called:
            handles = [asked.handle, *(asked.others if lists else ())]
            return Answer([use("list_tables", database=each) for each in handles])
        names = () if lists or unclear(asked) else asked.listed
        if names and "describe_table" not in called:
            calls = [use("describe_table", table=n, database=asked.handle) for n in names]
            return Answer(calls)
        if names and (sql := _next(asked)):
            kept = {"keep": wish.file} if wish.file and not sql.startswith(LOOK) else {}
            return Answer([use("execute_query", sql=sql, database=asked.handle, **kept)])
        if wish.kind and (drawn := _drawing(heard, wish)):
            return Answer(drawn)
    listed = tables_told(asked) if lists else None
    return Answer([use("submit_result", **(listed or told(asked, wish)))])


def _drawing(heard: Heard, wish: Wish) -> list[dict[str, Any]]:
    """The call that draws the rows which were kept, once."""
    kept = [e for e in heard.exchanges if e.input.get("keep") and not FAILED.search(e.text)]
    x, y = axes(kept[-1].text) if kept else ("", ())
    if not y or any(e.name == "make_chart" for e in heard.exchanges):
        return []
    return [use("make_chart", file=wish.file, kind=wish.kind, x=x, y=list(y))]


def _failed_before(heard: Heard) -> bool:
    return any(e.is_error and e.name != "submit_result" for e in heard.exchanges)


def _next(asked: Asked) -> str:
    """The query that is to be asked now; empty where none is left, or none is known."""
    queries = (e for e in asked.heard.exchanges if e.name == "execute_query")
    before = [str(e.input.get("sql", "")) for e in queries]
    if not before and (texts := asked.texts):
        return look(texts)
    if any(not sql.startswith(LOOK) for sql in before):
        return ""
    selects = asked.selects
    plain = next(iter(selects.values())) if len(selects) == 1 else ""
    return selects.get("", plain)  # what needs no prefix is what a plain name means
