"""The `engine` table: the fixed prompt of a subagent, and the start of a command.

`fanout` measures the cost of isolation over a bare loop, on the whole product.
"""

from __future__ import annotations

import scopes
from benchmarks import start
from benchmarks.table import Row
from scopes import ALL, scope_names
from subagents.brief import fixed_tokens

NOTES = """\
Fixed tokens are those of the contract `answer`; `--help` and the start are medians of five."""


def engine() -> list[Row]:
    """Return the rows of the table."""
    rows = []
    for scope in scope_names():
        bar = None if scope == ALL else 1500.0
        tokens = fixed_tokens(scope, scopes.scope(scope).tools)
        rows.append(Row(f"fixed tokens, scope {scope}", tokens, "", bar))
    sdk = f"`import anthropic` alone {start.import_sdk_s():.2f} s"
    return [
        *rows,
        Row("assistant --help", start.help_s(), " s", 0.4),
        Row("start to first model call", start.first_call_s(), " s", 1.5, sdk),
    ]
