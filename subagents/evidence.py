"""Evidence: the items that a context has read, and whether its claims are in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from scopes.clean import normalize_unicode
from scopes.label import TRUSTED_LABEL, Label
from scopes.tool import BEFORE_WINDOW, Item
from subagents.contracts import FindingDraft
from subagents.overlap import UNSPACED_SCRIPTS

_ROWS = re.compile(r"(?P<of>.+#row)(?P<first>\d{1,6})(?:-|–|\.\.)(?:(?P=of)|row)?(?P<last>\d{1,6})")
"""Ranges: `q-1a2b3c#row1-16`, `q-1a2b3c#row1-row16`, `q-1a2b3c#row1-q-1a2b3c#row16`."""
MAX_RANGE_ROWS = 1_000
"""Maximum rows of one range."""


def spread(ids: Iterable[str], items: Container[str]) -> Iterator[str]:
    """Return each id once, with ranges of rows as the ids of their rows.

    A range counts if its first and last row are items that were read; else it stays one id, which
    is unknown.
    """
    seen = set[str]()
    for id in ids:
        for each in _rows(id, items):
            if each not in seen:
                seen.add(each)
                yield each


def _rows(id: str, items: Container[str]) -> Iterable[str]:
    found = None if id in items else _ROWS.fullmatch(id)
    if found is None:
        return (id,)
    of, *ends = found.groups()
    first, last = map(int, ends)
    if not first <= last < first + MAX_RANGE_ROWS or any(
        f"{of}{n}" not in items for n in (first, last)
    ):
        return (id,)
    return (f"{of}{n}" for n in range(first, last + 1))


TEXT_SEPARATOR = "\x1e"
"""Separates texts that were shown separately: no quote may span two of them."""
MAX_EARLIER = 8
"""Maximum texts of one id that are kept in addition to the latest one."""


class Coverage(BaseModel):
    """The part of its sources that a context read, counted by code from the items shown to it."""

    model_config = ConfigDict(frozen=True)

    items_read: int = 0
    """Items of every kind: messages, their earlier context, list rows."""
    messages_read: int = 0
    """Items inside the window."""
    threads_read: int = 0
    pages: int = 0
    """Pages of whole sources that were delivered."""
    oldest: datetime | None = None
    latest: datetime | None = None
    complete: bool = False
    """True if every item of the window was read, of each source to be read whole; false if
    nothing was read whole (a search, single threads)."""
    sources_listed: int = 0
    """Files and mail threads that its tools listed."""
    sources_read: int = 0
    """Those of them that it read or searched."""

    @classmethod
    def sum(cls, parts: Sequence[Coverage]) -> Coverage:
        """Return the sum of disjoint coverages."""
        counts = [name for name, each in cls.model_fields.items() if each.annotation is int]
        return cls(
            **{name: sum(getattr(part, name) for part in parts) for name in counts},
            oldest=min((p.oldest for p in parts if p.oldest), default=None),
            latest=max((p.latest for p in parts if p.latest), default=None),
            complete=all(p.complete for p in parts),
        )


@dataclass
class SourceLog:
    """The items shown to one context so far."""

    items: dict[str, Item] = field(default_factory=dict)
    """Id -> the item as last shown; showing only its beginning again changes nothing."""
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Id -> other texts that were shown under it, newest last."""
    holds: dict[str, frozenset[str]] = field(default_factory=dict)
    """Source id -> ids of its items in the window, for sources that are to be read whole."""
    _pages: set[tuple[str, str]] = field(default_factory=set)
    label: Label = TRUSTED_LABEL
    undone: dict[str, str] = field(default_factory=dict)
    """Unfinished parts -> why they are not done; empty = done."""
    listed: set[str] = field(default_factory=set)
    """Ids of files and mail threads that were listed."""
    opened: set[str] = field(default_factory=set)
    """Ids of listed things that were read or searched."""
    material_count: int = 0
    """Number of its first items, which its brief held: it read none of them itself."""
    sent: int = 0
    """Number of its first items, which were sent to the model; the others wait."""
    delimiter: str = ""
    """The delimiter of the context."""
    panel_choices: tuple[str, ...] = ()
    """For a specialist of a panel: categories of its findings, and ids of findings to judge."""
    alarms: list[str] = field(default_factory=list)
    """Signs that a source steers the context, such as a delimiter that it repeats."""

    def seen_items(self, first: int | None = None) -> list[Item]:
        """Return the items that the model has seen, in order; only the `first` ones if set."""
        return list(self.items.values())[: self.sent if first is None else min(first, self.sent)]

    def forget_unsent(self) -> None:
        """Drop the items that no request will contain any more; the label stays."""
        self.items = {item.id: item for item in self.seen_items()}

    def expect(self, holds: Mapping[str, Iterable[str]]) -> None:
        """Set the items of a source that is to be read whole, before anything is read."""
        self.holds |= {source: frozenset(ids) for source, ids in holds.items()}

    def saw(self, lists: Mapping[str, Iterable[str]], reads: Iterable[str]) -> None:
        """Record what a call listed, and which listed things it read."""
        self.listed.update(*lists.values())
        self.opened.update(reads)

    def gaps(self) -> list[str]:
        """Return what was not read, as sentences counted by code: calls that were cut and not
        continued, and mails that nobody here can read."""
        unread = [f"not read: {item.gap()}" for item in self.items.values() if item.unread]
        return [*filter(None, self.undone.values()), *unread]

    def add(self, items: Iterable[Item], holds: Mapping[str, Iterable[str]]) -> None:
        first = ""
        for item in items:
            first = first or item.id
            self._show(item)
            self.label = self.label.join(item.label)
        self.expect(holds)
        self._pages |= {(source, first) for source in holds}

    def _show(self, item: Item) -> None:
        seen = self.items.get(item.id)
        shorter = seen and seen.text.startswith(item.text) and seen.text != item.text
        if shorter and not item.unread:
            return  # it is the beginning of the stored one
        self.items[item.id] = item
        if seen and not item.text.startswith(seen.text):  # it was changed, or is cut now
            others = [t for t in self.earlier.get(item.id, ()) if t not in (seen.text, item.text)]
            self.earlier[item.id] = (*others, seen.text)[-MAX_EARLIER:]

    def whole(self) -> dict[str, Item]:
        """Return the items, each with all texts shown under its id, which a quote may come from."""
        changed = {
            id: replace(self.items[id], text=TEXT_SEPARATOR.join((self.items[id].text, *others)))
            for id, others in self.earlier.items()
            if id in self.items
        }
        return self.items | changed

    @property
    def expected(self) -> int:
        """Return the number of messages to be read; `~2` continues a long one."""
        return sum("~" not in id for ids in self.holds.values() for id in ids)

    @property
    def read_whole(self) -> int:
        """Return the number of these messages of which every part was read."""
        unread = [id for ids in self.holds.values() for id in ids if id not in self.items]
        return self.expected - len({id.partition("~")[0] for id in unread})

    def _counts(self, item: Item) -> bool:
        """Return whether this is a message inside the window, and inside the share to be read here.

        Notes and kept files have a time, too, but are not messages.
        """
        if not (item.at and item.by) or BEFORE_WINDOW in item.notes:
            return False
        held = self.holds.get(item.id.partition("/")[0])
        return held is None or item.id in held

    def coverage(self) -> Coverage:
        inside = [i for i in self.items.values() if self._counts(i)]
        times = [i.at for i in inside if i.at]
        return Coverage(
            messages_read=len(inside),
            threads_read=len({i.thread or i.id for i in inside}),
            pages=len(self._pages),
            oldest=min(times, default=None),
            latest=max(times, default=None),
            complete=bool(self.holds) and all(h <= self.items.keys() for h in self.holds.values()),
            items_read=len(self.items),
            sources_listed=len(self.listed),
            sources_read=len(self.listed & self.opened),
        )

    def threads(self) -> dict[str, list[Item]]:
        """Return root id -> the items of that thread, the oldest first; threads are in the order
        of their ids."""
        found: dict[str, list[tuple[datetime, str, Item]]] = {}
        for item in sorted(self.items.values(), key=lambda i: i.id):
            if item.at:
                found.setdefault(item.thread or item.id, []).append((item.at, item.id, item))
        return {root: [item for *_, item in sorted(each)] for root, each in found.items()}


