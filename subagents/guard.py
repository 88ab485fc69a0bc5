"""How many subagents a request may start, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from config.settings import Limits
from subagents.brief import Brief, is_isolable
from subagents.errors import BriefRefused


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

    def check(self, brief: Brief) -> None:
        """Raises BriefRefused where a subagent could not do this brief alone."""
        if refusal := is_isolable(brief, self.limits, self.delivered, self.own):
            raise refusal
        self.own.append(brief.draft.model_dump_json())

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
