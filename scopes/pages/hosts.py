"""Names of hosts: public ones are allowed (the connection checks their addresses), and this
machine is reached without a proxy."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

MAX_NAME = 253
NAME = re.compile(r"(?:(?!-)[a-z0-9_-]{1,63}(?<!-)\.)+(?:[a-z]{2,63}|xn--[a-z0-9-]+)")
"""Two labels at least; one that ends in a number is an address (url.spec.whatwg.org, hosts)."""
LOCAL = frozenset(
    "localhost localdomain local internal intranet private corp home lan svc arpa onion".split()
)
"""Last labels that no public name has (RFC 6761, RFC 8375, ICANN on .internal)."""
METADATA = frozenset({"metadata", "instance-data"})
"""First labels of hosts that give a cloud machine its own secrets."""
MIRRORS = re.compile(r"(?:.*\.)?(?:nip\.io|sslip\.io|xip\.io|localtest\.me|lvh\.me|vcap\.me)")
"""Names that resolve to a number in them, or to the local machine."""


LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def is_here(url: str) -> bool:
    """Return whether it leads to this machine, for which no proxy is used."""
    return urlsplit(url).hostname in LOOPBACK_HOSTS


def is_public(host: str) -> bool:
    """Return whether this is the full name of a public host; False in doubt."""
    try:
        plain = host.encode("idna").decode().lower()
    except UnicodeError:
        return False
    if len(plain) > MAX_NAME or not NAME.fullmatch(plain) or MIRRORS.fullmatch(plain):
        return False
    labels = plain.split(".")
    return labels[-1] not in LOCAL and labels[0] not in METADATA


def is_plain(url: str) -> bool:
    """Return whether it is an ordinary public address: no login, no other port, a public host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    named = is_public(parts.hostname or "")
    web = parts.scheme in ("http", "https") and port in (None, 80, 443)
    return bool(web and named and "@" not in parts.netloc and not set(url) & set("\\\r\n\t "))
