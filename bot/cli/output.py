"""Run commands on the stored state, and print documents as JSON or text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from bot.reports.documents import AnswerDocument, AnswerPart, Document, DocumentPart
from bot.reports.text import ask_text, report_text
from bot.storage.database import Database
from bot.storage.encryption import cipher_of
from bot.terminal import dump, errors_reported, printable, say
from config.settings import Settings, load_settings
from scopes.tool import one_line, readable

D = TypeVar("D", bound=DocumentPart)
Work = Callable[[Settings, Database], Awaitable[int]]

NOBODY = "the command line"
"""Name of the person behind a command who gives none."""
NAME_CHARS = 80


def on_database(work: Work, as_json: bool) -> int:
    """Run one command on the stored state; return its exit code."""

    async def go(settings: Settings) -> int:
        cipher = cipher_of(settings)
        opened = await Database.open(settings.data_dir, settings.database_url, cipher)
        async with aclosing(opened) as database:
            return await work(settings, database)

    with errors_reported(as_json):
        return asyncio.run(go(load_settings()))


def name_or_default(by: str | None) -> str:
    """Return the name in `--by` as one short line."""
    return one_line(readable(by or ""))[:NAME_CHARS] or NOBODY


def present(document: D, as_json: bool, text: Callable[[D], str]) -> None:
    if as_json:
        dump(document.to_json())
    else:
        say(text(document))


def result_text(document: Document) -> str:
    """Return a result as it was printed, or as much of it as Slack was sent."""
    if isinstance(document, AnswerDocument):
        return ask_text(document)
    shown = isinstance(document, AnswerPart) and printable(document.lead)
    lead = f"{shown}\n\n" if shown else ""
    return lead + report_text(document, load_settings().triage.categories)
