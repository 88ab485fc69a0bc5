"""What a subagent wrote in a copy of its own comes into the project's folder when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from scopes.cleanup import LeftUndone
from scopes.effects import Access, Effect, FolderId
from scopes.file_lock import run_in_thread
from scopes.folders.folders import Folders, ProjectFolder, in_copy
from scopes.tool import ToolContext, ToolError, ToolResult, tool

log = logging.getLogger(__name__)


@tool(Access.WRITE, Effect.BRING, client=Folders)
async def bring_files(ctx: ToolContext, folder: FolderId) -> ToolResult:
    """Bring what this context wrote in its own copy, and has not committed, into the folder."""
    folders = ctx.client(Folders)
    undone = await run_in_thread(_brought, folders, ctx.context, folders.projects[folder])
    return ToolResult(undone={in_copy(folder): undone})


@dataclass(frozen=True, slots=True)
class CopyBack:
    """What the contexts of one run have yet to bring: see `scopes.cleanup.Cleanup`."""

    folders: Folders

    def left(self, context: str) -> Sequence[LeftUndone]:
        copies, projects = self.folders.copies, self.folders.projects.values()
        return [
            LeftUndone(
                bring_files,
                {"folder": each.handle},
                in_copy(each.handle),
                f"{each.title} is as it was, {{}}: changes were left in "
                f"{copies.told(context, each.title)}",
            )
            for each in projects
            if copies.get(context, each.title)
        ]


def _brought(folders: Folders, context: str, project: ProjectFolder) -> str:
    """Return what of a copy did not come into its folder, in words; empty where all did."""
    title, where = project.title, folders.copies.told(context, project.title)
    try:
        left = folders.copies.empty(context, project.handle, title, project.folder)
    except (ToolError, OSError) as error:  # who holds the lock, holds it for all
        log.warning("changes of %s stay in its copy of %s: %s", context, title, error)
        return f"{title} could not be written: changes were left in {where}"
    told = []
    if left.others:
        told.append(
            f"{title} holds these files as others changed them, and a subagent's own changes of "
            f"them were left in {where}: {', '.join(left.others)[:300]}"
        )
    if left.shut:
        told.append(
            f"these files of {title} could not be written, and their changes were left in {where}: "
            f"{', '.join(left.shut)[:300]}"
        )
    return "; ".join(told)
