"""Provenance: every block of every request is accounted for, in its place (laws 1, 2 and 8)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from subagents.trajectory import (
    Context,
    Origin,
    RecordedReply,
    RecordedRequest,
    Trajectory,
    digest_of,
)

SOURCE = frozenset((Origin.TOOL_RESULT, Origin.MATERIAL))
"""Origins of text that a context itself has read."""

SPAWNING_TOOLS = frozenset(
    ("run_subagent", "run_subagents", "challenge", "sweep_channels", "triage_inbox", "review")
)
"""Tools that are answered with views of subagents, never with source text."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A block, or words in it, that a context should not hold."""

    context: str
    kind: str
    """`provenance`: nothing accounts for the block here; `content`: it holds what another read."""
    detail: str
    block_hash: str = ""
    """Hash of the block; empty if it is not about one block."""
    source_context: str = ""
    """The context that had read the words; empty if unknown."""


@dataclass(frozen=True, slots=True)
class BlockOrigin:
    """The reason a context holds a block."""

    origin: Origin
    refs: tuple[str, ...]
    """Ids that the entry names; a view of several children names each of them."""
    order: int
    """Position of the entry among all of the run."""


class ProvenanceIndex:
    """The blocks of each context with their origins, from a recording."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.contexts: dict[str, Context] = {c.id: c for c in trajectory.contexts}
        self.requests: dict[str, list[RecordedRequest]] = defaultdict(list)
        for request in sorted(trajectory.requests, key=lambda r: (r.seq, r.attempt)):
            self.requests[request.context].append(request)
        self.replies: dict[str, list[RecordedReply]] = defaultdict(list)
        for reply in trajectory.replies:
            self.replies[reply.context].append(reply)
        self.filed: dict[str, dict[str, list[BlockOrigin]]] = defaultdict(lambda: defaultdict(list))
        for order, entry in enumerate(trajectory.entries):
            refs = tuple(entry.ref.replace(",", " ").split())
            self.filed[entry.context][entry.hash].append(BlockOrigin(entry.origin, refs, order))

    def block(self, digest: str) -> Mapping[str, Any]:
        """Return the block of this hash; empty if its body was not kept."""
        found = json.loads(self.trajectory.blocks.get(digest, "{}"))
        return found if isinstance(found, dict) else {}

    def find_held(self, context: str, *origins: Origin) -> dict[str, list[BlockOrigin]]:
        """Map blocks that a context holds for one of these reasons to those entries."""
        found = {}
        for digest, entries in self.filed[context].items():
            if fitting := [entry for entry in entries if entry.origin in origins]:
                found[digest] = fitting
        return found

    def outputs(self, context: str) -> dict[str, int]:
        """Map blocks that a context's model wrote to the number of their first call."""
        found: dict[str, int] = {}
        for reply in self.replies[context]:
            for digest in reply.blocks:
                found[digest] = min(reply.seq, found.get(digest, reply.seq))
        return found

    def calls(self, context: str) -> dict[str, str]:
        """Map ids of the tool calls that a context made to the name of the tool."""
        blocks = [self.block(digest) for digest in self.outputs(context)]
        return {str(b.get("id")): str(b.get("name")) for b in blocks if b.get("type") == "tool_use"}

    def read(self, context: str) -> set[str]:
        """Return the blocks that a context has read: its material and answers to its own calls."""
        calls = self.calls(context)
        found = set(self.find_held(context, Origin.MATERIAL))
        for digest in self.find_held(context, Origin.TOOL_RESULT):
            name = calls.get(str(self.block(digest).get("tool_use_id")))
            if name and name not in SPAWNING_TOOLS:
                found.add(digest)
        return found

    def sessions(self, context: str) -> set[str]:
        """Return this context and, after a handoff, the earlier sessions that it continues."""
        parents = [c.id for c in self.contexts.values() if c.kind == "parent"]
        prior = parents[: parents.index(context)] if context in parents else []
        handoffs = self.find_held(context, Origin.HANDOFF).values()
        named = {ref for entries in handoffs for entry in entries for ref in entry.refs}
        return {context}.union(*(self.sessions(each) for each in named.intersection(prior)))

    def children(self, context: str) -> set[str]:
        """Return the ids of the subagents whose views this context may hold: its own, and those
        of a report that it requested."""
        sessions = self.sessions(context)
        own = [c for c in self.contexts.values() if c.parent in sessions]
        spawners = sessions | {c.id for c in own if c.kind == "parent"}
        return {c.id for c in self.contexts.values() if c.parent in spawners and c.kind != "parent"}

    def orders(self, context: str, origin: Origin) -> list[int]:
        """Return the positions in the ledger of a context's blocks of an origin."""
        held = self.find_held(context, origin).values()
        return [entry.order for entries in held for entry in entries]

    def specialist(self, context: str) -> str:
        """Return the name of the specialist of a panel that a context is; empty for others."""
        held = self.find_held(context, Origin.BRIEF).values()
        return next((ref for entries in held for each in entries for ref in each.refs), "")

    def is_finder(self, context: str) -> bool:
        """Return whether a context is a specialist that reads alone."""
        found = self.contexts.get(context)
        return found is not None and "/review@" in found.template

    def subagents(self) -> list[Context]:
        return [c for c in self.contexts.values() if c.kind == "subagent"]


