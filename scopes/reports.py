"""The parent's tools for the work that has a report of its own: a sweep, a triage.

No subagent has them. They are workflow tools: they start subagents, so they run outside any step.
"""

from __future__ import annotations

from typing import Protocol

from scopes.tool import ToolContext, ToolResult, tool


class ReportDesk(Protocol):
    """Where a request's report is made.

    Its methods raise ToolError with what the model can tell or do.
    """

    async def sweep(
        self, ctx: ToolContext, channels: list[str], since_days: int | None, language: str
    ) -> ToolResult: ...

    async def triage(self, ctx: ToolContext, since_days: int | None) -> ToolResult: ...


@tool(client=ReportDesk)
async def sweep_channels(
    ctx: ToolContext, channels: list[str], since_days: int | None = None, language: str = ""
) -> ToolResult:
    """Sweep channels for all customer issues now: a subagent each, one report below your answer.
    `channels`: names, ids or patterns (csm-*). `since_days`: only if the request says how far
    back. `language`: that of the request, as a code (es)."""
    return await ctx.client(ReportDesk).sweep(  # type: ignore[type-abstract]
        ctx, channels, since_days, language
    )


@tool(client=ReportDesk)
async def triage_inbox(ctx: ToolContext, since_days: int | None = None) -> ToolResult:
    """Triage the requester's own mailbox now: a subagent a thread, one digest below your answer.
    `since_days`: only if the request says how far back."""
    return await ctx.client(ReportDesk).triage(ctx, since_days)  # type: ignore[type-abstract]


TOOLS = (sweep_channels, triage_inbox)
