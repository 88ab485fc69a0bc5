"""The ledger: a trajectory indexed for the audit, context by context."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from subagents.trajectory import Context, Origin, Reply, Request, Trajectory

SOURCE = frozenset((Origin.TOOL_RESULT, Origin.MATERIAL))
"""Origins of what a context itself has read."""

SPAWNERS = frozenset(("run_subagent", "run_subagents"))
"""Tools that are answered with views of subagents, never with source text."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A block, or words in it, that a context should not hold."""

    context: str
    kind: str
    """`provenance`: nothing accounts for the block here; `content`: it holds what another read."""
    detail: str
    block_hash: str = ""
    """Empty when it is not about one block."""
    source_context: str = ""
    """The context that had read the words; empty when unknown."""


@dataclass(frozen=True, slots=True)
class Filed:
    """Why a context holds a block."""

    origin: Origin
    refs: tuple[str, ...]
    """Ids that the entry names; a view of several children names each of them."""
    order: int
    """Place of the entry among all of the run."""


class Ledger:
    """Who holds which block, and why, from what was recorded."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.contexts: dict[str, Context] = {c.id: c for c in trajectory.contexts}
        self.requests: dict[str, list[Request]] = defaultdict(list)
        for request in sorted(trajectory.requests, key=lambda r: (r.seq, r.attempt)):
            self.requests[request.context].append(request)
        self.replies: dict[str, list[Reply]] = defaultdict(list)
        for reply in trajectory.replies:
            self.replies[reply.context].append(reply)
        self.filed: dict[str, dict[str, list[Filed]]] = defaultdict(lambda: defaultdict(list))
        for order, entry in enumerate(trajectory.entries):
            refs = tuple(entry.ref.replace(",", " ").split())
            self.filed[entry.context][entry.hash].append(Filed(entry.origin, refs, order))

    def block(self, digest: str) -> Mapping[str, Any]:
        """The block of this hash; empty when its body was not kept."""
        found = json.loads(self.trajectory.blocks.get(digest, "{}"))
        return found if isinstance(found, dict) else {}

    def held(self, context: str, *origins: Origin) -> dict[str, list[Filed]]:
        """Blocks that a context holds for one of these reasons -> those entries."""
        found = {}
        for digest, entries in self.filed[context].items():
            if fitting := [entry for entry in entries if entry.origin in origins]:
                found[digest] = fitting
        return found

    def outputs(self, context: str) -> dict[str, int]:
        """Blocks that a context's model wrote -> number of the call that first gave them."""
        found: dict[str, int] = {}
        for reply in self.replies[context]:
            for digest in reply.blocks:
                found[digest] = min(reply.seq, found.get(digest, reply.seq))
        return found

    def calls(self, context: str) -> dict[str, str]:
        """Ids of the tool calls that a context made -> name of the tool."""
        blocks = [self.block(digest) for digest in self.outputs(context)]
        return {str(b.get("id")): str(b.get("name")) for b in blocks if b.get("type") == "tool_use"}

    def read(self, context: str) -> set[str]:
        """Blocks of what a context has truly read: its material and answers to its own calls."""
        calls = self.calls(context)
        found = set(self.held(context, Origin.MATERIAL))
        for digest in self.held(context, Origin.TOOL_RESULT):
            name = calls.get(str(self.block(digest).get("tool_use_id")))
            if name and name not in SPAWNERS:
                found.add(digest)
        return found

    def sessions(self, context: str) -> set[str]:
        """This context and, where it goes on from a handoff, the sessions that it continues.

        A handoff that does not name its session continues all parent sessions before it.
        """
        found = {context}
        prior = self._earlier_parents(context)
        for entries in self.held(context, Origin.HANDOFF).values():
            named = {ref for entry in entries for ref in entry.refs}
            for session in prior:
                if session in named or not named:
                    found |= self.sessions(session)
        return found

    def children(self, context: str) -> set[str]:
        """Ids of the subagents whose views this context may hold."""
        sessions = self.sessions(context)
        return {c.id for c in self.contexts.values() if c.parent in sessions}

    def subagents(self) -> list[Context]:
        return [c for c in self.contexts.values() if c.kind == "subagent"]

    def _earlier_parents(self, context: str) -> list[str]:
        parents = [c.id for c in self.contexts.values() if c.kind == "parent"]
        return parents[: parents.index(context)] if context in parents else []
