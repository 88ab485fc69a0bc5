"""Where an index stands that has not followed its branch, as a note beside the repository."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stands:
    """Where an index stands."""

    ref: str = ""
    """The branch that it is to follow; empty where nobody knows."""
    tree: str = ""
    """Id of the branch's tree that it is at."""
    left: tuple[str, ...] = ()
    """Paths that the folder was not brought to, by us."""

    @classmethod
    def read(cls, note: Path) -> Stands:
        """What was noted; what is cut off, or of an earlier version, tells nothing."""
        try:
            told = json.loads(note.read_text())
            return cls(told["ref"], told["tree"], tuple(told["left"]))
        except (ValueError, KeyError, TypeError):
            return cls()

    def write(self, note: Path) -> None:
        note.write_text(json.dumps(asdict(self)))
