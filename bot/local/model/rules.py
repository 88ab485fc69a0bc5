"""What each model accepts; source: the models' migration guides on platform.claude.com."""

from dataclasses import dataclass

EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING = ("adaptive", "between_tools", "disabled", "enabled")


@dataclass(frozen=True)
class Rules:
    """What one model accepts."""

    thinking: frozenset[str] = frozenset({"adaptive", "disabled", "enabled"})
    """The accepted values of `thinking.type`."""
    forced_tools: bool = True
    """Whether `tool_choice` may be `any` or `tool`."""
    prefill: bool = False
    """Whether the last message may be the assistant's."""
    system_messages: bool = True
    """Whether `messages` may hold `role: "system"` after a user's turn."""
    binds_thinking: bool = False
    """Whether thinking blocks are bound to all that came before them."""
    default_effort: str = "high"
    min_cache_tokens: int = 1024
    """The shortest prefix that is cached, in tokens."""
    max_output_tokens: int = 128_000
    context_tokens: int = 1_000_000


_OLD = Rules(
    thinking=frozenset({"disabled", "enabled"}),
    prefill=True,
    system_messages=False,
    min_cache_tokens=4096,
    max_output_tokens=64_000,
    context_tokens=200_000,
)
MODELS = {
    "claude-sonnet-5-5": Rules(
        thinking=frozenset({"adaptive", "between_tools"}),
        forced_tools=False,
        binds_thinking=True,
        min_cache_tokens=512,
    ),
    "claude-opus-5-5": Rules(
        thinking=frozenset({"adaptive"}),
        forced_tools=False,
        binds_thinking=True,
        default_effort="medium",
        min_cache_tokens=512,
    ),
    "claude-haiku-5-5": Rules(
        thinking=frozenset({"adaptive", "disabled"}),
        binds_thinking=True,
        default_effort="medium",
        min_cache_tokens=512,
    ),
    "claude-sonnet-5": Rules(thinking=frozenset({"adaptive", "disabled"}), system_messages=False),
    "claude-opus-5": Rules(thinking=frozenset({"adaptive", "disabled"}), min_cache_tokens=512),
    "claude-haiku-4-5": _OLD,
    "claude-haiku-4-5-20251001": _OLD,
}
