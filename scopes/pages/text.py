"""The text of what was fetched, by a program that can be ended: see `scopes.pages.worker`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from mimetypes import types_map
from typing import Any, Final

from scopes.programs import started

PAGE_S = 5.0
"""Seconds until the program is ended that reads a page."""
START_S = 25.0
"""Seconds in which it has to begin, which are no time of a page: others may have the processors."""
BEGUN = bytes(4)
"""What it says when it has begun."""
MAX_PAGES = 500
"""Pages after which the program is started anew, so that what leaks in it does not add up."""
MAX_ANSWER = 32_000_000
"""Bytes of what it says of one page."""
AGAIN = "What its beginning says follows once more, as it was read with the rest."
KINDS: Final = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
    "application/json": "text",
    "application/ld+json": "text",
    "application/xml": "text",
    "application/rss+xml": "text",
    "application/atom+xml": "text",
    "application/yaml": "text",
}
"""Media type -> how it is read; all of `text/` but HTML is text."""


class PageUnreadable(Exception):
    """Its text is a sentence that says why."""


@dataclass(frozen=True, slots=True)
class PageText:
    """What a page says."""

    title: str
    date: str
    """The day on which it says that it was published, ISO 8601; empty = it does not say."""
    text: str
    note: str
    """What is to be known of the text, in a sentence; empty = nothing."""
    more: bool = False
    """Whether it is the beginning of a page only."""

    def with_rest(self, whole: PageText) -> PageText:
        """This beginning of a page as it is, and from there on what the whole of it says.

        Where the whole reads differently, it follows from that place on, and the note says so.
        """
        both = enumerate(zip(self.text, whole.text, strict=False))
        same = next((at for at, (a, b) in both if a != b), len(self.text))
        text = f"{self.text}{whole.text[same:]}"
        again = AGAIN if same < min(len(self.text), len(whole.text)) else ""
        note = " ".join(filter(None, (whole.note, again)))
        return replace(self, text=text, note=note, more=False)


def kind_of(media_type: str, body: bytes) -> str:
    """Return how a body is read. Raises Unreadable for a type that is not."""
    if not media_type:
        begins = body[:512].lstrip().lower()
        return "html" if begins.startswith((b"<!doctype html", b"<html", b"<head")) else "text"
    kind = KINDS.get(media_type) or ("text" if media_type.startswith("text/") else "")
    if not kind:
        known = media_type if media_type in types_map.values() else "an unknown one"
        raise PageUnreadable(f"It is of a type that is not read ({known}).")
    if kind == "text" and b"\0" in body[:4096] and not body.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PageUnreadable("It says that it is text and is none.")
    return kind


class PageReader:
    """Reads pages one after another; the program is started with the first."""

    def __init__(self, max_chars: int, seconds: float = PAGE_S) -> None:
        self._max_chars, self._seconds = max_chars, seconds
        self._lock = asyncio.Lock()
        self._program: asyncio.subprocess.Process | None = None
        self._begun = False
        self._pages = 0

    async def warm(self) -> None:
        """Start the program ahead of its first page."""
        if not self._lock.locked():
            async with self._lock:
                await self._started()

    async def read(
        self, kind: str, url: str, charset: str, body: bytes, start: int = 0
    ) -> PageText:
        """Return the text of a page, or its beginning of about `start` bytes. Raises Unreadable."""
        asked = {"kind": kind, "url": url, "charset": charset, "start": start}
        asked["max_chars"] = self._max_chars
        async with self._lock:
            try:
                async with asyncio.timeout(self._seconds) as limit:
                    found = await self._answered(json.dumps(asked).encode() + b"\n" + body, limit)
            except (TimeoutError, EOFError, OSError):
                await self._end()
                raise PageUnreadable("It takes too much to read it.") from None
            except asyncio.CancelledError:
                await self._end()  # its answer would be taken for that of the next page
                raise
        if "error" in found:
            how = "needs a password" if found["error"] == "encrypted" else "is damaged"
            raise PageUnreadable(f"It {how}.")
        return PageText(
            title=found["title"],
            date=found["date"],
            text=found["text"][: self._max_chars],
            note=found["note"],
            more=found["more"],
        )

    async def aclose(self) -> None:
        async with self._lock:
            await self._end()

    async def _answered(self, request: bytes, limit: asyncio.Timeout) -> dict[str, Any]:
        """Return what the program says.

        One that had ended before it was asked is replaced, once.
        """
        stood = self._program is not None
        try:
            return await self._ask(request, limit)
        except (EOFError, OSError):
            if not stood:
                raise
            await self._end()
            return await self._ask(request, limit)

    async def _ask(self, request: bytes, limit: asyncio.Timeout) -> dict[str, Any]:
        program = await self._started()
        assert program.stdin
        assert program.stdout
        if not self._begun:
            await self._begins(program.stdout, limit)
        self._pages += 1
        program.stdin.write(len(request).to_bytes(4, "big") + request)
        await program.stdin.drain()
        size = int.from_bytes(await program.stdout.readexactly(4), "big")
        if size > MAX_ANSWER:
            raise EOFError
        found = json.loads(await program.stdout.readexactly(size))
        assert isinstance(found, dict)
        return found

    async def _begins(self, said: asyncio.StreamReader, limit: asyncio.Timeout) -> None:
        """Wait until the program has begun; the limit of the page stands still meanwhile."""
        clock, until = asyncio.get_running_loop().time, limit.when()
        assert until
        left = until - clock()
        limit.reschedule(clock() + START_S)
        await said.readexactly(len(BEGUN))
        self._begun = True
        limit.reschedule(clock() + left)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._program and self._pages >= MAX_PAGES:
            await self._end()
        if self._program is None:
            self._begun, self._pages = False, 0
            self._program = await started("scopes.pages.worker")
        return self._program

    async def _end(self) -> None:
        program, self._program = self._program, None
        if program and program.returncode is None:
            program.kill()
            await program.wait()
