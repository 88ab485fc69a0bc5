"""Tools of the scope data."""

from __future__ import annotations

from scopes.tool import Tool

TOOLS: tuple[Tool, ...] = ()
