"""Provenance: every block of every request is accounted for, in its place (laws 1, 2 and 8)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from subagents.ledger import SPAWNERS, Filed, Leak, Ledger
from subagents.trajectory import Context, Origin, Request, digest_of

SUBMIT = "submit_result"

_FITTING = {
    "system": frozenset((Origin.PROMPT,)),
    "tool": frozenset((Origin.SCHEMA,)),
    "user": frozenset(Origin) - {Origin.PROMPT, Origin.SCHEMA, Origin.OUTPUT},
    "assistant": frozenset((Origin.OUTPUT,)),
}
_OPENING = frozenset((Origin.BRIEF, Origin.FINDINGS, Origin.MATERIAL))
"""What stands in the first user message only, and what alone a subagent begins with."""
_PARENTS_ONLY = frozenset((Origin.REQUEST, Origin.VIEW, Origin.HANDOFF))


def provenance_leaks(ledger: Ledger) -> Iterator[Leak]:
    """All that is in a request without a right to be there, and all that should be and is not."""
    for digest, text in ledger.trajectory.blocks.items():
        if digest_of(text) != digest:
            yield Leak("", "provenance", "this block was changed after it was recorded", digest)
    for name, requests in ledger.requests.items():
        context = ledger.contexts.get(name)
        if context is None:
            yield Leak(name, "provenance", "requests of a context that was never declared")
            continue
        yield from _strangers(ledger, context, requests)
        yield from _tools(ledger, context, requests)
        yield from _changes(context, requests)
        if context.kind == "subagent":
            yield from _beginning(ledger, context, requests[0])
    yield from _siblings(ledger)


def _strangers(ledger: Ledger, context: Context, requests: list[Request]) -> Iterator[Leak]:
    """Blocks without a fitting entry in this context's ledger."""
    rules = _Rules(ledger, context)
    seen: set[tuple[str, str, bool]] = set()
    for request in requests:
        opening = True
        for place, digest in request.parts:
            opening = opening and place != "assistant"
            if (place, digest, opening) in seen:
                continue
            seen.add((place, digest, opening))
            if reason := rules.against(digest, place, opening, request.seq):
                yield Leak(context.id, "provenance", f"{place} block: {reason}", digest)


class _Rules:
    """What one context may hold where."""

    def __init__(self, ledger: Ledger, context: Context) -> None:
        self._ledger = ledger
        self._context = context
        self._outputs = ledger.outputs(context.id)
        self._calls = ledger.calls(context.id)
        self._children = ledger.children(context.id)

    def against(self, digest: str, place: str, opening: bool, seq: int) -> str:
        """What speaks against the block at this place, or an empty text."""
        if digest not in self._ledger.trajectory.blocks:
            return "its body was not recorded"
        entries = self._ledger.filed[self._context.id].get(digest)
        if not entries:
            return "nothing accounts for it in this context"
        fitting = [e for e in entries if e.origin in _FITTING.get(place, ())]
        if not fitting:
            return f"a block of origin {entries[0].origin} does not belong here"
        reasons = [self._entry(entry, digest, opening, seq) for entry in fitting]
        return "" if "" in reasons else reasons[0]

    def _entry(self, entry: Filed, digest: str, opening: bool, seq: int) -> str:
        origin, parent = entry.origin, self._context.kind == "parent"
        if origin is Origin.OUTPUT:
            given = self._outputs.get(digest)
            return "" if given is not None and given < seq else "no reply of this context gave it"
        if origin in _PARENTS_ONLY and not parent:
            return f"a subagent holds a block of origin {origin}"
        if origin is Origin.BRIEF and parent:
            return "a parent holds a brief"
        if origin in _OPENING and not opening:
            return f"a block of origin {origin} after the first user message"
        if origin is Origin.VIEW and (reason := self._view(digest)):
            return reason
        return self._answer(entry, digest)

    def _view(self, digest: str) -> str:
        """What speaks against a view: every subagent in it must be this context's own child.

        A brief that was refused has an id and no context; a view may tell of it beside others.
        """
        entries = self._ledger.held(self._context.id, Origin.VIEW)[digest]
        refs = {ref for entry in entries for ref in entry.refs}
        foreign = (refs & self._ledger.contexts.keys()) - self._children
        if refs & self._children and not foreign:
            return ""
        return f"a view of {', '.join(sorted(foreign or refs)) or 'nobody'}, not its own child"

    def _answer(self, entry: Filed, digest: str) -> str:
        """What speaks against a tool result: it must answer this context's own call."""
        block = self._ledger.block(digest)
        if block.get("type") != "tool_result":
            return "a tool result of another form" if entry.origin is Origin.TOOL_RESULT else ""
        name = self._calls.get(str(block.get("tool_use_id")))
        if name is None:
            return "it answers no call of this context"
        if entry.origin is not Origin.TOOL_RESULT:
            return ""
        if name in SPAWNERS:
            return f"it answers {name} with something other than a view"
        if name not in self._context.tools:
            return f"it answers {name}, which is not offered here"
        return "" if entry.refs in ((), (name,)) else f"it answers {name}, not {entry.refs[0]}"


