"""A chart, which is sent as JSON to the program that draws it (`scopes.chart_program`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Axis:
    """The positions of a chart's points."""

    name: str
    type: Literal["number", "time", "name"]
    values: Sequence[Any]
    """Numbers, times in ISO 8601, or names: one for each value of a series."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Series of numbers, drawn over one axis; at least one number in all."""

    kind: Literal["line", "bar", "across", "scatter"]
    title: str
    height: float
    """Inches."""
    x: Axis
    series: Mapping[str, Sequence[float | None]]
    from_zero: bool = False
    """Whether the axis of a line starts at zero for any numbers."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, stored: bytes) -> Chart:
        """Return the chart from the result of `to_json`."""
        found = json.loads(stored)
        return cls(**{**found, "x": Axis(**found["x"])})
