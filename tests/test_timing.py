"""The bound of what other tests compute: who passes it fails, and waiting is no computing."""

from __future__ import annotations

import time

import pytest
from timing import computed_within


def test_who_computes_for_too_long_fails_and_who_waits_does_not() -> None:
    with pytest.raises(AssertionError), computed_within(0.2):
        compute(2.0)
    with computed_within(0.2):
        time.sleep(0.5)


def compute(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
