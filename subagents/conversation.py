"""The fixed parts of one context, and its messages so far: append-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scopes.tool import estimate_tokens
from subagents.brief import Block
from subagents.contracts import Submission
from subagents.trajectory import Origin, Recording


@dataclass(frozen=True, slots=True)
class Spec:
    """The parts of a context that are fixed before its first call."""

    run: str
    context: str
    role: str
    """One of `parent`, `subagent_main` or `subagent_fast`."""
    system: Sequence[Block]
    tools: Sequence[Block]
    opening: Sequence[tuple[Origin, Block, str]]
    """The first user message: origin of each block, the block, and the ids that it refers to."""
    max_steps: int
    """Maximum number of model calls; the last one is the final call."""
    context_limit: int
    """Maximum tokens of prompt and output together in one call."""
    seconds: float
    contract: str | None = None
    """A subagent's contract: it must end by `submit_result`. None: it ends with text."""
    spare: float = 0.0
    """Seconds of the run that are reserved for others."""
    effort: str | None = None
    """Overrides the role's effort, unless the role sends none; None = as the role says."""
    remind_at: int | None = None
    """Prompt tokens above which a parent is told to delegate; None = never."""
    handoff_at: int | None = None
    """Prompt tokens above which a new session must take over; None = never."""
    on_text: Callable[[str], None] | None = None
    """Takes each piece of text as it is written; if set, calls stream."""
    on_restart: Callable[[], None] | None = None
    """Called before another attempt: the text of its call so far is void."""
    divisible: bool = False
    """True if two others take half of it each when its result is too long for one answer."""
    single: bool = False
    """True if only one call is expected; then nothing is cached for a second one."""

    @property
    def tool_names(self) -> list[str]:
        """Return the names of its tools."""
        return [str(tool["name"]) for tool in self.tools]

    @property
    def final_key(self) -> str:
        """Return the key of the reservation that keeps the final call affordable."""
        return f"{self.run}/{self.context}/final"


OUTPUT_CUT: Final = "its output was cut off"
"""Reason of a context whose answer was too long."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a context, before anything is checked against what it read."""

    stopped_by: str
    """`none`, a limit or a fault (DESIGN section 2), or `handoff`."""
    value: Submission | None = None
    text: str = ""
    reason: str = ""
    passing: bool = False
    """True if the failure may pass: an overloaded or unreachable provider."""
    items_seen: int = 0
    """Number of items that the model had been shown when it began to write the text."""


class Conversation:
    """The messages of one context. Sent ones never change; the next ones wait in `pending`."""

    def __init__(self, spec: Spec, sink: Recording) -> None:
        self.spec, self._sink = spec, sink
        self.sent: list[dict[str, Any]] = []
        self.pending: list[Block] = []
        self.prompt_tokens = estimate_tokens(str(spec.system) + str(spec.tools))
        """Tokens of the next prompt: the last reported usage plus an estimate."""
        for block in spec.system:
            self._note(Origin.PROMPT, block)
        for tool, name in zip(spec.tools, spec.tool_names, strict=True):
            self._note(Origin.SCHEMA, tool, name)
        for origin, block, ref in spec.opening:
            self.say(origin, block, ref)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the next request."""
        waiting = [{"role": "user", "content": self.pending}] if self.pending else []
        return [*self.sent, *waiting]

    def say(self, origin: Origin, block: Block, ref: str = "") -> None:
        """Add a block to the next user message. `ref`: its ids, separated by spaces."""
        self._note(origin, block, ref)
        self.pending.append(block)
        self.prompt_tokens += _tokens(block)

    def record_usage(self, tokens: int) -> None:
        """Note that the call succeeded with this many tokens of prompt and output together."""
        self.sent = self.messages
        self.pending = []
        self.prompt_tokens = tokens

    def append(self, content: Sequence[Block]) -> None:
        """Add the model's turn, unless it is empty, which the API refuses, or thinking alone."""
        kept = [b for b in content if b.get("text") != ""]
        if any(b["type"] not in ("thinking", "redacted_thinking") for b in kept):
            self.sent.append({"role": "assistant", "content": kept})

    def _note(self, origin: Origin, block: Block, ref: str = "") -> None:
        self._sink.note(self.spec.run, self.spec.context, origin, block, ref)


def _tokens(block: Mapping[str, Any]) -> int:
    text = block.get("text") or block.get("content") or block.get("input") or ""
    return estimate_tokens(f"{block.get('name', '')}{text}")
