"""What is left to do where a context has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from scopes.tool import Tool


@dataclass(frozen=True, slots=True)
class LeftUndone:
    """Something of a context that ended well, which a call has yet to bring where it belongs."""

    tool: Tool
    """Offered to no model; it goes through the gate like any other, and once is enough."""
    args: Mapping[str, Any]
    name: str
    """A key of `ToolResult.undone`."""
    kept: str
    """What becomes of it where that may not be, for the requester: `{}` stands for why."""


@runtime_checkable
class Cleanup(Protocol):
    """A client of a run that holds something of a context until it ends."""

    def left(self, context: str) -> Sequence[LeftUndone]:
        """Return what this context left here; empty where it left nothing."""
