"""What measurements share: the time of a model call, ids of channels, and wide limits."""

from __future__ import annotations

from config.settings import Settings, load_settings

LATENCY_S = 0.2


def channel_id(number: int) -> str:
    return f"C0BENCH{number:04}"


def settings_for(concurrency: int) -> Settings:
    """Return the defaults, with limits that allow `concurrency` subagents at once."""
    settings = load_settings(env={"ASSISTANT_DATA_DIR": "unused"})
    wide = {"max_concurrency": concurrency, "cost_usd": 1e6, "tokens": 10**12, "steps": 10**6}
    limits = settings.limits.model_copy(update=wide)
    return settings.model_copy(update={"limits": limits})
