"""Read pages of the web: ask robots.txt, fetch, extract the text, and cache it for a while."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from urllib.parse import urldefrag, urlsplit

from protego import Protego

from scopes.cache import Cache, Clock
from scopes.documents.text import DocumentRefused, DocumentText, ask_reader
from scopes.pages.fetcher import AGENT, Fetcher, FetchReach, NotFetched
from scopes.programs import WorkerProcess

MAX_BYTES = 500_000
"""Maximum bytes to read of robots.txt (RFC 9309, 2.5)."""
KEPT_S, FAILED_S = 24 * 3600.0, 600.0
"""Seconds for which the rules of a host, and a failure to read them, are cached."""
MAX_HOSTS = 100


class Robots:
    """The rules of recently read hosts."""

    def __init__(self, fetcher: Fetcher, clock: Clock = time.monotonic) -> None:
        self._fetcher, self._kept = fetcher, Cache(KEPT_S, clock, MAX_HOSTS)

    async def check(self, url: str) -> None:
        """Raise NotFetched if the host of this address forbids it, or its rules are unknown."""
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc.lower()}"
        rules = self._kept.get_fact(site)
        if rules is None:
            rules = await self._ask(site)
            self._kept.put((site,), rules, FAILED_S if isinstance(rules, str) else KEPT_S)
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


PAGE_S = 5.0
"""Seconds until the program that reads a page is ended."""
MEGABYTE = 1_000_000
MAX_KEPT = 50
"""Maximum pages; the longest take 20 million characters together."""
MAX_CHARS = 400_000
"""Characters of one page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read."""

    url: str
    """Address after redirections."""
    content: DocumentText
    cut: bool
    """True if its end was left out."""


class Pages:
    """Reads public pages; one for a process. It caches public text only, so nothing is private."""

    def __init__(
        self,
        timeout_s: float = 10.0,
        max_mb: float = 2.0,
        cache_s: float = 900.0,
        reach: FetchReach | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._fetcher = Fetcher(timeout_s, reach)
        self._robots = Robots(self._fetcher, clock)
        self._reader = WorkerProcess("scopes.pages.worker", PAGE_S)
        self._max_bytes, self._timeout_s = round(max_mb * MEGABYTE), timeout_s
        self._kept = Cache(cache_s, clock, MAX_KEPT)

    async def read(self, url: str) -> Page:
        """Return the page at an address. Raises NotFetched and DocumentRefused."""
        url = urldefrag(url).url
        return await self._kept.get((url,), lambda: self._fresh(url))

    async def aclose(self) -> None:
        await self._kept.aclose()
        await self._reader.aclose()
        await self._fetcher.aclose()

    async def _fresh(self, url: str) -> Page:
        self._reader.start()
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
        options = {"type": found.type, "url": found.url, "charset": found.charset}
        try:
            content = await ask_reader(self._reader, found.body, max_chars=MAX_CHARS, **options)
        except DocumentRefused:
            if found.cut:
                raise DocumentRefused(f"is larger than {self._max_bytes / MEGABYTE:g} MB") from None
            raise
        return Page(found.url, content, found.cut or content.cut)
