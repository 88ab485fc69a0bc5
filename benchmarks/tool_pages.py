"""What reading a page takes beyond fetching it, over a small web on loopback."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

from standins.web import LocalWeb, Page

from benchmarks.table import Row
from benchmarks.tool_calls import Caller, over, took
from bot.local.server import LocalServer
from bot.tooling.provider import OpenedTools
from scopes.documents.text import ask_reader
from scopes.effects import OPEN_WEB
from scopes.pages.fetcher import Fetcher, FetchReach, Place
from scopes.pages.pages import Pages
from scopes.tool import ToolError

HOST = "docs.example.com"
SIZES = {"10 kB": 10_000, "100 kB": 100_000, "1 MB": 1_000_000}
EACH, FEW = 12, 3
"""Pages of a size; fewer of those above 100 kB, and of the PDF."""
PDF_PAGES = 20
SHORT = ("10 kB", f"PDF of {PDF_PAGES} pages")
"""Pages with a bar; of longer ones most of the time is trafilatura's."""
TIMEOUT_S, MAX_BYTES = 30.0, 2_000_000


def article(chance: random.Random, size: int) -> bytes:
    """A page as those of documentation are: a fifth of it is style, and what is code is in
    colours, so that an element comes to about 70 characters."""
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


def pdf(chance: random.Random, pages: int) -> bytes:
    """A PDF of so many pages of text."""
    kids = " ".join(f"{4 + 2 * k} 0 R" for k in range(pages))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for k in range(pages):
        lines = ["".join(chance.choices("aeinrst ", k=80)) for _ in range(40)]
        shown = "BT /F1 10 Tf 14 TL 50 750 Td " + " ".join(f"({n}) Tj T*" for n in lines) + " ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * k} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(shown)} >>\nstream\n{shown}\nendstream")
    out, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{at:010d} 00000 n \n" for at in places)
    count = len(objects) + 1
    ending = f"trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF"
    return f"{out}xref\n0 {count}\n0000000000 65535 f \n{table}{ending}".encode()


@contextmanager
def web(pages: dict[str, Page]) -> Iterator[FetchReach]:
    """A way to these pages, which is the only one there is."""
    with LocalServer(LocalWeb(pages).app, "web") as server:
        port = urlsplit(server.url).port or 0

        async def look_up(host: str, _: int) -> Sequence[Place]:
            return [("127.0.0.1", port)]

        yield FetchReach(look_up, ("127.0.0.1",))


async def _read(
    name: str, caller: Caller, fetcher: Fetcher, pages: Pages, addresses: Sequence[str]
) -> Row:
    """Turn by turn with a fetch of the same page."""
    mine, bare = [], []
    for url in addresses:
        bare.append(await took(partial(fetcher.get, url, MAX_BYTES)))
        await ask_reader(pages._reader, b"warm", max_chars=9)
        try:
            mine.append(await took(partial(caller.call, "web", "read_url", url=url)))
        except ToolError as error:  # where the machine is slow, a large one takes too long
            return Row(f"read_url: {name}", 0, "", None, str(error))
    middle, told = over(mine, bare)
    bar = 50 if name in SHORT else None
    return Row(f"read_url over the fetch: {name}", middle, " ms", bar, told)


def _made() -> dict[str, list[Page]]:
    chance = random.Random(7)
    made = {
        name: [Page(article(chance, size)) for _ in range(EACH if size <= 100_000 else FEW)]
        for name, size in SIZES.items()
    }
    document = [Page(pdf(chance, PDF_PAGES), "application/pdf") for _ in range(FEW)]
    return made | {f"PDF of {PDF_PAGES} pages": document}


async def page_rows() -> list[Row]:
    """`read_url` of pages of several sizes, each new, over a bare fetch of the same page."""
    made = _made()
    at = {_address(n, k): p for n, pages in made.items() for k, p in enumerate(pages)}
    with web({**at, f"{HOST}/warm": made["10 kB"][0]}) as reach:
        pages, fetcher = Pages(TIMEOUT_S, reach=reach), Fetcher(TIMEOUT_S, reach)
        first = f"http://{HOST}/warm"
        opened = OpenedTools({Pages: pages}, {OPEN_WEB: ""})
        caller = Caller(opened, " ".join([first, *(f"http://{address}" for address in at)]))
        try:
            cold = await took(lambda: caller.call("web", "read_url", url=first))
            rows = [Row("read_url: the first page, which starts its reader", cold, " ms")]
            for name in made:
                mine = [f"http://{_address(name, k)}" for k in range(len(made[name]))]
                rows.append(await _read(name, caller, fetcher, pages, mine))
            return rows
        finally:
            await pages.aclose()
            await fetcher.aclose()


def _address(name: str, number: int) -> str:
    return f"{HOST}/{name.replace(' ', '-')}/{number}"
