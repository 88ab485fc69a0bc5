"""The server of the local stand-ins."""

import asyncio
import gc
import socket
from urllib.parse import urlsplit

from starlette.applications import Starlette

from bot.local.server import LocalServer


def connected(port: int) -> list[socket.socket]:
    """As many connections as a server that stops still takes, of three."""
    taken = []
    for _ in range(3):
        try:
            taken.append(socket.create_connection(("127.0.0.1", port), timeout=5))
        except OSError:
            break
    return taken


async def test_no_connection_that_comes_while_it_stops_is_left_open() -> None:
    for _ in range(50):
        with LocalServer(Starlette(), "late") as server:
            port = urlsplit(server.url).port
            assert port
            late = asyncio.create_task(asyncio.to_thread(connected, port))
            await asyncio.sleep(0)
        for each in await late:
            each.close()
    gc.collect()  # a socket that is left open warns as it goes