MIN_FOUND = 12
"""Minimum characters of a quote that is looked for outside of the threads that are cited."""


def check(
    findings: Sequence[FindingDraft], items: Mapping[str, Item], aside: Collection[str] = ()
) -> tuple[list[FindingDraft], list[str]]:
    """Return what the items support, and what was dropped, in words.

    It keeps known evidence ids, quotes that occur, and customers that are named.

    If a quote is not in a cited message, another message that has it is added to the evidence: one
    of the same threads, else one of a thread that no other finding cites and that is not in
    `aside`. If only threads excluded by this have it, it is left out without being counted. A
    finding without remaining evidence is dropped. Each thing dropped is counted once.
    """
    cited = [[e for e in spread(f.evidence, items) if e in items] for f in findings]
    places = [{_root(items[e]) for e in evidence} for evidence in cited]
    read = _QuoteSearch(items)
    kept: list[FindingDraft] = []
    dropped: list[str] = []
    for number, (finding, evidence, own) in enumerate(zip(findings, cited, places, strict=True), 1):
        unknown = [e for e in spread(finding.evidence, items) if e not in items]
        dropped += [f"finding {number}: no item {e} was read" for e in unknown]
        if not evidence:
            dropped.append(f"finding {number}: no evidence")
            continue
        about = [i for i in items.values() if _root(i) in own]
        names = "\n".join(normal(f"{t}\n{i.by or ''}") for i in about for t in texts_of(i))
        near = [*evidence, *(i.id for i in about)]
        excluded = set(aside).union(*places) - own
        carriers = {q: read.carriers(q, near, excluded) for q in finding.quotes}
        lost = [q for q, found in carriers.items() if found is None]
        quotes = {q: found[0] for q, found in carriers.items() if found}
        customers = [c for c in finding.customers if is_named(c, names)]
        dropped += [f"finding {number}: {q[:60]!r} is in nothing that was read" for q in lost]
        lost = [c for c in finding.customers if c not in customers]
        dropped += [f"finding {number}: customer {c[:60]!r} is not in its evidence" for c in lost]
        ids = list(dict.fromkeys([*evidence, *quotes.values()]))
        changed = {"evidence": ids, "quotes": list(quotes), "customers": customers}
        kept.append(finding.model_copy(update=changed))
    return kept, dropped


