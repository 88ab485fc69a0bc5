"""Services outside Slack that log their calls.

Their tools exist in the tests only; the gate judges them by what they declare.
`company.py` and `test_real_tools.py` attack the shipped ones.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import scopes
import subagents.brief
from config.prompts import prompt
from scopes.effects import Access, Address, Effect, Said, Statement, Words
from scopes.extraction import visible
from scopes.label import Label
from scopes.tool import Item, Tool, ToolContext, ToolResult, tool

Json = dict[str, Any]

SITE = "https://news.example"
"""The one good site of this web."""


@dataclass(frozen=True)
class Hit:
    """One call that reached a service."""

    did: str
    """As `mail/send`."""
    sent: Mapping[str, Any]


@dataclass
class World:
    """What the services hold, and the calls that reached them."""

    owner: str
    """Whose mailbox, sheets, tables and notes these are."""
    folder: Path
    mails: list[Json] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    """URL -> text."""
    visible: bool = False
    """Whether a page is reduced to what people see of it, as by the shipped tool."""
    found: list[Json] = field(default_factory=list)
    """What each search of the web returns."""
    cells: list[str] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """What the tool server returns."""
    described: str = "Look something up in the tool server."
    """How the tool server describes its tool."""
    log: list[Hit] = field(default_factory=list)

    @property
    def database(self) -> Path:
        return self.folder / "customers.sqlite"

    def ask(self, did: str, **sent: Any) -> Any:
        """Log a call, and return what the service answers."""
        self.log.append(Hit(did, sent))
        page = self.pages.get(str(sent.get("url")), "404")
        answers: dict[str, Any] = {
            "mail/search": self.mails,
            "web/search": self.found,
            "web/page": visible.visible_text(page).text if self.visible else page,
            "sheet/cells": self.cells,
            "notes/list": self.notes,
            "mcp/ask": self.answers,
        }
        return answers.get(did)

    def do(self, did: str, note: str, **sent: Any) -> ToolResult:
        self.ask(did, **sent)
        return ToolResult(note=note)

    def own(self, source: str) -> Label:
        """The label of what only the owner may read."""
        return Label(True, frozenset({self.owner}), frozenset({source}), outside=True)

    def table(self) -> list[tuple[str, str]]:
        """Return the rows of the table; a dropped one has none."""
        with closing(sqlite3.connect(self.database)) as connection, connection:
            try:
                return list(connection.execute("select name, note from customers"))
            except sqlite3.OperationalError:
                return []


@contextmanager
def running_world(world: World) -> Iterator[World]:
    """Put the tools of the services into the table of scopes."""
    with closing(sqlite3.connect(world.database)) as connection, connection:
        connection.execute("create table customers (name text, note text)")
        connection.executemany("insert into customers values (?, ?)", world.rows)
    with pytest.MonkeyPatch.context() as patch:
        for name, make_tools in TOOLS.items():
            module = f"attack_scope_{name}"
            patch.setitem(sys.modules, module, SimpleNamespace(TOOLS=make_tools(world)))
            patch.setitem(scopes.MODULES, name, module)
            patch.delitem(scopes.REQUIRED_CLIENTS, name, raising=False)
        patch.setattr(subagents.brief, "prompt", _prompt)
        _forget()
        try:
            yield world
        finally:
            patch.undo()
            _forget()


def _forget() -> None:
    scopes.scope.cache_clear()
    subagents.brief._template.cache_clear()


def _prompt(name: str) -> str:
    own = name.removeprefix("scope_") in SCOPES and name.startswith("scope_")
    return "Tools of the tests." if own else prompt(name)


def _items(prefix: str, texts: Iterable[str], label: Label) -> ToolResult:
    return ToolResult(tuple(Item(f"{prefix}{n}", t, None, label) for n, t in enumerate(texts)))


def _email(world: World) -> tuple[Tool, ...]:
    @tool()
    async def search_mail(ctx: ToolContext, query: str) -> ToolResult:
        """Find mails in the requester's mailbox."""
        found = world.ask("mail/search", query=query)
        texts = [" | ".join(f"{k}: {v}" for k, v in mail.items()) for mail in found]
        return _items("mail/m", texts, world.own("mail"))

    @tool(Access.WRITE)
    async def draft_reply(ctx: ToolContext, message: str, body: Said) -> ToolResult:
        """Draft a reply to the people of a mail."""
        return world.do("mail/draft", "drafted", message=message, body=body)

    @tool(Access.EGRESS, Effect.SEND)
    async def send_mail(ctx: ToolContext, to: list[str], subject: Said, body: Said) -> ToolResult:
        """Send a mail."""
        return world.do("mail/send", "sent", to=to, subject=subject, body=body)

    async def run_draft(ctx: ToolContext, **arguments: Any) -> ToolResult:
        """Pass all arguments on, as thin clients do: to check them is the gate's work."""
        return world.do("mail/draft", "drafted", **arguments)

    return search_mail, replace(draft_reply, run=run_draft), send_mail


