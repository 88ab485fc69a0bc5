"""Facts about the samples: their date, the mailbox's owner, the folder of the sales data."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

SAMPLE_FOLDER = Path(__file__).parent / "sample"
SAMPLE_AS_OF = datetime(2026, 3, 16, tzinfo=UTC)
"""The current time of the samples: there are no later messages and mails."""
SAMPLE_DAYS = 14
"""The days before `SAMPLE_AS_OF` in which all messages of the workspace lie."""
OWNER = "helena"
"""Key of the mailbox's owner among the people of the sample workspace."""
SAMPLE_OWNER = f"U0{OWNER.upper()}"
"""Id of the mailbox's owner in the sample workspace."""
SALES = SAMPLE_FOLDER / "sales"
"""A folder of CSV files, one per table: customers, products, orders, order_lines, refunds. It
agrees with the workspace and the mailbox: a customer charged twice in March 2026 has two charges
there, and manual repayments are among the refunds."""
