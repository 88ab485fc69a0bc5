"""What a request starts from: which sources it names, and where it asks to write."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import scopes
from bot.requests.asked import Request
from scopes.destinations import PERSON, places_to_write
from scopes.effects import OPEN_MAIL
from scopes.folders.commands import Commands
from scopes.google.gmail import Gmail
from scopes.label import is_conversation
from scopes.notes import Notes
from scopes.slack import OPEN_CHANNELS, OPEN_SEARCH
from scopes.slack_client import Absent
from scopes.slack_items import name_of
from scopes.slack_names import marked_in, named_in, names_any
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.spaces import notes_of
from subagents.fence import new_fence
from subagents.guide import parents_guide
from subagents.result import Finding
from subagents.run import Run

MAX_PEOPLE = 10
"""People that one request may address."""
UNNAMED = "a channel that the request means"
NOT_SEEN = "I see no channel {title} that you may read. If it is private, {invite}"


async def opening(
    run: Run,
    request: Request,
    lists: Mapping[str, str],
    earlier: Sequence[Finding],
    tools: Collection[str] = (),
) -> dict[str, Any]:
    """What a replay cannot make again, as JSON: the delimiter, the prompt, and what is named now.

    `handles` are what may be read, `named` the places that the words ask to write to; `tools` are
    the parent's own.
    """
    reader = run.clients.get(SlackReader)
    assert reader is None or isinstance(reader, SlackReader)
    said = request.said or request.text
    asks = names_any(said) or earlier
    known = await seen_channels(run, reader) if asks and reader else {}
    names = [(c.id, c.name) for c in known.values()]
    cited = [e.partition("/")[0] for f in earlier for e in f.evidence[:1]]
    wanted = {id: f"#{known[id].name}" for id in cited if id in known} | named_in(said, names)
    answers = await asyncio.gather(*(run.gate.may_read(run.requester, id) for id in wanted))
    # The rest is as if it did not exist.
    readable = {id: wanted[id] for id, may in zip(wanted, answers, strict=True) if may}
    named = {id: _title(id, title, known, said) for id, title in readable.items()}
    own = {OPEN_CHANNELS: ""} if reader else {}
    own |= {OPEN_SEARCH: ""} if reader and reader.user_web else {}
    own |= {OPEN_MAIL: ""} if Gmail in run.clients else {}
    own |= await _tooling(run, request)
    people = await _people(reader, said) if reader else {}
    return {
        "fence": request.fence or new_fence(),
        "handles": {**own, **lists, **request.here, **named, **people},
        "system": parents_guide(tools),
        "programs": Commands in run.clients,
        "named": sorted(places_to_write(said, [(i, n) for i, n in names if i in readable])),
        "missing": await _missing(reader, said, {*readable, *request.here})
        if reader and asks
        else [],
    }


async def _missing(reader: SlackReader, said: str, seen: Collection[str]) -> list[str]:
    """Say which channels that the request marks are not seen, alike whether they are hidden or
    absent, and what Slack refuses to tell of memberships for good."""
    unseen = [title for id, title in marked_in(said).items() if id not in seen]
    refusals = reader.members.refusals if reader.members else []
    return [
        NOT_SEEN.format(title=title, invite=await reader.invite()) for title in unseen
    ] + refusals


async def _tooling(run: Run, request: Request) -> dict[str, str]:
    """What of the tools' own sources the requester may read, and the addresses of the request."""
    home = request.intent.home
    shared = Notes in run.clients and is_conversation(home) and not home.startswith("D")
    offered = {**run.handles, **({notes_of(home): "of this conversation"} if shared else {})}
    asked = [run.gate.may_read(run.requester, handle) for handle in offered]
    answers = zip(offered.items(), await asyncio.gather(*asked), strict=True)
    held = {handle: title for (handle, title), may in answers if may}
    reads = "web" in scopes.offering(run.clients)
    return held | (dict.fromkeys(sorted(request.intent.addresses()), "") if reads else {})


async def seen_channels(run: Run, reader: SlackReader) -> dict[str, ChannelInfo]:
    """The channels of the workspace without those that are private and not the requester's.

    They are asked about whatever is named: how long it takes tells nothing of what is hidden.
    """
    channels = await reader.channels()
    private = [c.id for c in channels if c.is_private]
    answers = await asyncio.gather(*(run.gate.may_read(run.requester, id) for id in private))
    hidden = {id for id, may in zip(private, answers, strict=True) if not may}
    return {c.id: c for c in channels if c.id not in hidden}


def _title(id: str, title: str, known: Mapping[str, ChannelInfo], said: str) -> str:
    """A private channel is called as the request calls it: its name tells nothing new then."""
    channel = known.get(id.partition("/")[0])
    private = channel is not None and channel.is_private
    return UNNAMED if private and title.startswith("#") and title[1:] not in said else title


async def _people(reader: SlackReader, said: str) -> dict[str, str]:
    """The people whom the request addresses: something may be sent to them."""
    found = {}
    for user in list(dict.fromkeys(PERSON.findall(said)))[:MAX_PEOPLE]:
        with suppress(Absent):
            found[user] = f"@{name_of(await reader.user(user))}"
    return found
