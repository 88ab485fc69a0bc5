"""The files of a request: named in its document, and put up where its answer stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.replies import render
from bot.replies.outbox import Outbox
from bot.replies.uploads import TAKEN
from bot.replies.writes import TokenRefused, WriteFailed, taken
from bot.requests.requests import StoredRequest
from bot.runs.runs import Live
from scopes.resources import Resource, Resources, space_of_run
from scopes.tool import ToolContext
from subagents.run import Run, Step

log = logging.getLogger(__name__)

MOST = 5
"""Files of one answer."""
LACKING = "missing_scope"
REASONS = {
    LACKING: "I lack the permission files:write; whoever runs me can install me again with it",
    TAKEN: "Slack has not shown it so far",
}
NOT_TAKEN = "Slack did not take it"
HIDDEN = "not everyone here may read what it rests on"


async def with_files(run: Run, document: dict[str, Any]) -> dict[str, Any]:
    """The document of an answer, which names the files that its run has kept."""
    if document["kind"] != "ask":
        return document
    told = [
        {"name": f.name, "kind": f.kind, "bytes": f.size, "version": f.version}
        for f in await _kept(run)
    ]
    return {**document, "files": told}


async def _kept(run: Run) -> Sequence[Resource]:
    files: Resources | None = run.clients.get(Resources)  # type: ignore[assignment]
    return await files.listed(space_of_run(run.id)) if files else ()


@dataclass(frozen=True, slots=True)
class Attaching:
    """Puts up the files of one request, each once, whatever is killed when."""

    outbox: Outbox
    patience: float
    """Seconds that Slack may be away."""

    async def attach(
        self, live: Live, request: StoredRequest, ctx: ToolContext, done: Mapping[str, Any]
    ) -> None:
        """Put them behind the answer that was written as `done` tells; what cannot be is said."""
        files = await _kept(live.run)
        place, to = _place(request, done)
        if not files or not place:
            return
        trouble = []
        for file in files[:MOST]:
            release = await live.run.gate.release("p1", replace(ctx, label=file.label), to)
            why = HIDDEN if release.obstacles else await self._put(live, place, file)
            trouble += [_told(file, why)] if why else []
        left = len(files) - MOST
        trouble += [f"{left} more: at most {MOST} are put up"] if left > 0 else []
        if trouble:
            await self._say(request, place, trouble)

    async def _put(self, live: Live, place: tuple[str, str], file: Resource) -> str:
        """Upload a file and show it, in a step each; why it is not there, empty where it is."""
        uploads, (channel, thread) = self.outbox.uploads, place
        key = f"{live.run.id}/files/{channel}/{file.name}@{file.version}"

        async def send() -> dict[str, Any]:
            return {"id": await uploads.hand_over(file.name, await _content(live.run, file))}

        async def show() -> dict[str, Any]:
            return {"ts": await uploads.show(channel, thread, sent["id"], file.name)}

        try:
            sent = await live.steps.step(f"{key}/sent", lambda: self._taken(send))
            await live.steps.step(f"{key}/shown", lambda: self._taken(show))
        except WriteFailed as error:  # the answer is whole without it
            log.warning("a file of %s is not put up: %s", live.run.id, error)
            return REASONS.get(error.code, NOT_TAKEN)
        return ""

    async def _taken(self, write: Step) -> dict[str, Any]:
        """What a write returns, made again while Slack is away; not for a lack of rights."""

        async def once() -> dict[str, Any]:
            try:
                return await write()
            except TokenRefused as error:
                if error.code != LACKING:
                    raise
                raise WriteFailed(error.method, error.code) from error

        return await taken(once, self.patience)

    async def _say(
        self, request: StoredRequest, place: tuple[str, str], trouble: Sequence[str]
    ) -> None:
        part = render.sentence(f"Files that are not here: {'; '.join(trouble)}.").parts[0]
        key = f"{request.key}/files"
        try:
            await self.outbox.post(key, *place, part.text, part.blocks, look_first=True)
        except WriteFailed as error:
            log.warning("%s is not told of its files: %s", request.key, error)


def _place(request: StoredRequest, done: Mapping[str, Any]) -> tuple[tuple[str, str] | None, str]:
    """Channel and thread of the answer, and whom it is for where that is one person alone."""
    if not done.get("withheld"):
        return (request.channel, request.thread_ts), ""
    channel, ts = done.get("private") or ("", "")
    return ((channel, ts) if channel else None), request.user


def _told(file: Resource, why: str) -> str:
    """What readers of the thread learn of a file; one that is hidden from some has no name."""
    return f"one has no name here, as {why}" if why == HIDDEN else f"{file.name} ({why})"


async def _content(run: Run, file: Resource) -> bytes:
    files: Resources = run.clients[Resources]  # type: ignore[assignment]
    found = await files.get(file.space, file.name, file.version)
    if found is None:
        raise WriteFailed("upload", "file_is_gone")
    return await asyncio.to_thread(getattr, found, "shown")  # of 5 MB it takes seconds
