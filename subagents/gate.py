"""The gate: the only way to a tool, in every context, from the first commit on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from scopes.tool import Access, Tool, ToolContext, ToolResult, not_found


@dataclass(frozen=True, slots=True)
class Allow:
    args: Mapping[str, Any]
    """The arguments to run with: validated, handles resolved to ids."""
    rule: str


@dataclass(frozen=True, slots=True)
class Card:
    """A call that needs a person's click; no rule makes one yet."""

    action: str
    rule: str


@dataclass(frozen=True, slots=True)
class Deny:
    reason: str
    """Shown to the model; for what is hidden the same as for what does not exist."""
    rule: str


Verdict = Allow | Card | Deny


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the gate's log."""

    run: str
    context: str
    tool: str
    args_hash: str
    verdict: str
    rule: str
    at: datetime


class Gate:
    """Decides every call and logs each decision. Denies what no rule allows."""

    def __init__(self, log: Callable[[Decision], None]) -> None:
        self._log = log

    def decide(self, context: str, ctx: ToolContext, tool: Tool, args: Any) -> Verdict:
        """Whether this call may run, and with which arguments."""
        verdict = self._verdict(ctx, tool, args)
        digest = hashlib.sha256(json.dumps(args, sort_keys=True, default=str).encode()).hexdigest()
        name = type(verdict).__name__.lower()
        at = datetime.now(UTC)
        self._log(Decision(ctx.run, context, tool.name, digest[:16], name, verdict.rule, at))
        return verdict

    async def call(
        self, context: str, ctx: ToolContext, tool: Tool, args: Any
    ) -> ToolResult | Deny | Card:
        """Decide, then run. Nothing else in the product runs a tool."""
        verdict = self.decide(context, ctx, tool, args)
        if not isinstance(verdict, Allow):
            return verdict
        return await tool.run(ctx, **verdict.args)

    @staticmethod
    def _verdict(ctx: ToolContext, tool: Tool, args: Any) -> Verdict:
        try:
            values = tool.input_model.model_validate(args).model_dump()
        except ValidationError as error:
            return Deny(explain(error), "arguments")
        if tool.access is not Access.READ:
            return Deny(
                f"{tool.name} is not allowed: this assistant only reads for now. "
                "Put what you would have done into your result.",
                "read-only",
            )
        if tool.needs and tool.needs not in ctx.handles.titles:
            return Deny(not_found("such thing", tool.name), "handles")
        for name, kind in tool.handle_arguments.items():
            value = values.get(name)
            if not value and not tool.input_model.model_fields[name].is_required():
                continue
            found = ctx.handles.resolve(str(value))
            if found is None:
                return Deny(not_found(kind, str(value)), "handles")
            values[name] = found
        return Allow(values, "read within handles")


def explain(error: ValidationError) -> str:
    """A validation error as one line that names each argument and what is wrong with it."""
    faults = []
    for each in error.errors()[:8]:
        place = ".".join(str(p)[:60] for p in each["loc"]) or "input"
        message = "is not an argument" if each["type"] == "extra_forbidden" else each["msg"][:200]
        faults.append(f"{place}: {message}")
    return "; ".join(faults)
