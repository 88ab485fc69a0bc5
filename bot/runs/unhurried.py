"""A connection to the file of the workflows that does not wait for the disk."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from bot.storage.database import write_ahead

SUBSECONDS = (3, 42)
"""SQLite from which `unixepoch('subsec')` is known (sqlite.org/lang_datefunc.html)."""


class Unhurried(sqlite3.Connection):
    """Does not wait for the disk at each commit: only a power cut loses the last moments.

    Nothing depends on those: a request that was begun stands in the inbox, which is waited for, and
    so do the steps and results from which a workflow that is begun anew goes on.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if sqlite3.sqlite_version_info < SUBSECONDS:  # DBOS asks for it on Python 3.12 and newer
            self.create_function("unixepoch", 1, _unixepoch)
        write_ahead(self)  # five times faster
        self.execute("PRAGMA synchronous=NORMAL").close()  # twice more


def _unixepoch(of: str) -> float:
    if of != "subsec":
        raise ValueError(of)
    return time.time()
