"""Tools from outside: what servers offer that the settings name, put into scopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scopes.tool import Tool


@dataclass(frozen=True, slots=True)
class Outside:
    """The tools of one run that come from outside; they do not change while it lasts."""

    by_scope: Mapping[str, tuple[Tool, ...]] = field(default_factory=dict)

    def tools(self, scope: str) -> tuple[Tool, ...]:
        """Return those that were put into this scope."""
        return self.by_scope.get(scope, ())