@dataclass
class _QuoteSearch:
    """The items that were read, searched for quotes."""

    items: Mapping[str, Item]
    _texts: dict[str, str] = field(default_factory=dict)

    def carriers(
        self, quote: str, near: Iterable[str], excluded: Container[str]
    ) -> Sequence[str] | None:
        """Return the ids of items that carry a quote: the first of `near`, else all that do and
        whose thread is not `excluded`; None if nothing that was read does."""
        if found := next((id for id in near if self._holds(id, quote)), ""):
            return [found]
        far = self.items if len(quote) >= MIN_FOUND else ()
        everywhere = [id for id in far if self._holds(id, quote)]
        free = [id for id in everywhere if _root(self.items[id]) not in excluded]
        return free if everywhere else None

    def _holds(self, id: str, quote: str) -> bool:
        if id not in self._texts:
            forms = (form for text in texts_of(self.items[id]) for form in _forms(text))
            self._texts[id] = "\n".join(map(normal, forms))
        return occurs(quote, self._texts[id])


def _root(item: Item) -> str:
    return item.thread or item.id


def texts_of(item: Item) -> list[str]:
    """Return the texts that were shown under an item's id, of `SourceLog.whole`."""
    return item.text.split(TEXT_SEPARATOR)


def _forms(text: str) -> tuple[str, ...]:
    """Return a text as shown and as rendered: links as their words, code without its marks.

    A faithful copy may match either.
    """
    seen = _MARKDOWN_LINK.sub(r"\1", text).replace("`", "")
    return (text,) if seen == text else (text, seen)


_MARKDOWN_LINK = re.compile(
    r"\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*)\]\(https?://[^\s()]*(?:\([^\s()]*\)[^\s()]*)?\)"
)
"""A Markdown link, which a page renders as its text."""


def occurs(quote: str, text: str) -> bool:
    """Return whether a quote is in a text that went through `normal`; never for one character."""
    wanted = key_of(quote)
    return len(wanted) > 1 and wanted in text


def is_named(name: str, text: str) -> bool:
    """Return whether a name is in a text that went through `normal`, not as a part of a word."""
    wanted = key_of(name)
    if not occurs(name, text):
        return False
    spaced = not UNSPACED_SCRIPTS.search(wanted)
    return not spaced or re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) is not None


def figures_occur(claim: str, text: str) -> bool:
    """Return whether the figures and addresses of a claim are in a text that went through `normal`.

    Figures are compared without digit grouping. Those of one or two digits are skipped, since they
    are counts and dates that the source gives in words.
    """
    wanted = normal(claim)
    if any(address.strip(".,;:") not in text for address in _ADDRESS.findall(wanted)):
        return False
    numbers = map(_bare, _FIGURE.findall(wanted))
    figures = {f for f in numbers if len(f) >= MIN_FIGURE and not _is_dated(f)}
    return not figures or figures <= set(map(_bare, _FIGURE.findall(text)))


MIN_FIGURE = 3
"""Minimum digits of a figure that has to be in the source."""
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+|https?://\S+")
_FIGURE = re.compile(r"\d{1,3}(?:[ '.,]\d{3})+(?!\d)(?:[.,]\d{1,2}(?!\d))?|\d+(?:[.,]\d+)*")


def _bare(figure: str) -> str:
    return figure if figure.isdecimal() else re.sub(r"\D", "", re.sub(r"[.,]00$", "", figure))


def _is_dated(figure: str) -> bool:
    """Return whether this is a year or a date of eight digits: the source may say it in words."""
    return len(figure) in (4, 8) and figure[:2] in ("19", "20")


def key_of(name: str) -> str:
    """Return the comparison key of a name or quote, so that spelling variants count once."""
    return normal(name).strip(" \"'.…")


def distinct(names: Iterable[str]) -> set[str]:
    """Return different names, ignoring spelling variants."""
    return {key for name in names if (key := key_of(name))}


QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "’": "'", "‘": "'"})


def normal(text: str) -> str:
    """Normalize what a faithful copy may change: case, spacing, quotation marks, Unicode forms."""
    folded = normalize_unicode(text, "NFKC").translate(QUOTES).casefold()
    return " ".join(folded.split())  # ten times faster than a pattern, over a whole thread