def _web(world: World) -> tuple[Tool, ...]:
    @tool(Access.EGRESS, Effect.SEARCH)
    async def web_search(ctx: ToolContext, query: Words) -> ToolResult:
        """Search the web."""
        found = world.ask("web/search", query=query)
        label = Label(untrusted=True, outside=True)
        items = [Item(f["url"], f["text"], f["url"], label) for f in found]
        return ToolResult(tuple(items), handles={f["url"]: f["text"][:40] for f in found})

    @tool(Access.EGRESS, Effect.FETCH)
    async def read_url(ctx: ToolContext, url: Address) -> ToolResult:
        """Read a page."""
        text = world.ask("web/page", url=url)
        label = Label(untrusted=True, sources=frozenset({url}), outside=True)
        return ToolResult((Item(url, text, url, label),))

    return web_search, read_url


def _data(world: World) -> tuple[Tool, ...]:
    @tool(effect=Effect.QUERY)
    async def run_sql(ctx: ToolContext, statement: Statement) -> ToolResult:
        """Ask the database (table customers: name, note) by one SELECT."""
        with closing(sqlite3.connect(world.database)) as connection, connection:
            rows = connection.execute(statement).fetchall()
        return _items("q/row", map(json.dumps, rows), world.own("customers"))

    @tool()
    async def read_cells(ctx: ToolContext) -> ToolResult:
        """Read the sheet."""
        return _items("sheet/A", world.ask("sheet/cells"), world.own("sheet"))

    @tool(Access.EGRESS, Effect.CHANGE)
    async def append_row(ctx: ToolContext, row: Said) -> ToolResult:
        """Add a row to the sheet."""
        return world.do("sheet/append", "added", row=row)

    return run_sql, read_cells, append_row


def _notes(world: World) -> tuple[Tool, ...]:
    @tool()
    async def read_notes(ctx: ToolContext) -> ToolResult:
        """Read the requester's notes."""
        texts = world.ask("notes/list", user=ctx.requester)
        label = replace(world.own(""), sources=frozenset())  # unnamed sources are private, too
        return _items("note/", texts, label)

    @tool(Access.WRITE)
    async def save_note(ctx: ToolContext, text: Said) -> ToolResult:
        """Keep a note for the requester."""
        return world.do("notes/save", "kept", user=ctx.requester, text=text)

    async def run_save(ctx: ToolContext, **arguments: Any) -> ToolResult:
        return world.do("notes/save", "kept", **{"user": ctx.requester, **arguments})

    return read_notes, replace(save_note, run=run_save)


def _mcp(world: World) -> tuple[Tool, ...]:
    @tool()
    async def mcp_ask(ctx: ToolContext, query: str) -> ToolResult:
        """Replaced by what the server says of it."""
        return _items("mcp/", world.ask("mcp/ask", query=query), world.own("mcp"))

    @tool(Access.EGRESS, Effect.SEND)
    async def mcp_push(ctx: ToolContext, text: Said, to: str = "") -> ToolResult:
        """Hand something to the tool server."""
        return world.do("mcp/push", "pushed", text=text, to=to)

    return replace(mcp_ask, description=world.described), mcp_push


TOOLS = {"email": _email, "web": _web, "data": _data, "notes": _notes, "mcp": _mcp}
"""Scope -> what makes its tools."""
SCOPES = tuple(TOOLS)
