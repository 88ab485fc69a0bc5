"""From a mind's answer to the API's message and its events: ids, hidden thinking, limits, usage."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot.local.model.cache import InputUsage
from bot.local.model.errors import Json
from bot.local.model.prompt import Prompt, estimate, render

DELTA_CHARS = 80
_BYTES_PER_TOKEN = 3
_WRAPPER_BYTES = 40
"""What a block's JSON needs besides its text."""


@dataclass(frozen=True)
class Answer:
    """What a mind says: text, tool_use and thinking blocks; the server fills in the ids."""

    content: list[Json]
    stop_reason: str | None = None
    """None = `tool_use` when a tool is called, else `end_turn`."""
    stop_sequence: str | None = None
    stop_details: Json | None = None


def message_of(body: Json, answer: Answer, prompt: Prompt, usage: InputUsage) -> Json:
    """The API's message: what the model's settings leave of the answer, signed and counted."""
    answer = _limited(_with_ids(answer), body)
    thinking = sum(len(render(b)) for b in answer.content if b["type"] == "thinking")
    output = max(1, estimate(sum(len(render(block)) for block in answer.content)))
    if answer.stop_reason == "max_tokens":
        output = body["max_tokens"]
    content = _shown(answer.content, body.get("thinking") or {})
    prompt.seal(content)
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": answer.stop_reason or _stop_reason(content),
        "stop_sequence": answer.stop_sequence,
        "stop_details": answer.stop_details,
        "usage": _usage(usage, output, min(output, estimate(thinking))),
    }


def cut_short(content: list[Json], size: int) -> list[Json]:
    """The first `size` bytes of content; a tool call keeps only its first arguments."""
    kept: list[Json] = []
    for block in content:
        length = len(render(block))
        if length > size:
            rest = _shortened(block, size - _WRAPPER_BYTES)
            return [*kept, rest] if rest else kept
        kept.append(block)
        size -= length
    return kept


def stream_events(message: Json) -> Iterator[tuple[str, Json]]:
    """The server-sent events of a message, in the API's order."""
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
    yield "message_delta", {"delta": delta, "usage": _delta_usage(usage)}
    yield "message_stop", {}


def sse(kind: str, data: Json) -> bytes:
    """One server-sent event on the wire."""
    text = json.dumps({"type": kind, **data}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {text}\n\n".encode()


def _with_ids(answer: Answer) -> Answer:
    content = [dict(block) for block in answer.content]
    for block in content:
        if block["type"] == "tool_use":
            block.setdefault("id", f"toolu_{secrets.token_hex(12)}")
            block.setdefault("input", {})
        elif block["type"] == "server_tool_use":
            block.setdefault("id", f"srvtoolu_{secrets.token_hex(12)}")
    return replace(answer, content=content)


def _limited(answer: Answer, body: Json) -> Answer:
    """The answer up to `max_tokens`; no thinking when that is off."""
    content = answer.content
    if (body.get("thinking") or {}).get("type") == "disabled":
        content = [block for block in content if block["type"] != "thinking"]
    size = body["max_tokens"] * _BYTES_PER_TOKEN
    if sum(len(render(block)) for block in content) > size:
        return Answer(cut_short(content, size), "max_tokens")
    return replace(answer, content=content)


def _shortened(block: Json, size: int) -> Json | None:
    if block["type"] == "tool_use":
        names = list(block["input"])
        return {**block, "input": {name: block["input"][name] for name in names[: len(names) // 2]}}
    key = block["type"]
    if key not in ("text", "thinking") or size <= 0:
        return None
    text = block[key].encode()[:size].decode(errors="ignore")
    return {**block, key: text} if text.strip() else None


def _shown(content: list[Json], thinking: Json) -> list[Json]:
    """Thinking is answered without its text unless `display` or `between_tools` asks for it."""
    if thinking.get("display") == "summarized" or thinking.get("type") == "between_tools":
        return content
    return [{**b, "thinking": ""} if b["type"] == "thinking" else b for b in content]


def _stop_reason(content: list[Json]) -> str:
    return "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"


def _usage(spent: InputUsage, output: int, thinking: int) -> Json:
    return {
        "input_tokens": spent.fresh,
        "cache_creation_input_tokens": spent.written,
        "cache_read_input_tokens": spent.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": spent.written,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thinking},
        "service_tier": "standard",
    }


def _delta_usage(usage: Json) -> Json:
    left_out = ("cache_creation", "service_tier")
    return {name: value for name, value in usage.items() if name not in left_out}


def _pieces(block: Json, unfinished: bool) -> tuple[Json, list[Json]]:
    """A block as its start event and its deltas; an unfinished tool call's JSON stays open."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": part} for part in _parts(block["text"])]
        return {**block, "text": ""}, deltas
    if kind == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": part} for part in _parts(block["thinking"])
        ]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind in ("tool_use", "server_tool_use"):
        raw = json.dumps(block["input"], ensure_ascii=False)
        parts = ["", *_parts(raw[:-1] if unfinished else raw)]
        return {**block, "input": {}}, [
            {"type": "input_json_delta", "partial_json": part} for part in parts
        ]
    return block, []


def _parts(text: str) -> list[str]:
    return [text[n : n + DELTA_CHARS] for n in range(0, len(text), DELTA_CHARS)]
