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
    """The reason a call may not run as it is."""

    reason: str
    """Shown to the model; the same for what is hidden as for what does not exist."""
    approvable: bool = False
    """True if it may run after a person approves exactly this call."""


@dataclass
class Call:
    """One call as the rules see it."""

    ctx: ToolContext
    tool: Tool
    values: dict[str, Any]
    """The validated arguments; the rule `handles` resolves names to ids."""
    directory: Directory
    counts: Mapping[str, int] = field(default_factory=dict)
    """Calls that were allowed in this run so far, by `counts_of`."""
    context: str = ""
    over: str = ""
    """Why it is one call too many; empty if it is not."""
    given: dict[str, str] = field(default_factory=dict)
    """The handle arguments as given, before they were resolved."""

    def __post_init__(self) -> None:
        fields = self.tool.input_model.model_fields
        for name in self.tool.handle_arguments:
            value = self.values.get(name)
            if value or fields[name].is_required():
                self.given[name] = str(value)

    @property
    def effect(self) -> Effect:
        """Return how it acts: a query whose result is stored must follow the rules of storing."""
        return Effect.KEEP if any(self.parts(Part.KEPT)) else self.tool.effect

    @property
    def target(self) -> str:
        """Return the conversation, message, person or folder that it is about; empty for none."""
        kinds = ("channel", "person", "thread", "folder")
        named = {k: self.values.get(n) for n, k in self.tool.handle_arguments.items()}
        return next((str(named[kind]) for kind in kinds if named.get(kind)), "")

    @property
    def destination(self) -> str:
        """Return the conversation, person or folder that it reaches."""
        return self.target.partition("/")[0]

    def parts(self, part: Part) -> list[str]:
        """Return the texts of the given arguments that are this part of the call."""
        values = self.values
        return [str(values[n]) for n, p in self.tool.parts.items() if p is part and n in values]

    def texts(self) -> list[str]:
        """Return all text of the model in this call: every string in any argument at any depth,
        except in those that the tool declares as a handle, a message, or one of a few words."""
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
        """Return what it discloses to the internet: addresses, or words of a search."""
        if self.effect not in (Effect.FETCH, Effect.SEARCH):
            return ()
        return (*self.parts(Part.ADDRESS), *self.parts(Part.WORDS))

    @property
    def is_approved(self) -> bool:
        """Return whether the requester has approved all that it discloses to the internet."""
        return bool(self.asks) and self.ctx.intent.lookups.issuperset(self.asks)

    def hidden(self, name: str) -> Objection:
        """Return the one answer for what is outside the handles, forbidden or absent."""
        return Objection(not_found(self.tool.handle_arguments[name], self.given[name]))


def is_literal(call: Call) -> bool:
    """Return whether it says only words of the request."""
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
