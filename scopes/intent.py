"""What a requester asked for, in words of their own: the one text of a run that is trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from scopes.destinations import unquoted

URL = re.compile(r"https?://[^\s<>|\"'`\\^{}]+", re.IGNORECASE)
STOPS = ".,;:!?)]"
"""What ends a sentence rather than the address in front of it."""
LEAST_LITERAL = 2
"""Characters from which on a text can be said to stand in a request."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The request as the gate reads it; nothing that a model wrote or read is in it."""

    text: str = ""
    """The requester's own message, without anything that was quoted around it by code."""
    named: frozenset[str] = frozenset()
    """Ids of the conversations and people that these words name."""
    home: str = ""
    """The conversation that the answer goes to; empty on the command line."""
    thread: str = ""
    """The message in `home` that the answer replies to, as `<channel>/<ts>`."""
    own: str = ""
    """The requester's own message, as `<channel>/<ts>`."""
    lookups: frozenset[str] = frozenset()
    """Addresses, and words of searches, that the requester has approved to the letter."""
    scheduled: bool = False
    """Whether a schedule asks, in words that its owner approved: nobody is there to decide."""

    def says(self, text: str) -> bool:
        """Return whether the text stands in the request word for word, spaces aside."""
        wanted = _flat(text)
        return len(wanted) >= LEAST_LITERAL and f" {wanted} " in f" {_flat(self.text)} "

    def says_unquoted(self, text: str) -> bool:
        """Return whether it stands so in what is certainly the requester's own: see `unquoted`."""
        return Intent(unquoted(self.text)).says(text)

    def addresses(self) -> frozenset[str]:
        """Return the URLs that stand in the request, and those that the requester has approved."""
        named = frozenset(found.rstrip(STOPS) for found in URL.findall(self.text))
        return named | {each for each in self.lookups if URL.fullmatch(each)}

    def to_json(self) -> dict[str, Any]:
        where = {"home": self.home, "thread": self.thread, "own": self.own}
        lookups = {"lookups": sorted(self.lookups)} if self.lookups else {}
        scheduled = {"scheduled": True} if self.scheduled else {}
        return {
            "text": self.text,
            "named": sorted(self.named),
            **where,
            **lookups,
            **scheduled,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Intent:
        """Return the intent that `to_json` gave."""
        sets = {
            "named": frozenset(stored["named"]),
            "lookups": frozenset(stored.get("lookups", ())),
        }
        return cls(**{**stored, **sets})


UNASKED: Final = Intent()
"""Of a context that nobody asked for anything."""


@lru_cache(maxsize=64)
def _flat(text: str) -> str:
    """Words with one space between them; quotes and what ends a sentence stand apart."""
    return " ".join(re.sub(r"([\"'`“”„«»().,;:!?])", r" \1 ", text).split())
