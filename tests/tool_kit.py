"""Calls of tools through the gate, as a subagent makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import scopes
from scopes.effects import Handles
from scopes.intent import Intent
from scopes.tool import Tool, ToolContext, ToolError, ToolResult
from subagents.directory import Directory, Operator
from subagents.gate import Action, Card, Decision, Deny, Gate

ANA = "U0ANA"


def tool_named(scope: str, name: str) -> Tool:
    return next(t for t in scopes.scope(scope).tools if t.name == name)


def context(
    scope: str, clients: Mapping[type, object], titles: Mapping[str, str], /, **more: Any
) -> ToolContext:
    """A context of Ana with these clients and handles."""
    ctx = ToolContext(
        "r1", ANA, clients, 8000, Handles(titles),
        intent=Intent(home="D0ANA"), key="r1/s1/call1", scope=scope, context="s1",
    )  # fmt: skip
    return replace(ctx, **more)


class Caller:
    """A context that calls the tools of its scope."""

    def __init__(self, ctx: ToolContext, directory: Directory | None = None) -> None:
        self.ctx = ctx
        self.decisions: list[Decision] = []
        self.proposed: list[Action] = []
        self.gate = Gate(self.decisions.append, directory or Operator(), self.proposed.append)

    async def call_gate(self, name: str, /, **args: Any) -> ToolResult | Deny | Card:
        tool = tool_named(self.ctx.scope, name)
        return await self.gate.call(self.ctx.context, self.ctx, tool, args)

    async def __call__(self, name: str, /, **args: Any) -> ToolResult:
        found = await self.call_gate(name, **args)
        assert isinstance(found, ToolResult), found
        return found

    async def refusal_reason(self, name: str, /, **args: Any) -> str:
        """The reason of the refusal, as the model reads it."""
        try:
            found = await self.call_gate(name, **args)
        except ToolError as error:
            return str(error)
        assert isinstance(found, Deny), found
        return found.reason

    async def card(self, name: str, /, **args: Any) -> Action:
        found = await self.call_gate(name, **args)
        assert isinstance(found, Card), found
        return found.action


async def use(
    ctx: ToolContext, name: str, directory: Directory | None = None, /, **args: Any
) -> ToolResult | Deny | Card:
    return await Caller(ctx, directory).call_gate(name, **args)


async def done(
    ctx: ToolContext, name: str, directory: Directory | None = None, /, **args: Any
) -> ToolResult:
    """The result of a call that the gate allows."""
    return await Caller(ctx, directory)(name, **args)
