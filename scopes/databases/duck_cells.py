"""Values of DuckDB as JSON, exact."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

MAX_CELL = 32_767
"""Characters, as in Excel; a longer cell is cut."""
INEXACT = {
    "INTERVAL": "VARCHAR",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIME WITH TIME ZONE": "VARCHAR",
}
"""Types that Python has no exact value for -> what they are cast to; times are UTC."""


def exactly(sql: str, columns: Sequence[tuple[str, str]]) -> str:
    """The statement with columns that Python would change cast to what it does not."""
    kinds = [(n, INEXACT.get(kind)) for n, (_, kind) in enumerate(columns, 1)]
    wanted = ", ".join(f"CAST(#{n} AS {to})" if to else f"#{n}" for n, to in kinds)
    return f"SELECT {wanted} FROM (\n{sql.strip().rstrip(';')}\n)"


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
        if isinstance(value, datetime):
            return {"t": value.isoformat()}
        if isinstance(value, date):
            return {"d": value.isoformat()}
        if isinstance(value, time):
            return {"h": value.isoformat()}
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
    return str(value)
