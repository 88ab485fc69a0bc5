"""The audit, and its part by content: no context has words that only another has read (law 2)."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice
from textwrap import shorten
from typing import Any

from config.words import languages, words_of
from scopes.clean import normalize_unicode
from subagents.provenance import (
    PANEL_ORIGINS,
    SOURCE,
    BlockOrigin,
    Leak,
    ProvenanceIndex,
    provenance_leaks,
)
from subagents.trajectory import Context, Origin, Trajectory

SHINGLE_WORDS = 8
"""Words in a shingle. Shorter runs recur by chance, longer ones miss a sentence (DESIGN, law 2)."""
OWN_RUN_WORDS = 5
"""Words in a row that a context has read itself. Together with only a day, they can be a shingle
of another's text by chance: two mails are about one meeting, and its answers name both."""

# Scripts without spaces have no words to count, so a character stands for a part of one: a Chinese
# word has about 1.7 characters, a Japanese one about 2, a Thai, Lao, Khmer or Burmese one about 4
# with its vowel signs. Eight words are then 16 Han or kana characters, or 32 Thai ones.
_HALF = "\u3005\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f"
_QUARTER = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
UNSPACED_SCRIPTS = re.compile(f"[{_HALF}{_QUARTER}]")
_HALF_WORD = re.compile(f"[{_HALF}]")

# Marks belong to their word: `\w` alone would cut a Hindi word at each vowel sign.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff"
_INVISIBLE_JOINERS = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]|\\b_|_\\b")
"""Invisible joiners, and the underscores that Slack and Markdown put around emphasis."""
# Addresses, item ids, times and channel names count as one word however many \w+ are in them:
# briefs and item lines share them by construction. So does the id of a finding: its last digit
# would otherwise be the number of the list entry that the claim behind it is from.
_SINGLE_WORD_PATTERNS = (
    r"https?://[^\s<>|)\]\"]+",
    r"\bf\d+\.\d+\b",
    r"[a-z0-9]+/\d+\.\d+",
    r"\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?z?)?",
    r"#[\w-]+",
    r"(?<=\[)[!-Z\\^-~]+(?=\](?!\())",
)
_WORD = re.compile("|".join([*_SINGLE_WORD_PATTERNS, rf"[\w{_MARKS}]+"]))
_TOKEN = re.compile(
    "|".join(
        [
            *_SINGLE_WORD_PATTERNS,
            f"[{_HALF}{_QUARTER}]",
            rf"(?:(?![{_HALF}{_QUARTER}])[\w{_MARKS}])+",
        ]
    )
)
_LETTER = re.compile(r"[^\W\d_]")
_CODE_START = re.compile(r"https?:|#|.*\d")

_NON_TEXT_KEYS = frozenset(("id", "tool_use_id", "type", "signature", "data", "cache_control"))
"""Keys of a content block whose values are not text that a person wrote."""


