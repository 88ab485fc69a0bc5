"""Mail addresses: how they are told from a name, and how they are hidden where they are stored."""

from __future__ import annotations

import hashlib
import hmac
import re

_ADDRESS = re.compile(r"<([^<>\s]++)>\s*$")


def address_of(sender: str) -> str:
    """The address in `Name <address>`, or the address itself, in lower case."""
    found = _ADDRESS.search(sender)
    named = found[1] if found and "@" in found[1][1:-1] else sender.strip()
    return named.lower()


def hidden(sender: str, key: bytes) -> str:
    """What stands for an address where rows are looked for by it; who lacks the key learns nothing.

    The same for the same address in one database, whatever the name before it.
    """
    return "~" + hmac.new(key, address_of(sender).encode(), hashlib.sha256).hexdigest()[:32]
