"""Try each attack twice on one stage: with the defence that stops it, and without."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from subagents.rules import RULES

Remove = Callable[[Any, pytest.MonkeyPatch], None]
"""Takes a defence away from a stage until the patch ends."""
What = str | tuple[str, ...] | Remove
"""What stops an attack: rules of the gate, or a function that takes another defence away."""
Outcomes = Mapping[str, tuple[bool, bool]]
"""Name -> whether the attack got through with its defence, and without."""
S = TypeVar("S")


@dataclass(frozen=True)
class Attempt:
    """An attack as a function of the stage."""

    tried: Callable[[Any], Awaitable[bool]]
    """Try it, and return whether it got through."""
    without: What


def function_patch(*places: tuple[object, str, object]) -> Remove:
    """Remove a defence: replace each attribute of an owner by a naive one."""

    def remove(stage: Any, patch: pytest.MonkeyPatch) -> None:
        for owner, name, by in places:
            patch.setattr(owner, name, by)

    return remove


@contextmanager
def without(stage: Any, what: What) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if callable(what):
            what(stage, patch)
        else:
            names = (what,) if isinstance(what, str) else what
            rules = [rule for rule in RULES if rule.name not in names]
            patch.setattr(stage.bot.bench.dispatch.runs, "rules", rules)
        yield


async def try_it(stage: Any, attempt: Attempt) -> bool:
    return await attempt.tried(stage)


async def try_twice(
    stage: S, attacks: Mapping[str, Any], tried: Callable[[S, Any], Awaitable[bool]] = try_it
) -> Outcomes:
    outcomes = {}
    for name, attack in attacks.items():
        defended = await tried(stage, attack)
        with without(stage, attack.without):
            outcomes[name] = (defended, await tried(stage, attack))
    return outcomes


def expected_outcomes(attacks: Mapping[str, Any]) -> Outcomes:
    """The outcomes when each defence works, and is needed."""
    return dict.fromkeys(attacks, (False, True))


async def holds(stage: Any, through: Callable[[Any], Any]) -> bool:
    """Return whether an attack got through; `through` may return a coroutine."""
    outcome = through(stage)
    return bool(await outcome if asyncio.iscoroutine(outcome) else outcome)
