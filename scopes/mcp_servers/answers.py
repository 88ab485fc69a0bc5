"""Turn the answers of an MCP server into values of ours."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import mcp_types as types
from mcp.shared.exceptions import MCPError

MAX_SCHEMA = 50_000
"""Characters that are kept of a description, and of a schema."""
MAX_NAME = 128
CLOSED = "Connection closed"
"""What the SDK itself says where it is; a server may use the same code for what it likes."""


class NoToken(OSError):
    """The file with the token for a server cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any] | None
    """None = too large to be kept."""
    digest: str
    """Of all that it says of the tool, its hints, too: nobody believes those, but they must not
    change unseen."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The result of a call."""

    texts: tuple[str, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Kind -> how many pieces of it are no text: images, sound, links."""
    failed: bool = False


def is_name(name: str) -> bool:
    """Return whether a tool may be called so.

    The protocol allows 128 letters, digits and few signs.
    """
    return 0 < len(name) <= MAX_NAME and name.isprintable()


def offer_of(tool: types.Tool) -> Offer:
    hints = tool.annotations.model_dump(exclude_none=True) if tool.annotations else {}
    description, schema = tool.description or "", json.dumps(tool.input_schema, sort_keys=True)
    told = json.dumps([tool.name, description, schema, hints], sort_keys=True)
    kept = tool.input_schema if len(schema) <= MAX_SCHEMA else None
    digest = hashlib.sha256(told.encode()).hexdigest()
    return Offer(tool.name, description[:MAX_SCHEMA], kept, digest)


def answer_of(found: types.CallToolResult) -> ServerAnswer:
    texts, left_out = list[str](), Counter[str]()
    for piece in found.content:
        if isinstance(piece, types.TextContent):
            texts.append(piece.text)
        elif isinstance(piece, types.EmbeddedResource) and isinstance(
            piece.resource, types.TextResourceContents
        ):
            texts.append(piece.resource.text)
        else:
            left_out[piece.type.replace("_", " ")] += 1
    if not texts and found.structured_content is not None:
        texts.append(json.dumps(found.structured_content, ensure_ascii=False))
    return ServerAnswer(tuple(texts), left_out, bool(found.is_error))


def why(error: BaseException) -> str:
    """Return why a server cannot be used, in words of ours: its own are not to be trusted."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case NoToken():
            return f"cannot be asked: its token_file {error}"
        case FileNotFoundError() | PermissionError():
            return f"cannot be started: {error.strerror}: {error.filename}"
        case TimeoutError():
            return "does not answer in time"
        case httpx2.ConnectError():
            return "cannot be reached"
        case httpx2.HTTPStatusError():
            return f"refuses us (HTTP {error.response.status_code})"
        case MCPError() if error.code == types.CONNECTION_CLOSED and error.message == CLOSED:
            return "ended before it answered"
        case MCPError():
            return f"refuses us (error {error.code})"
    return f"cannot be spoken with ({type(error).__name__})"
