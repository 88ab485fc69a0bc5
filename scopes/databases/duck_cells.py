"""Values of DuckDB as JSON, exact."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

MAX_CELL = 32_767
"""Characters, as in Excel; a longer cell is cut."""
INEXACT = re.compile("DATE|FLOAT|INTERVAL|MAP|TIME|VARIANT")
"""In a type, at any depth: Python or JSON has no exact value for it, and it comes as DuckDB writes
it. A field may be called so, too, which does no harm."""


def exactly(sql: str, kinds: Sequence[str]) -> str:
    """Return the statement with columns that Python would change cast to what it does not.

    Times are in UTC.
    """
    wanted = ", ".join(_column(n, kind) for n, kind in enumerate(kinds, 1))
    return f"SELECT {wanted} FROM (\n{sql.strip().rstrip(';')}\n)"


def _column(n: int, kind: str) -> str:
    if not INEXACT.search(kind):
        return f"#{n}"
    text = f"CAST(#{n} AS VARCHAR)"
    return f"CAST({text} AS DOUBLE)" if kind == "FLOAT" else text  # 19.99, not 19.9899997


@dataclass
class Cells:
    """Values as JSON; what JSON has no word for is a pair of a letter and a text."""

    cut: int = 0
    """Cells that were too long."""

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"f": str(value)}
        if isinstance(value, Decimal):
            return {"n": str(value)}
        return self._text(_spelled(value))

    def _text(self, text: str) -> str:
        if len(text) <= MAX_CELL:
            return text
        self.cut += 1
        return f"{text[:MAX_CELL]}... [cut]"


def _spelled(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"0x{bytes(value[:MAX_CELL]).hex()}"
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=_spelled)
    return format(value, "f") if isinstance(value, Decimal) else str(value)
