"""The cost of a prompt: its tokens, and how many of them a simulated prompt cache saves.

Source: platform.claude.com, "Prompt caching": a breakpoint finds entries up to 20 blocks before it,
a prefix under the model's minimum is not cached, a hit renews the lifetime, and an entry can be
read only after the answer that wrote it has begun.
"""

import json
import time
from dataclasses import dataclass, field
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
    """The parts of one request with their sizes, in the order in which the API renders them."""

    model: str
    keys: list[bytes] = field(default_factory=list)
    """The fingerprint of all content up to and including each block."""
    sizes: list[int] = field(default_factory=list)
    """UTF-8 bytes up to and including each block."""
    marks: list[int] = field(default_factory=list)
    """The cache breakpoints: numbers of blocks."""

    @property
    def tokens(self) -> int:
        return self.tokens_at(len(self.sizes) - 1)

    def tokens_at(self, block: int) -> int:
        """Return the tokens up to and including block number `block`."""
        return estimate(self.sizes[block])


def read_prompt(body: Json) -> Prompt:
    """Measure a request."""
    prompt, hashed, cacheable = Prompt(body["model"]), blake2b(digest_size=16), -1

    def add(block: Json) -> None:
        nonlocal cacheable
        data = render(block)
        hashed.update(data)
        prompt.keys.append(hashed.digest())
        prompt.sizes.append((prompt.sizes or [0])[-1] + len(data))
        number = len(prompt.keys) - 1
        if block.get("type") not in _UNCACHEABLE:
            cacheable = number
        if block.get("cache_control"):
            prompt.marks.append(number)

    for block in (*(body.get("tools") or ()), *as_blocks(body.get("system") or [])):
        add(block)
    hashed.update(_encode(body.get("thinking")).encode())  # a change keeps tools and system only
    for message in body["messages"]:
        hashed.update(message["role"].encode())
        for block in as_blocks(message["content"]):
            add(block)
    if body.get("cache_control") and cacheable >= 0 and cacheable not in prompt.marks:
        prompt.marks.append(cacheable)
    return prompt


class PromptCache:
    """The prefixes that end at a cache breakpoint, by model, until they expire."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, bytes], float] = {}

    def measure(self, prompt: Prompt) -> InputUsage:
        """Return how many tokens of this prompt the cache saves now."""
        reached = read = self._longest_hit(prompt)
        for block in prompt.marks:
            tokens = prompt.tokens_at(block)
            if tokens >= MIN_CACHE_TOKENS:
                reached = max(reached, tokens)
        return InputUsage(prompt.tokens - reached, read, reached - read)

    def keep(self, prompt: Prompt) -> None:
        """Store the prompt's marked prefixes when its answer begins."""
        now = time.time()
        for block in prompt.marks:
            if prompt.tokens_at(block) >= MIN_CACHE_TOKENS:
                self._entries[prompt.model, prompt.keys[block]] = now + LIFETIME_S

    def _longest_hit(self, prompt: Prompt) -> int:
        now = time.time()
        longest = 0
        for mark in prompt.marks:
            for block in range(mark, max(-1, mark - LOOKBACK_BLOCKS), -1):
                key = (prompt.model, prompt.keys[block])
                if (
                    self._entries.get(key, 0.0) > now
                    and prompt.tokens_at(block) >= MIN_CACHE_TOKENS
                ):
                    self._entries[key] = now + LIFETIME_S
                    longest = max(longest, prompt.tokens_at(block))
                    break
        return longest
