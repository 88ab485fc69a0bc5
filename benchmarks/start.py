"""Time until a command begins: `--help`, and from its start to the first model call."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

RUNS = 5
ASSISTANT = [sys.executable, "-m", "bot"]
SWEEP = [*ASSISTANT, "sweep", "--sample", "--channels", "csm-*", "--model", "claude"]


def help_s() -> float:
    """Return the median wall time of `assistant --help`."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run([*ASSISTANT, "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def import_sdk_s() -> float:
    """Return the median wall time of a process that only imports the SDK."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import anthropic"], check=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def first_call_s() -> float:
    """Return the median time from the start of a sweep of the sample to its first model call.

    The first run, which makes the store and compiles edited files, is not counted.
    """
    with TemporaryDirectory() as folder:
        return statistics.median([_first_call(Path(folder)) for _ in range(RUNS + 1)][1:])


def _first_call(folder: Path) -> float:
    """Start a sweep whose model is a socket that only records the time of the first request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        environment = {
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{listener.getsockname()[1]}",
            "ANTHROPIC_API_KEY": "bench",
            "ASSISTANT_DATA_DIR": str(folder),
        }
        began = time.perf_counter()
        quiet = subprocess.DEVNULL
        with subprocess.Popen(SWEEP, env=environment, stdout=quiet, stderr=quiet) as process:
            try:
                connection, _ = listener.accept()
                with connection:
                    assert connection.recv(4) == b"POST"
                    return time.perf_counter() - began
            finally:
                process.kill()
