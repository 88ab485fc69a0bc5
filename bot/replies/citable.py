"""What an answer may cite: findings, whose quotes were checked, and what its parent looked up.

An item that the parent's own tools showed it is cited by the id that stood there. In the answer it
gets an id of code's, as findings have one: whatever its own id holds acts nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from scopes.clean import printable, redacted
from scopes.resources import NAMED
from scopes.tool import Item, one_line
from subagents.evidence import Reading
from subagents.result import Finding, SubagentResult

OWN = "F0."
"""How the id of an item begins that the parent looked up: no subagent has the number 0."""
BEGINNING = 80
"""Characters that a source shows of an item."""


@dataclass(frozen=True, slots=True)
class Citable:
    """What one run may cite, as of now."""

    earlier: Mapping[str, Finding]
    results: Mapping[str, SubagentResult]
    reading: Reading
    """Of the parent: what its own tools returned."""

    def findings(self) -> dict[str, list[str]]:
        """Id of each finding -> its links."""
        found = [f for r in self.results.values() for f in r.findings]
        return {f.id: f.links for f in (*self.earlier.values(), *found)}

    def looked_up(self, first: int | None = None) -> dict[str, str]:
        """Id of each item, as it was shown to the parent -> its id in the answer.

        `first`: of so many, from the first on; what a text cites was shown before it was written.
        """
        return {item.id: id for id, item in self._items(first).items()}

    def files(self) -> dict[str, str]:
        """Id of each file that a subagent tells of -> its name."""
        texts = (t for r in self.results.values() for t in (r.text, *(f.claim for f in r.findings)))
        return {id: name for text in texts for id, name in NAMED.findall(text)}

    def links(self) -> dict[str, list[str]]:
        """The links of all of it, by the ids in the answer; an item may have none."""
        own = {id: [item.link] if item.link else [] for id, item in self._items().items()}
        return self.findings() | own

    def told(self, cited: Collection[str]) -> dict[str, dict[str, Any]]:
        """What a document says of the items among what it cites: their own ids and beginnings."""
        items = self._items()
        return {
            id: {"item": items[id].id, "text": _beginning(items[id])} for id in cited if id in items
        }

    def _items(self, first: int | None = None) -> dict[str, Item]:
        return {f"{OWN}{n}": item for n, item in enumerate(self.reading.shown(first), 1)}


def without_own(text: str) -> str:
    """An answer as a later request is shown it: what was looked up for it is not cited again."""
    return re.sub(rf" ?\[{re.escape(OWN)}\d+\]", "", text)


def _beginning(item: Item) -> str:
    by = f"{item.by}: " if item.by else ""
    text = one_line(redacted(printable(f"{by}{item.text}")))
    return text if len(text) <= BEGINNING else text[: BEGINNING - 1].rstrip() + "…"
