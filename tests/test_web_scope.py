"""read_url: the text of a page, in parts that can be cited; the tools of the scope web together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import web_kit
from office_kit import word
from process_kit import is_alive
from standins.web import LocalWeb, Page
from tool_kit import done, use
from web_kit import Names

from bot.storage.database import Database
from bot.tooling.web import WebTools
from config.settings import load_settings
from scopes.documents.text import DocumentRefused, DocumentText, ask_reader
from scopes.effects import Handles
from scopes.intent import Intent
from scopes.label import Label
from scopes.pages.pages import Pages
from scopes.programs import WorkerProcess
from scopes.tool import ToolContext, ToolError
from subagents.gate import Deny

URL = "http://docs.example.com/start"
REQUEST = Intent(f"Read {URL} for me")


def html(body: str, head: str = "<title>A start</title>") -> Page:
    return Page(f"<!doctype html><html><head>{head}</head><body>{body}</body></html>".encode())


def article(text: str) -> str:
    return f"<nav><a href='/nav'>Home</a></nav><main><article>{text}</article></main>"


LONG = "".join(
    f"<p>Port {n} is opened by hand on the day before the {n}th.</p>" for n in range(300)
)


@asynccontextmanager
async def web_context(
    pages: dict[str, Page], **settings: Any
) -> AsyncIterator[tuple[ToolContext, LocalWeb, Names]]:
    with web_kit.small_web(pages) as (web, names, _):
        reader = Pages(5.0, reach=names.reach, **settings)
        try:
            yield web_kit.context({Pages: reader}, intent=REQUEST), web, names
        finally:
            await reader.aclose()


def one(page: Page) -> dict[str, Page]:
    return {"docs.example.com/start": page}


async def test_page_is_read_as_text_with_title_date_and_links() -> None:
    head = (
        "<title>Ports &amp; keys</title>"
        "<meta property='article:published_time' content='2026-03-01T10:00:00Z'>"
    )
    text = article(
        "<h1>Ports</h1><p>Ports are opened by hand, as the <a href='/rules#top'>rules of the port"
        "</a> say, and closed at night by whoever is there. See <a href='mailto:a@b.example'>us</a>"
        " or <a href='http://127.0.0.1/admin'>this</a>.</p>"
    )
    async with web_context(one(html(text, head))) as (ctx, _, _):
        found = await done(ctx, "read_url", url=URL)
    (item,) = found.items
    assert (item.id, item.link) == (f"{URL}#1", URL)
    assert "Ports are opened by hand" in item.text
    assert "[rules of the port](http://docs.example.com/rules#top)" in item.text
    assert "Home" not in item.text
    assert item.text.startswith("Ports & keys\n")
    assert found.note == "The page is dated 2026-03-01."
    assert item.label == Label(
        untrusted=True, sources=frozenset({"web:docs.example.com"}), outside=True
    )
    assert dict(found.handles) == {"http://docs.example.com/rules#top": ""}


async def test_addresses_in_a_feed_may_be_read_next() -> None:
    item = "<item><link>https://docs.example.com/{}</link></item>"
    feed = f"<rss><channel>{item.format('new')}{item.format('old?a=1&amp;b=2')}</channel></rss>"
    async with web_context(one(Page(feed.encode(), "application/rss+xml"))) as (ctx, _, _):
        found = await done(ctx, "read_url", url=URL)
    assert [*found.handles] == [
        *("https://docs.example.com/new", "https://docs.example.com/old?a=1&b=2")
    ]


@pytest.mark.parametrize(
    ("page", "text", "note"),
    [
        (Page(word("Ports are opened by hand."), "application/octet-stream"),
         "Ports are opened by hand.", "Word document."),
        (Page("港は手で開く".encode("shift_jis"), "text/plain; charset=shift_jis"),
         "港は手で開く", ""),
        (Page(b"<html>as it is written", "text/plain"), "<html>as it is written", ""),
        (Page(b"<html><p hidden>SECRET</p>Ports", "application/octet-stream"), "Ports",
         "It holds text that a reader would not see, which was left out."),
    ],
)  # fmt: skip
async def test_document_kind_follows_its_content_type_and_content(
    page: Page, text: str, note: str
) -> None:
    async with web_context(one(page)) as (ctx, _, _):
        found = await done(ctx, "read_url", url=URL)
    assert ([item.text for item in found.items], found.note) == ([text], note)


async def test_gate_allows_only_named_or_listed_addresses_to_be_read() -> None:
    page = html(article("<p>See <a href='/next'>the next page of the handbook</a> for more.</p>"))
    pages = {"docs.example.com/start": page, "docs.example.com/next": html(article(LONG))}
    next_url = "http://docs.example.com/next"
    async with web_context(pages) as (ctx, web, _):
        denied = await use(ctx, "read_url", url=next_url)
        assert isinstance(denied, Deny)
        assert denied.rule == "fetch"
        first = await done(ctx, "read_url", url=URL)
        handles = Handles({**ctx.handles.titles, **first.handles})
        listed = web_kit.context(ctx.clients, intent=REQUEST, handles=handles)
        assert (await done(listed, "read_url", url=next_url)).items
        private = Label(True, frozenset({"U0ANA"}))
        ctx = web_kit.context(ctx.clients, intent=REQUEST, handles=handles, label=private)
        denied = await use(ctx, "read_url", url=next_url)
        assert isinstance(denied, Deny)
        assert (await done(ctx, "read_url", url=URL)).items  # the request names it
        for url in ("http://127.0.0.1/", "file:///etc/passwd", "http://docs.example.com:6379/"):
            assert isinstance(await use(ctx, "read_url", url=url), Deny)
        assert web.asked.count("docs.example.com/next") == 1


async def test_hidden_page_text_is_removed_and_noted() -> None:
    hidden = "<p hidden>SECRET</p><!-- SECRET --><script>SECRET</script><template>SECRET</template>"
    page = html(article(f"<p>Ports are opened by hand.</p>{hidden}"))
    async with web_context(one(page)) as (ctx, _, _):
        found = await done(ctx, "read_url", url=URL)
    text = " ".join(item.text for item in found.items)
    assert "Ports are opened by hand" in text
    assert "SECRET" not in text
    assert "would not see" in found.note


LINKS = b"<a href=x>y</a>" * 130_000


HOSTILE = {
    "depth": "<div>" * 100_000 + "x",
    "depth with wrong ends": "<a></b><i></u>" * 140_000,
    "formatting": "<p>" + "".join(f"<font color={n}></p><p>" for n in range(30_000)),
    "adoption": "<b>" * 290 + "<p></b>" * 200_000,
    "tables": "<table>" + "x<!---->" * 100_000,
    "comments": "<!--" * 500_000,
    "numbers": "&#" + "9" * 1_900_000,
    "quotes": "<a b='" * 300_000,
    "elements": "<p>x</p>" * 250_000,
    "attributes": "<div " + " ".join(f"a{n}=1" for n in range(250_000)) + ">x",
    "styles": "".join(f"<p style='color:#{n:06x};margin:{n}px'>x</p>" for n in range(40_000)),
    "declarations": "<p style='" + "a:b;" * 490_000 + "'>x",
    "variables": "<p style='" + "".join(f"--a{n}:1;" for n in range(100_000)) + "'>x",
    "rules": "<style>" + "*{color:red}" * 15_000 + "</style>" + "<p class=x>x</p>" * 50_000,
    "selectors": "<style>"
    + "*~* *~* *{a:b}" * 9_000
    + "</style>"
    + "<p>" * 200
    + "<i></i>" * 40_000,
    "braces": "<style>" + "{" * 1_900_000,
    "brackets": "<style>" + "url(" * 400_000,
    "choices": "<style>" + ":is(" * 400_000,
    "spaces": "<pre>" + " " * 1_900_000 + "x",
    "entities": "&lt" * 600_000,
    "links": LINKS.decode(),
    "unclosed": "<" * 2_000_000,
    "a large sheet": "<style>" + "a{color:red}" * 150_000 + "</style><p>x",
}


async def read(reader: WorkerProcess, kind: str, charset: str, body: bytes) -> DocumentText:
    request = {"type": f"text/{kind}", "url": URL, "charset": charset}
    return await ask_reader(reader, body, max_chars=400_000, **request)


SLOW = {name for name in HOSTILE if name not in ("depth", "adoption", "attributes", "selectors")}


@pytest.mark.parametrize(
    "names", [HOSTILE.keys() - SLOW, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["few", "all"]
)
async def test_hostile_pages_do_not_block_the_reader(names: set[str]) -> None:
    reader = WorkerProcess("scopes.pages.worker", 2.5)
    try:
        for name in names:
            await read(reader, "plain", "", b"warm")
            with suppress(DocumentRefused):
                await read(reader, "html", "utf-8", HOSTILE[name].encode())
            assert (await read(reader, "plain", "", b"the next")).text == "the next"
    finally:
        await reader.aclose()


async def test_run_reads_pages_and_executes_python_with_the_shared_web_tools(
    tmp_path: Path,
) -> None:
    base = load_settings(env={})
    limits = base.web.model_copy(update={"max_mb": 0.001})
    database = await Database.open(tmp_path)
    with web_kit.small_web(one(Page(b"word " * 300, "text/plain"))) as (_, names, _):
        tools = WebTools(base.model_copy(update={"web": limits}), database, None, names.reach)
        try:
            run = await tools.open("r1", "U0ANA")
            ctx = web_kit.context(run.clients, intent=REQUEST, handles=Handles(run.handles))
            found = await done(ctx, "read_url", url=URL)
            assert found.truncated == "The end of the page was not read."
            with pytest.raises(ToolError, match=r"says this\. The end of the page was not read\."):
                await done(ctx, "read_url", url=URL, find="price")
            result = await done(
                ctx, "run_python", code="print(len(data))", data=found.items[0].text
            )
            assert result.items[0].line().endswith("]\n|999")
            pid = tools.pages._reader.pid
            assert pid
        finally:
            await tools.aclose()
            await database.aclose()
        assert not is_alive(pid)
