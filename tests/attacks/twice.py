"""Try each attack twice on one stage: with all that stops it, and without what does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from subagents.rules import RULES


def remove_rules(patch: pytest.MonkeyPatch, stage: Any, *names: str) -> None:
    """Let the gate of a bot decide without these rules until the patch ends."""
    left = [rule for rule in RULES if rule.name not in names]
    patch.setattr(stage.bot.bench.dispatch.runs, "rules", left)


async def tried_twice(
    stage: Any,
    attacks: Mapping[str, Any],
    tried: Callable[[Any], Awaitable[bool]],
    without: Callable[[Any, Any], AbstractAsyncContextManager[None]],
) -> dict[str, tuple[bool, bool]]:
    """Return whether each got through: with all that stops it, and without what does."""
    found = {}
    for name, attack in attacks.items():
        stopped = await tried(attack)
        async with without(stage, attack.without):
            found[name] = (stopped, await tried(attack))
    return found
