"""`python -m benchmarks [TABLE ...]`: measure, print tables.

Tables: engine, economy, fanout, gate, serve, sweep200, triage, notes, tools, delegation, challenge,
panel, console. `assistant eval` measures the quality of answers.

A report, not a test: a missed bar does not change the exit code. The server for databases is
TEST_DATABASE_URL, or one on this machine that lets `postgres` in.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable

from benchmarks import (
    challenge,
    console,
    delegation,
    economy,
    engine,
    fanout,
    gate,
    notes,
    panel,
    serve,
    sweep200,
    tools,
    triage,
)
from benchmarks.table import Row, columns, rows_text, verdicts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", help="which; without: the first two")
    parser.add_argument("--parts", default="", help=f"of serve: {','.join(serve.PARTS)}")
    parser.add_argument("--full", action="store_true", help="of serve, sweep200: long form")
    parser.add_argument(
        "--tokens", type=int, default=triage.SHORT, help="of triage: length of a thread"
    )
    options = parser.parse_args()
    wanted = options.tables or ["engine", "economy"]
    if "economy" in wanted:
        text = columns(economy.HEAD, economy.economy())
        print(f"economy\n\n{text}\n\n{economy.NOTES}\n", flush=True)
    parts = [part for part in options.parts.split(",") if part]
    channels = sweep200.FULL if options.full else sweep200.QUICK
    tables: dict[str, tuple[Callable[[], list[Row]], str]] = {
        "engine": (engine.engine, engine.NOTES),
        "fanout": (fanout.fanout, fanout.NOTES),
        "gate": (lambda: asyncio.run(gate.gate()), gate.NOTES),
        "notes": (lambda: asyncio.run(notes.notes()), notes.NOTES),
        "tools": (lambda: asyncio.run(tools.tools()), tools.NOTES),
        "delegation": (delegation.delegation, delegation.NOTES),
        "challenge": (challenge.challenge, challenge.NOTES),
        "panel": (panel.panel, panel.NOTES),
        "console": (lambda: asyncio.run(console.console()), console.NOTES),
        "serve": (lambda: serve.serve(parts, options.full), serve.NOTES),
        "sweep200": (lambda: sweep200.sweep200(channels), sweep200.NOTES),
        "triage": (lambda: triage.triage(options.tokens), triage.NOTES),
    }
    for name, (measure, remarks) in tables.items():
        if name in wanted:
            rows = measure()
            print(f"{name}\n\n{rows_text(rows)}\n\n{remarks}\n\n{verdicts(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
