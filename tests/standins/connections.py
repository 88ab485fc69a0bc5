"""Connections of a local server that break as those of a network do."""

import asyncio
from typing import Any

from starlette.types import Scope

from bot.local.server import CONNECTIONS


async def drop_connection(scope: Scope) -> None:
    """Reset the TCP connection of a request that a LocalServer serves, as a broken network does.

    Whatever the app sends afterwards goes nowhere.
    """
    sever_connection(scope)
    await asyncio.sleep(0)  # lets the loss be noticed


def sever_connection(scope: Scope) -> None:
    """The same at once, from a function; the loss is noticed later."""
    for connection in _connections(scope):
        connection.transport.abort()


def mute_connection(scope: Scope) -> None:
    """Read nothing more from a websocket and ping it no more, as behind a dead network.

    What the app sends still arrives: the app has to keep silent itself.
    """
    for connection in _connections(scope):
        connection.stop_keepalive()
        connection.transport.pause_reading()


def _connections(scope: Scope) -> list[Any]:
    connections = scope["extensions"][CONNECTIONS]()
    return [each for each in connections if each.client == scope["client"]]
