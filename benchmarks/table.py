"""Formats of measurements: rows with a limit (bar), and plain columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `bar` is its maximum; None = it is only printed."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return "ok" if self.value <= self.bar else "MISSED"

    def cells(self) -> list[str]:
        bar = "" if self.bar is None else f"<= {number(self.bar)}{self.unit}"
        return [self.name, f"{number(self.value)}{self.unit}", bar, self.verdict, self.note]


def number(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def rows_text(rows: Sequence[Row]) -> str:
    return columns(
        ["figure", "value", "bar", "", "beside it"], [r.cells() for r in rows], left=(4,)
    )


def columns(head: Sequence[str], lines: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Return lines under their heads; the first column and those in `left` are left-aligned."""
    table = [head, *lines]
    widths = [max(len(line[k]) for line in table) for k in range(len(head))]
    shown = [
        "  ".join(
            cell.ljust(width) if k == 0 or k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])


def verdicts(rows: Sequence[Row]) -> str:
    held = [row.verdict for row in rows if row.bar is not None]
    return f"bars: {held.count('ok')} ok, {held.count('MISSED')} missed"
