"""The model stand-in in a process of its own, as a server of the network would be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def standin(latency_s: float, mind: str = "benchmarks.bench_mind:bench") -> Iterator[str]:
    """The URL of a stand-in that answers each call after `latency_s`."""
    command = [sys.executable, "-m", "bot.local.model", "--latency", str(latency_s)]
    with subprocess.Popen([*command, "--mind", mind], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
