"""Run commands on the stored state, and print documents as JSON or text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec

from bot.errors import SetupError
from bot.reports.answer import answer_text
from bot.reports.documents import AnswerDocument, AnswerPart, Document
from bot.reports.text import report_text
from bot.runs.store import RunNotFound
from bot.storage.database import Database
from bot.storage.encryption import cipher_of
from bot.terminal import DONE, dump, printable, say, tell
from config.settings import Settings, load_settings
from scopes.tool import one_line, readable

P = ParamSpec("P")

DEFAULT_PERSON = "the command line"
"""Name of the person behind a command without `--by`."""
NAME_CHARS = 80


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The settings, database and output format of a command on the stored state."""

    settings: Settings
    database: Database
    as_json: bool

    def show(self, document: object, *lines: str, empty: str = "") -> None:
        """Print the document if JSON is wanted, else the lines, or `empty` if there are none."""
        if self.as_json:
            dump(document)
        elif lines:
            say("\n".join(lines))
        elif empty:
            tell(empty)


def on_database(
    work: Callable[Concatenate[CommandContext, P], Awaitable[int | None]],
) -> Callable[Concatenate[bool, P], int]:
    """Turn work on the stored state into a command that takes `as_json` and returns its exit code.

    A run that is not found is looked up in the state of `serve --local`.
    """

    @wraps(work)
    def command(as_json: bool, /, *args: P.args, **kwargs: P.kwargs) -> int:
        async def on(settings: Settings, data_dir: Path, url: str | None) -> int:
            opened = await Database.open(data_dir, url, cipher_of(settings))
            async with aclosing(opened) as database:
                context = CommandContext(settings, database, as_json)
                return await work(context, *args, **kwargs) or DONE

        async def go(settings: Settings) -> int:
            _check_team(settings)
            try:
                return await on(settings, settings.data_dir, settings.database_url)
            except RunNotFound:
                if not settings.local_data_dir.exists():
                    raise
                with suppress(RunNotFound):
                    return await on(settings, settings.local_data_dir, None)
                raise

        return asyncio.run(go(load_settings()))

    return command


def _check_team(settings: Settings) -> None:
    """Raise SetupError if it is not clear which stored state is meant, or there is none."""
    if settings.slack.client_id and not settings.team:
        hint = "Name one: assistant --team T0123ABCD ... (its id)."
        raise SetupError("team", "Several workspaces are served here.", hint)
    if settings.team and not settings.slack.client_id:
        hint = "Leave out --team and ASSISTANT_TEAM."
        raise SetupError("team", "Only one workspace is served here.", hint)
    if settings.team and not settings.database_url and not settings.data_dir.exists():
        hint = "`assistant doctor`, without --team, lists the workspaces."
        raise SetupError("team", f"Nothing is stored for workspace {settings.team}.", hint)


def name_or_default(by: str | None) -> str:
    """Return the name in `--by` as one short line."""
    return one_line(readable(by or ""))[:NAME_CHARS] or DEFAULT_PERSON


def result_text(document: Document, *, whole: bool = False) -> str:
    """Return a result as it was printed, or the part of it that was sent to Slack.

    `whole` adds links, statements and how it was made to an answer, and details to a report.
    """
    if isinstance(document, AnswerDocument):
        return answer_text(document, whole=whole)
    text = isinstance(document, AnswerPart) and printable(document.lead)
    lead = f"{text}\n\n" if text else ""
    return lead + report_text(document, load_settings().triage.categories, whole=whole)
