"""Facts about the samples: their date, the mailbox's owner, the folder of the sales data."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

DATA = Path(__file__).parent / "sample"
SAMPLE_AS_OF = datetime(2026, 3, 16, tzinfo=UTC)
"""The moment at which the samples are read: later messages and mails do not exist."""
SAMPLE_DAYS = 14
"""The days before `SAMPLE_AS_OF` in which all messages of the workspace lie."""
OWNER = "helena"
"""Key of the mailbox's owner among the people of the sample workspace."""
SAMPLE_OWNER = f"U0{OWNER.upper()}"
"""Id of the mailbox's owner in the sample workspace."""
SALES = DATA / "sales"
"""A folder of CSV files, one a table: customers, products, orders, order_lines, refunds. It agrees
with the workspace and the mailbox: who was charged twice in March 2026 has two charges there, and
what was paid back by hand is among the refunds."""
