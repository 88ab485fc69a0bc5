"""Scripted faults of the stand-in: which request fails, and how it looks on the wire."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from bot.local.model.answer import Answer, sse
from bot.local.model.usage import render
from standins.model_errors import ApiRefusal, Json, error_body

STATUS_KINDS = {
    "http_429": (429, "rate_limit_error", "This request would exceed your rate limit."),
    "http_529": (529, "overloaded_error", "Overloaded"),
    "http_500": (500, "api_error", "Internal server error"),
}
"""Refused before the model is asked."""
SILENT_KINDS = ("drop", "slow")
"""No byte is answered."""
WIRE_KINDS = ("sse_error", "drop_stream", "malformed", "no_start")
"""The answer is damaged on its way; without streaming, its JSON body is."""
_BYTES_PER_TOKEN = 3
_WRAPPER_BYTES = 40
"""What a block's JSON needs besides its text."""
ANSWER_KINDS = ("empty", "max_tokens", "refusal", "pause_turn", "context_window")
"""The answer is valid on the wire, but not what was requested."""
KINDS = (*STATUS_KINDS, *SILENT_KINDS, *WIRE_KINDS, *ANSWER_KINDS)


@dataclass(frozen=True)
class Fault:
    """One way to fail, one of `KINDS`."""

    kind: str
    retry_after: float | None = None
    """Seconds in the `retry-after` header of `http_429` and `http_529`; None sends none."""
    seconds: float = 600.0
    """How long `slow` stays silent before it closes the connection."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; one of {', '.join(KINDS)}")


Choice = Fault | str | None
Chooser = Callable[[int, Json], Choice]


class Faults:
    """Decides for each well-formed message request whether, and how, it fails."""

    def __init__(self, plan: Iterable[Choice] | Chooser) -> None:
        """`plan` gives the fault of one request after another (None, or its end: it succeeds), or
        is a function of the request's index and body."""
        if callable(plan):
            self._choose = plan
        else:
            steps = iter(plan)
            self._choose = lambda index, body: next(steps, None)

    def next(self, index: int, body: Json) -> Fault | None:
        """The fault of this request; None lets it pass."""
        choice = self._choose(index, body)
        return Fault(choice) if isinstance(choice, str) else choice


def refuse(fault: Fault) -> None:
    """Raise the refusal that an `http_*` fault stands for; other kinds pass."""
    if fault.kind in STATUS_KINDS:
        status, kind, message = STATUS_KINDS[fault.kind]
        headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
        raise ApiRefusal(status, kind, message, headers)


def reshape(fault: Fault, answer: Answer) -> Answer:
    """The answer with an `ANSWER_KINDS` fault; other kinds leave it as it is."""
    content = answer.content
    if fault.kind == "empty":
        return Answer([])
    if fault.kind == "max_tokens":
        return Answer(_half(_up_to_call(content)), "max_tokens")
    if fault.kind == "refusal":
        details = {"type": "refusal", "category": "general_harms", "explanation": None}
        return Answer([], "refusal", stop_details=details)
    if fault.kind == "pause_turn":
        search = {"type": "server_tool_use", "name": "web_search", "input": {"query": "more"}}
        return Answer([{"type": "text", "text": "Still looking."}, search], "pause_turn")
    if fault.kind == "context_window":
        return Answer(_half(content), "model_context_window_exceeded")
    return answer


def damage_stream(fault: Fault, events: list[bytes], request_id: str) -> list[bytes]:
    """The events that are sent under a `WIRE_KINDS` fault."""
    middle = len(events) // 2
    if fault.kind == "sse_error":
        error = error_body("overloaded_error", "Overloaded", request_id)
        return [*events[:middle], sse("error", error)]
    if fault.kind == "drop_stream":
        return events[:middle]
    if fault.kind == "malformed":
        n = next(i for i, e in enumerate(events) if i and not e.startswith(b"event: ping"))
        return [*events[:n], events[n].rstrip()[:-2] + b"\n\n", *events[n + 1 :]]
    if fault.kind == "no_start":
        return events[1:]
    return events


def damage_body(fault: Fault, body: bytes) -> bytes:
    """The JSON body that is sent under a `WIRE_KINDS` fault when nothing is streamed."""
    if fault.kind == "sse_error":
        refuse(Fault("http_529"))
    if fault.kind == "drop_stream":
        return body[: len(body) // 2]
    if fault.kind == "malformed":
        return body.replace(b'":', b'";', 3)
    if fault.kind == "no_start":
        return b"{}"
    return body


def cut_short(content: list[Json], size: int) -> list[Json]:
    """The first `size` bytes of content; a tool call keeps only its first arguments."""
    kept: list[Json] = []
    for block in content:
        length = len(render(block))
        if length > size:
            rest = _shorten_block(block, size - _WRAPPER_BYTES)
            return [*kept, rest] if rest else kept
        kept.append(block)
        size -= length
    return kept


def limit_answer(answer: Answer, body: Json) -> Answer:
    """The answer up to `max_tokens`, and of its thinking what the request asks to see."""
    content = answer.content
    if (body.get("thinking") or {}).get("type") == "disabled":
        content = [block for block in content if block["type"] != "thinking"]
    size = body["max_tokens"] * _BYTES_PER_TOKEN
    if sum(len(render(block)) for block in content) > size:
        kept = _hidden(cut_short(content, size), body.get("thinking") or {})
        return Answer(kept, "max_tokens")
    return replace(answer, content=_hidden(content, body.get("thinking") or {}))


def _shorten_block(block: Json, size: int) -> Json | None:
    if block["type"] == "tool_use":
        names = list(block["input"])
        return {**block, "input": {name: block["input"][name] for name in names[: len(names) // 2]}}
    key = block["type"]
    if key not in ("text", "thinking") or size <= 0:
        return None
    text = block[key].encode()[:size].decode(errors="ignore")
    return {**block, key: text} if text.strip() else None


def _hidden(content: list[Json], thinking: Json) -> list[Json]:
    """Thinking is answered without its text unless `display` or `between_tools` asks for it."""
    if thinking.get("display") == "summarized" or thinking.get("type") == "between_tools":
        return content
    return [{**b, "thinking": ""} if b["type"] == "thinking" else b for b in content]


def _up_to_call(content: list[Json]) -> list[Json]:
    """Content up to its first tool call, so that this is what a limit cuts."""
    for n, block in enumerate(content):
        if block["type"] == "tool_use":
            return content[: n + 1]
    return content


def _half(content: list[Json]) -> list[Json]:
    """Content without the second half of its last block."""
    if not content:
        return []
    size = sum(len(render(block)) for block in content)
    return cut_short(content, size - len(render(content[-1])) // 2)
