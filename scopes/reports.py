"""The parent's tools for the work that has a report of its own: a sweep, a triage, a review.

No subagent has them. They are workflow tools: they start subagents, so they run outside any step.
"""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field

from scopes.tool import ToolContext, ToolResult, tool


class ReportDesk(Protocol):
    """Where a request's report is made.

    Its methods raise ToolError with what the model can tell or do.
    """

    async def sweep(
        self, ctx: ToolContext, channels: list[str], since: str, until: str, language: str
    ) -> ToolResult: ...

    async def triage(
        self, ctx: ToolContext, since: str, until: str, limit: int | None
    ) -> ToolResult: ...

    async def review(
        self, ctx: ToolContext, source: str, profile: str, language: str
    ) -> ToolResult: ...


@tool(client=ReportDesk)
async def sweep_channels(
    ctx: ToolContext, channels: list[str], since: str = "", until: str = "", language: str = ""
) -> ToolResult:
    """Sweep channels for all customer issues now: a subagent each, one report below your answer.
    `channels`: names, ids or patterns (csm-*). `since`, `until`: only if the request says when, as
    for a subagent. `language`: that of your answer, as a code (es)."""
    return await ctx.client(ReportDesk).sweep(  # type: ignore[type-abstract]
        ctx, channels, since, until, language
    )


@tool(client=ReportDesk)
async def triage_inbox(
    ctx: ToolContext,
    since: str = "",
    until: str = "",
    limit: Annotated[int, Field(ge=1)] | None = None,
) -> ToolResult:
    """Triage the requester's own mailbox now: a subagent a thread, one digest below your answer.
    `since`, `until`: only if the request says when, as for a subagent. `limit`: only if it says how
    many threads, the newest ones."""
    return await ctx.client(ReportDesk).triage(  # type: ignore[type-abstract]
        ctx, since, until, limit
    )


@tool(client=ReportDesk)
async def review(
    ctx: ToolContext, source: str, profile: str = "code", language: str = ""
) -> ToolResult:
    """Have a panel of specialists review one thread, attached file or link: one report below your
    answer. `source`: id of a thread, name of an attached file, or address. `profile`: code (code,
    changes of code), strategy (notes, plans, offers, contracts), incident (threads and reports of
    incidents), or another that the request names. `language`: of your answer, as a code (es)."""
    return await ctx.client(ReportDesk).review(  # type: ignore[type-abstract]
        ctx, source, profile, language
    )


TOOLS = (sweep_channels, triage_inbox, review)
