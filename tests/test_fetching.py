"""Pages are fetched only from public addresses, despite hostile names, redirects and bodies."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import web_kit
from standins.web import LocalWeb, Page
from timing import WAIT_S, cpu_limit
from web_kit import Names

from bot.local.server import listen
from scopes.pages.fetcher import AGENT, Fetcher, NotFetched, look_up
from scopes.pages.hosts import is_plain
from scopes.pages.pages import KEPT_S, Robots

MB = 1_000_000
START = Page(b"<p>Welcome to the handbook</p>")


@asynccontextmanager
async def fetcher(
    pages: dict[str, Page], timeout_s: float = 5.0
) -> AsyncIterator[tuple[Fetcher, LocalWeb, Names]]:
    with web_kit.small_web(pages) as (web, names, _):
        fetch = Fetcher(timeout_s, names.reach)
        try:
            yield fetch, web, names
        finally:
            await fetch.aclose()


async def fetch_error(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(NotFetched) as caught:
        await fetcher.get(url, MB)
    return str(caught.value)


HOSTS = """
127.0.0.1 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 127.0.0.0x1 127.1 0 127.0.0.1.nip.io
[::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1] [fe80::1%25eth0] \uff11\uff12\uff17.0.0.1
①②⑦.⓪.⓪.① 127。0。0。1 10.0.0.1 100.64.0.1 169.254.169.254/latest/meta-data/
metadata.google.internal metadata.tencentyun.com instance-data.ec2.internal localhost localhost.
localhost.localdomain localhost\u3002localdomain app.localtest.me db.prod.svc printer.local
intranet example.org. a..example -a.example exa%6dple.org user:secret@docs.example.com
docs.example.com@127.0.0.1 docs.example.com\\@127.0.0.1 docs.example.com:22 docs.example.com:8080
"""
FORMS = [
    *(f"http://{host}" for host in HOSTS.split()),
    *("file:///etc/passwd", "ftp://docs.example.com/", "gopher://docs.example.com/"),
    *("data:text/html,hello", "//docs.example.com/", "http://", f"http://{'a' * 64}.example"),
    *("http://docs.example.com/\r\nHost: evil.example.com", f"http://{'a.' * 130}example"),
]


async def test_urls_of_internal_or_invalid_hosts_are_never_requested() -> None:
    async with fetcher({}) as (fetch, web, names):
        for url in FORMS:
            assert not is_plain(url), url
            assert "not read" in await fetch_error(fetch, url), url
        assert web.seen == []
        assert names.asked == []
    for host in ("docs.client.example", "a-b.c1.io", "bücher.example", "xn--p1ai.xn--p1ai"):
        assert is_plain(f"https://{host}/")


async def test_hostname_that_resolves_to_an_internal_address_is_refused() -> None:
    async with fetcher({"docs.example.com/": START}) as (fetch, web, names):
        for inside in ("127.0.0.2", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"):
            names.places["docs.example.com"] = [[inside]]
            assert "internal" in await fetch_error(fetch, "http://docs.example.com/")
        names.places["docs.example.com"] = [["127.0.0.1", "10.0.0.1"]]  # one of two is enough
        assert "internal" in await fetch_error(fetch, "http://docs.example.com/")
        assert web.seen == []


async def test_hostname_is_resolved_once_and_that_address_is_used() -> None:
    async with fetcher({"docs.example.com/": START}) as (fetch, _, names):
        names.places["docs.example.com"] = [["127.0.0.1"], ["127.0.0.2"]]  # it rebinds
        found = await fetch.get("http://docs.example.com/", MB)
        assert (found.status, found.body) == (200, START.body)
        assert names.asked == ["docs.example.com"]
        assert "internal" in await fetch_error(fetch, "http://docs.example.com/")


async def test_dns_rebinding_between_redirects_is_detected() -> None:
    pages = {"docs.example.com/": Page.redirect_to("/next"), "docs.example.com/next": START}
    async with fetcher(pages) as (fetch, web, names):
        names.places["docs.example.com"] = [["127.0.0.1"], ["10.0.0.1"]]
        assert "internal" in await fetch_error(fetch, "http://docs.example.com/")
        assert web.asked == ["docs.example.com/"]


async def test_redirect_to_a_forbidden_address_is_refused() -> None:
    places = [*FORMS[: len(HOSTS.split())], "file:///etc/passwd", "//localhost/"]
    pages = {f"docs.example.com/{n}": Page.redirect_to(to) for n, to in enumerate(places)}
    pages["docs.example.com/out?to=http%3A%2F%2F127.0.0.1"] = Page.redirect_to("http://127.0.0.1/")
    async with fetcher(pages) as (fetch, web, _):
        for path in pages:
            assert "not read" in await fetch_error(fetch, f"http://{path}"), path
        assert web.asked == [*pages]


async def test_page_with_long_headers_is_read() -> None:
    page = Page(START.body, headers={"content-security-policy": "x" * 20_000})
    async with fetcher({"docs.example.com/": page}) as (fetch, _, _):
        assert (await fetch.get("http://docs.example.com/", MB)).body == START.body


async def test_requests_send_no_identifying_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    first = Page(status=302, headers={"location": "/2", "set-cookie": "id=1; Path=/"})
    pages = {"docs.example.com/1": first, "docs.example.com/2": START}
    async with fetcher(pages) as (fetch, web, _):
        await fetch.get("http://docs.example.com/1#secret", MB)
    for headers in web.seen:
        assert headers["user-agent"] == AGENT
        assert not {"cookie", "authorization", "referer", "x-forwarded-for"} & headers.keys()


def encoded_page(body: bytes, encoding: str) -> Page:
    return Page(body, headers={"content-encoding": encoding})


async def test_compressed_pages_are_unpacked_and_bombs_are_not() -> None:
    text = b"<p>" + b"word " * 1000
    bomb = gzip.compress(bytes(200 * MB), 1)
    pages = {
        "a.example.com/gzip": encoded_page(gzip.compress(text), "gzip"),
        "a.example.com/zlib": encoded_page(zlib.compress(text), "Deflate"),
        "a.example.com/bomb": encoded_page(bomb, "gzip"),
        "a.example.com/nested": encoded_page(gzip.compress(bomb), "gzip, gzip"),
        "a.example.com/br": encoded_page(b"\x1b", "br"),
        "a.example.com/broken": encoded_page(b"\x1f\x8b\x08none", "gzip"),
    }
    async with fetcher(pages) as (fetch, _, _):
        for name in ("gzip", "zlib"):
            found = await fetch.get(f"http://a.example.com/{name}", MB)
            assert (found.body, found.cut) == (text, False)
        found = await fetch.get("http://a.example.com/bomb", MB)
        assert (len(found.body), found.cut) == (MB, True)
        for name in ("nested", "br"):
            assert "packed" in await fetch_error(fetch, f"http://a.example.com/{name}")
        assert "could not be fetched" in await fetch_error(fetch, "http://a.example.com/broken")


async def test_endless_response_times_out() -> None:
    """It sends a byte now and then: each read is quick, only the whole takes too long."""
    server, ended = listen(), asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not writer.is_closing() and not reader.at_eof():
            writer.write(b"x")
            await asyncio.sleep(0.05)
        writer.close()
        ended.set()

    dripping = await asyncio.start_server(drip, sock=server)
    fetch = Fetcher(0.5, Names(server.getsockname()[1]).reach)
    try:
        assert "no answer within 0.5 s" in await fetch_error(fetch, "http://slow.example.com/")
        dripping.close()
        assert "no connection" in await fetch_error(fetch, "http://slow.example.com/")
    finally:
        await fetch.aclose()
        await asyncio.wait_for(ended.wait(), WAIT_S)
        await dripping.wait_closed()
    real = Fetcher(2.0)  # it checks what this machine's resolver answers
    assert ("127.0.0.1", 80) in await look_up("localhost", 80)
    assert "not read" in await fetch_error(real, "http://localhost/")
    await real.aclose()


async def check_paths(robots: str, *paths: str) -> list[bool]:
    """Return for each path whether it may be read by these rules."""
    pages = {"a.example.com/robots.txt": Page(robots.encode(), "text/plain")}
    async with fetcher(pages) as (fetch, _, _):
        checker, allowed = Robots(fetch), []
        for path in paths:
            try:
                await checker.check(f"http://a.example.com{path}")
                allowed.append(True)
            except NotFetched:
                allowed.append(False)
    return allowed


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        (f"User-agent: *\n{'Disallow: ' + '/*a' * 300 + 'b$' + chr(10)}" * 500, f"/{'a' * 1900}"),
        ("User-agent: *\n" * 1500 + "Disallow: /no\n" * 1500, "/yes"),
    ],
)
async def test_hostile_robots_rules_are_evaluated_quickly(rules: str, path: str) -> None:
    with cpu_limit(1):
        assert await check_paths(rules, path) == [True]


async def test_robots_txt_is_cached_and_its_failure_denies_access() -> None:
    now = 0.0
    pages = {
        "a.example.com/robots.txt": Page(b"User-agent: *\nDisallow: /no", "text/plain"),
        "b.example.com/robots.txt": Page(status=503),
        "d.example.com/robots.txt": Page.redirect_to("http://127.0.0.1/robots.txt"),
    }
    async with fetcher(pages) as (fetch, web, _):
        robots = Robots(fetch, lambda: now)
        for _ in range(3):
            await robots.check("http://a.example.com/yes")
            with pytest.raises(NotFetched, match=r"robots\.txt"):
                await robots.check("http://a.example.com/no/1")
        assert web.asked == ["a.example.com/robots.txt"]
        now += KEPT_S
        await robots.check("http://a.example.com/yes")
        assert len(web.asked) == 2
        with pytest.raises(NotFetched, match="trouble"):
            await robots.check("http://b.example.com/")
        await robots.check("http://c.example.com/")  # it has none
        with pytest.raises(NotFetched, match="not read"):
            await robots.check("http://d.example.com/")
