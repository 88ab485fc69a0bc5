"""A request's prompt as the server sees it: its size, its cacheable prefixes, its thinking blocks.

One pass over tools, system and messages (the order in which the API renders them) does all three.
Thinking blocks are signed with what came before them (platform.claude.com, "Preserved thinking").
The key is fixed, so that a conversation can go on after a restart; it protects nothing but the
tests' honesty.
"""

import base64
import binascii
import hmac
import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from bot.local.model.errors import Json, a_string, invalid
from bot.local.model.turns import MAX_CACHE_MARKS

FIRST = "-"
_KEY = b"offline stand-in"


def fingerprint(data: bytes) -> str:
    """Eight bytes that stand for `data`, in hex."""
    return blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True)
class Bond:
    """All that a thinking block is bound to; each field after the first two is a fingerprint."""

    model: str
    effort: str
    system: str
    tools: str
    messages: str
    previous: str
    """The thinking block before it; `FIRST` for the first of a conversation."""

    def difference(self, issued: "Bond") -> str:
        """What has changed since `issued`, as the API says it; empty when nothing has.

        Thinking blocks may be left out from the start of a history, but not from its middle.
        """
        if self.system != issued.system:
            return "The `system` prompt differs from the one this block was created with."
        if self.tools != issued.tools:
            return "The `tools` differ from the ones this block was created with."
        if self.messages != issued.messages:
            return "The `messages` before this block differ from the ones it was created with."
        if self.previous not in (FIRST, issued.previous):
            return "A `thinking` block before this one was left out or moved."
        return ""

    def text(self) -> str:
        """What is signed."""
        parts = (self.model, self.effort, self.system, self.tools, self.messages, self.previous)
        return " ".join(parts)


def sign(bond: Bond, thinking: str) -> str:
    """The signature of a block with this text."""
    text = bond.text()
    return base64.b64encode(f"{text} {_mac(text, thinking)}".encode()).decode()


def open_signature(signature: str, thinking: str) -> Bond | None:
    """What the block was bound to; None when it was not made here or its text was edited."""
    try:
        text, mac = base64.b64decode(signature, validate=True).decode().rsplit(" ", 1)
    except (binascii.Error, ValueError):
        return None
    if not hmac.compare_digest(mac.encode(), _mac(text, thinking).encode()):
        return None
    return Bond(*text.split(" "))


def _mac(text: str, thinking: str) -> str:
    return blake2b(f"{text}\n{thinking}".encode(), key=_KEY, digest_size=8).hexdigest()


