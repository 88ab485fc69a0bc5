"""One batch of ordinary tool calls: checked by the gate, run concurrently, rendered delimited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scopes.effects import Access, Effect
from scopes.label import TRUSTED_LABEL, Label
from scopes.tool import SourceFailed, Tool, ToolContext, ToolError, ToolResult, one_line
from subagents.delimiter import RESERVED_TOKENS, render
from subagents.gate import Card, Deny, Gate

log = logging.getLogger(__name__)

MIN_OUTPUT_TOKENS = 300
"""Minimum tokens of a useful tool result; with less room the context counts as full."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A `tool_use` block."""

    id: str
    name: str
    input: Any


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of one call: the text for the model, and the items that it shows."""

    text: str
    result: ToolResult = field(default_factory=ToolResult)
    is_error: bool = False
    crashed: bool = False
    """True if the tool failed in a way that its model cannot repair."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The ordinary tools that one context is offered."""

    tools: Mapping[str, Tool]
    gate: Gate
    timeout_s: float
    delimiter: str

    def only_reads(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether none of these calls changes anything, here or outside."""
        used = [self.tools[call.name] for call in calls if call.name in self.tools]
        return all(tool.access is Access.READ and tool.effect is Effect.NONE for tool in used)

    async def batch(
        self, context: str, ctx: ToolContext, calls: Sequence[ToolCall], max_tokens: int
    ) -> list[ToolOutcome]:
        """Run the calls; return one outcome per call, in call order, each cut at `max_tokens`."""
        ctx = replace(ctx, max_output_tokens=max_tokens - RESERVED_TOKENS)
        async with asyncio.TaskGroup() as group:
            runs = (self._one(context, ctx, call, max_tokens) for call in calls)
            tasks = [group.create_task(each) for each in runs]
        return [task.result() for task in tasks]

    async def _one(
        self, context: str, ctx: ToolContext, call: ToolCall, max_tokens: int
    ) -> ToolOutcome:
        tool = self.tools.get(call.name)
        if tool is None:
            offered = ", ".join(sorted(self.tools))
            return failed_outcome(f"No tool {call.name[:60]!r} is offered here. Tools: {offered}.")
        try:
            async with asyncio.timeout(self.timeout_s):
                keyed = replace(ctx, key=f"{ctx.run}/{context}/{call.id}", context=context)
                found = await self.gate.call(context, keyed, tool, call.input)
        except ToolError as error:
            return failed_outcome(str(error), error.label, error.undone)
        except TimeoutError:
            return failed_outcome(f"{call.name} gave no answer within {self.timeout_s:g} s.")
        except Exception as error:  # top-level boundary: a crashing tool fails its subagent only
            log.exception("tool %s of %s crashed", call.name, context)
            lasts = isinstance(error, SourceFailed) and error.remedy
            undone = {call.name: f"{error}."} if lasts else {}
            return replace(
                failed_outcome(crash_text(call.name, error), undone=undone), crashed=True
            )
        if isinstance(found, Card) and found.action.is_question:
            return ToolOutcome(found.reason)  # the call had no other purpose than to ask
        if not isinstance(found, ToolResult):
            return failed_outcome(
                found.reason, found.label if isinstance(found, Deny) else TRUSTED_LABEL
            )
        text, shown = render(found, self.delimiter, max_tokens)
        return ToolOutcome(text, replace(found, items=found.items[:shown]))


def failed_outcome(
    text: str, label: Label = TRUSTED_LABEL, undone: Mapping[str, str] | None = None
) -> ToolOutcome:
    return ToolOutcome(text, ToolResult(label=label, undone=undone or {}), is_error=True)


def crash_text(tool: str, error: Exception) -> str:
    """Return the error in one line; a foreign one by type only: it may quote what was read."""
    message = one_line(str(error))[:200] if isinstance(error, SourceFailed) else ""
    return f"{tool} failed: {message or type(error).__name__}"
