"""Stand-ins of Amazon Bedrock and Google Vertex, in front of the strict Messages API.

Each checks the credentials as the real service does, refuses what the service refuses, and answers
in its own form: Bedrock streams AWS's event-stream encoding, Vertex server-sent events.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx2
from google.auth import jwt
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from standins.model import ModelServer

Json = dict[str, Any]

ACCESS_KEY, SECRET_KEY, BEARER = "AKIATEST", "secret-of-test", "bedrock-api-key"
REGION = "eu-central-1"
AWS_KINDS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w+)/\d+/([\w-]+)/bedrock/aws4_request, "
    r"SignedHeaders=[\w;-]+, Signature=[0-9a-f]{64}"
)


class UnwantedRequest(Exception):
    """A request that the service refuses, with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Cloud:
    """A provider in front of `model`; `refusals` are the statuses of its first answers."""

    model: ModelServer
    refusals: list[int] = field(default_factory=list)
    broken_streams: list[str] = field(default_factory=list)
    """Exceptions that end the first streams, in the middle."""
    sent: list[Json] = field(default_factory=list)
    """Bodies as they came, without the fields that are in the path."""
    paths: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self.answer(request, await request.body())
        except UnwantedRequest as error:
            response = self.refusal(error.status, str(error))
        await response(scope, receive, send)

    async def answer(self, request: Request, raw: bytes) -> Response:
        raise NotImplementedError

    def refusal(self, status: int, message: str) -> Response:
        raise NotImplementedError

    async def ask(self, body: Json, name: str, streams: bool) -> tuple[int, bytes]:
        """Return what the Messages API answers to the request of a client of the service."""
        self.sent.append(body)
        if self.refusals:
            raise UnwantedRequest(self.refusals.pop(0), "not now")
        if body.get("anthropic_version") is None:
            raise UnwantedRequest(400, "anthropic_version: Field required")
        if "cache_control" in body:
            raise UnwantedRequest(400, "cache_control: Extra inputs are not permitted")
        inner = {k: v for k, v in body.items() if k != "anthropic_version"}
        return await call_model(self.model, inner | {"model": name, "stream": streams})


class Bedrock(Cloud):
    """`InvokeModel` and `InvokeModelWithResponseStream` of bedrock-runtime."""

    async def answer(self, request: Request, raw: bytes) -> Response:
        check_key(request)
        path = unquote(request.url.path.removeprefix(request.scope.get("root_path", "")))
        self.paths.append(path)
        found = re.fullmatch(r"/model/(?:\w+\.)?anthropic\.([\w.:-]+)/(invoke[\w-]*)", path)
        if found is None:
            raise UnwantedRequest(400, "The provided model identifier is invalid.")
        body = json.loads(raw)
        if body.keys() & {"model", "stream"}:
            raise UnwantedRequest(400, "model and stream belong into the address")
        streams = found[2] == "invoke-with-response-stream"
        status, answered = await self.ask(body, found[1], streams)
        if status != 200:
            raise UnwantedRequest(status, json.loads(answered)["error"]["message"])
        if not streams:
            return Response(answered, media_type="application/json")
        return StreamingResponse(
            self._frames(answered), media_type="application/vnd.amazon.eventstream"
        )

    async def _frames(self, answered: bytes) -> Any:
        events = [line[6:] for line in answered.splitlines() if line.startswith(b"data: ")]
        broken = self.broken_streams.pop(0) if self.broken_streams else ""
        for event in events[:3] if broken else events:
            chunk = json.dumps({"bytes": base64.b64encode(event).decode()}).encode()
            yield frame({":event-type": "chunk", ":message-type": "event"}, chunk)
        if broken:
            kind = {":exception-type": broken, ":message-type": "exception"}
            yield frame(kind, b'{"message":"the stream ended"}')

    def refusal(self, status: int, message: str) -> Response:
        kind = {"x-amzn-errortype": AWS_KINDS.get(status, "InternalServerException")}
        return JSONResponse({"message": message}, status, kind)


class Vertex(Cloud):
    """`rawPredict` and `streamRawPredict` of aiplatform, and the tokens for them."""

    public_key: bytes = b""
    project: str = "acme"

    async def answer(self, request: Request, raw: bytes) -> Response:
        path = unquote(request.url.path.removeprefix(request.scope.get("root_path", "")))
        if path == "/token":
            claims = (await request.form())["assertion"]
            jwt.decode(str(claims), certs=self.public_key)  # type: ignore[no-untyped-call]
            return JSONResponse({"access_token": "ya29.test", "expires_in": 3600})
        if request.headers.get("authorization") != "Bearer ya29.test":
            raise UnwantedRequest(401, "Request had invalid authentication credentials.")
        self.paths.append(path)
        found = re.fullmatch(
            rf"/projects/{self.project}/locations/[\w-]+/publishers/anthropic/models/"
            r"([\w.-]+?)(?:@\d+)?:(rawPredict|streamRawPredict)",
            path,
        )
        if found is None:
            raise UnwantedRequest(
                404, "Publisher Model was not found or your project has no access."
            )
        body = json.loads(raw)
        streams = body.pop("stream", False)
        if "model" in body or streams != (found[2] == "streamRawPredict"):
            raise UnwantedRequest(400, "the address and the body disagree")
        status, answered = await self.ask(body, found[1], streams)
        if status != 200:
            raise UnwantedRequest(status, json.loads(answered)["error"]["message"])
        kind = "text/event-stream" if streams else "application/json"
        return Response(answered, media_type=kind)

    def refusal(self, status: int, message: str) -> Response:
        return JSONResponse({"error": {"code": status, "message": message}}, status)


def check_key(request: Request) -> None:
    """Refuse a request that has neither the API key nor a signature with our access key."""
    header = request.headers.get("authorization", "")
    found = _SIGNED.fullmatch(header)
    if header != f"Bearer {BEARER}" and not (found and found.groups() == (ACCESS_KEY, REGION)):
        raise UnwantedRequest(403, "The security token included in the request is invalid.")


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Encode one message of AWS's event stream: lengths, checksum, headers, payload, checksum."""
    names = b"".join(_header(*each) for each in headers.items())
    prelude = struct.pack("!II", len(names) + len(payload) + 16, len(names))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + names + payload
    return message + struct.pack("!I", zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    sizes = struct.pack("!BH", 7, len(value))  # 7 = a text
    return bytes([len(name)]) + name.encode() + sizes + value.encode()


async def call_model(model: ModelServer, body: Json) -> tuple[int, bytes]:
    """Ask the Messages API inside this process; return status and body."""
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    inside = httpx2.ASGITransport(model.app)
    async with httpx2.AsyncClient(transport=inside, base_url="http://model") as client:
        answer = await client.post("/v1/messages", json=body, headers=headers)
    return answer.status_code, answer.content
