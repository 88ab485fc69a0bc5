"""Files that a run or a team keeps: named, in versions, each with the label of who wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from scopes.label import Label

MAX_BYTES = 5_000_000
"""Of one file."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One version of a file."""

    space: str
    """`run:<id>` for the files of one request, which go with its answer; else as of notes."""
    name: str
    """`sales.csv`."""
    version: int
    """From 1."""
    kind: str
    """Media type: `text/csv`, `image/png`, `text/markdown`."""
    content: bytes
    label: Label
    at: datetime


class Resources(Protocol):
    """The files of this workspace. Its methods raise ToolError for what the model can mend."""

    async def save(
        self, space: str, key: str, name: str, kind: str, content: bytes, label: Label, run: str
    ) -> Resource:
        """Keep a version, once for each key however often it is asked for."""

    async def get(self, space: str, name: str, version: int | None = None) -> Resource | None:
        """This version, else the newest; None where there is none."""

    async def listed(self, space: str) -> Sequence[Resource]:
        """The newest version of each file, without its content, by name."""


def space_of_run(run: str) -> str:
    """Where the files of a request lie; they are put up with its answer."""
    return f"run:{run}"
