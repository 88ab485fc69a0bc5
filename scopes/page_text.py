"""The text of what was fetched, by a program that can be ended: see `scopes.page_worker`."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from mimetypes import types_map
from pathlib import Path
from typing import Any, Final

import scopes
from scopes.leash import leashed

PAGE_S = 5.0
"""Seconds until the program is ended that reads a page."""
MAX_PAGES = 500
"""Pages after which the program is started anew, so that what leaks in it does not add up."""
MAX_ANSWER = 32_000_000
"""Bytes of what it says of one page."""
ROOT: Final = str(Path(scopes.__file__).parent.parent)
PROGRAM: Final = (
    f"import sys; sys.path.insert(0, {ROOT!r}); from scopes.page_worker import main; main()"
)
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


class Unreadable(Exception):
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


def kind_of(media_type: str, body: bytes) -> str:
    """How a body is read. Raises Unreadable for a type that is not."""
    if not media_type:
        begins = body[:512].lstrip().lower()
        return "html" if begins.startswith((b"<!doctype html", b"<html", b"<head")) else "text"
    kind = KINDS.get(media_type) or ("text" if media_type.startswith("text/") else "")
    if not kind:
        known = media_type if media_type in types_map.values() else "an unknown one"
        raise Unreadable(f"It is of a type that is not read ({known}).")
    if kind == "text" and b"\0" in body[:4096] and not body.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable("It says that it is text and is none.")
    return kind


class PageReader:
    """Reads pages one after another; the program is started with the first."""

    def __init__(self, max_chars: int, seconds: float = PAGE_S) -> None:
        self._max_chars, self._seconds = max_chars, seconds
        self._lock = asyncio.Lock()
        self._program: asyncio.subprocess.Process | None = None
        self._pages = 0

    async def warm(self) -> None:
        """Start the program ahead of its first page."""
        if not self._lock.locked():
            async with self._lock:
                await self._started()

    async def read(self, kind: str, url: str, charset: str, body: bytes) -> PageText:
        """The text of a page. Raises Unreadable."""
        asked = {"kind": kind, "url": url, "charset": charset, "max_chars": self._max_chars}
        async with self._lock:
            try:
                async with asyncio.timeout(self._seconds):
                    found = await self._ask(json.dumps(asked).encode() + b"\n" + body)
            except (TimeoutError, EOFError, OSError):
                await self._end()
                raise Unreadable("It takes too much to read it.") from None
            except asyncio.CancelledError:
                await self._end()  # its answer would be taken for that of the next page
                raise
        if "error" in found:
            how = "needs a password" if found["error"] == "encrypted" else "is damaged"
            raise Unreadable(f"It {how}.")
        return PageText(
            title=found["title"],
            date=found["date"],
            text=found["text"][: self._max_chars],
            note=found["note"],
        )

    async def aclose(self) -> None:
        async with self._lock:
            await self._end()

    async def _ask(self, request: bytes) -> dict[str, Any]:
        program = await self._started()
        assert program.stdin
        assert program.stdout
        self._pages += 1
        program.stdin.write(len(request).to_bytes(4, "big") + request)
        await program.stdin.drain()
        size = int.from_bytes(await program.stdout.readexactly(4), "big")
        if size > MAX_ANSWER:
            raise EOFError
        found = json.loads(await program.stdout.readexactly(size))
        assert isinstance(found, dict)
        return found

    async def _started(self) -> asyncio.subprocess.Process:
        if self._program and self._pages >= MAX_PAGES:
            await self._end()
        if self._program is None:
            self._pages = 0
            self._program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", PROGRAM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                preexec_fn=leashed,
                env={},
            )
        return self._program

    async def _end(self) -> None:
        program, self._program = self._program, None
        if program and program.returncode is None:
            program.kill()
            await program.wait()
