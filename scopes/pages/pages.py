"""Pages of the web as they are read: asked of robots.txt, fetched, made text, and kept a while."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urldefrag
from weakref import WeakSet

from scopes.pages.fetcher import Fetcher, FetchReach, NotFetched
from scopes.pages.robots import Robots
from scopes.pages.text import PageReader, PageText, PageUnreadable, kind_of

MEGABYTE = 1_000_000
MAX_KEPT = 200
MAX_KEPT_CHARS = 10_000_000
MAX_CHARS = 400_000
"""Characters of one page."""
START = 20_000
"""Bytes of text that are read of a long page before its rest: about what one result holds."""
PAUSE_S = 0.5
"""Seconds that the rest of a page waits for other pages' beginnings, unless it is asked for."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read."""

    url: str
    """Where its redirections ended."""
    content: PageText
    cut: bool
    """Its end was left out."""
    rest: Rest | None = None
    """Where the content is its beginning only."""


class Rest:
    """The rest of a long page: read when it is asked for, and soon in any case."""

    def __init__(self, read: Callable[[], Awaitable[Page]]) -> None:
        self._wanted = asyncio.Event()
        self._task = asyncio.create_task(self._soon(read))

    @property
    def failed(self) -> bool:
        """Return whether it was tried in vain; what was fetched is no longer held then."""
        task = self._task
        if not task.done():
            return False
        return task.cancelled() or bool(task.exception()) or isinstance(task.result(), str)

    async def whole(self) -> Page:
        """Return the page with its rest. Raises Unreadable."""
        self._wanted.set()
        found = await asyncio.shield(self._task)
        if isinstance(found, str):
            raise PageUnreadable(found)
        return found

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _soon(self, read: Callable[[], Awaitable[Page]]) -> Page | str:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), PAUSE_S)
        try:
            return await read()
        except PageUnreadable as error:  # which holds the frames it came through, and their page
            return str(error)


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
        self._rests: WeakSet[Rest] = WeakSet()

    async def read(self, url: str, whole: bool = True) -> Page:
        """Return the page at an address.

        Of a long one only its beginning, unless the `whole` is needed.

        Raises NotFetched and Unreadable, each with a sentence.
        """
        url = urldefrag(url).url
        until, page = self._kept.get(url, (0.0, None))
        failed = whole and page and page.rest and page.rest.failed
        if page is None or failed or self._clock() >= until:
            page = await self._fresh(url)
        return await page.rest.whole() if whole and page.rest else page

    async def aclose(self) -> None:
        for rest in list(self._rests):
            await rest.aclose()
        await self._reader.aclose()
        await self._fetcher.aclose()

    async def _fresh(self, url: str) -> Page:
        await self._reader.warm()
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
        read = partial(self._reader.read, kind, found.url, found.charset, found.body)
        content = await read(START)
        if not content.text.strip():
            raise PageUnreadable("It holds no text: it may be made of pictures, or by scripts.")
        page = Page(found.url, content, found.cut or len(content.text) >= MAX_CHARS)
        until = self._clock() + self._cache_s
        if content.more:
            rest = Rest(partial(self._whole, url, until, page, read))
            self._rests.add(rest)
            page = replace(page, rest=rest)
        self._keep(url, until, page)
        return page

    async def _whole(
        self, url: str, until: float, begun: Page, read: Callable[[], Awaitable[PageText]]
    ) -> Page:
        content = begun.content.with_rest(await read())
        page = Page(begun.url, content, begun.cut or len(content.text) >= MAX_CHARS)
        self._keep(url, until, page)
        return page

    def _keep(self, url: str, until: float, page: Page) -> None:
        self._kept[url] = until, page
        self._kept.move_to_end(url)
        while len(self._kept) > MAX_KEPT or self._chars() > MAX_KEPT_CHARS:
            self._kept.popitem(last=False)

    def _chars(self) -> int:
        return sum(len(page.content.text) for _, page in self._kept.values())
