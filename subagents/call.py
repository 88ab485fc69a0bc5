"""One call as the rules of the gate see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scopes.effects import Effect, Part
from scopes.tool import Tool, ToolContext, not_found
from subagents.directory import Directory


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a call may not run as it is."""

    reason: str
    """Shown to the model; for what is hidden the same as for what does not exist."""
    approvable: bool = False
    """It may run if a person approves of exactly this."""


@dataclass
class Call:
    """One call as the rules see it."""

    ctx: ToolContext
    tool: Tool
    values: dict[str, Any]
    """The validated arguments; names become ids by the rule of handles."""
    directory: Directory
    counts: Mapping[str, int] = field(default_factory=dict)
    """Calls that were allowed in this run so far, by `counts_of`."""
    context: str = ""
    over: str = ""
    """Why it is one call too many; empty where it is not."""
    given: dict[str, str] = field(default_factory=dict)
    """What stood in the handle arguments, before it was resolved."""

    def __post_init__(self) -> None:
        fields = self.tool.input_model.model_fields
        for name in self.tool.handle_arguments:
            value = self.values.get(name)
            if value or fields[name].is_required():
                self.given[name] = str(value)

    @property
    def effect(self) -> Effect:
        """How it acts: a query whose result is stored as well is held to what storing is."""
        return Effect.KEEP if any(self.parts(Part.KEPT)) else self.tool.effect

    @property
    def target(self) -> str:
        """The conversation, message, person or folder that it is about; empty for none."""
        kinds = ("channel", "person", "thread", "folder")
        named = {k: self.values.get(n) for n, k in self.tool.handle_arguments.items()}
        return next((str(named[kind]) for kind in kinds if named.get(kind)), "")

    @property
    def destination(self) -> str:
        """The conversation, person or folder that it reaches."""
        return self.target.partition("/")[0]

    def parts(self, part: Part) -> list[str]:
        """The texts of the arguments that play this part; of tools from outside those given."""
        values = self.values
        return [str(values[n]) for n, p in self.tool.parts.items() if p is part and n in values]

    def texts(self) -> list[str]:
        """All that the model says in this call: what stands in any argument at any depth, other
        than in those that the tool declares as a handle, a message, or one of a few words."""
        declared = {*self.tool.handle_arguments, *self.tool.choices}
        declared |= {name for name, part in self.tool.parts.items() if part is Part.THREAD}
        fields = self.tool.input_model.model_fields
        said = {
            name: value
            for name, value in self.values.items()
            if name not in declared and not (name in fields and value == fields[name].default)
        }
        return [text for value in said.values() for text in _texts(value)]

    @property
    def asks(self) -> tuple[str, ...]:
        """What it gives to the internet: addresses, or words of a search."""
        if self.effect not in (Effect.FETCH, Effect.SEARCH):
            return ()
        return (*self.parts(Part.ADDRESS), *self.parts(Part.WORDS))

    @property
    def is_approved(self) -> bool:
        """Whether the requester has approved of all that it gives to the internet."""
        return bool(self.asks) and self.ctx.intent.lookups.issuperset(self.asks)

    def hidden(self, name: str) -> Objection:
        """The one answer for what is outside the handles, forbidden or absent."""
        return Objection(not_found(self.tool.handle_arguments[name], self.given[name]))


def is_literal(call: Call) -> bool:
    """It says nothing but words of the request."""
    said = call.texts()
    return bool(said) and all(call.ctx.intent.says(text) for text in said)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
