"""What a context's tools may touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Handles:
    """The things that a context's tools may touch; all else does not exist for them.

    `titles` maps an id to the name that people use (`C123` -> `#support-es`). A typed open handle
    (`slack:channels`, `web:search`) has no single thing behind it and maps to an empty name.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    early: frozenset[str] = frozenset()
    """Addresses among them that a search listed before the context had read more than its task and
    the thread that the request was asked in: no text that was read later can have chosen them."""

    def resolve(self, value: str) -> str | None:
        """Return the id that `value` (an id, a name, or `<id>/<part>`) stands for, or None."""
        if value in self.titles:
            return value
        head, slash, rest = value.partition("/")
        if slash:
            owner = self.resolve(head)
            return f"{owner}/{rest}" if owner and rest else None
        wanted = value.lstrip("#@").casefold()
        hits = [k for k, name in self.titles.items() if name.lstrip("#@").casefold() == wanted]
        return hits[0] if wanted and len(hits) == 1 else None

    def exact(self, value: str) -> str | None:
        """Return the id that `value` (an id or a name) stands for, only where it is itself held."""
        found = self.resolve(value)
        return found if found in self.titles else None

    def in_front(self, path: str, kind: str) -> tuple[str, str]:
        """Return the thing of a kind that stands in front of a path, as in the ids of a folder's
        items (`book:src/a.py:3`), and the path in it; empty where none does that is held.
        """
        title, colon, rest = path.partition(":")
        named = self.exact(title) if colon else None
        return (named, rest) if named and named.startswith(kind) else ("", path)

    def ids(self, prefix: str = "") -> list[str]:
        """Return the ids of whole things (not `<id>/<part>`, no open handles) that begin so."""
        return [k for k in self.titles if k.startswith(prefix) and not set(k) & set(":/")]

    def join(self, titles: Mapping[str, str], *, early: bool = False) -> Handles:
        """Return these with others that were listed; `early`: as the field says."""
        added = frozenset(titles) if early else frozenset()
        if titles.keys() <= self.titles.keys() and added <= self.early:
            return self
        return Handles({**self.titles, **titles}, self.early | added)
