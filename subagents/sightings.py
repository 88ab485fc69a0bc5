"""Whose text a run is about to hold: noted where it enters, so that it can be forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

Seen = tuple[str, str | None]
"""Id of an item, and the id of its author; None where the source has none."""


class Sightings(Protocol):
    """Where it is noted; does no I/O."""

    def saw(self, run: str, items: Iterable[Seen]) -> None:
        """The run holds text of these items from now on."""


class NoSightings:
    """For a recording that nobody keeps."""

    def saw(self, run: str, items: Iterable[Seen]) -> None:
        """Nothing to do: what is recorded goes with this process."""
