"""What the Messages API refuses in `messages`: roles, content blocks, and calls without results.

Every check is linear in the size of the request.
"""

import re
from typing import Any

from standins.model_errors import Json, a_list, a_string, an_object, invalid, one_of, only

MAX_CACHE_MARKS = 4
TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")

_MESSAGE_FIELDS = frozenset({"role", "content"})
_ROLES = ("user", "assistant")
_BLOCK_FIELDS = {
    "text": {"text", "cache_control", "citations"},
    "image": {"source", "cache_control", "transformations"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "cache_control", "caller", "toolset_name"},
    "tool_result": {"tool_use_id", "content", "is_error", "cache_control", "toolset_name"},
    "server_tool_use": {"id", "name", "input", "cache_control", "caller"},
}
_BLOCKS = {kind: frozenset(fields | {"type"}) for kind, fields in _BLOCK_FIELDS.items()}
_REQUIRED = {
    "text": ("text",),
    "image": ("source",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "server_tool_use": ("id", "name", "input"),
}
_USER = frozenset({"text", "image", "tool_result"})
_ASSISTANT = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"})
_IN_RESULT = frozenset({"text", "image"})


def check_messages(messages: Any) -> None:
    """Refuse a conversation that the API would not take."""
    messages = a_list(messages, "messages")
    if not messages:
        invalid("messages: at least one message is required")
    turns = _Turns()
    for n, message in enumerate(messages):
        turns.add(n, an_object(message, f"messages.{n}"))
    turns.end()


def check_cache_control(block: Json, where: str) -> None:
    """Refuse a cache marker that is not `{"type": "ephemeral"}`, which is for five minutes."""
    marker = block.get("cache_control")
    if marker is None:
        return
    marker = an_object(marker, f"{where}cache_control")
    only(marker, frozenset({"type"}), f"{where}cache_control.")
    if marker.get("type") != "ephemeral":
        invalid(f"{where}cache_control.type: Input should be 'ephemeral'")


def check_texts(blocks: Any, where: str) -> None:
    """Refuse a list that holds anything but non-empty text blocks."""
    for n, block in enumerate(a_list(blocks, where)):
        kind = _check_block(an_object(block, f"{where}.{n}"), f"{where}.{n}")
        if kind != "text":
            invalid(f"{where}.{n}: Input should be a text block")
        _check_text(block["text"], where)


class _Turns:
    """The conversation so far; consecutive messages of one role are one turn."""

    def __init__(self) -> None:
        self._role = ""
        self._place = ""
        self._used: set[str] = set()
        self._answered: set[str] = set()
        self._open: dict[str, None] = {}
        self._turn: set[str] = set()
        self._last_kind = ""

    def add(self, n: int, message: Json) -> None:
        only(message, _MESSAGE_FIELDS, f"messages.{n}.")
        role = one_of(message.get("role"), _ROLES, f"messages.{n}.role")
        if "content" not in message:
            invalid(f"messages.{n}.content: Field required")
        self._start(n, role)
        content = message["content"]
        if isinstance(content, str):
            self._add_string(n, content)
            return
        blocks = a_list(content, f"messages.{n}.content")
        if not blocks:
            invalid(f"messages.{n}: all messages must have non-empty content")
        for k, value in enumerate(blocks):
            where = f"messages.{n}.content.{k}"
            self._add_block(an_object(value, where), where)

    def end(self) -> None:
        if self._open:
            self._unanswered()
        paused = self._last_kind == "server_tool_use"  # such a turn is sent back as it came
        if self._role == "assistant" and not paused:
            invalid(
                "This model does not support assistant message prefill. "
                "The conversation must end with a user message."
            )

    def _start(self, n: int, role: str) -> None:
        before = self._role
        if not before and role == "assistant":
            invalid('messages: first message must use the "user" role')
        if role == "assistant" and before != "assistant":
            if self._open:
                self._unanswered()
            self._turn = set()
        self._role = role

    def _add_string(self, n: int, text: str) -> None:
        if not text:
            invalid(f"messages.{n}: all messages must have non-empty content")
        _check_text(text, "messages")
        self._pass("text")

    def _add_block(self, block: Json, where: str) -> None:
        kind = _check_block(block, where)
        if self._role == "assistant":
            self._add_reply(block, kind, where)
        elif kind not in _USER:
            invalid(f"{where}: `{kind}` blocks are not allowed in user messages")
        elif kind == "tool_result":
            self._add_result(block, where)
        elif kind == "text" and block.get("citations"):
            invalid(f"{where}.citations: citations are not allowed in user messages")
        if kind == "text":
            _check_text(block["text"], "messages")
        self._pass(kind)

    def _add_reply(self, block: Json, kind: str, where: str) -> None:
        if kind not in _ASSISTANT and not kind.endswith("_tool_result"):
            invalid(f"{where}: `{kind}` blocks are not allowed in assistant messages")
        if kind not in ("tool_use", "server_tool_use"):
            return
        name = a_string(block["id"], f"{where}.{kind}.id")
        if not TOOL_ID.fullmatch(name):
            invalid(f"{where}.{kind}.id: String should match pattern '^{TOOL_ID.pattern}$'")
        if name in self._used:
            invalid(f"{where}: `tool_use` ids must be unique")
        self._used.add(name)
        an_object(block["input"], f"{where}.{kind}.input")
        a_string(block["name"], f"{where}.{kind}.name")
        if kind == "tool_use":
            self._open[name] = None
            self._turn.add(name)
            self._place = where.rsplit(".content", 1)[0]

    def _add_result(self, block: Json, where: str) -> None:
        name = a_string(block["tool_use_id"], f"{where}.tool_result.tool_use_id")
        if name in self._answered:
            invalid(
                f"{where}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {name}"
            )
        if name not in self._turn:
            invalid(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous "
                "message."
            )
        self._answered.add(name)
        self._open.pop(name, None)
        _check_result_content(block, f"{where}.tool_result")

    def _pass(self, kind: str) -> None:
        """Anything but a result, while results are due, comes too early."""
        if self._open and self._role == "user" and kind != "tool_result":
            self._unanswered()
        self._last_kind = kind

    def _unanswered(self) -> None:
        invalid(
            f"{self._place}: `tool_use` ids were found without `tool_result` blocks immediately "
            f"after: {', '.join(self._open)}. Each `tool_use` block must have a corresponding "
            "`tool_result` block in the next message."
        )


def _check_block(block: Json, where: str) -> str:
    """The block's type; refuses unknown types and fields, and missing ones."""
    kind = a_string(block.get("type"), f"{where}.type")
    if kind in _BLOCKS:
        only(block, _BLOCKS[kind], f"{where}.{kind}.")
    elif not kind.endswith("_tool_result"):
        invalid(
            f"{where}: Input tag {kind!r} found using 'type' does not match any of the expected "
            "tags"
        )
    for name in _REQUIRED.get(kind, ()):
        if name not in block:
            invalid(f"{where}.{kind}.{name}: Field required")
    if kind == "text":
        a_string(block["text"], f"{where}.text.text")
    if block.get("cache_control") is not None:
        check_cache_control(block, f"{where}.{kind}.")
        if kind == "text" and not block["text"]:
            invalid(f"{where}.text: cache_control cannot be set for empty text blocks")
    return kind


def _check_text(text: str, where: str) -> None:
    if not text:
        invalid(f"{where}: text content blocks must be non-empty")
    if text.isspace():
        invalid(f"{where}: text content blocks must contain non-whitespace text")


def _check_result_content(block: Json, where: str) -> None:
    if not isinstance(block.get("is_error") or False, bool):
        invalid(f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content")
    if content is None or isinstance(content, str):
        return
    for n, value in enumerate(a_list(content, f"{where}.content")):
        part = an_object(value, f"{where}.content.{n}")
        kind = _check_block(part, f"{where}.content.{n}")
        if kind not in _IN_RESULT:
            invalid(f"{where}.content.{n}: `{kind}` blocks are not allowed in a tool result")
        if kind == "text" and not part["text"]:
            invalid(f"{where}: text content blocks must be non-empty")
