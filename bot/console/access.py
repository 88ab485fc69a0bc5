"""Who may see the console."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers by which a proxy tells that the client is somebody else."""
REFUSAL = (
    "The console answers browsers on its own machine only, by http://127.0.0.1 or localhost.\n"
)


class LoopbackAccess:
    """Admits browsers on this machine.

    The name in the address counts too: a page elsewhere may give its own name the address
    127.0.0.1 (DNS rebinding), and would read the answers.
    """

    async def admit(self, request: Request) -> Response | None:
        client = request.client.host if request.client else ""
        host = _host_of(request.headers.get("host", ""))
        forwarded = any(name in request.headers for name in FORWARDED)
        if _is_loopback(client) and _is_loopback(host) and not forwarded:
            return None
        return PlainTextResponse(REFUSAL, 403)


def _host_of(header: str) -> str:
    """Return the host of a Host header without its port; empty if it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
