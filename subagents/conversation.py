"""What one context is made of, and what it has said so far: append-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scopes.tool import estimate_tokens
from subagents.brief import Block
from subagents.contracts import Submission
from subagents.trajectory import Origin, TrajectorySink


@dataclass(frozen=True, slots=True)
class Spec:
    """A context as it is fixed before its first call."""

    run: str
    context: str
    role: str
    """`parent`, `subagent_main` or `subagent_fast`."""
    system: Sequence[Block]
    tools: Sequence[Block]
    opening: Sequence[tuple[Origin, Block, str]]
    """The first user message: where each block comes from, the block, the ids that it is of."""
    max_steps: int
    """Model calls at the most; the last one is the final call."""
    context_limit: int
    """Tokens of prompt and output together that one call may hold."""
    seconds: float
    contract: str | None
    """A subagent's contract: it must end by `submit_result`. None: it ends by text."""
    spare: float = 0.0
    """Seconds of the run that are not for this context."""
    effort: str | None = None
    remind_at: int | None = None
    """Prompt tokens above which a parent is told to delegate; None = never."""
    handoff_at: int | None = None
    """Prompt tokens above which a fresh session must take over; None = never."""
    on_text: Callable[[str], None] | None = None
    """Takes each piece of text as it is written; given, the calls stream."""

    on_restart: Callable[[], None] | None = None
    """Called where a call starts again: the text of it that was handed over is void."""
    on_reply: Callable[[], None] | None = None
    """Called after each reply of the model."""
    single: bool = False
    """One call is expected: what only a second one would read goes into no cache."""

    @property
    def final_key(self) -> str:
        """Key of the reservation that keeps the final call affordable."""
        return f"{self.run}/{self.context}/final"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a context ended, before anything is checked against what it read."""

    stopped_by: str
    """`none`, a limit or a fault (DESIGN section 2), or `handoff`."""
    value: Submission | None = None
    text: str = ""
    reason: str = ""
    passing: bool = False
    """It failed for what may be over later: an overloaded or unreachable provider."""
    seen: int = 0
    """How many items the model had been shown when it began to write the text."""


class Conversation:
    """The messages of one context. What was sent stays; what comes next waits in `pending`."""

    def __init__(self, spec: Spec, sink: TrajectorySink) -> None:
        self.spec, self._sink = spec, sink
        self.sent: list[dict[str, Any]] = []
        self.pending: list[Block] = []
        self._known_tokens = estimate_tokens(str(spec.system) + str(spec.tools))
        for block in spec.system:
            self._note(Origin.PROMPT, block)
        for tool in spec.tools:
            self._note(Origin.SCHEMA, tool, tool["name"])
        for origin, block, ref in spec.opening:
            self.say(origin, block, ref)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the next prompt: the last reported usage and an estimate of what came since."""
        return self._known_tokens + sum(_tokens(b) for b in self.pending)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the next request."""
        waiting = [{"role": "user", "content": self.pending}] if self.pending else []
        return [*self.sent, *waiting]

    def say(self, origin: Origin, block: Block, ref: str = "") -> None:
        """Add a block to the next user message. `ref`: the ids, apart by spaces, that it is of."""
        self._note(origin, block, ref)
        self.pending.append(block)

    def delivered(self, tokens: int) -> None:
        """The call went through with so many tokens of prompt and output together."""
        self.sent = self.messages
        self.pending = []
        self._known_tokens = tokens

    def append(self, content: Sequence[Block]) -> None:
        """The model's turn. The API refuses empty text, and a turn that only thought is no turn."""
        kept = [b for b in content if b["type"] != "text" or b["text"]]
        if any(b["type"] not in ("thinking", "redacted_thinking") for b in kept):
            self.sent.append({"role": "assistant", "content": kept})

    def _note(self, origin: Origin, block: Block, ref: str = "") -> None:
        self._sink.note(self.spec.run, self.spec.context, origin, block, ref)


def _tokens(block: Mapping[str, Any]) -> int:
    text = block.get("text") or block.get("content") or block.get("input") or ""
    return estimate_tokens(f"{block.get('name', '')}{text}")