SUBMIT = "submit_result"

_ORIGINS_BY_PLACE = {
    "system": frozenset((Origin.PROMPT,)),
    "tool": frozenset((Origin.SCHEMA,)),
    "user": frozenset(Origin) - {Origin.PROMPT, Origin.SCHEMA, Origin.OUTPUT},
    "assistant": frozenset((Origin.OUTPUT,)),
}
PANEL_ORIGINS = frozenset((Origin.CHALLENGE, Origin.DEFENCE))
"""Origins of what code hands from one specialist of a panel to another."""
_OPENING_ORIGINS = PANEL_ORIGINS | {
    Origin.BRIEF,
    Origin.REFERENCES,
    Origin.FINDINGS,
    Origin.MATERIAL,
}
"""Origins that occur only in the first user message, and the only ones a subagent begins with."""
_PARENTS_ONLY = frozenset((Origin.REQUEST, Origin.VIEW, Origin.HANDOFF))


def provenance_leaks(index: ProvenanceIndex) -> Iterator[Leak]:
    """Find everything in a request that may not be there, and everything that is missing."""
    for digest, text in index.trajectory.blocks.items():
        if digest_of(text) != digest:
            yield Leak("", "provenance", "this block was changed after it was recorded", digest)
    for name, requests in index.requests.items():
        context = index.contexts.get(name)
        if context is None:
            yield Leak(name, "provenance", "requests of a context that was never declared")
            continue
        yield from _strangers(index, context, requests)
        yield from _tools(index, context, requests)
        yield from _changes(context, requests)
        if context.kind == "subagent":
            yield from _check_beginning(index, context, requests[0])
    yield from _siblings(index)


def _strangers(
    index: ProvenanceIndex, context: Context, requests: list[RecordedRequest]
) -> Iterator[Leak]:
    """Find blocks without a fitting entry in this context's ledger."""
    rules = _Rules(index, context)
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
    """Rules for which blocks one context may hold where."""

    def __init__(self, index: ProvenanceIndex, context: Context) -> None:
        self._index = index
        self._context = context
        self._outputs = index.outputs(context.id)
        self._calls = index.calls(context.id)
        self._children = index.children(context.id)

    def against(self, digest: str, place: str, opening: bool, seq: int) -> str:
        """Return what is wrong with the block at this place, or ""."""
        if digest not in self._index.trajectory.blocks:
            return "its body was not recorded"
        entries = self._index.filed[self._context.id].get(digest)
        if not entries:
            return "nothing accounts for it in this context"
        fitting = [e for e in entries if e.origin in _ORIGINS_BY_PLACE.get(place, ())]
        if not fitting:
            return f"a block of origin {entries[0].origin} does not belong here"
        reasons = [self._entry(entry, digest, opening, seq) for entry in fitting]
        return "" if "" in reasons else reasons[0]

    def _entry(self, entry: BlockOrigin, digest: str, opening: bool, seq: int) -> str:
        origin, parent = entry.origin, self._context.kind == "parent"
        if origin is Origin.OUTPUT:
            call = self._outputs.get(digest)
            return "" if call is not None and call < seq else "no reply of this context gave it"
        if origin in _PARENTS_ONLY and not parent:
            return f"a subagent holds a block of origin {origin}"
        if origin is Origin.BRIEF and parent:
            return "a parent holds a brief"
        if origin in _OPENING_ORIGINS and not opening:
            return f"a block of origin {origin} after the first user message"
        if origin is Origin.VIEW and (reason := self._view(digest)):
            return reason
        if origin in PANEL_ORIGINS and (reason := self._check_passage(entry)):
            return reason
        return self._answer(entry, digest)

    def _view(self, digest: str) -> str:
        """Return what is wrong with a view: every subagent in it must be this context's own child.

        A refused brief has an id and no context; a view may mention it next to others.
        """
        entries = self._index.find_held(self._context.id, Origin.VIEW)[digest]
        refs = {ref for entry in entries for ref in entry.refs}
        foreign = (refs & self._index.contexts.keys()) - self._children
        if refs & self._children and not foreign:
            return ""
        return f"a view of {', '.join(sorted(foreign or refs)) or 'nobody'}, not its own child"

    def _check_passage(self, entry: BlockOrigin) -> str:
        """Return what is wrong with findings of others: a judge is never their author, a defence is
        of its own findings, and all come from specialists that had answered before."""
        index, name = self._index, self._index.specialist(self._context.id)
        if index.is_finder(self._context.id) or not name:
            return f"a block of origin {entry.origin} in a context that is to read alone"
        for ref in entry.refs:
            source = index.contexts.get(ref)
            if source is None or source.parent != self._context.parent:
                return f"findings of {ref}, which is no specialist of this panel"
            if entry.order < min(index.orders(ref, Origin.OUTPUT), default=entry.order + 1):
                return f"findings of {ref} before it had answered"
        authors = {index.specialist(r) for r in entry.refs if index.is_finder(r)}
        if entry.origin is Origin.CHALLENGE and name in authors:
            return f"{name} judges its own findings"
        if entry.origin is Origin.DEFENCE and authors != {name}:
            return f"{name} defends findings that are not its own"
        return ""

    def _answer(self, entry: BlockOrigin, digest: str) -> str:
        """Return what is wrong with a tool result: it must answer this context's own call."""
        block = self._index.block(digest)
        if block.get("type") != "tool_result":
            return "a tool result of another form" if entry.origin is Origin.TOOL_RESULT else ""
        name = self._calls.get(str(block.get("tool_use_id")))
        if name is None:
            return "it answers no call of this context"
        if entry.origin is not Origin.TOOL_RESULT:
            return ""
        if name in SPAWNING_TOOLS:
            return f"it answers {name} with something other than a view"
        if name not in self._context.tools:
            return f"it answers {name}, which is not offered here"
        return "" if entry.refs in ((), (name,)) else f"it answers {name}, not {entry.refs[0]}"


