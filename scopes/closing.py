"""What is left to do where a context has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Closing(Protocol):
    """A client of a run that holds something of a context until it ends."""

    async def closed(self, context: str) -> Mapping[str, str]:
        """Bring it where it belongs, once, however often this is called. What stays undone, by the
        keys of `ToolResult.undone`; empty for what is done. Called where a context ended well."""
