"""Fetch pages from public addresses, within limits.

Each hop is resolved once, and the connection goes to exactly the checked addresses: a later change
of the name has no effect. microsoft-antissrf lists the internal networks. Its own session is not
used: it resolves and reads without a time limit, in threads that nobody can stop.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import Message
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urldefrag, urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from scopes.pages.hosts import is_plain, is_public

AGENT: Final = "workspace-assistant"
"""Our name as a client, also in robots.txt."""
MAX_REDIRECTS = 3
MAX_URL = 2000
"""Characters."""
MAX_CONNECTIONS, MAX_PER_HOST = 32, 4
MAX_HEADER = 65_536
"""Bytes of one header of an answer; aiohttp's own limit of 8 KB is too low for some policies."""
HEADERS: Final = {
    "User-Agent": AGENT,
    "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/pdf;q=0.8,"
    "application/json;q=0.8,application/xml;q=0.7",
    "Accept-Encoding": "gzip, deflate",
}
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PACKED, PLAIN = ("gzip", "deflate"), ("", "identity")
"""Content encodings."""
ANY_HEADER = 32 + zlib.MAX_WBITS


SocketAddress = tuple[str, int]
"""Address and port."""
LookUp = Callable[[str, int], Awaitable[Sequence[SocketAddress]]]


class NotFetched(Exception):
    """The page was not fetched; the text is a sentence that says why."""


class BlockedAddress(OSError):
    """The name resolves to an address that is not public."""


THREADS: Final = ThreadPoolExecutor(MAX_CONNECTIONS, "names")
"""Separate threads: a look-up cannot be stopped, and slow ones must not delay anything else."""


async def look_up(host: str, port: int) -> Sequence[SocketAddress]:
    """Return the addresses of a host from the resolver of this machine."""
    loop, ask = asyncio.get_running_loop(), partial(socket.getaddrinfo, type=socket.SOCK_STREAM)
    found = await loop.run_in_executor(THREADS, ask, host, port)
    return [(str(address[0]), int(address[1])) for *_, address in found]


@dataclass(frozen=True, slots=True)
class FetchReach:
    """The addresses to which a connection may lead."""

    look_up: LookUp = look_up
    opened: tuple[str, ...] = ()
    """Internal addresses that are allowed anyway: none outside of tests."""


@cache
def internal() -> tuple[IPv6Network, ...]:
    """Return the networks without public pages; `::/96` is an old form of IPv4."""
    from AntiSSRF import IPAddressRanges  # brings requests: 0.05 s and 5 MB of the bot's start

    return tuple(map(_network, (*IPAddressRanges.recommended_latest, "::/96")))


def _network(text: str) -> IPv6Network:
    address, _, bits = text.partition("/")
    if ":" in address:
        return IPv6Network(text)
    return IPv6Network(f"::ffff:{address}/{96 + int(bits or 32)}")


def is_outside(address: str) -> bool:
    """Return whether it is an address of the public internet; False if it is no address."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv4Address):
        mapped = IPv6Address(f"::ffff:{found}")
    else:
        mapped, found = found, found.ipv4_mapped or found
    inside = any(mapped in network for network in internal())
    return found.is_global and not found.is_multicast and not found.is_reserved and not inside


class GuardedResolver(AbstractResolver):
    """Resolves names for a connection, and passes on only addresses that it may reach."""

    def __init__(self, reach: FetchReach) -> None:
        self._reach = reach

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises Blocked if any address of the host is internal."""
        if not is_public(host):
            raise BlockedAddress("It is no public host.")
        found = await self._reach.look_up(host, port)
        await asyncio.to_thread(internal)  # the first call reads it
        places = list(dict.fromkeys((address.partition("%")[0], p) for address, p in found))
        if not all(is_outside(a) or a in self._reach.opened for a, _ in places):
            raise BlockedAddress("It leads to an internal address.")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=to,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address, to in places
        ]

    async def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class FetchedBytes:
    """The response of an address."""

    url: str
    """Address after redirections."""
    status: int
    type: str
    """Media type in lower case; empty = unknown."""
    charset: str
    body: bytes
    cut: bool
    """True if there was more."""


class Fetcher:
    """Gets public pages; one for a process. It has no cookies, no login and no proxy."""

    def __init__(self, timeout_s: float, reach: FetchReach | None = None) -> None:
        """`timeout_s`: seconds for one address, redirections included."""
        self._timeout_s, self._reach = timeout_s, reach or FetchReach()
        self._opened: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        if self._opened:
            await self._opened.close()

    def _session(self) -> aiohttp.ClientSession:
        """Return the session, created with the first page."""
        if self._opened is None:
            connector = aiohttp.TCPConnector(
                resolver=GuardedResolver(self._reach),
                use_dns_cache=False,
                force_close=True,
                limit=MAX_CONNECTIONS,
                limit_per_host=MAX_PER_HOST,
            )
            self._opened = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_field_size=MAX_HEADER,
                headers=HEADERS,
            )
        return self._opened

    async def get(self, url: str, max_bytes: int) -> FetchedBytes:
        """Return the content of an address, at most so many bytes, unpacked.

        Raises NotFetched for an address that is not allowed, or that does not answer.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url, max_bytes)
        except TimeoutError:
            raise NotFetched(f"It gave no answer within {self._timeout_s:g} s.") from None
        except aiohttp.ClientConnectorError as error:
            why = str(error.os_error) if isinstance(error.os_error, BlockedAddress) else ""
            raise NotFetched(why or "There is no connection to its host.") from error
        except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
            raise NotFetched(f"It could not be fetched ({type(error).__name__}).") from error

    async def _follow(self, url: str, max_bytes: int) -> FetchedBytes:
        for _ in range(MAX_REDIRECTS + 1):
            url = urldefrag(url).url
            async with self._session().get(_parse_url(url), allow_redirects=False) as response:
                target = response.headers.get("Location", "")
                if response.status not in REDIRECTS or not target:
                    return await _read(url, response, max_bytes)
                url = urljoin(url, target)
        raise NotFetched(f"It redirects more than {MAX_REDIRECTS} times.")


def _parse_url(url: str) -> URL:
    """Return the address as the connection parses it, which must be plain in our reading, too."""
    if len(url) > MAX_URL or not is_plain(url):
        raise NotFetched("It leads to an address that is not read.")
    parsed = URL(url, encoded=url.isascii() and url.isprintable())  # letter by letter
    if parsed.user or parsed.port not in (80, 443) or not is_public(parsed.raw_host or ""):
        raise NotFetched("It leads to an address that is not read.")
    return parsed


async def _read(url: str, response: aiohttp.ClientResponse, max_bytes: int) -> FetchedBytes:
    packed = response.headers.get("Content-Encoding", "").strip().lower()
    if packed not in (*PACKED, *PLAIN):
        raise NotFetched("It is packed in a way that is not read.")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            break
    whole = bytes(body)
    if packed in PACKED:  # the beginning is read, even if the end is missing
        unpack = zlib.decompressobj(ANY_HEADER).decompress
        whole = await asyncio.to_thread(unpack, whole, max_bytes + 1)
    header = Message()
    header["Content-Type"] = response.headers.get("Content-Type", "")
    named = header.get_content_type() if response.headers.get("Content-Type") else ""
    charset = header.get_param("charset")
    return FetchedBytes(
        url=url,
        status=response.status,
        type=named,
        charset=charset if isinstance(charset, str) else "",
        body=whole[:max_bytes],
        cut=max(len(body), len(whole)) > max_bytes,
    )
