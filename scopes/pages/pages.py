"""Read pages of the web: ask robots.txt, fetch, extract the text, and cache it for a while."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urldefrag, urlsplit

from protego import Protego

from scopes.pages.fetcher import AGENT, Fetcher, FetchReach, NotFetched
from scopes.pages.text import PageReader, PageText, PageUnreadable, kind_of

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


MEGABYTE = 1_000_000
MAX_KEPT = 50
"""Pages; the longest take 20 million characters together."""
MAX_CHARS = 400_000
"""Characters of one page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read."""

    url: str
    """Where its redirections ended."""
    content: PageText
    cut: bool
    """Its end was left out."""


class Pages:
    """Reads public pages; one for a process. Nothing else is kept, so nobody's privacy is."""

    def __init__(
        self,
        timeout_s: float = 10.0,
        max_mb: float = 2.0,
        cache_s: float = 900.0,
        reach: FetchReach | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = Fetcher(timeout_s, reach)
        self._robots = Robots(self._fetcher, clock)
        self._reader = PageReader(MAX_CHARS)
        self._max_bytes, self._cache_s, self._clock = round(max_mb * MEGABYTE), cache_s, clock
        self._timeout_s = timeout_s
        self._kept: OrderedDict[str, tuple[float, Page]] = OrderedDict()

    async def read(self, url: str) -> Page:
        """Return the page at an address.

        Raises NotFetched and PageUnreadable, each with a sentence.
        """
        url = urldefrag(url).url
        until, page = self._kept.get(url, (0.0, None))
        if page is None or self._clock() >= until:
            page = await self._fresh(url)
        return page

    async def aclose(self) -> None:
        await self._reader.aclose()
        await self._fetcher.aclose()

    async def _fresh(self, url: str) -> Page:
        self._reader.warm()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._robots.check(url)
                found = await self._fetcher.get(url, self._max_bytes)
        except TimeoutError:
            raise NotFetched(f"It gave no answer within {self._timeout_s:g} s.") from None
        if found.status != 200:
            raise NotFetched(f"Its host answers with status {found.status}.")
        if found.url != url:
            await self._robots.check(found.url)
        kind = kind_of(found.type, found.body)
        if kind == "pdf" and found.cut:
            raise PageUnreadable(f"It is larger than {self._max_bytes / MEGABYTE:g} MB.")
        content = await self._reader.read(kind, found.url, found.charset, found.body)
        if not content.text.strip():
            raise PageUnreadable("It holds no text: it may be made of pictures, or by scripts.")
        page = Page(found.url, content, found.cut or len(content.text) >= MAX_CHARS)
        self._kept[url] = self._clock() + self._cache_s, page
        self._kept.move_to_end(url)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return page
