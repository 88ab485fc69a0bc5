"""One batch of ordinary tool calls: through the gate, side by side, rendered behind the fence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scopes.label import TRUSTED, Label
from scopes.tool import SourceFailed, Tool, ToolContext, ToolError, ToolResult, one_line
from subagents.fence import RESERVE, render
from subagents.gate import Deny, Gate

log = logging.getLogger(__name__)

MIN_OUTPUT_TOKENS = 300
"""Below this a tool result tells nothing; the context counts as full."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A `tool_use` block."""

    id: str
    name: str
    input: Any


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The ordinary tools that one context is offered."""

    tools: Mapping[str, Tool]
    gate: Gate
    timeout_s: float
    fence: str

    async def batch(
        self, context: str, ctx: ToolContext, calls: Sequence[ToolCall], max_tokens: int
    ) -> list[dict[str, Any]]:
        """One outcome a call, in call order: `{text, error, crash, items, holds, handles, label}`.

        Each is cut at `max_tokens`.
        """
        ctx = replace(ctx, max_output_tokens=max_tokens - RESERVE)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(context, ctx, call)) for call in calls]
        return [task.result() for task in tasks]

    async def _one(self, context: str, ctx: ToolContext, call: ToolCall) -> dict[str, Any]:
        tool = self.tools.get(call.name)
        if tool is None:
            offered = ", ".join(sorted(self.tools))
            return failed(f"No tool {call.name[:60]!r} is offered here. Tools: {offered}.")
        try:
            async with asyncio.timeout(self.timeout_s):
                keyed = replace(ctx, key=f"{ctx.run}/{context}/{call.id}", context=context)
                found = await self.gate.call(context, keyed, tool, call.input)
        except ToolError as error:
            return failed(str(error), error.label, error.undone)
        except TimeoutError:
            return failed(f"{call.name} gave no answer within {self.timeout_s:g} s.")
        except Exception as error:  # the seam: a tool that crashes fails its subagent only
            log.exception("tool %s of %s crashed", call.name, context)
            lasts = isinstance(error, SourceFailed) and error.remedy
            undone = {call.name: f"{error}."} if lasts else {}
            return {**failed(crash_text(call.name, error), undone=undone), "crash": True}
        if not isinstance(found, ToolResult):
            return failed(found.reason, found.label if isinstance(found, Deny) else TRUSTED)
        return self._shown(found, ctx.max_output_tokens + RESERVE)

    def _shown(self, result: ToolResult, max_tokens: int) -> dict[str, Any]:
        text, shown = render(result, self.fence, max_tokens)
        return {
            "text": text,
            "error": False,
            "crash": False,
            "items": [item.to_json() for item in result.items[:shown]],
            "holds": dict(result.holds),
            "handles": dict(result.handles),
            "undone": dict(result.undone),
            "lists": {name: list(ids) for name, ids in result.lists.items()},
            "reads": list(result.reads),
            "label": result.label.to_json(),
        }


def failed(
    text: str, label: Label = TRUSTED, undone: Mapping[str, str] | None = None
) -> dict[str, Any]:
    nothing: dict[str, Any] = {"items": [], "holds": {}, "handles": {}, "lists": {}, "reads": []}
    nothing["undone"] = dict(undone or {})
    return {"text": text, "error": True, "crash": False, **nothing, "label": label.to_json()}


def crash_text(tool: str, error: Exception) -> str:
    """What went wrong, in one line; what a foreign error says may hold what was read: log only."""
    said = one_line(str(error))[:200] if isinstance(error, SourceFailed) else ""
    return f"{tool} failed: {said or type(error).__name__}"
