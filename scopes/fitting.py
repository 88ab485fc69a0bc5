"""Which items of a result there is room for."""

from __future__ import annotations

from collections.abc import Iterable

from scopes.tool import Item, estimate_tokens


def tokens_of(item: Item) -> int:
    """Return what an item takes as it is shown, the end of its line included."""
    return estimate_tokens(item.line()) + 1


def fitting(items: Iterable[Item], max_tokens: int) -> tuple[Item, ...]:
    """Return the first items that take no more than that together; one at least."""
    kept: list[Item] = []
    for item in items:
        max_tokens -= tokens_of(item)
        if max_tokens < 0 and kept:
            break
        kept.append(item)
    return tuple(kept)
