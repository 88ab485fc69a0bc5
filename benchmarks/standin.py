"""The model stand-in in a process of its own, as a server of the network would be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bot.local.model.server import BENCH_MIND


@contextmanager
def standin(latency_s: float, mind: str = BENCH_MIND) -> Iterator[str]:
    """The URL of a stand-in that answers each call after `latency_s`."""
    options = ["--latency", str(latency_s), "--mind", mind]
    command = [sys.executable, "-m", "bot.local.model.server", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
