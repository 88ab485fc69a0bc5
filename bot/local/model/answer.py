"""Convert a model's answer into a message of the Messages API and its events."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from bot.local.model.usage import InputUsage, Json, estimate, render

DELTA_CHARS = 80


@dataclass(frozen=True)
class Answer:
    """The answer of a model: text, tool_use and thinking blocks; the server adds the ids."""

    content: list[Json]
    stop_reason: str | None = None
    """None = `tool_use` when a tool is called, else `end_turn`."""
    stop_details: Json | None = None


def message_of(body: Json, answer: Answer, usage: InputUsage) -> Json:
    """Return the API's message with its token counts."""
    content = [_with_id(block) for block in answer.content]
    output = max(1, estimate(sum(len(render(block)) for block in content)))
    if answer.stop_reason == "max_tokens":
        output = body["max_tokens"]
    calls = any(block["type"] == "tool_use" for block in content)
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": answer.stop_reason or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "stop_details": answer.stop_details,
        "usage": {
            "input_tokens": usage.fresh,
            "cache_creation_input_tokens": usage.written,
            "cache_read_input_tokens": usage.read,
            "output_tokens": output,
        },
    }


def stream_events(message: Json) -> Iterator[tuple[str, Json]]:
    """Yield the server-sent events of a message, in the API's order."""
    usage = message["usage"]
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    opening["usage"] = {**usage, "output_tokens": min(1, usage["output_tokens"])}
    yield "message_start", {"message": opening}
    if not message["content"]:
        yield "ping", {}
    for index, block in enumerate(message["content"]):
        unfinished = message["stop_reason"] == "max_tokens" and block is message["content"][-1]
        start, deltas = _pieces(block, unfinished)
        yield "content_block_start", {"index": index, "content_block": start}
        if index == 0:
            yield "ping", {}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    delta = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    yield "message_delta", {"delta": delta, "usage": usage}
    yield "message_stop", {}


def sse(kind: str, data: Json) -> bytes:
    """Return one server-sent event on the wire."""
    text = json.dumps({"type": kind, **data}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {text}\n\n".encode()


def _with_id(block: Json) -> Json:
    prefix = {"tool_use": "toolu", "server_tool_use": "srvtoolu"}.get(block["type"])
    given = {"id": f"{prefix}_{secrets.token_hex(12)}", "input": {}} if prefix else {}
    return {**given, **block}


def _pieces(block: Json, unfinished: bool) -> tuple[Json, list[Json]]:
    """Return a block's start event and deltas; the JSON of an unfinished tool call stays open."""
    kind = block["type"]
    if "input" in block:
        raw = json.dumps(block["input"], ensure_ascii=False)
        parts = ["", *_parts(raw[:-1] if unfinished else raw)]
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        return {**block, "input": {}}, deltas
    if kind not in ("text", "thinking"):
        return block, []
    deltas = [{"type": f"{kind}_delta", kind: part} for part in _parts(block[kind])]
    if kind == "text":
        return {**block, "text": ""}, deltas
    deltas.append({"type": "signature_delta", "signature": block["signature"]})
    return {**block, "thinking": "", "signature": ""}, deltas


def _parts(text: str) -> list[str]:
    return [text[n : n + DELTA_CHARS] for n in range(0, len(text), DELTA_CHARS)]
