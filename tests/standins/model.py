"""The model stand-in of the tests: a strict Messages API, with faults and rate limits.

It refuses what the real API refuses, with the same status and error type.
"""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from bot.local.model import server
from bot.local.model.answer import Answer, message_of, sse, stream_events
from bot.local.model.server import Responder
from bot.local.model.usage import Json, Prompt, as_blocks, read_prompt, render
from standins.model_checks import MAX_CACHE_MARKS, Rules, check_message_request, effort_of
from standins.model_errors import ApiRefusal, error_body, invalid
from standins.model_faults import (
    SILENT_KINDS,
    WIRE_KINDS,
    Fault,
    Faults,
    damage_body,
    damage_stream,
    limit_answer,
    refuse,
    reshape,
)

_FIRST = "-"
_KEY = b"offline stand-in"


def _mac(text: str) -> str:
    return blake2b(text.encode(), key=_KEY, digest_size=8).hexdigest()


class Trail:
    """The conversation so far, to which thinking blocks are bound."""

    def __init__(self, body: Json, effort: str) -> None:
        """Follow a checked request to its end; raise `ApiRefusal` for a thinking block that was not
        issued here, was edited, or comes after something that has changed since."""
        self._model, self._effort = body["model"], effort
        self._between = (body.get("thinking") or {}).get("type") == "between_tools"
        self._sent = blake2b(digest_size=8)
        self._previous = _FIRST
        for part in (*(body.get("tools") or ()), *as_blocks(body.get("system") or [])):
            self._sent.update(render(part))
        role = ""
        for n, message in enumerate(body["messages"]):
            if message["role"] != role:
                role = message["role"]
                self._sent.update(role.encode())
            for k, block in enumerate(as_blocks(message["content"])):
                self._add(block, f"messages.{n}.content.{k}")
        if role != "assistant":
            self._sent.update(b"assistant")

    def seal(self, content: list[Json]) -> None:
        """Sign the thinking blocks of an answer in place."""
        for block in content:
            if block["type"] == "thinking":
                bond = f"{self._model} {self._effort} {self._sent.hexdigest()} {self._previous}"
                signed = f"{bond} {_mac(bond + block['thinking'])}"
                block["signature"] = base64.b64encode(signed.encode()).decode()
                self._previous = _mac(block["signature"])
            else:
                self._sent.update(render(block))

    def _add(self, block: Json, where: str) -> None:
        if block["type"] != "thinking":
            self._sent.update(render(block))
            return
        text, signature = block["thinking"], block["signature"]
        refusal = f"{where}: Invalid `signature` in `thinking` block"
        try:
            bond, _, mac = base64.b64decode(signature, validate=True).decode().rpartition(" ")
        except ValueError:
            bond = mac = ""
        if mac != _mac(bond + text):
            invalid(refusal)
        model, effort, sent, previous = bond.split(" ")
        if model != self._model:
            return  # the API drops blocks that the model cannot read, without an error
        # blocks may be left out from the start of a history, but not from its middle
        if sent != self._sent.hexdigest() or self._previous not in (_FIRST, previous):
            invalid(f"{refusal}. The block is bound to a different conversation.")
        if self._between and effort != self._effort:
            invalid(
                "output_config.effort cannot change mid-conversation when thinking is set to "
                f'"between_tools" (was {effort!r}, now {self._effort!r}).'
            )
        self._previous = _mac(signature)


__all__ = ["Answer", "ModelServer", "Responder"]

RESET = "2026-01-01T00:00:00Z"
MAX_BODY_BYTES = 32 * 1024 * 1024
LIMITS = {
    f"anthropic-ratelimit-{kind}-{field}": value
    for kind in ("requests", "input-tokens", "output-tokens", "tokens")
    for field, value in (("limit", "1000000"), ("remaining", "1000000"), ("reset", RESET))
}
"""The headers of an account with wide limits; test_rate_limits.py has narrow ones."""
VERSIONS = ("2023-01-01", "2023-06-01", "2026-10-21")


