"""Labels: the sources that a context has read, and the people who may see its output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter

Readers = frozenset[str] | Literal["internet", "workspace"]

INTERNET: Final[Literal["internet"]] = "internet"
"""Anybody: for text from the web, and the words of the request itself."""
WORKSPACE: Final[Literal["workspace"]] = "workspace"
"""All full members of the workspace."""


@dataclass(frozen=True, slots=True)
class Label:
    """Integrity and confidentiality of a text; a join is never less strict than its parts.

    The lattice is that of FIDES (arXiv 2505.23643): one label per context, joined with every item.
    """

    untrusted: bool = False
    readers: Readers = INTERNET
    """Who may read it: INTERNET, WORKSPACE, or these user ids."""
    sources: frozenset[str] = frozenset()
    """Its origins: ids of Slack conversations unchanged, all others as `<kind>:<id>`."""
    outside: bool = False
    """Whether an author of any of it is unknown or no full member: on the web, in a mail, a cell, a
    file, by a guest, a bot or another company."""

    @property
    def is_open(self) -> bool:
        """Return whether all full members of the workspace may read it."""
        return isinstance(self.readers, str)

    @property
    def is_guarded(self) -> bool:
        """Return whether look-ups must not disclose it to the internet: it is for named people, or
        it is the workspace's and an outsider may choose what is looked up.
        """
        return self.readers != INTERNET and (self.outside or not self.is_open)

    def join(self, other: Label) -> Label:
        if other is self:
            return self
        untrusted, outside = self.untrusted or other.untrusted, self.outside or other.outside
        readers = _meet(self.readers, other.readers)
        same = (untrusted, outside, readers) == (self.untrusted, self.outside, self.readers)
        if same and other.sources <= self.sources:
            return self  # the case for nearly every item
        return Label(untrusted, readers, self.sources | other.sources, outside)

    def within(self, other: Label) -> bool:
        """Return whether all who may read what `other` labels may read this."""
        return _meet(self.readers, other.readers) == other.readers

    def to_json(self) -> dict[str, object]:
        return {
            "untrusted": self.untrusted,
            "readers": self.readers if isinstance(self.readers, str) else sorted(self.readers),
            "sources": sorted(self.sources),
            "outside": self.outside,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Label:
        """Return the label from the result of `to_json`."""
        return _LABEL_ADAPTER.validate_python(stored)


_LABEL_ADAPTER: Final = TypeAdapter(Label)


def _meet(one: Readers, two: Readers) -> Readers:
    if one == two:
        return one
    if isinstance(one, frozenset) and isinstance(two, frozenset):
        return one & two
    return min(one, two, key=lambda readers: (readers == INTERNET, readers == WORKSPACE))


TRUSTED_LABEL: Final = Label()
DIRECTORY: Final = "slack:directory"
"""Source of names of public channels and of people, which all full members may read."""


_CONVERSATION = re.compile(r"[CGD][A-Z0-9]{2,}")


def is_conversation(source: str) -> bool:
    """Return whether a source is a conversation of Slack, which has a list of members."""
    return _CONVERSATION.fullmatch(source) is not None


_LIST = re.compile(r"F[A-Z0-9]{2,}")


def is_list(handle: str) -> bool:
    """Return whether a handle is the id of a Slack List."""
    return _LIST.fullmatch(handle) is not None


_PERSONAL = re.compile(r"(?:notes|user):(?:own|operator|([UW][A-Z0-9]+))|mail:.*|files:run|D\w+.*")


def is_personal(source: str) -> bool:
    """Return whether a source is one person's own (notes, mail, direct messages, the folder of a
    request), so that nobody else can grant it.

    Earlier versions named everybody's notes `notes:own`.
    """
    return _PERSONAL.fullmatch(source) is not None


def owner_of(source: str) -> str | None:
    """Return the user id in the name of a personal source; None if it holds none."""
    found = _PERSONAL.fullmatch(source)
    return found[1] if found else None
