"""What a context has read, and whether what it says is in it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from scopes.label import TRUSTED, Label
from scopes.tool import BEFORE_WINDOW, Item, iso
from subagents.contracts import FindingDraft


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
    complete: bool = True
    """Every item of the window that the sources hold was read."""
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
            for key in ("messages_read", "threads_read", "pages")
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
    holds: dict[str, int] = field(default_factory=dict)
    """Source id -> how many items of the window it holds, for sources read whole."""
    _pages: set[tuple[str, str]] = field(default_factory=set)
    label: Label = TRUSTED

    def add(self, items: Iterable[Item], holds: Mapping[str, int]) -> None:
        first = ""
        for item in items:
            first = first or item.id
            self.items[item.id] = item
            self.label = self.label.join(item.label)
        for source, total in holds.items():
            self.holds[source] = total
            self._pages.add((source, first))

    def coverage(self) -> Coverage:
        inside = [i for i in self.items.values() if i.at and BEFORE_WINDOW not in i.notes]
        times = [i.at for i in inside if i.at]
        read: dict[str, int] = {}
        for item in inside:
            source = item.id.partition("/")[0]
            read[source] = read.get(source, 0) + 1
        return Coverage(
            messages_read=len(inside),
            threads_read=len({i.thread or i.id for i in inside}),
            pages=len(self._pages),
            oldest=min(times, default=None),
            latest=max(times, default=None),
            complete=all(read.get(source, 0) >= n for source, n in self.holds.items()),
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
    """Keep what the items carry: known evidence ids, quotes and customers that occur in them.

    A finding left without evidence is dropped. Each thing dropped is counted once.
    """
    kept: list[FindingDraft] = []
    dropped: list[str] = []
    for number, finding in enumerate(findings, 1):
        evidence = [e for e in dict.fromkeys(finding.evidence) if e in items]
        unknown = [e for e in finding.evidence if e not in items]
        dropped += [f"finding {number}: no item {e} was read" for e in unknown]
        if not evidence:
            dropped.append(f"finding {number}: no evidence")
            continue
        text = "\n".join(normal(items[e].text) for e in evidence)
        names = "\n".join(normal(f"{items[e].text}\n{items[e].by or ''}") for e in evidence)
        quotes = [q for q in finding.quotes if occurs(q, text)]
        customers = [c for c in finding.customers if occurs(c, names)]
        lost = [q for q in finding.quotes if q not in quotes]
        dropped += [f"finding {number}: {q[:60]!r} is not in its evidence" for q in lost]
        lost = [c for c in finding.customers if c not in customers]
        dropped += [f"finding {number}: customer {c[:60]!r} is not in its evidence" for c in lost]
        changed = {"evidence": evidence, "quotes": quotes, "customers": customers}
        kept.append(finding.model_copy(update=changed))
    return Checked(tuple(kept), tuple(dropped))


def occurs(quote: str, text: str) -> bool:
    """Whether a quote is in a text that went through `normal`; an empty quote is in none."""
    wanted = normal(quote).strip(" \"'.…")
    return bool(wanted) and wanted in text


QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "’": "'", "‘": "'"})


def normal(text: str) -> str:
    """A text up to what a faithful copy may change: case, spacing, quotation marks, forms."""
    folded = unicodedata.normalize("NFKC", text).translate(QUOTES).casefold()
    return re.sub(r"\s+", " ", folded).strip()
