"""The trajectory: what every context was sent and what it answered, as content-addressed blocks."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

SeenItem = tuple[str, str | None]
"""Id of an item, and the id of its author; None if the source has none."""

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
_encode_ascii = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class Origin(StrEnum):
    """The reason a context holds a block."""

    PROMPT = "prompt"
    SCHEMA = "schema"
    REQUEST = "request"
    BRIEF = "brief"
    FINDINGS = "findings"
    MATERIAL = "material"
    REFERENCES = "references"
    """Rules that a specialist of a panel judges by."""
    CHALLENGE = "challenge"
    """Findings of others, sanitized by code, for a judge."""
    DEFENCE = "defence"
    """A specialist's own findings with the objections of others, sanitized by code."""
    REMINDER = "reminder"
    REPAIR = "repair"
    OUTPUT = "output"
    TOOL_RESULT = "tool_result"
    """Result of an ordinary tool: the context's own source text."""
    ERROR = "error"
    """Error result made by code."""
    VIEW = "view"
    """View of the parent's own child."""
    HANDOFF = "handoff"


@dataclass(frozen=True, slots=True)
class Context:
    """One conversation with a model."""

    run: str
    id: str
    parent: str | None
    """Id of the context that spawned it; None for a parent agent."""
    kind: str
    """Either `parent` or `subagent`."""
    scope: str
    model: str
    template: str
    """Version of its prompt and schemas; siblings of one template share both, byte by byte."""
    tools: tuple[str, ...]
    """Names of the tools that it is offered."""
    created: datetime


@dataclass(frozen=True, slots=True)
class TrajectoryEntry:
    """One line of the ledger: this context may hold this block, for this reason."""

    run: str
    context: str
    origin: Origin
    hash: str
    ref: str = ""
    """Child id for a VIEW, continued context for a HANDOFF, tool name for SCHEMA, TOOL_RESULT."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request as it was sent."""

    run: str
    context: str
    seq: int
    """Number of the model call in its context."""
    attempt: int
    """Number of the attempt of this call, from 1."""
    parts: tuple[tuple[str, str], ...]
    """(place, block hash) in the order sent; place is `system`, `tool`, `user` or `assistant`."""
    at: datetime = field(compare=False)
    """When it was sent."""


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """One answer of a model, or how the attempt failed."""

    run: str
    context: str
    seq: int
    attempt: int
    blocks: tuple[str, ...]
    """Hashes of its content blocks; empty if the attempt failed."""
    outcome: Mapping[str, Any]
    """Everything but the content: stop_reason, usage, cost_usd, error."""
    at: datetime = field(compare=False)
    """When its last part arrived."""


@dataclass(frozen=True)
class Trajectory:
    """Everything that was recorded of one run, each part in order of recording."""

    run: str
    contexts: tuple[Context, ...]
    entries: tuple[TrajectoryEntry, ...]
    requests: tuple[RecordedRequest, ...]
    replies: tuple[RecordedReply, ...]
    blocks: Mapping[str, str]
    """Block hash -> canonical JSON of the block."""


@dataclass
class Recording:
    """The requests and answers of contexts, in memory. Recording does no I/O."""

    contexts: list[Context] = field(default_factory=list)
    entries: list[TrajectoryEntry] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    replies: list[RecordedReply] = field(default_factory=list)
    blocks: dict[str, str] = field(default_factory=dict)
    known_blocks: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Run -> hashes of the blocks that were recorded for it, here or in an earlier process."""
    digests: dict[bytes, str] = field(default_factory=dict)
    """Digest of a block's fast, non-canonical bytes -> its hash; saves most of the JSON work."""

    def saw(self, run: str, items: Iterable[SeenItem]) -> None:
        """Note that the run holds text of these items from now on; only what is stored needs it."""

    def context(self, context: Context) -> None:
        self.contexts.append(context)

    def note(
        self, run: str, context: str, origin: Origin, block: Mapping[str, Any], ref: str = ""
    ) -> str:
        """Enter a block into the context's ledger; return its hash."""
        digest = self._keep(run, block)
        self.entries.append(TrajectoryEntry(run, context, origin, digest, ref))
        return digest

    def request(
        self, run: str, context: str, seq: int, attempt: int, body: Mapping[str, Any]
    ) -> None:
        """Record a request body as it is sent: each of its blocks is hashed again."""
        parts = [("system", self._keep(run, block)) for block in _blocks(body.get("system") or ())]
        parts += [("tool", self._keep(run, tool)) for tool in body.get("tools") or ()]
        parts += [(place, self._keep(run, block)) for place, block in _message_blocks(body)]
        at = datetime.now(UTC)
        self.requests.append(RecordedRequest(run, context, seq, attempt, tuple(parts), at))

    def reply(
        self, run: str, context: str, seq: int, attempt: int, body: Mapping[str, Any]
    ) -> None:
        """Record `{content, stop_reason, usage, cost_usd, error}`; the content becomes OUTPUT."""
        content = body.get("content") or ()
        blocks = tuple(self.note(run, context, Origin.OUTPUT, block) for block in _blocks(content))
        outcome = {key: value for key, value in body.items() if key != "content"}
        at = datetime.now(UTC)
        self.replies.append(RecordedReply(run, context, seq, attempt, blocks, outcome, at))

    def trajectory(self, run: str) -> Trajectory:
        return Trajectory(
            run,
            tuple(c for c in self.contexts if c.run == run),
            tuple(e for e in self.entries if e.run == run),
            tuple(r for r in self.requests if r.run == run),
            tuple(r for r in self.replies if r.run == run),
            {digest: self.blocks[digest] for digest in self.known_blocks[run]},
        )

    def _keep(self, run: str, block: Mapping[str, Any]) -> str:
        raw = _quick_digest(block)
        digest = self.digests.get(raw)
        held = self.known_blocks[run]
        if digest is None or digest not in held:
            text = canonical(block)
            digest = self.digests[raw] = digest_of(text)
            if digest not in held:
                held.add(digest)
                self.blocks[digest] = text
        return digest


def _quick_digest(value: Mapping[str, Any]) -> bytes:
    """Return a digest that differs if the value does; it depends on the value's spelling."""
    try:
        raw = marshal.dumps(cast(Any, value), 2)
    except ValueError:  # a subclass of str or dict, which only JSON takes
        raw = _encode_ascii(value).encode()
    return hashlib.sha256(raw).digest()


def digest_of(text: str) -> str:
    """Return the SHA-256 (hex) of a text, such as a block's canonical JSON."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def canonical(block: Mapping[str, Any]) -> str:
    """Return a block as JSON with sorted keys, without `cache_control`, always valid UTF-8."""
    if "cache_control" in block:
        block = {key: value for key, value in block.items() if key != "cache_control"}
    text = _encode(block)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can spell it, UTF-8 cannot
        return _encode_ascii(block)
    return text


def _message_blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the blocks of a request's messages with their role; a plain string is one block."""
    for message in body.get("messages") or ():
        for block in _blocks(message["content"]):
            yield message["role"], block


def messages_of(trajectory: Trajectory, request: RecordedRequest) -> list[dict[str, Any]]:
    """Return the messages of a recorded request.

    Neighboring messages of one role come back as one message, as the API merges them; cache marks
    are not recorded.
    """
    sent = (part for part in request.parts if part[0] not in ("system", "tool"))
    return [
        {"role": role, "content": [json.loads(trajectory.blocks[digest]) for _, digest in parts]}
        for role, parts in groupby(sent, key=itemgetter(0))
    ]


def _blocks(content: str | Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
