"""What a request names in Slack: `#name`, a mark of a channel, an id, a link to a message."""

from __future__ import annotations

import re
from collections.abc import Iterable

LINK = re.compile(r"/archives/([CGD][A-Z0-9]+)/p(\d{10})(\d{6})")
MARK = re.compile(r"<#([CGD][A-Z0-9]{2,})(?:\|([^>]*))?>")
CHANNEL = re.compile(
    r"<#([CGD][A-Z0-9]{2,})(?:\|[^>]*)?>|(?<![\w&/])#([^\s#<>|,.;:!?()\"']+)|\b(C[A-Z0-9]{8,})\b"
)


class Channels:
    """Channels that a requester can see, found by id or name."""

    def __init__(self, channels: Iterable[tuple[str, str]]) -> None:
        """Of (id, name) pairs."""
        self.names = dict(channels)
        self._exact: dict[str, list[str]] = {}
        self._folded: dict[str, list[str]] = {}
        for id, name in self.names.items():
            self._exact.setdefault(name, []).append(id)
            self._folded.setdefault(name.casefold(), []).append(id)

    def find(self, name: str) -> str:
        """Return the id of the channel so called, else of the only one so called in any case, else
        "".
        """
        found = self._exact.get(name) or self._folded.get(name.casefold(), [])
        return found[0] if len(found) == 1 else ""


def names_any(request: str) -> bool:
    """Return whether a request may name a channel at all, so that they are worth listing."""
    return bool(LINK.search(request) or CHANNEL.search(request))


def named_in(request: str, channels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what a request names (`#name`, a mention, an id, a permalink): id -> title.

    `channels` are (id, name) pairs that the requester can see; anything else names nothing.
    """
    known = Channels(channels)
    links = [g for g in LINK.findall(request) if g[0] in known.names]
    named = [g[0] for g in links]
    for mention, name, bare in CHANNEL.findall(request):
        named.append(mention or bare or known.find(name) or name)
    threads = {f"{channel}/{whole}.{part}": "a linked thread" for channel, whole, part in links}
    return {**{id: f"#{known.names[id]}" for id in named if id in known.names}, **threads}


def marked_in(request: str) -> dict[str, str]:
    """Return the channels that a request marks or links to: id -> title, as the request has it."""
    links = dict.fromkeys((channel for channel, *_ in LINK.findall(request)), "")
    marks = dict(MARK.findall(request))
    found = {**links, **marks}
    return {id: f"#{name}" if name else id for id, name in found.items()}
