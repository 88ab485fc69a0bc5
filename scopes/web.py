"""Tools of the scope web."""

from __future__ import annotations

from scopes.tool import Tool

TOOLS: tuple[Tool, ...] = ()
