"""How many subagents a request may start, in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from config.settings import Limits
from subagents.brief import Brief, is_isolable
from subagents.errors import BriefRefused
from subagents.shingles import shingles


@dataclass
class SpawnGuard:
    """Admits briefs of one request. A refusal names the field and costs nothing.

    Depth is one by construction: no subagent is offered a tool that starts another.
    """

    limits: Limits
    started: int = 0
    """Subagents that the model started one by one (`run_subagent`)."""
    items: int = 0
    """Subagents started over a list (`run_subagents`)."""
    delivered: list[str] = field(default_factory=list)
    """Views that the parent has read: their text may not be retyped into a brief."""
    own: list[str] = field(default_factory=list)
    """Texts that the parent may use freely: the request, and the briefs that it wrote before."""
    _own: set[int] = field(default_factory=set)
    _foreign: set[int] = field(default_factory=set)
    """Eight-word runs of what was delivered, without those that are its own."""
    _hashed: list[int] = field(default_factory=lambda: [0, 0])
    """How many texts of `own` and of `delivered` went into them."""

    async def check(self, brief: Brief) -> None:
        """Raises BriefRefused where a subagent could not do this brief alone."""
        await self._hash_new()
        if refusal := is_isolable(brief, self.limits, self._foreign):
            raise refusal
        self.own.append(brief.draft.model_dump_json())

    async def _hash_new(self) -> None:
        """Hash each text once, and let others work in between; nothing while none was delivered."""
        await asyncio.sleep(0)
        if not self.delivered:
            return
        for text in self.own[self._hashed[0] :]:
            self._own |= (words := shingles(text))
            self._foreign -= words
            self._hashed[0] += 1
            await asyncio.sleep(0)
        for text in self.delivered[self._hashed[1] :]:
            self._foreign |= shingles(text) - self._own
            self._hashed[1] += 1
            await asyncio.sleep(0)

    def admit_one(self) -> None:
        """Raises BriefRefused above `max_subagents`."""
        if self.started >= self.limits.max_subagents:
            raise BriefRefused(
                "max_subagents",
                f"this request has started {self.started} subagents and may start no more. "
                "Answer from what you have, and say what was not covered",
            )
        self.started += 1

    def admit_items(self, items: Sequence[str]) -> None:
        """Raises BriefRefused above `max_items`; nothing of the list is started then."""
        if self.items + len(items) > self.limits.max_items:
            raise BriefRefused(
                "items",
                f"{len(items)} items; {self.limits.max_items - self.items} more are allowed in "
                "this request. Group them or leave some out",
            )
        self.items += len(items)
