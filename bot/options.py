"""What a command line says of the sources that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says; None = not said."""

    model: str
    """`offline` or `claude`."""
    slack_export: Path | None = None
    sample: bool = False
    as_of: datetime | None = None
    """The end of the window, exclusive; None = now, or the end of a given export."""
    since: timedelta | None = None
    as_user: str | None = None
    mail: bool = False
    """A mailbox is read instead of a Slack workspace."""
    mbox: Path | None = None
    me: str | None = None
    """Address of the reader of `mbox`."""
    databases: tuple[Path, ...] = ()
    """DuckDB files, or folders of tables."""
    folder: Path | None = None
    """A working folder."""