def texts(block: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text in a content block, its nested blocks and its tool arguments.

    A string that is itself JSON is parsed, so that its escapes do not hide its words.
    """
    yield from _strings({key: value for key, value in block.items() if key not in _NON_TEXT_KEYS})


def shingles(text: str, words: int = SHINGLE_WORDS) -> set[int]:
    """Return hashes (64 bits, valid within this process) of all eight-word runs of a text.

    Text is compared after NFKC and casefold, by words: differences in width, case and punctuation
    do not hide a copy. Empty for a text of fewer than eight words, or of fewer than `words`.
    """
    tokens, unspaced = _tokens(text)
    if not unspaced:
        return set(map(hash, zip(*(islice(tokens, i, None) for i in range(words)), strict=False)))
    return {hash(tuple(tokens[start:end])) for start, end in _windows(tokens, words)}


def excerpts(text: str, wanted: Set[int], own: Set[int] = frozenset()) -> list[str]:
    """Return the passages of a text made of the wanted shingles, as normalized words.

    Runs that are mostly figures, ids, times and addresses are left out: those recur by construction
    and are nobody's words. Left out are also runs of `OWN_RUN_WORDS` words in a row from `own` and
    a day.
    """
    tokens, _ = _tokens(text)
    found: list[tuple[int, int]] = []
    for start, end in _windows(tokens):
        window = tuple(tokens[start:end])
        if hash(window) not in wanted or not _says_something(window):
            continue
        if own and _is_own_and_a_day(window, own):
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return [_join(tokens[start:end]) for start, end in found]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        inner = _json(value)
        yield from [value] if inner is None else _strings(inner)
    elif isinstance(value, Mapping | list | tuple):
        for child in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(child)


def _json(text: str) -> Any:
    """Return the object or list that a text encodes as JSON, or None."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _tokens(text: str) -> tuple[list[str], bool]:
    """Return words, and characters of scripts without spaces; and whether there were any."""
    text = _INVISIBLE_JOINERS.sub("", normalize_unicode(text, "NFKC").casefold())
    unspaced = UNSPACED_SCRIPTS.search(text) is not None
    return (_TOKEN if unspaced else _WORD).findall(text), unspaced


def _windows(tokens: list[str], words: int = SHINGLE_WORDS) -> Iterator[tuple[int, int]]:
    """Return for each token the shortest run from it worth so many words, as (start, end)."""
    weights = [_weight(token) for token in tokens]
    end = total = 0
    for start, weight in enumerate(weights):
        while total < 4 * words and end < len(weights):
            total += weights[end]
            end += 1
        if total < 4 * words:
            return
        yield start, end
        total -= weight


def _weight(token: str) -> int:
    """Return the weight of a token in quarters of a word."""
    if len(token) > 1 or not UNSPACED_SCRIPTS.match(token):
        return 4
    return 2 if _HALF_WORD.match(token) else 1


def _is_own_and_a_day(window: tuple[str, ...], own: Set[int]) -> bool:
    """Return whether all but the words of a day at one end or both is in `own`."""
    other = [not (token.isdigit() or token in _day_words()) for token in window]
    rest = window[other.index(True) : len(other) - other[::-1].index(True)] if any(other) else ()
    runs = [rest[i : i + OWN_RUN_WORDS] for i in range(len(rest) - OWN_RUN_WORDS + 1)]
    return bool(runs) and all(hash(run) in own for run in runs)


@cache
def _day_words() -> frozenset[str]:
    """Return the names of weekdays and months in the languages of reports."""
    calendars = (words_of(language).calendar() for language in languages())
    return frozenset(name.casefold() for each in calendars for name in each.values())


def _says_something(window: tuple[str, ...]) -> bool:
    """Return whether at least half of it are words, not figures, ids, times or addresses."""
    plain = sum(
        _weight(token) < 4 or bool(_LETTER.search(token) and not _CODE_START.match(token))
        for token in window
    )
    return 2 * plain >= len(window)


def _join(tokens: list[str]) -> str:
    parts = [token if _weight(token) < 4 else f" {token} " for token in tokens]
    return " ".join("".join(parts).split())


_DELIMITED_TEXT = re.compile(r"<(items-[0-9a-f]{32})>(.*)</\1>", re.DOTALL)

# What the user or code supplied, for the whole run and for one context. It excuses a match only
# if it was recorded before the words were read: afterwards it may be a copy of them.
_FIXED_ORIGINS = (Origin.PROMPT, Origin.SCHEMA, Origin.REQUEST)
_BOILERPLATE = (Origin.REMINDER, Origin.REPAIR, Origin.ERROR)

_OriginsByBlock = Mapping[str, list[BlockOrigin]]
"""Block -> why a context holds it."""

_MAX_EXCERPT_CHARS = 200
"""Characters of an excerpt that a leak quotes."""


class Overlap:
    """The source text of all subagents by shingle, and who may hold which."""

    def __init__(self, index: ProvenanceIndex) -> None:
        self._index = index
        self._of = cache(self._compute)
        """Gives the shingles of a block."""
        self._hit = cache(self._source_text)

    @cached_property
    def _first(self) -> dict[int, tuple[int, str]]:
        """Map each shingle of source text to the ledger position where a subagent first read it,
        and that subagent."""
        read = sorted(
            (min(entry.order for entry in entries), context.id, digest)
            for context in self._index.subagents()
            for digest, entries in self._index.find_held(context.id, *SOURCE).items()
        )
        first: dict[int, tuple[int, str]] = {}
        for order, context, digest in read:
            first.update(dict.fromkeys(self._read(digest).difference(first), (order, context)))
        return first

    def _reader(self, shingle: int) -> str:
        """Return the first subagent that read a shingle."""
        return self._first[shingle][1]

    def leaks(self, context: Context) -> Iterator[Leak]:
        """Yield text that only others have read and that this context was sent, or wrote."""
        foreign: dict[str, set[int]] = {}
        for digest in self._find_seen(context.id):
            hits = self._hit(digest)
            if strange := {s for s in hits if self._reader(s) != context.id}:
                foreign[digest] = strange
        unexplained = set().union(*foreign.values())
        unexplained -= self._own([context.id], unexplained)
        for excuse in (self._find_delivered, self._earlier, self._foreseen):
            if not unexplained:
                return
            unexplained -= excuse(context.id, unexplained)
        own = self._own_runs(context.id) if unexplained else set()
        for digest, strange in foreign.items():
            yield from self._report(context.id, digest, strange & unexplained, self._reader, own)

    def _own_runs(self, context: str) -> set[int]:
        """Return the runs of `OWN_RUN_WORDS` words that the context has read itself."""
        read = (text for digest in self._index.read(context) for text in self._texts(digest))
        return set().union(*(shingles(text, OWN_RUN_WORDS) for text in read))

    def find_retyped(self) -> Iterator[Leak]:
        """Find briefs that repeat another's answers, which may enter only by finding id.

        For a specialist of a panel, all that code gave it counts as its brief.
        """
        briefs = {c.id: self._find_held(c.id) for c in self._index.subagents()}
        in_briefs = self._union(digest for held in briefs.values() for digest in held)
        fixed = self._union(
            d for c in self._index.contexts for d in self._index.find_held(c, *_FIXED_ORIGINS)
        )
        for author in briefs:
            answers = (self._union(self._index.outputs(author)) & in_briefs) - fixed
            answers -= self._union(briefs[author])  # usually all of it: the next step is slower
            if answers := answers - self._find_sent(author, answers):
                first_answer = min(self._index.orders(author, Origin.OUTPUT), default=0)
                for reader in briefs.keys() - {author}:
                    if min(self._index.orders(reader, Origin.BRIEF), default=0) > first_answer:
                        yield from self._find_copies(author, reader, answers)

    def _find_held(self, context: str) -> _OriginsByBlock:
        alone = (Origin.BRIEF, Origin.REFERENCES, Origin.MATERIAL)
        origins = alone if self._index.specialist(context) else alone[:1]
        return self._index.find_held(context, *origins)

    def _find_copies(self, author: str, reader: str, answers: set[int]) -> Iterator[Leak]:
        copied_by_id = self._union(self._index.find_held(reader, Origin.FINDINGS, *PANEL_ORIGINS))
        own = set() if self._index.specialist(reader) else self._own([reader], answers)
        copies = answers - copied_by_id - own
        by_parent = self._since(
            [self._index.find_held(self._parent(reader), Origin.OUTPUT)], copies
        )
        by_author = self._since([self._index.find_held(author, Origin.OUTPUT)], by_parent.keys())
        copies -= {
            shingle for shingle, order in by_parent.items() if order < by_author.get(shingle, 0)
        }
        for digest in self._find_held(reader):
            yield from self._report(reader, digest, self._of(digest) & copies, lambda _: author)

    def _report(
        self,
        context: str,
        digest: str,
        found: Set[int],
        reader: Callable[[int], str],
        own: Set[int] = frozenset(),
    ) -> Iterator[Leak]:
        by_reader: dict[str, set[int]] = defaultdict(set)
        for shingle in found:
            by_reader[reader(shingle)].add(shingle)
        origins = {entry.origin for entry in self._index.filed[context].get(digest, ())}
        name = "/".join(sorted(origins)) or "unaccounted"
        for source, shared in by_reader.items():
            parts = [p for text in self._texts(digest) for p in excerpts(text, shared, own)]
            if parts:
                words = shorten(max(parts, key=len), _MAX_EXCERPT_CHARS, placeholder=" ...")
                detail = f'words of {source} stand in this {name} block: "{words}"'
                yield Leak(context, "content", detail, digest, source)

    def _own(self, contexts: Iterable[str], wanted: Set[int]) -> set[int]:
        """Return the shingles that these contexts have read themselves."""
        read = (digest for context in contexts for digest in self._index.read(context))
        return set().union(*(self._compute(digest) & wanted for digest in read))

    def _find_delivered(self, context: str, wanted: Set[int]) -> Set[int]:
        """Return shingles delivered by views, findings, handoffs and a brief, if permitted.

        A brief may hold what its author has read with its own tools, not from a subagent.
        """
        index, found = self._index, set[int]()
        for digest, entries in index.find_held(context, Origin.VIEW, *PANEL_ORIGINS).items():
            found |= self._of(digest) & self._find_written(r for e in entries for r in e.refs)
        siblings = [c.id for c in index.subagents() if c.id != context]
        for digest in index.find_held(context, Origin.FINDINGS):
            found |= self._of(digest) & self._find_written(siblings)
        for digest in index.find_held(context, Origin.BRIEF):
            found |= self._of(digest) & self._own(index.sessions(self._parent(context)), wanted)
        earlier = index.sessions(context) - {context}
        for digest in index.find_held(context, Origin.HANDOFF):
            known = self._find_written(index.children(context)) | self._own(earlier, wanted)
            found |= self._of(digest) & known
        return found & wanted

    def _find_written(self, authors: Iterable[str]) -> set[int]:
        """Return source text that these subagents have put into an answer themselves."""
        return set().union(
            *(self._hit(digest) for name in authors for digest in self._index.outputs(name))
        )

    def _earlier(self, context: str, wanted: Set[int]) -> Set[int]:
        """Return what the user or code had supplied before any subagent read it."""
        held = []
        for name in self._index.contexts:
            origins = (*_FIXED_ORIGINS, Origin.FINDINGS, *(_BOILERPLATE if name == context else ()))
            held.append(self._index.find_held(name, *origins))
        return self._before_reading(held, wanted)

    def _foreseen(self, context: str, wanted: Set[int]) -> Set[int]:
        """Return what it, or the author of its brief, had written before any subagent read it.

        A subagent may be given words, pass them to a tool and read them in the tool's answer; a
        later brief with the same words does not have them from that subagent.
        """
        authors = (context, self._parent(context))
        return self._before_reading(
            [self._index.find_held(a, Origin.OUTPUT) for a in authors], wanted
        )

    def _before_reading(self, held: Iterable[_OriginsByBlock], wanted: Set[int]) -> Set[int]:
        """Return the shingles of these blocks that were recorded before any subagent read them."""
        since = self._since(held, wanted)
        return {shingle for shingle, order in since.items() if order < self._first[shingle][0]}

    def _since(self, held: Iterable[_OriginsByBlock], wanted: Set[int]) -> dict[int, int]:
        """Map each shingle to the ledger position of the first of these blocks that holds it."""
        found: dict[int, int] = {}
        for blocks in held:
            for digest, entries in blocks.items():
                for shingle in self._of(digest) & wanted:
                    order = min(entry.order for entry in entries)
                    found[shingle] = min(order, found.get(shingle, order))
        return found

    def _parent(self, context: str) -> str:
        return self._index.contexts[context].parent or ""

    def _find_seen(self, context: str) -> set[str]:
        """Return everything that the context was sent or wrote, except what it has read itself."""
        sent = {digest for request in self._index.requests[context] for _, digest in request.parts}
        return (sent | self._index.outputs(context).keys()) - self._index.read(context)

    def _find_sent(self, context: str, wanted: Set[int]) -> set[int]:
        """Return those of these shingles that a context was sent."""
        requests = self._index.requests[context]
        sent = {d for r in requests for place, d in r.parts if place != "assistant" and wanted}
        return set().union(*(self._compute(digest) & wanted for digest in sent))

    def _source_text(self, digest: str) -> set[int]:
        """Return the shingles of a block that are source text of some subagent."""
        found = self._of(digest)
        return found - found.difference(self._first)

    def _union(self, digests: Iterable[str]) -> set[int]:
        return set().union(*(self._of(digest) for digest in digests))

    def _compute(self, digest: str) -> set[int]:
        return set().union(*map(shingles, self._texts(digest)))

    def _texts(self, digest: str) -> Iterator[str]:
        return texts(self._index.block(digest))

    def _read(self, digest: str) -> set[int]:
        """Return the shingles of the delimited text of a result, without the lines that code added.

        Delimited text ends at the last delimiter, so that a forged one does not hide what follows.
        """
        found: set[int] = set()
        for text in self._texts(digest):
            fenced = _DELIMITED_TEXT.search(text)
            found |= shingles(fenced[2] if fenced else text)
        return found


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The extent of an audit, and the leaks found."""

    contexts: int
    """Number of contexts with at least one request."""
    blocks: int
    """Number of blocks sent, each counted once for every context that was sent it."""
    leaks: tuple[Leak, ...]

    def line(self) -> str:
        return f"{self.contexts} contexts, {self.blocks} blocks, {len(self.leaks)} leaks"


def audit(trajectory: Trajectory) -> AuditReport:
    """Check a run in two ways: the origin of each block, and whose words it contains.

    Takes about 10 ms for a subagent that read 8,000 tokens.
    """
    index = ProvenanceIndex(trajectory)
    sent = {(r.context, digest) for r in trajectory.requests for _, digest in r.parts}
    overlap = Overlap(index)
    copied = chain.from_iterable(map(overlap.leaks, index.contexts.values()))
    leaks = (*provenance_leaks(index), *copied, *overlap.find_retyped())
    return AuditReport(len(index.requests), len(sent), leaks)
