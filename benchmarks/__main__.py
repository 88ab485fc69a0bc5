"""`python -m benchmarks [engine|economy]`: measure against the stand-ins and print two tables.

A report, not a test: a bar that is missed does not change the exit code.
"""

from __future__ import annotations

import argparse
import asyncio

from benchmarks import economy, engine
from benchmarks.table import columns, rows_text, verdicts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", help="engine, economy; both if none is named")
    wanted = parser.parse_args().tables or ["engine", "economy"]
    if "economy" in wanted:
        lines = economy.economy()
        print(f"economy\n\n{columns(economy.HEAD, lines)}\n\n{economy.notes(lines)}\n", flush=True)
    if "engine" in wanted:
        rows = asyncio.run(engine.engine())
        print(f"engine\n\n{rows_text(rows)}\n\n{engine.NOTES}\n\n{verdicts(rows)}")


if __name__ == "__main__":
    main()
