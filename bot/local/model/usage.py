"""The cost of a prompt: its tokens, and how many of them a simulated prompt cache saves.

Source: platform.claude.com, "Prompt caching": a breakpoint finds entries up to 20 blocks before it,
a prefix under the model's minimum is not cached, a hit renews the lifetime, and an entry can be
read only after the answer that wrote it has begun.
"""

import json
import time
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

Json = dict[str, Any]
LIFETIME_S = 300
LOOKBACK_BLOCKS = 20
MIN_CACHE_TOKENS = 512
"""The shortest prefix that is cached."""
_UNCACHEABLE = ("thinking", "redacted_thinking")
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def estimate(size: int) -> int:
    """Return the tokens of `size` UTF-8 bytes: ceil(size / 3), the same rule as in the product."""
    return -(-size // 3)


def render(block: Json) -> bytes:
    """Return the counted form of a block: JSON with sorted keys, no cache markers and no nulls."""
    if "cache_control" in block or None in block.values():
        block = {k: v for k, v in block.items() if k != "cache_control" and v is not None}
    return _encode(block).encode()


def as_blocks(content: Any) -> list[Json]:
    """Return blocks; a string is short for one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@dataclass(frozen=True)
class InputUsage:
    """The input tokens of one request by kind; the three add up to the whole prompt."""

    fresh: int
    """Neither read from the cache nor written to it."""
    read: int = 0
    written: int = 0


@dataclass
class Prompt:
    """The parts of one request, in the order in which the API renders them."""

    prefixes: list[tuple[bytes, int]] = field(default_factory=list)
    """Fingerprint and tokens of the content up to and including each block."""
    marks: list[int] = field(default_factory=list)
    """The cache breakpoints: numbers of blocks."""

    @property
    def tokens(self) -> int:
        return self.prefixes[-1][1]

    @property
    def cacheable(self) -> list[int]:
        """Return the breakpoints whose prefix is long enough."""
        return [mark for mark in self.marks if self.prefixes[mark][1] >= MIN_CACHE_TOKENS]


def read_prompt(body: Json) -> Prompt:
    """Measure a request."""
    head = (*(body.get("tools") or ()), *as_blocks(body.get("system") or []))
    parts: list[tuple[str, Json]] = [("", block) for block in head]
    before = _encode(body.get("thinking"))  # a change keeps tools and system only
    for message in body["messages"]:
        before += message["role"]
        for block in as_blocks(message["content"]):
            parts.append((before, block))
            before = ""
    prompt, hashed, size = Prompt(), blake2b(body["model"].encode(), digest_size=16), 0
    for before, block in parts:
        data = render(block)
        hashed.update(before.encode() + data)
        size += len(data)
        prompt.prefixes.append((hashed.digest(), estimate(size)))
    prompt.marks = [n for n, (_, block) in enumerate(parts) if block.get("cache_control")]
    allowed = [n for n, (_, block) in enumerate(parts) if block.get("type") not in _UNCACHEABLE]
    if body.get("cache_control") and allowed and allowed[-1] not in prompt.marks:
        prompt.marks.append(allowed[-1])
    return prompt


class PromptCache:
    """The prefixes that end at a cache breakpoint, until they expire."""

    def __init__(self) -> None:
        self._entries: dict[bytes, float] = {}

    def measure(self, prompt: Prompt) -> InputUsage:
        """Return how many tokens of this prompt the cache saves now."""
        read = max(map(partial(self._hit, prompt), prompt.cacheable), default=0)
        reached = max([read, *(prompt.prefixes[mark][1] for mark in prompt.cacheable)])
        return InputUsage(prompt.tokens - reached, read, reached - read)

    def keep(self, prompt: Prompt) -> None:
        """Store the prompt's marked prefixes when its answer begins."""
        for mark in prompt.cacheable:
            self._entries[prompt.prefixes[mark][0]] = time.time() + LIFETIME_S

    def _hit(self, prompt: Prompt, mark: int) -> int:
        """Return the tokens of the longest entry that a breakpoint finds; 0 if it finds none."""
        for block in range(mark, max(-1, mark - LOOKBACK_BLOCKS), -1):
            key, tokens = prompt.prefixes[block]
            if self._entries.get(key, 0.0) > time.time():
                self._entries[key] = time.time() + LIFETIME_S
                return tokens
        return 0