def _tools(ledger: Ledger, context: Context, requests: list[Request]) -> Iterator[Leak]:
    """Law 1: exactly the declared tools; a subagent can end, and cannot start others."""
    offered = set(context.tools)
    if context.kind == "subagent" and (SPAWNERS & offered or SUBMIT not in offered):
        yield Leak(context.id, "provenance", f"a subagent declared {', '.join(context.tools)}")
    declared = sorted(context.tools)
    for digests in {tuple(d for place, d in r.parts if place == "tool") for r in requests}:
        names = sorted(str(ledger.block(digest).get("name")) for digest in digests)
        if names != declared:
            extra, missing = set(names) - offered, offered - set(names)
            what = [f"{word} {', '.join(sorted(s))}" for word, s in
                    (("beyond its scope:", extra), ("missing:", missing)) if s]  # fmt: skip
            detail = f"tools {'; '.join(what) or 'offered twice'}"
            yield Leak(context.id, "provenance", detail)


def _beginning(ledger: Ledger, context: Context, first: Request) -> Iterator[Leak]:
    """Law 1: a subagent begins with its prompt, its tools and its brief, and with nothing else."""
    origins: set[Origin] = set()
    for place, digest in first.parts:
        held = {entry.origin for entry in ledger.filed[context.id].get(digest, ())}
        if place == "user" and held and not held & _OPENING:
            detail = f"a subagent begins with a block of origin {min(held)}"
            yield Leak(context.id, "provenance", detail, digest)
        if place == "assistant":
            yield Leak(context.id, "provenance", "a subagent begins with an answer", digest)
        origins |= held
    for needed in (Origin.PROMPT, Origin.BRIEF):
        if needed not in origins:
            yield Leak(context.id, "provenance", f"a subagent begins without its {needed}")


def _changes(context: Context, requests: list[Request]) -> Iterator[Leak]:
    """Law 8: each request begins with all of the one before, and answers follow what was sent."""
    for before, after in pairwise(requests):
        if _fixed(before) != _fixed(after):
            detail = f"request {after.seq}.{after.attempt} changed the system prompt or the tools"
            yield Leak(context.id, "provenance", detail)
        sent, now = _messages(before), _messages(after)
        added = now[len(sent) :]
        slipped_in = added and added[0][0] == "user" and any(p == "assistant" for p, _ in added)
        if now[: len(sent)] != sent or slipped_in:
            detail = f"request {after.seq}.{after.attempt} changed messages already sent"
            yield Leak(context.id, "provenance", detail)


def _fixed(request: Request) -> list[tuple[str, str]]:
    return [part for part in request.parts if part[0] in ("system", "tool")]


def _messages(request: Request) -> list[tuple[str, str]]:
    return [part for part in request.parts if part[0] not in ("system", "tool")]


def _siblings(ledger: Ledger) -> Iterator[Leak]:
    """Laws 1 and 8: subagents of one template were sent the same prompt and tools, to the byte."""
    first: dict[str, list[tuple[str, str]]] = {}
    for context in ledger.subagents():
        if not (requests := ledger.requests.get(context.id)) or not context.template:
            continue
        fixed = _fixed(requests[0])
        if first.setdefault(context.template, fixed) != fixed:
            detail = f"its prompt or tools differ from those of siblings by {context.template}"
            yield Leak(context.id, "provenance", detail)