def _tools(
    index: ProvenanceIndex, context: Context, requests: list[RecordedRequest]
) -> Iterator[Leak]:
    """Check law 1: exactly the declared tools; a subagent can end, and cannot start others."""
    offered = set(context.tools)
    if context.kind == "subagent" and (SPAWNING_TOOLS & offered or SUBMIT not in offered):
        yield Leak(context.id, "provenance", f"a subagent declared {', '.join(context.tools)}")
    declared = sorted(context.tools)
    for digests in {tuple(d for place, d in r.parts if place == "tool") for r in requests}:
        names = sorted(str(index.block(digest).get("name")) for digest in digests)
        if names != declared:
            extra, missing = set(names) - offered, offered - set(names)
            what = [f"{word} {', '.join(sorted(s))}" for word, s in
                    (("beyond its scope:", extra), ("missing:", missing)) if s]  # fmt: skip
            detail = f"tools {'; '.join(what) or 'offered twice'}"
            yield Leak(context.id, "provenance", detail)


def _check_beginning(
    index: ProvenanceIndex, context: Context, first: RecordedRequest
) -> Iterator[Leak]:
    """Check law 1: a subagent begins with only its prompt, its tools and its brief."""
    origins: set[Origin] = set()
    for place, digest in first.parts:
        held = {entry.origin for entry in index.filed[context.id].get(digest, ())}
        if place == "user" and held and not held & _OPENING_ORIGINS:
            detail = f"a subagent begins with a block of origin {min(held)}"
            yield Leak(context.id, "provenance", detail, digest)
        if place == "assistant":
            yield Leak(context.id, "provenance", "a subagent begins with an answer", digest)
        origins |= held
    for needed in (Origin.PROMPT, Origin.BRIEF):
        if needed not in origins:
            yield Leak(context.id, "provenance", f"a subagent begins without its {needed}")


def _changes(context: Context, requests: list[RecordedRequest]) -> Iterator[Leak]:
    """Check law 8: each request begins with the previous one, and answers follow what was sent."""
    for before, after in pairwise(requests):
        (fixed, sent), (fixed_now, now) = _split(before), _split(after)
        if fixed != fixed_now:
            detail = f"request {after.seq}.{after.attempt} changed the system prompt or the tools"
            yield Leak(context.id, "provenance", detail)
        added = now[len(sent) :]
        slipped_in = added and added[0][0] == "user" and any(p == "assistant" for p, _ in added)
        if now[: len(sent)] != sent or slipped_in:
            detail = f"request {after.seq}.{after.attempt} changed messages already sent"
            yield Leak(context.id, "provenance", detail)


Parts = list[tuple[str, str]]
"""Place and block hash of each part of a request."""


def _split(request: RecordedRequest) -> tuple[Parts, Parts]:
    """Return the prompt and the tools of a request, and its messages."""
    fixed = [part for part in request.parts if part[0] in ("system", "tool")]
    return fixed, [part for part in request.parts if part[0] not in ("system", "tool")]


def _siblings(index: ProvenanceIndex) -> Iterator[Leak]:
    """Check laws 1 and 8: subagents of one template have byte-identical prompts and tools."""
    first: dict[str, Parts] = {}
    for context in index.subagents():
        if not (requests := index.requests.get(context.id)) or not context.template:
            continue
        fixed, _ = _split(requests[0])
        if first.setdefault(context.template, fixed) != fixed:
            detail = f"its prompt or tools differ from those of siblings by {context.template}"
            yield Leak(context.id, "provenance", detail)
