"""Break connections of a local server as a network does, and read bodies ahead."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from bot.local.server import CONNECTIONS


async def read_ahead(receive: Receive) -> tuple[bytes, Receive]:
    """Return the body of a request, and a `Receive` that passes it on to an app."""
    body = await Request({"type": "http"}, receive).body()
    return body, replay(body, receive)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `Receive` that gives a body that was read, then what comes after it."""
    again = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive_again() -> Message:
        return next(again, None) or await receive()

    return receive_again


async def drop_connection(scope: Scope) -> None:
    """Reset the TCP connection of a request that a LocalServer serves, as a broken network does.

    What the app sends afterwards is lost.
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
