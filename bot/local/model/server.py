"""A Messages API on loopback, whose answers come from a function such as the offline model."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.local.model.answer import Answer, message_of, sse, stream_events
from bot.local.model.usage import Json, PromptCache, read_prompt

Responder = Callable[[Json], Answer]
"""Decides the answer to a decoded request, which it must not change."""


class ModelServer:
    """A Messages API; serve its `app` in one event loop."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._cache = PromptCache()
        self.app = Starlette(routes=[Route("/v1/messages", self._messages, methods=["POST"])])

    async def _messages(self, request: Request) -> Response:
        body = await request.json()
        prompt = read_prompt(body)
        usage = self._cache.measure(prompt)
        message = message_of(body, self._responder(body), usage)
        self._cache.keep(prompt)
        if not body.get("stream"):
            return JSONResponse(message)
        events = b"".join(sse(kind, data) for kind, data in stream_events(message))
        return Response(events, media_type="text/event-stream")
