"""How many issues of a sweep are open, new, solved: what its first line says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.reports.words import Words
from subagents.contracts import NEEDS_ACTION

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of a document, or of one section of it."""

    open: int
    """Issues on which the team must act, with those of which there is no news."""
    high: int
    new: int
    still: int
    """Known before and open now."""
    changed: int
    """Of them those that changed."""
    solved: int
    reopened: int
    oldest: int
    """Days since the oldest of those that are still open was first seen."""
    compared: str
    """Up to when the report goes with which this one is compared; empty where there is none."""

    def line(self, words: Words) -> str:
        """All of them, numbers alone: it may stand where a text is read as markup."""
        told = ", ".join(self._told(words))
        before = words("compared", day=words.day(self.compared)) if self.compared else ""
        return " · ".join(filter(None, (self.short(words, told=""), told, before)))

    def short(self, words: Words, told: str | None = None) -> str:
        """What is open, and what of it is new."""
        high = f" ({words('high_ones', n=self.high)})" if self.high else ""
        news = words("new_ones", n=self.new) if self.new and told is None else ""
        return ", ".join(filter(None, (words("open", n=self.open) + high, news)))

    def _told(self, words: Words) -> Iterator[str]:
        if self.new:
            yield words("new_ones", n=self.new)
        if self.still:
            days = words("days", n=self.oldest)
            since = f" {words('oldest', days=days)}" if self.oldest else ""
            changed = f" ({words('changed_ones', n=self.changed)})" if self.changed else ""
            yield words("still", n=self.still) + since + changed
        if self.solved:
            yield words("solved_ones", n=self.solved)
        if self.reopened:
            yield words("reopened_ones", n=self.reopened)


def figures_of(document: Json) -> Figures:
    """Counted from the findings themselves, so that every face of a report says the same."""
    findings = [f for section in document["sections"] for f in section["findings"]]
    quiet = list(document.get("still_open") or ())
    waiting = [f for f in findings if f["state"] in NEEDS_ACTION]
    known = [f for f in waiting if f.get("change") in ("open", "changed")]
    ages = [issue.get("age_days") or 0 for issue in (*known, *quiet)]

    def changes(name: str) -> int:
        return sum(f.get("change") == name for f in findings)

    return Figures(
        open=len(waiting) + len(quiet),
        high=sum(issue["severity"] == "high" for issue in (*waiting, *quiet)),
        new=changes("new"),
        still=len(known) + len(quiet),
        changed=sum(f["change"] == "changed" for f in known),
        solved=changes("solved"),
        reopened=changes("reopened"),
        oldest=max(ages, default=0),
        compared=str((document.get("compared") or {}).get("with") or ""),
    )
