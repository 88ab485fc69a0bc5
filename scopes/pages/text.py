"""The text of what was fetched, by a program that can be ended: see `scopes.pages.worker`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from mimetypes import types_map
from typing import Final

from scopes.programs import WorkerDied, WorkerProcess

PAGE_S = 5.0
"""Seconds until the program is ended that reads a page."""
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
    """The text of a page."""

    title: str
    date: str
    """The day on which it says that it was published, ISO 8601; empty = it does not say."""
    text: str
    note: str
    """What is to be known of the text, in a sentence; empty = nothing."""


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
        self._max_chars = max_chars
        self._worker = WorkerProcess("scopes.pages.worker", seconds)

    def warm(self) -> None:
        """Begin to start the program ahead of its first page."""
        self._worker.start()

    async def read(self, kind: str, url: str, charset: str, body: bytes) -> PageText:
        """Return the text of a page. Raises PageUnreadable."""
        asked = {"kind": kind, "url": url, "charset": charset, "max_chars": self._max_chars}
        try:
            found = json.loads(await self._worker.ask(json.dumps(asked).encode() + b"\n" + body))
        except WorkerDied:
            raise PageUnreadable("It takes too much to read it.") from None
        if "error" in found:
            raise PageUnreadable(found["error"])
        return PageText(**found)

    async def aclose(self) -> None:
        await self._worker.aclose()
