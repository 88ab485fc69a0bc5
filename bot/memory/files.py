"""The files that a run kept."""

from __future__ import annotations

from collections.abc import Sequence

from bot.reports.documents import AnswerDocument, Document, KeptFile
from scopes.resources import Resource, Resources, space_of_run
from subagents.run import Run


async def kept_files(run: Run) -> Sequence[Resource]:
    """Return the newest version of each file of the run."""
    files: Resources | None = run.clients.get(Resources)  # type: ignore[assignment]
    return await files.listed(space_of_run(run.id)) if files else ()


async def add_files(run: Run, document: Document) -> None:
    """Add the files that the run of an answer kept to its document."""
    if isinstance(document, AnswerDocument) and document.kind == "ask":
        document.files = [
            KeptFile(name=f.name, kind=f.kind, bytes=f.size, version=f.version)
            for f in await kept_files(run)
        ]
