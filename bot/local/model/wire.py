"""Responses that end in ways which Starlette's own do not: event by event, or cut off."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class Events(Response):
    """Server-sent events, each in a write of its own; `cut` closes the connection after them."""

    media_type = "text/event-stream"

    def __init__(self, events: list[bytes], headers: dict[str, str], cut: bool = False) -> None:
        super().__init__(None, 200, headers)
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self._events = events
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        await _start(send, self)
        for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        if self._cut:
            await _close(receive)
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class Cut(Response):
    """Close the connection: before any byte, or within a body of `length` bytes."""

    def __init__(
        self, body: bytes = b"", length: int = 0, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(body, 200, headers, "application/json")
        self.headers["content-length"] = str(length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what there is, and close."""
        if self.body:
            await _start(send, self)
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await _close(receive)


async def _start(send: Send, response: Response) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )


async def _close(receive: Receive) -> None:
    """Close uvicorn's connection under the response: ASGI has no message for that."""
    cycle = getattr(receive, "__self__", None)
    if cycle is None:
        raise RuntimeError("cut connections need uvicorn")
    cycle.transport.close()
    while (await receive())["type"] != "http.disconnect":
        pass
