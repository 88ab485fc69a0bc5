"""Tools of the scope files."""

from __future__ import annotations

from scopes.tool import Tool

TOOLS: tuple[Tool, ...] = ()
