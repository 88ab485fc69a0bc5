"""What a context has read, and whether what it says is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from scopes.clean import unified
from scopes.label import TRUSTED, Label
from scopes.tool import BEFORE_WINDOW, Item, iso
from subagents.contracts import FindingDraft
from subagents.evidence_ids import spread
from subagents.shingles import UNSPACED

ASIDE = "\x1e"
"""Stands between texts that were shown apart: no quote reaches from one into the next."""
MAX_EARLIER = 8
"""Texts of one id that are kept besides the one that was shown last."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of its sources a context read, counted by code from the items shown to it."""

    messages_read: int = 0
    """Items inside the window."""
    threads_read: int = 0
    pages: int = 0
    """Pages of whole sources that were delivered."""
    oldest: datetime | None = None
    latest: datetime | None = None
    complete: bool = False
    """Every item of the window was read, of each source that was to be read whole; false where
    nothing was read whole (a search, single threads)."""
    items_read: int = 0
    """Items of every kind: messages, their earlier context, list rows."""

    def to_json(self) -> dict[str, object]:
        return {
            "items_read": self.items_read,
            "messages_read": self.messages_read,
            "threads_read": self.threads_read,
            "pages": self.pages,
            "oldest": iso(self.oldest) if self.oldest else None,
            "latest": iso(self.latest) if self.latest else None,
            "complete": self.complete,
        }

    @classmethod
    def sum(cls, parts: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """Disjoint coverages (as JSON) together."""
        oldest = [str(p["oldest"]) for p in parts if p.get("oldest")]
        latest = [str(p["latest"]) for p in parts if p.get("latest")]
        counts = {
            key: sum(int(str(p[key])) for p in parts)
            for key in ("items_read", "messages_read", "threads_read", "pages")
        }
        return {
            **counts,
            "oldest": min(oldest, default=None),
            "latest": max(latest, default=None),
            "complete": all(p["complete"] for p in parts),
        }


@dataclass
class Reading:
    """The items shown to one context so far."""

    items: dict[str, Item] = field(default_factory=dict)
    """By id, each as it was shown last; a beginning of it that is shown again changes nothing."""
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Id -> other texts that were shown under it, the newest last."""
    holds: dict[str, frozenset[str]] = field(default_factory=dict)
    """Source id -> ids of its items in the window, for sources that are to be read whole."""
    _pages: set[tuple[str, str]] = field(default_factory=set)
    label: Label = TRUSTED
    undone: dict[str, str] = field(default_factory=dict)
    """What the context has begun -> why it is not done; empty = it is."""
    sent: int = 0
    """How many of the items, from the first on, have gone to the model; the others wait."""

    def shown(self, first: int | None = None) -> list[Item]:
        """The items that the model has seen, in the order in which they came; the `first` ones."""
        return list(self.items.values())[: self.sent if first is None else min(first, self.sent)]

    def forget_unsent(self) -> None:
        """Let go of the items that no request will hold any more; the label stays."""
        self.items = {item.id: item for item in self.shown()}

    def expect(self, holds: Mapping[str, Iterable[str]]) -> None:
        """What is to be read whole, known before anything was."""
        self.holds |= {source: frozenset(ids) for source, ids in holds.items()}

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
        if seen and seen.text.startswith(item.text) and seen.text != item.text:
            return  # its beginning
        self.items[item.id] = item
        if seen and not item.text.startswith(seen.text):  # it was changed, or is cut now
            others = [t for t in self.earlier.get(item.id, ()) if t not in (seen.text, item.text)]
            self.earlier[item.id] = (*others, seen.text)[-MAX_EARLIER:]

    def whole(self) -> dict[str, Item]:
        """The items, each with all that was shown under its id: what a quote may be of."""
        changed = {
            id: replace(self.items[id], text=ASIDE.join((self.items[id].text, *others)))
            for id, others in self.earlier.items()
            if id in self.items
        }
        return self.items | changed

    @property
    def expected(self) -> int:
        return sum(map(len, self.holds.values()))

    def _counts(self, item: Item) -> bool:
        """A message inside the window, and inside the share of its source that is to be read here.

        Notes and kept files have a time, too, but nobody who wrote to somebody.
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
        )

    def threads(self) -> dict[str, list[Item]]:
        """Root id -> the items of that thread, in the order of their ids."""
        found: dict[str, list[Item]] = {}
        for item in sorted(self.items.values(), key=lambda i: i.id):
            if item.at:
                found.setdefault(item.thread or item.id, []).append(item)
        return found


@dataclass(frozen=True, slots=True)
class Checked:
    """Findings that hold, and what was dropped, in words."""

    findings: tuple[FindingDraft, ...]
    unsupported: tuple[str, ...]


