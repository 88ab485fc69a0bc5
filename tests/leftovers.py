"""What a failed test leaves behind, which must not make another one fail."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _failure_keeps_to_itself() -> Iterator[None]:
    """What a failed test left open is warned of with it, not with the test that comes next.

    Until that begins, pytest keeps the traceback, and with it all that its frames hold.
    """
    yield
    if hasattr(sys, "last_value"):
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        gc.collect()
