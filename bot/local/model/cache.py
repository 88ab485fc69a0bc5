"""The prompt cache: which prefixes a model has seen within the last minutes, and what they save."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bot.local.model.prompt import Prompt

Clock = Callable[[], float]
LIFETIME_S = 300
LOOKBACK_BLOCKS = 20
MAX_ENTRIES = 20_000


@dataclass(frozen=True)
class InputUsage:
    """Where the input tokens of one request went; the three add up to the whole prompt."""

    fresh: int
    """Neither read from the cache nor written to it."""
    read: int = 0
    written: int = 0

    @property
    def limited(self) -> int:
        """Tokens that count towards the rate limit: cache reads do not."""
        return self.fresh + self.written


class PromptCache:
    """Prefixes that end at a cache breakpoint, per model, until their lifetime is over.

    Source: platform.claude.com, "Prompt caching": a breakpoint finds entries up to 20 blocks
    before it, a prefix under the model's minimum is not cached, a hit renews the lifetime, and an
    entry can be read only once the answer that wrote it has begun.
    """

    def __init__(self, clock: Clock = time.time) -> None:
        self._clock = clock
        self._entries: dict[tuple[str, bytes], float] = {}

    def measure(self, prompt: Prompt, minimum: int) -> InputUsage:
        """What the cache saves on this prompt now; `minimum` is the shortest cached prefix."""
        reached = read = self._longest_hit(prompt, minimum)
        for block in prompt.marks:
            tokens = prompt.tokens_at(block)
            if tokens >= minimum:
                reached = max(reached, tokens)
        return InputUsage(prompt.tokens - reached, read, reached - read)

    def keep(self, prompt: Prompt, minimum: int) -> None:
        """Remember the prompt's marked prefixes, from when its answer begins."""
        now = self._clock()
        for block in prompt.marks:
            if prompt.tokens_at(block) >= minimum:
                self._entries[prompt.model, prompt.keys[block]] = now + LIFETIME_S
        if len(self._entries) > MAX_ENTRIES:
            self._entries = {k: end for k, end in self._entries.items() if end > now}

    def _longest_hit(self, prompt: Prompt, minimum: int) -> int:
        now = self._clock()
        longest = 0
        for mark in prompt.marks:
            for block in range(mark, max(-1, mark - LOOKBACK_BLOCKS), -1):
                key = (prompt.model, prompt.keys[block])
                if self._entries.get(key, 0.0) > now and prompt.tokens_at(block) >= minimum:
                    self._entries[key] = now + LIFETIME_S
                    longest = max(longest, prompt.tokens_at(block))
                    break
        return longest