class ModelServer(server.ModelServer):
    """A Messages API that refuses what the real one refuses, and fails where a test says so.

    Counts what it saw: `requests`, `in_flight_max`, and the decoded bodies in `recorded` when
    `record` is set. Serve one instance in one event loop.
    """

    def __init__(
        self,
        responder: Responder,
        *,
        latency_s: float = 0.0,
        faults: Faults | None = None,
        record: bool = False,
        api_key: str | None = None,
    ) -> None:
        """`latency_s` passes before each answer; `api_key` None takes any key."""
        self.requests = 0
        self.in_flight_max = 0
        self.recorded: list[Json] = []
        self.answered: list[Json] = []
        """The messages that were sent whole."""
        super().__init__(responder)
        self._in_flight = 0
        self._latency_s = latency_s
        self._faults = faults or Faults(())
        self._record = record
        self._api_key = api_key

    async def _messages(self, request: Request) -> Response:
        self._in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self._in_flight)
        try:
            return await self._answer_or_error(request)
        finally:
            self._in_flight -= 1

    async def _answer_or_error(self, request: Request) -> Response:
        """Return every outcome as an API answer."""
        request_id = f"req_{secrets.token_hex(12)}"
        try:
            body = await self._read(request)
            response = await self._answer(request, body, request_id)
        except ApiRefusal as refused:
            error = error_body(refused.kind, refused.message, request_id)
            response = _json(error, refused.status, refused.headers)
        except ClientDisconnect:
            return Cut()
        response.headers["request-id"] = request_id
        return response

    async def _read(self, request: Request) -> Any:
        raw = await request.body()
        if len(raw) > MAX_BODY_BYTES:
            raise ApiRefusal(413, "request_too_large", "Request exceeds the maximum size")
        _check_headers(request, self._api_key)
        try:
            return from_json(raw, allow_inf_nan=False)
        except ValueError as error:
            invalid(f"The request body is not valid JSON: {error}")

    async def _answer(self, request: Request, body: Any, request_id: str) -> Response:
        index = self.requests
        self.requests += 1
        if self._record:
            self.recorded.append(body)
        rules = check_message_request(body)
        prompt = _measure_prompt(body, rules)
        trail = Trail(body, effort_of(body, rules))
        usage = self._cache.measure(prompt)
        fault = self._faults.next(index, body)
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        if fault and fault.kind in SILENT_KINDS:
            return await _silence(request, fault)
        if fault:
            refuse(fault)
        answer = self._responder(body) if body["max_tokens"] else Answer([], "max_tokens")
        answer = reshape(fault, answer) if fault else answer
        message = message_of(body, limit_answer(answer, body), usage)
        trail.seal(message["content"])
        self._cache.keep(prompt)
        if not (fault and fault.kind in WIRE_KINDS):
            self.answered.append(message)
        if body.get("stream"):
            return _stream_response(message, fault, request_id)
        return _whole(message, fault)


def _check_headers(request: Request, api_key: str | None) -> None:
    headers = request.headers
    scheme, _, token = headers.get("authorization", "").partition(" ")
    key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    if not key:
        raise ApiRefusal(401, "authentication_error", "x-api-key header is required")
    if api_key is not None and not secrets.compare_digest(key.encode(), api_key.encode()):
        raise ApiRefusal(401, "authentication_error", "invalid x-api-key")
    version = headers.get("anthropic-version")
    if version not in VERSIONS:
        invalid(f'anthropic-version: "{version}" is not a valid version')


def _measure_prompt(body: Json, rules: Rules) -> Prompt:
    prompt = read_prompt(body)
    if len(prompt.marks) > MAX_CACHE_MARKS:
        invalid(
            f"A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. "
            f"Found {len(prompt.marks)}."
        )
    if prompt.tokens > rules.context_tokens:
        invalid(f"prompt is too long: {prompt.tokens} tokens > {rules.context_tokens} maximum")
    return prompt


async def _silence(request: Request, fault: Fault) -> Response:
    """Close without an answer: at once, or for `slow` when the time is up or the client leaves."""
    if fault.kind == "slow":
        with suppress(TimeoutError):
            await asyncio.wait_for(request.receive(), fault.seconds)
    return Cut()


def _stream_response(message: Json, fault: Fault | None, request_id: str) -> Response:
    events = [sse(kind, data) for kind, data in stream_events(message)]
    if fault:
        events = damage_stream(fault, events, request_id)
    if fault and fault.kind == "drop_stream":
        return Cut(b"".join(events))
    headers = {**LIMITS, "cache-control": "no-cache"}
    return StreamingResponse(_each(events), 200, headers, "text/event-stream")


async def _each(events: list[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event


def _whole(message: Json, fault: Fault | None) -> Response:
    if fault is None:
        return _json(message, 200, LIMITS)
    body = _dumps(message)
    sent = damage_body(fault, body)
    if fault.kind == "drop_stream":
        return Cut(sent, len(body))
    return Response(sent, 200, LIMITS, "application/json")


def _json(body: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_dumps(body), status, headers, "application/json")


def _dumps(body: Json) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class Cut(Response):
    """Close the connection: before any byte, or within a body; `length` None = it is streamed."""

    def __init__(self, body: bytes = b"", length: int | None = None) -> None:
        super().__init__(body, 200, LIMITS, "application/json" if length else "text/event-stream")
        if length:
            self.headers["content-length"] = str(length)
        else:
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body, and close."""
        if self.body:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await _close(receive)


async def _close(receive: Receive) -> None:
    """Close uvicorn's connection under the response: ASGI has no message for that."""
    cycle = getattr(receive, "__self__", None)
    if cycle is None:
        raise RuntimeError("cut connections need uvicorn")
    cycle.transport.close()
    while (await receive())["type"] != "http.disconnect":
        pass
