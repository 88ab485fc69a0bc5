"""Overlap: no context holds words that only another one has read (law 2, by content)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property
from textwrap import shorten

from subagents.ledger import SOURCE, Filed, Leak, Ledger
from subagents.shingles import excerpts, shingles, texts
from subagents.trajectory import Context, Origin

_FENCED = re.compile(r"<(items-[0-9a-f]{32})>(.*)</\1>", re.DOTALL)

# What the user or code supplied, for the whole run and for one context. It excuses a match only
# when it was on record before the words were read: afterwards it may be a copy of them.
_FIXED = (Origin.PROMPT, Origin.SCHEMA, Origin.REQUEST)
_BOILERPLATE = (Origin.REMINDER, Origin.REPAIR, Origin.ERROR)

_Held = Mapping[str, list[Filed]]
"""Block -> why a context holds it."""

_SHOWN = 200
"""Characters of an excerpt that a leak quotes."""


def content_leaks(ledger: Ledger) -> Iterator[Leak]:
    """Excerpts of a subagent's source in another context, and of its answers in another's brief."""
    overlap = Overlap(ledger)
    for context in ledger.contexts.values():
        yield from overlap.leaks(context)
    yield from overlap.retyped()


class Overlap:
    """The source text of all subagents, shingle by shingle, and who may hold which."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._shingles: dict[str, set[int]] = {}
        self._hits: dict[str, set[int]] = {}

    @cached_property
    def _reader(self) -> dict[int, str]:
        """Shingle of source text -> the first subagent that read it."""
        readers: dict[int, str] = {}
        for context in self._ledger.subagents():
            read: set[int] = set()
            for digest in self._ledger.held(context.id, *SOURCE):
                read |= self._read(digest)
            readers.update(dict.fromkeys(read.difference(readers), context.id))
        return readers

    def leaks(self, context: Context) -> Iterator[Leak]:
        """What this context was sent, or wrote, of what only others have read."""
        foreign: dict[str, set[int]] = {}
        for digest in self._scanned(context.id):
            hits = self._hit(digest)
            if strange := {s for s in hits if self._reader[s] != context.id}:
                foreign[digest] = strange
        left = set().union(*foreign.values())
        for excuse in (self._own, self._delivered, self._earlier, self._foreseen):
            if not left:
                return
            left -= excuse(context.id, left)
        for digest, strange in foreign.items():
            yield from self._report(context.id, digest, strange & left, self._reader.__getitem__)

    def retyped(self) -> Iterator[Leak]:
        """A finding enters a brief by id only, copied by code: no brief repeats its words."""
        briefs = {c.id: self._ledger.held(c.id, Origin.BRIEF) for c in self._ledger.subagents()}
        asked = self._union(digest for held in briefs.values() for digest in held)
        fixed = self._union(d for c in self._ledger.contexts for d in self._ledger.held(c, *_FIXED))
        for author in briefs:
            said = (self._union(self._ledger.outputs(author)) & asked) - fixed
            said -= self._union(briefs[author])  # most often all of it: the rest costs more
            if said := said - self._sent(author, said):
                begun = min(self._orders(author, Origin.OUTPUT), default=0)
                for reader in briefs.keys() - {author}:
                    if min(self._orders(reader, Origin.BRIEF), default=0) > begun:
                        yield from self._copied(author, reader, said)

    def _copied(self, author: str, reader: str, said: set[int]) -> Iterator[Leak]:
        copied_by_id = self._union(self._ledger.held(reader, Origin.FINDINGS))
        left = said - copied_by_id - self._own(reader, said)
        asked = self._since([self._ledger.held(self._parent(reader), Origin.OUTPUT)], left)
        heard = self._since([self._ledger.held(author, Origin.OUTPUT)], asked.keys())
        left -= {shingle for shingle, order in asked.items() if order < heard.get(shingle, 0)}
        for digest in self._ledger.held(reader, Origin.BRIEF):
            yield from self._report(reader, digest, self._of(digest) & left, lambda _: author)

    def _orders(self, context: str, origin: Origin) -> list[int]:
        """Places in the ledger of a context's blocks of an origin."""
        held = self._ledger.held(context, origin).values()
        return [entry.order for entries in held for entry in entries]

    def _report(
        self, context: str, digest: str, found: Set[int], reader: Callable[[int], str]
    ) -> Iterator[Leak]:
        by_reader: dict[str, set[int]] = defaultdict(set)
        for shingle in found:
            by_reader[reader(shingle)].add(shingle)
        origins = {entry.origin for entry in self._ledger.filed[context].get(digest, ())}
        name = "/".join(sorted(origins)) or "unaccounted"
        for source, shared in by_reader.items():
            parts = [
                p for text in texts(self._ledger.block(digest)) for p in excerpts(text, shared)
            ]
            if parts:
                words = shorten(max(parts, key=len), _SHOWN, placeholder=" ...")
                detail = f'words of {source} stand in this {name} block: "{words}"'
                yield Leak(context, "content", detail, digest, source)

    def _own(self, context: str, wanted: Set[int]) -> set[int]:
        """What the context has read itself."""
        found: set[int] = set()
        for digest in self._ledger.read(context):
            found |= self._compute(digest) & wanted
        return found

    def _delivered(self, context: str, wanted: Set[int]) -> Set[int]:
        """What came by views, findings, handoffs and a brief, so far as they hold what they may."""
        ledger, found = self._ledger, set[int]()
        for digest, entries in ledger.held(context, Origin.VIEW).items():
            found |= self._of(digest) & self._written(r for e in entries for r in e.refs)
        siblings = [c.id for c in ledger.subagents() if c.id != context]
        for digest in ledger.held(context, Origin.FINDINGS):
            found |= self._of(digest) & self._written(siblings)
        for digest in ledger.held(context, Origin.BRIEF):
            found |= self._of(digest) & self._read_by_parent(context, wanted)
        earlier = ledger.sessions(context) - {context}
        for digest in ledger.held(context, Origin.HANDOFF):
            known = self._written(ledger.children(context))
            for session in earlier:
                known |= self._own(session, wanted)
            found |= self._of(digest) & known
        return found & wanted

    def _read_by_parent(self, context: str, wanted: Set[int]) -> set[int]:
        """What the author of a brief had read with its own tools: no subagent told it."""
        sessions = self._ledger.sessions(self._parent(context))
        return set().union(*(self._own(session, wanted) for session in sessions))

    def _written(self, authors: Iterable[str]) -> set[int]:
        """Source text that these subagents have themselves put into an answer."""
        return set().union(
            *(self._hit(digest) for name in authors for digest in self._ledger.outputs(name))
        )

    def _earlier(self, context: str, wanted: Set[int]) -> Set[int]:
        """What the user or code had supplied before it was read anywhere."""
        held = []
        for name in self._ledger.contexts:
            origins = (*_FIXED, Origin.FINDINGS, *(_BOILERPLATE if name == context else ()))
            held.append(self._ledger.held(name, *origins))
        return self._before_reading(held, wanted)

    def _foreseen(self, context: str, wanted: Set[int]) -> Set[int]:
        """What it, or the author of its brief, had itself written before it was read anywhere.

        A subagent that is told words, hands them to a tool and reads them in the tool's answer is
        not where a later brief with the same words has them from.
        """
        authors = (context, self._parent(context))
        return self._before_reading([self._ledger.held(a, Origin.OUTPUT) for a in authors], wanted)

    def _before_reading(self, held: Iterable[_Held], wanted: Set[int]) -> Set[int]:
        """Shingles of these blocks that were on record before any subagent read them."""
        since = self._since(held, wanted)
        read = self._first_read(since.keys()) if since else {}
        return {shingle for shingle, order in since.items() if order < read[shingle]}

    def _since(self, held: Iterable[_Held], wanted: Set[int]) -> dict[int, int]:
        """Shingle -> place in the ledger of the first of these blocks that holds it."""
        found: dict[int, int] = {}
        for blocks in held:
            for digest, entries in blocks.items():
                for shingle in self._of(digest) & wanted:
                    order = min(entry.order for entry in entries)
                    found[shingle] = min(order, found.get(shingle, order))
        return found

    def _parent(self, context: str) -> str:
        return self._ledger.contexts[context].parent or ""

    def _first_read(self, wanted: Set[int]) -> dict[int, int]:
        """Shingle -> place in the ledger where a subagent first read it."""
        found: dict[int, int] = {}
        for context in self._ledger.subagents():
            for digest, entries in self._ledger.held(context.id, *SOURCE).items():
                order = min(entry.order for entry in entries)
                for shingle in self._read(digest) & wanted:
                    found[shingle] = min(order, found.get(shingle, order))
        return found

    def _scanned(self, context: str) -> set[str]:
        """All that the context was sent or wrote, but what it has read itself."""
        sent = {digest for request in self._ledger.requests[context] for _, digest in request.parts}
        return (sent | self._ledger.outputs(context).keys()) - self._ledger.read(context)

    def _sent(self, context: str, wanted: Set[int]) -> set[int]:
        """Which of these shingles a context was sent."""
        requests = self._ledger.requests[context]
        sent = {d for r in requests for place, d in r.parts if place != "assistant" and wanted}
        return set().union(*(self._compute(digest) & wanted for digest in sent))

    def _hit(self, digest: str) -> set[int]:
        """Shingles of a block that are someone's source text."""
        if digest not in self._hits:
            found = self._of(digest)
            self._hits[digest] = found - found.difference(self._reader)
        return self._hits[digest]

    def _union(self, digests: Iterable[str]) -> set[int]:
        return set().union(*(self._of(digest) for digest in digests))

    def _of(self, digest: str) -> set[int]:
        if digest not in self._shingles:
            self._shingles[digest] = self._compute(digest)
        return self._shingles[digest]

    def _compute(self, digest: str) -> set[int]:
        return set().union(*map(shingles, texts(self._ledger.block(digest))))

    def _read(self, digest: str) -> set[int]:
        """Shingles of what was read in a result: of what is fenced; what code put round it is not.

        The fence ends at its last mark, so that a forged end does not hide what comes after it.
        """
        found: set[int] = set()
        for text in texts(self._ledger.block(digest)):
            fenced = _FENCED.search(text)
            found |= shingles(fenced[2] if fenced else text)
        return found
