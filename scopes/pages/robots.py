"""robots.txt: what a host asks of programs that read it (RFC 9309)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

from protego import Protego

from scopes.pages.fetcher import AGENT, Fetcher, NotFetched

MAX_BYTES = 500_000
"""A longer file is read as far as this (RFC 9309, 2.5)."""
KEPT_S, FAILED_S = 24 * 3600.0, 600.0
"""Seconds for which the rules of a host are kept, and the failure to read them."""
MAX_HOSTS = 100


class Robots:
    """The rules of the hosts that were asked lately."""

    def __init__(self, fetcher: Fetcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetcher, self._clock = fetcher, clock
        self._kept: OrderedDict[str, tuple[float, Protego | str]] = OrderedDict()

    async def check(self, url: str) -> None:
        """Raise NotFetched if the host of this address does not allow it, or cannot say."""
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc.lower()}"
        until, rules = self._kept.get(site, (0.0, ""))
        if self._clock() >= until:
            rules = await self._ask(site)
            until = self._clock() + (FAILED_S if isinstance(rules, str) else KEPT_S)
            self._kept[site] = until, rules
            if len(self._kept) > MAX_HOSTS:
                self._kept.popitem(last=False)
        if isinstance(rules, str):
            raise NotFetched(rules)
        if not rules.can_fetch(url, AGENT):
            raise NotFetched("Its host asks programs not to read it (robots.txt).")

    async def _ask(self, site: str) -> Protego | str:
        """Return the rules of a site, or why they cannot be read."""
        try:
            found = await self._fetcher.get(f"{site}/robots.txt", MAX_BYTES)
        except NotFetched as error:
            return str(error)
        if found.status >= 500 or found.status == 429:
            return f"Its host is in trouble (status {found.status} for its robots.txt)."
        text = found.body.decode("utf-8", "replace") if found.status == 200 else ""
        return await asyncio.to_thread(Protego.parse, text.removeprefix("\ufeff"))