_UNCACHEABLE = ("thinking", "redacted_thinking")
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def estimate(size: int) -> int:
    """Tokens of `size` UTF-8 bytes: ceil(size / 3), the product's one rule."""
    return -(-size // 3)


def render(block: Json) -> bytes:
    """A block as it counts: compact JSON with sorted keys, without cache markers and nulls."""
    if "cache_control" in block or None in block.values():
        block = {k: v for k, v in block.items() if k != "cache_control" and v is not None}
    inner = _result_parts(block)
    if any("cache_control" in part for part in inner):
        parts = [{k: v for k, v in part.items() if k != "cache_control"} for part in inner]
        block = {**block, "content": parts}
    return _encode(block).encode()


def as_blocks(content: Any) -> list[Json]:
    """A string is short for one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@dataclass
class Trail:
    """What has been sent so far, as far as thinking blocks are bound to it."""

    system: str = ""
    tools: str = ""
    messages: Any = field(default_factory=lambda: blake2b(digest_size=8))
    """The running hash of the conversation without its thinking blocks."""
    previous: str = FIRST
    """The fingerprint of the last thinking block's signature."""

    def bond(self, model: str, effort: str) -> Bond:
        """What a thinking block is bound to that comes here."""
        messages = self.messages.hexdigest()
        return Bond(model, effort, self.system, self.tools, messages, self.previous)


@dataclass
class Prompt:
    """What one request sends, measured."""

    model: str
    effort: str
    keys: list[bytes] = field(default_factory=list)
    """The fingerprint of all that is sent up to and including each block."""
    sizes: list[int] = field(default_factory=list)
    """UTF-8 bytes up to and including each block."""
    marks: list[int] = field(default_factory=list)
    """The cache breakpoints: numbers of blocks."""
    trail: Trail = field(default_factory=Trail)
    """What the thinking blocks of the answer are bound to."""

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.tokens_at(len(self.sizes) - 1)

    def tokens_at(self, block: int) -> int:
        """Tokens up to and including block number `block`."""
        return estimate(self.sizes[block])

    def seal(self, content: list[Json]) -> None:
        """Sign the thinking blocks of an answer in place, bound to all that comes before them."""
        if not any(block["type"] == "thinking" for block in content):
            return
        for block in content:
            if block["type"] == "thinking":
                bond = self.trail.bond(self.model, self.effort)
                block["signature"] = sign(bond, block["thinking"])
                self.trail.previous = fingerprint(block["signature"].encode())
            else:
                self.trail.messages.update(render(block))


def read_prompt(body: Json, effort: str) -> Prompt:
    """Measure a checked request.

    Raises `Refused` for more than four cache breakpoints, and for thinking blocks that were not
    issued here, were edited, or come after something that has changed since.
    """
    reader = _Reader(body, effort)
    reader.read()
    return reader.prompt


class _Reader:
    def __init__(self, body: Json, effort: str) -> None:
        self.prompt = Prompt(body["model"], effort)
        self._body = body
        self._cache = blake2b(digest_size=16)
        self._size = 0
        self._last_cacheable = -1
        self._trail = self.prompt.trail

    def read(self) -> None:
        tools = b"".join(self._add(tool) for tool in self._body.get("tools") or [])
        system = b"".join(self._add(part) for part in as_blocks(self._body.get("system") or []))
        self._trail.system, self._trail.tools = fingerprint(system), fingerprint(tools)
        self._cache.update(self._settings())
        role = ""
        for n, message in enumerate(self._body["messages"]):
            if message["role"] != role:
                role = message["role"]
                self._turn(role)
            for k, block in enumerate(as_blocks(message["content"])):
                self._add_content(block, f"messages.{n}.content.{k}")
        if role != "assistant":
            self._turn("assistant")
        self._close_marks()

    def _settings(self) -> bytes:
        """Settings whose change makes the cached messages useless, but not tools and system."""
        return _encode(self._body.get("thinking")).encode()

    def _turn(self, role: str) -> None:
        self._cache.update(role.encode())
        self._trail.messages.update(role.encode())

    def _add(self, block: Json) -> bytes:
        data = render(block)
        self._cache.update(data)
        self._size += len(data)
        self.prompt.keys.append(self._cache.digest())
        self.prompt.sizes.append(self._size)
        number = len(self.prompt.keys) - 1
        if block.get("type") not in _UNCACHEABLE:
            self._last_cacheable = number
        if block.get("cache_control") or _is_marked_within(block):
            self.prompt.marks.append(number)
        return data

    def _add_content(self, block: Json, where: str) -> None:
        data = self._add(block)
        if block["type"] == "thinking":
            self._check_thinking(block, where)
        elif block["type"] == "redacted_thinking":
            invalid(f"{where}: Invalid `data` in `redacted_thinking` block")
        else:
            self._trail.messages.update(data)

    def _check_thinking(self, block: Json, where: str) -> None:
        text = a_string(block["thinking"], f"{where}.thinking.thinking")
        signature = a_string(block["signature"], f"{where}.thinking.signature")
        refusal = f"{where}: Invalid `signature` in `thinking` block"
        issued = open_signature(signature, text)
        if issued is None:
            invalid(refusal)
        if issued.model != self.prompt.model:
            return  # the API drops blocks that the model cannot read, without an error
        here = self._trail.bond(self.prompt.model, self.prompt.effort)
        change = here.difference(issued)
        if change:
            invalid(
                f"{refusal}. The block is bound to a different conversation. Remove the block, or "
                'set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". '
                f"{change}"
            )
        self._check_effort(issued)
        self._trail.previous = fingerprint(signature.encode())

    def _check_effort(self, issued: Bond) -> None:
        thinking = self._body.get("thinking") or {}
        if thinking.get("type") == "between_tools" and issued.effort != self.prompt.effort:
            invalid(
                "output_config.effort cannot change mid-conversation when thinking is set to "
                f'"between_tools" (was {issued.effort!r}, now {self.prompt.effort!r}).'
            )

    def _close_marks(self) -> None:
        """Place the automatic breakpoint, and refuse breakpoints that the API would refuse."""
        marks = self.prompt.marks
        wanted = self._last_cacheable if self._body.get("cache_control") else -1
        if wanted >= 0 and wanted not in marks:
            marks.append(wanted)
        if len(marks) > MAX_CACHE_MARKS:
            invalid(
                f"A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. "
                f"Found {len(marks)}."
            )


def _is_marked_within(block: Json) -> bool:
    """The cache marker on a part of a tool result counts at the whole result."""
    return any(part.get("cache_control") for part in _result_parts(block))


def _result_parts(block: Json) -> list[Json]:
    inner = block.get("content")
    if block.get("type") == "tool_result" and isinstance(inner, list):
        return inner
    return []
