"""Serve an ASGI app on loopback from a thread of this process."""

import asyncio
import socket
import threading
from functools import partial
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
GRACE_S = 0.5

CONNECTIONS = "local.connections"
"""Key in a scope's extensions: a function that returns the open connections of the server."""


def listen(port: int = 0) -> socket.socket:
    """Return a listening socket on 127.0.0.1; port 0 takes a free one."""
    # asyncio disables Nagle's delay (40 ms per response) only if the protocol is named
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(2048)
    return listener


class LocalServer:
    """One ASGI app on 127.0.0.1, with HTTP and websockets, in a daemon thread with its own loop.

    Installs no signal handlers and no log configuration, and runs no lifespan events. Use it as a
    context manager, or call `start` and `stop`.
    """

    def __init__(self, app: ASGIApp, name: str, port: int = 0) -> None:
        """Listen on a port of 127.0.0.1; port 0 takes a free one.

        `app` is any ASGI 3 callable; `name` names the thread. Raises OSError if the port is taken.
        """
        self.name = name
        self._app = app
        self._socket = listen(port)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = _Server(
            uvicorn.Config(
                self._call,
                interface="asgi3",
                lifespan="off",
                ws="websockets-sansio",
                ws_per_message_deflate=False,
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                timeout_keep_alive=60,
            )
        )
        run = partial(self._server.run, sockets=[self._socket])
        self._thread = threading.Thread(target=run, name=f"local-{name}", daemon=True)

    def start(self) -> str:
        """Return the URL once the app answers there; raise OSError if it does not start."""
        self._thread.start()
        if not self._server.ready.wait(START_TIMEOUT_S):
            raise OSError(f"The local {self.name} server did not start on {self.url}.")
        return self.url

    def stop(self) -> None:
        """End open requests (after half a second of grace), close the port, join the thread."""
        if self._thread.is_alive():
            self._server.stop()
            self._thread.join(STOP_TIMEOUT_S)
        self._socket.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[CONNECTIONS] = self._server.connections
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._server.should_exit:
                raise


class _Server(uvicorn.Server):
    """uvicorn's server, started and stopped by events instead of polling ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        assert self._stopping
        await self._stopping.wait()
        for connection in self.connections():
            if isinstance(connection, WebSocketsSansIOProtocol):  # its task would never end
                connection.transport.abort()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=GRACE_S)
        if self.server_state.tasks:  # uvicorn would log them with a traceback
            for connection in self.connections():
                connection.transport.abort()
            await asyncio.sleep(0)  # lets the protocols notice the loss
            for task in self.server_state.tasks:
                task.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Skip uvicorn's tenth of a second if all connections are idle and close at once."""
        await self._close_listeners()
        for connection in self.connections():
            connection.shutdown()
        await asyncio.sleep(0)
        if self.connections() or self.server_state.tasks:
            await super().shutdown(sockets)

    async def _close_listeners(self) -> None:
        """Close the listening sockets once every accepted connection has a protocol.

        `Server.close` alone leaves connections accepted in the last round open and unanswered.
        """
        for listener in [each for server in self.servers for each in server.sockets]:
            asyncio.get_running_loop().remove_reader(listener)
        for _ in range(3):  # an accepted connection gets its transport, then its protocol
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()

    def stop(self) -> None:
        """Stop the server. May be called from another thread."""
        self.should_exit = True
        if self._loop and self._stopping:
            self._loop.call_soon_threadsafe(self._stopping.set)

    def connections(self) -> list[Any]:
        """Return uvicorn's open connections, for which it has no public type."""
        return list(self.server_state.connections)
