"""The `engine` table: how much a subagent is told whatever it does, and how a command begins.

What isolation costs beside a bare loop is measured on the whole product, by `fanout`.
"""

from __future__ import annotations

import json

import scopes
from benchmarks import start
from benchmarks.table import Row
from benchmarks.workload import settings_for
from scopes import ALL, scope_names
from scopes.tool import estimate_tokens
from subagents.brief import template, tools_for
from subagents.contracts import CONTRACTS

NOTES = """\
Fixed tokens are those of the longest contract; `--help` and the start are medians of five."""


def start_rows() -> list[Row]:
    sdk = start.import_sdk_s()
    loaded = "imports" if start.help_imports_settings() else "does not import"
    return [
        Row("assistant --help", start.help_s(), " s", 0.4, f"{loaded} config.settings"),
        Row(
            "start to first model call",
            start.first_call_s(),
            " s",
            1.5,
            f"`import anthropic` alone {sdk:.2f} s",
        ),
    ]


def fixed_rows() -> list[Row]:
    """System prompt and schemas of a subagent, in tokens (bytes / 3 of compact JSON)."""
    rows = []
    for scope in scope_names():
        sizes = {c: fixed_tokens(scope, c) for c in CONTRACTS}
        each = ", ".join(f"{contract} {size}" for contract, size in sizes.items())
        bar = None if scope == ALL else 1500.0
        rows.append(Row(f"fixed tokens, scope {scope}", max(sizes.values()), "", bar, each))
    return rows


def fixed_tokens(scope: str, contract: str) -> int:
    offered = tools_for(contract, scopes.scope(scope).tools)
    system, tools, _ = template(scope, contract, settings_for(1).models.strict_tools, offered)
    parts = [json.dumps(b, ensure_ascii=False, separators=(",", ":")) for b in [*system, *tools]]
    return estimate_tokens("".join(parts))


def engine() -> list[Row]:
    speed = [start.machine_s()]
    rows = fixed_rows() + start_rows()
    speed.append(start.machine_s())
    note = f"at the start; {speed[1] * 1000:.0f} ms at the end; absolute figures go with it"
    return [*rows, Row("this machine: 2 million additions", speed[0] * 1000, " ms", None, note)]
