"""A small web on loopback for the tests of the scope web, and a resolver that leads to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import tool_kit
from standins.web import LocalWeb, Page

from bot.local.server import LocalServer
from scopes.intent import Intent
from scopes.pages.fetcher import FetchReach, SocketAddress
from scopes.tool import ToolContext

LOOPBACK = "127.0.0.1"


@dataclass
class Names:
    """A resolver that leads every name to the small web, except those in `places`."""

    port: int
    places: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    """Host -> its addresses, look-up by look-up; the last ones stay."""
    asked: list[str] = field(default_factory=list)

    async def look_up(self, host: str, port: int) -> Sequence[SocketAddress]:
        self.asked.append(host)
        addresses = self.places.get(host)
        if not addresses:
            return [(LOOPBACK, self.port)]
        current = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        return [(address, self.port) for address in current]

    @property
    def reach(self) -> FetchReach:
        return FetchReach(self.look_up, (LOOPBACK,))


@contextmanager
def small_web(
    pages: Mapping[str, Page], kind: type[LocalWeb] = LocalWeb
) -> Iterator[tuple[LocalWeb, Names, str]]:
    """A web of these pages, a resolver that leads there, and its own address."""
    web = kind(dict(pages))
    with LocalServer(web.app, "web") as server:
        yield web, Names(urlsplit(server.url).port or 0), server.url


def context(clients: Mapping[type, object], **more: Any) -> ToolContext:
    intent = Intent("Read https://docs.example.com/start please")
    defaults = {"requester": None, "intent": intent, **more}
    return tool_kit.context("web", clients, {"web:search": ""}, **defaults)
