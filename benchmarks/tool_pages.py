"""The time to read a page in addition to fetching it, over a small web on loopback."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from pdf_kit import pdf
from standins.web import Page
from web_kit import small_web

from benchmarks.table import Row
from benchmarks.tool_calls import Caller, over, took
from bot.tooling.provider import OpenedTools
from scopes.documents.text import ask_reader
from scopes.effects import OPEN_WEB
from scopes.pages.fetcher import Fetcher
from scopes.pages.pages import Pages

HOST = "docs.example.com"
SIZE, PAGES = 10_000, 12
"""Of longer pages most of the time is trafilatura's."""
PDF_PAGES, FILES = 20, 3
TIMEOUT_S, MAX_BYTES = 30.0, 2_000_000


def article(chance: random.Random, size: int) -> bytes:
    """Return a page like those of documentation: a fifth of it is style, and code is coloured, so
    that an element has about 70 characters."""
    words = ["".join(chance.choices("aeilmnorstu", k=2 + k % 9)) for k in range(3_000)]

    def text(number: int) -> str:
        return " ".join(chance.choices(words, k=number))

    links = "".join(f'<li><a href="/part/{k}">{text(3)}</a></li>' for k in range(20))
    style = "".join(f".c{k} {{ margin: {k}px; color: #333; }}\n" for k in range(size // 200))
    head = f"<title>{text(4)}</title><style>{style[: size // 5]}</style>"
    parts, held = [f"<nav><ul>{links}</ul></nav><main><h1>{text(4)}</h1>"], len(head)
    while held < size:
        parts.append(f"<h2>{text(3)}</h2>\n<p>{text(60)} <a href='/x/{held}'>{text(2)}</a>.</p>\n")
        parts.append(f"<ul><li>{text(8)}</li><li><code>{text(2)}</code></li></ul>\n")
        code = "".join(f"<span class='c{k}'>{text(1)}</span>({text(2)})\n" for k in range(6))
        parts.append(f"<pre><code>{code}</code></pre>\n")
        held += sum(map(len, parts[-3:]))
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</main></body>".encode()


def document(chance: random.Random, pages: int) -> bytes:
    """Return a PDF of so many pages of text."""
    return pdf(*(_page(chance) for _ in range(pages)))


def _page(chance: random.Random) -> bytes:
    lines = ["".join(chance.choices("aeinrst ", k=80)) for _ in range(40)]
    shown = " ".join(f"({line}) Tj T*" for line in lines)
    return f"BT /F1 10 Tf 14 TL 50 750 Td {shown} ET".encode()


async def _read(
    name: str, caller: Caller, fetcher: Fetcher, pages: Pages, addresses: Sequence[str]
) -> Row:
    """Measure reads, in turns with a fetch of the same page."""
    mine, bare = [], []
    for url in addresses:
        bare.append(await took(partial(fetcher.get, url, MAX_BYTES)))
        await ask_reader(pages._reader, b"warm", max_chars=9)
        mine.append(await took(partial(caller.call, "web", "read_url", url=url)))
    middle, note = over(mine, bare)
    return Row(f"read_url over the fetch: {name}", middle, " ms", 50, note)


def _made() -> dict[str, list[Page]]:
    chance = random.Random(7)
    pages = [Page(article(chance, SIZE)) for _ in range(PAGES)]
    files = [Page(document(chance, PDF_PAGES), "application/pdf") for _ in range(FILES)]
    return {"10 kB": pages, f"PDF of {PDF_PAGES} pages": files}


async def page_rows() -> list[Row]:
    """Measure `read_url` of a page and a PDF, each new, over a bare fetch of it."""
    made = _made()
    at = {_address(n, k): p for n, pages in made.items() for k, p in enumerate(pages)}
    with small_web({**at, f"{HOST}/warm": made["10 kB"][0]}) as (_, names, _):
        pages, fetcher = Pages(TIMEOUT_S, reach=names.reach), Fetcher(TIMEOUT_S, names.reach)
        first = f"http://{HOST}/warm"
        opened = OpenedTools({Pages: pages}, {OPEN_WEB: ""})
        caller = Caller(opened, " ".join([first, *(f"http://{address}" for address in at)]))
        try:
            await caller.call("web", "read_url", url=first)  # it starts the reader
            rows = []
            for name in made:
                mine = [f"http://{_address(name, k)}" for k in range(len(made[name]))]
                rows.append(await _read(name, caller, fetcher, pages, mine))
            return rows
        finally:
            await pages.aclose()
            await fetcher.aclose()


def _address(name: str, number: int) -> str:
    return f"{HOST}/{name.replace(' ', '-')}/{number}"
