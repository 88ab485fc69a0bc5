"""Name the sources of an answer: messages, mails and pages by links, rows by the statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.reports.documents import AnswerDocument
from bot.reports.formats import sender
from bot.slack.markdown import Numbers, address
from config.words import current, phrase
from scopes.label import is_list
from scopes.tool import iso, one_line
from subagents.result import Finding

LEADING_COMMENT = re.compile(
    r"\s*(?:--|/\*)\s*((?:[^\W_]|[ ,;:?%&+'’()€$-]|\.(?=\d)){3,140}?)[.\s]*(?:\n|\*/)"
)
"""The comment at the start of a statement, of words only: it cannot contain an address."""
MESSAGE = re.compile(r"/archives/\w+/p(\d{16})\b")
"""Time of a Slack message in its link, in microseconds."""
TABLE = "t-"
"""Prefix of the ids of listed tables (`scopes/data.py`)."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source of an answer."""

    title: str = ""
    """Description in words; empty where its link is enough."""
    link: str = ""
    place: str = ""
    """Name of the channel that the link leads to, or of a Slack List."""
    author: str = ""
    at: str = ""
    """Time when it was written (ISO 8601, UTC)."""
    until: str = ""
    """Time of the last message that it cites (ISO 8601, UTC)."""
    statement: str = ""
    """The whole SQL statement that found its rows."""


def numbers_of(document: AnswerDocument) -> Numbers:
    """Return the numbering of an answer's citations: equal sources have one number."""
    keys = {id: list(_keys(document, f)) for id, f in _findings(document).items()}
    return Numbers(document.links, keys)


def _findings(document: AnswerDocument) -> dict[str, Finding]:
    return {f.id: f for result in document.subagents for f in result.findings}


def _keys(document: AnswerDocument, finding: Finding) -> Iterator[str]:
    keys = (*finding.queries, *_lists(document, finding))
    yield from keys
    if not (keys or _link(document, finding.id)):
        yield _schema(finding) or next(iter(finding.evidence), finding.id)


def _link(document: AnswerDocument, id: str) -> str:
    return next(filter(None, map(address, document.links.get(id) or ())), "")


def _lists(document: AnswerDocument, finding: Finding) -> Mapping[str, Source]:
    """Return the Slack Lists, by id, that a finding cites in addition to its first source."""
    titles, first = document.places or {}, _link(document, finding.id)
    ids = dict.fromkeys(each.partition("/")[0] for each in finding.evidence)
    return {
        id: Source("", next((link for link in finding.links if id in link), ""), titles[id])
        for id in ids
        if is_list(id) and id in titles and id not in first
    }


def _schema(finding: Finding) -> str:
    """Return the handle of the database whose list of tables is the evidence; empty otherwise."""
    is_list = finding.evidence and all(e.startswith(TABLE) for e in finding.evidence)
    handle = next(iter(finding.sources), "") if is_list else ""
    return handle if handle.startswith("data:") else ""


def sources_of(document: AnswerDocument, numbers: Numbers) -> dict[int, Source]:
    """Return the sources that a text cites, by their numbers."""
    found = _findings(document)
    sources: dict[int, Source] = {}
    for id, own_numbers in numbers.cited.items():
        for number, source in zip(own_numbers, _of(document, found.get(id), id), strict=True):
            sources.setdefault(number, source)
    return dict(sorted(sources.items()))


def _of(document: AnswerDocument, finding: Finding | None, id: str) -> Iterator[Source]:
    link = _link(document, id)
    own = document.looked_up.get(id)
    place = (document.places or {}).get(own.item.partition("/")[0], "") if own else ""
    if own and place and own.author and own.at:
        yield Source("", link, place, own.author, own.at)
    elif own:
        text = phrase("answer.looked_up", text=own.text)
        yield Source(text if link else f"{own.item}, {text}", link)
    elif link:
        yield _link_source(document, finding, link)
    elif finding is None:
        yield Source(phrase("answer.earlier"))
    if finding is None:
        return
    for query in finding.queries:
        handle, sql = _handle_and_statement(query)
        yield Source(_statement_title(handle, sql), statement=sql)
    lists = _lists(document, finding)
    yield from lists.values()
    if link or finding.queries or lists:
        return
    if handle := _schema(finding):
        yield Source(phrase("source.tables", name=handle.partition(":")[2]))
    else:
        quotes = ", ".join(f"«{one_line(quote)}»" for quote in finding.quotes[:3])
        yield Source(": ".join(filter(None, (next(iter(finding.evidence), ""), quotes))))


def _link_source(document: AnswerDocument, finding: Finding | None, link: str) -> Source:
    ids = [e.partition("/")[0] for e in finding.evidence] if finding else []
    titles = document.places or {}
    place = next((titles[id] for id in ids if id in titles and id in link.split("/")), "")
    if finding is None or not finding.author:
        return Source(link=link, place=place)
    author = sender(finding.author)
    place = place or (phrase("source.mail") if "@" in author.address else "")
    cited = [int(at) / 1e6 for at in MESSAGE.findall(" ".join(finding.links))]
    until = iso(datetime.fromtimestamp(max(cited), UTC)) if cited and finding.at else ""
    return Source("", link, place, author.name, finding.at or "", until)


def _handle_and_statement(query: str) -> tuple[str, str]:
    handle, _, sql = query.partition(": ")
    return (handle, sql) if handle.startswith("data:") else ("", query)


def _statement_title(handle: str, sql: str) -> str:
    """Return the description of the rows in a statement's comment, else the tables it reads."""
    from scopes.databases.statement import tables_of  # loads sqlglot

    name = handle.partition(":")[2]
    if comment := LEADING_COMMENT.match(sql):
        return phrase("source.database_of", name=name, tables=comment[1])
    if tables := tables_of(sql):
        return phrase("source.database_of", name=name, tables=current().list(tables))
    return phrase("source.database", name=name)
