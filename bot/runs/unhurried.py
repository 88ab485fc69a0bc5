"""A connection to the file of the workflows that does not wait for the disk."""

from __future__ import annotations

import sqlite3
from typing import Any

from bot.storage.database import write_ahead


class Unhurried(sqlite3.Connection):
    """Does not wait for the disk at each commit: only a power cut loses the last moments.

    Nothing depends on those: a request that was begun stands in the inbox, which is waited for, and
    so do the steps and results from which a workflow that is begun anew goes on.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        write_ahead(self)  # five times faster
        self.execute("PRAGMA synchronous=NORMAL").close()  # twice more
