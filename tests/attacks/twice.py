"""Try each attack twice: with the defence that stops it, and without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from subagents.rules import RULES

Remove = Callable[[pytest.MonkeyPatch], None]
"""Takes a defence away until the patch ends."""
What = str | tuple[str, ...] | Remove
"""What stops an attack: rules of the gate, or a function that takes another defence away."""
S = TypeVar("S")


@dataclass(frozen=True)
class Attempt:
    """An attack as a function of a served bot and its surroundings."""

    tried: Callable[[Any], Awaitable[bool]]
    """Try it, and return whether it got through."""
    without: What


def naive(owner: object, name: str, by: object) -> Remove:
    """Remove a defence: replace an attribute of its owner by a naive one."""
    return lambda patch: patch.setattr(owner, name, by)


def together(*removals: Remove) -> Remove:
    def remove(patch: pytest.MonkeyPatch) -> None:
        for each in removals:
            each(patch)

    return remove


@contextmanager
def removed(stage: Any, what: What) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if callable(what):
            what(patch)
        else:
            names = (what,) if isinstance(what, str) else what
            rules = [rule for rule in RULES if rule.name not in names]
            patch.setattr(stage.bot.bench.dispatch.runs, "rules", rules)
        yield


async def assert_each_defence_is_needed(
    stage: S, attacks: Mapping[str, Any], prepare: Callable[[S], Awaitable[None]] | None = None
) -> None:
    """Assert that each attack gets through without its defence, and only then.

    An attack has `tried` and `without`, as `Attempt`; `prepare` runs before each try.
    """

    async def got_through(attack: Any) -> bool:
        if prepare:
            await prepare(stage)
        return bool(await attack.tried(stage))

    outcomes = {}
    for name, attack in attacks.items():
        defended = await got_through(attack)
        with removed(stage, attack.without):
            outcomes[name] = (defended, await got_through(attack))
    assert outcomes == dict.fromkeys(attacks, (False, True))
