"""The sample sales database: what the customers of the sample company were charged and paid back.

It agrees with the sample workspace and mailbox: who was charged twice in March 2026 has two charges
there, and what was paid back by hand is among the refunds.
"""

from pathlib import Path

SALES = Path(__file__).parent / "sample" / "sales"
"""A folder of CSV files, one a table: customers, products, orders, order_lines, refunds."""
QUESTIONS = SALES.parent / "questions.yaml"
"""A SELECT -> the questions that it answers."""
