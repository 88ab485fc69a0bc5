"""What a context may have read, and who may see what comes out of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Readers = frozenset[str] | Literal["public"]

PUBLIC: Final[Literal["public"]] = "public"


@dataclass(frozen=True, slots=True)
class Label:
    """Integrity and confidentiality of a text; a join only ever grows more careful.

    The lattice is that of FIDES (arXiv 2505.23643): one label per context, joined with every item.
    """

    untrusted: bool = False
    readers: Readers = PUBLIC
    """User ids who may read it; PUBLIC = every full member of the workspace."""
    sources: frozenset[str] = frozenset()
    """What it came from: ids of Slack conversations as they are, all else as `<kind>:<id>`."""

    def join(self, other: Label) -> Label:
        if other is self or (other.sources <= self.sources and other == self):
            return self
        return Label(
            self.untrusted or other.untrusted,
            _meet(self.readers, other.readers),
            self.sources | other.sources,
        )

    def within(self, other: Label) -> bool:
        """Whether this label is no higher than `other`: all who may read that may read this."""
        if self.readers == PUBLIC:
            return True
        return other.readers != PUBLIC and other.readers <= self.readers

    def to_json(self) -> dict[str, object]:
        readers = PUBLIC if self.readers == PUBLIC else sorted(self.readers)
        return {"untrusted": self.untrusted, "readers": readers, "sources": sorted(self.sources)}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Label:
        """The label that `to_json` gave."""
        readers = stored["readers"]
        return cls(
            bool(stored["untrusted"]),
            PUBLIC if readers == PUBLIC else frozenset(readers),
            frozenset(stored["sources"]),
        )


def _meet(one: Readers, two: Readers) -> Readers:
    if one == PUBLIC:
        return two
    return one if two == PUBLIC else one & two


TRUSTED: Final = Label()


_CONVERSATION = re.compile(r"[CGD][A-Z0-9]{2,}")


def is_conversation(source: str) -> bool:
    """Whether a source is a conversation of Slack, whose members can be asked for."""
    return _CONVERSATION.fullmatch(source) is not None


_PERSONAL = re.compile(r"(?:notes|user):(?:own|operator|([UW][A-Z0-9]+))|mail:.*|files:run|D\w+.*")


def is_personal(source: str) -> bool:
    """Return whether a source is one person's own (notes, mail, direct messages, the folder of a
    request), so that nobody else can grant it.

    `notes:own` is how earlier versions named the notes of everybody.
    """
    return _PERSONAL.fullmatch(source) is not None


def owner_of(source: str) -> str | None:
    """Return the user id in the name of a personal source; None where the name holds none."""
    found = _PERSONAL.fullmatch(source)
    return found[1] if found else None