def check(findings: Sequence[FindingDraft], items: Mapping[str, Item]) -> Checked:
    """Keep what the items carry: known evidence ids, quotes that occur in them, and customers that
    their threads name.

    A finding left without evidence is dropped. Each thing dropped is counted once.
    """
    kept: list[FindingDraft] = []
    dropped: list[str] = []
    for number, finding in enumerate(findings, 1):
        ids = list(spread(finding.evidence, items))
        evidence = [e for e in ids if e in items]
        unknown = [e for e in ids if e not in items]
        dropped += [f"finding {number}: no item {e} was read" for e in unknown]
        if not evidence:
            dropped.append(f"finding {number}: no evidence")
            continue
        texts = [text for e in evidence for text in texts_of(items[e])]
        text = "\n".join(normal(form) for each in texts for form in _forms(each))
        about = _threads(evidence, items)
        names = "\n".join(normal(f"{t}\n{i.by or ''}") for i in about for t in texts_of(i))
        quotes = [q for q in finding.quotes if occurs(q, text)]
        customers = [c for c in finding.customers if named(c, names)]
        lost = [q for q in finding.quotes if q not in quotes]
        dropped += [f"finding {number}: {q[:60]!r} is not in its evidence" for q in lost]
        lost = [c for c in finding.customers if c not in customers]
        dropped += [f"finding {number}: customer {c[:60]!r} is not in its evidence" for c in lost]
        changed = {"evidence": evidence, "quotes": quotes, "customers": customers}
        kept.append(finding.model_copy(update=changed))
    return Checked(tuple(kept), tuple(dropped))


def texts_of(item: Item) -> list[str]:
    """The texts that were shown under an item's id, of `Reading.whole`."""
    return item.text.split(ASIDE)


def _forms(text: str) -> tuple[str, ...]:
    """A text as it was shown, and as a page shows it: links as their words, code without its marks.

    A faithful copy may be of either.
    """
    seen = _LINKED.sub(r"\1", text).replace("`", "")
    return (text,) if seen == text else (text, seen)


_LINKED = re.compile(
    r"\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*)\]\(https?://[^\s()]*(?:\([^\s()]*\)[^\s()]*)?\)"
)
"""A link in Markdown, as the text of a page has it."""


def _threads(evidence: Sequence[str], items: Mapping[str, Item]) -> list[Item]:
    """All that was read of the threads of this evidence: a reply that it does not cite may name
    one more customer."""
    roots = {items[e].thread or e for e in evidence}
    return [i for i in items.values() if (i.thread or i.id) in roots]


def occurs(quote: str, text: str) -> bool:
    """Whether a quote is in a text that went through `normal`; one character is in none."""
    wanted = key_of(quote)
    return len(wanted) > 1 and wanted in text


def named(name: str, text: str) -> bool:
    """Whether a name stands in a text that went through `normal`, not as a part of a word."""
    wanted = key_of(name)
    if not occurs(name, text):
        return False
    spaced = not UNSPACED.search(wanted)
    return not spaced or re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) is not None


def figures_occur(claim: str, text: str) -> bool:
    """Whether the figures and addresses of a claim stand in a text that went through `normal`.

    Figures are compared without the signs that group them. Those of one or two digits are let go,
    for they are counted and dated in words.
    """
    wanted = normal(claim)
    if any(address.strip(".,;:") not in text for address in _ADDRESS.findall(wanted)):
        return False
    told = map(_bare, _FIGURE.findall(wanted))
    figures = {f for f in told if len(f) >= MIN_FIGURE and not _is_dated(f)}
    return not figures or figures <= set(map(_bare, _FIGURE.findall(text)))


MIN_FIGURE = 3
"""Digits from which on a figure has to stand in the source."""
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+|https?://\S+")
_FIGURE = re.compile(r"\d{1,3}(?:[ '.,]\d{3})+(?!\d)(?:[.,]\d{1,2}(?!\d))?|\d+(?:[.,]\d+)*")


def _bare(figure: str) -> str:
    return figure if figure.isdecimal() else re.sub(r"\D", "", re.sub(r"[.,]00$", "", figure))


def _is_dated(figure: str) -> bool:
    """A year, or a date of eight digits: the source may say it in words."""
    return len(figure) in (4, 8) and figure[:2] in ("19", "20")


def key_of(name: str) -> str:
    """A name or quote up to how it may be written: what counts as the same counts once."""
    return normal(name).strip(" \"'.…")


def distinct(names: Iterable[str]) -> set[str]:
    """Different names, whatever their spelling."""
    return {key for name in names if (key := key_of(name))}


QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "’": "'", "‘": "'"})


def normal(text: str) -> str:
    """A text up to what a faithful copy may change: case, spacing, quotation marks, forms."""
    folded = unified(text, "NFKC").translate(QUOTES).casefold()
    return " ".join(folded.split())  # a tenth of the time of a pattern, over a whole thread
