"""The model stand-in in a process of its own, as a server of the network would be.

`python -m bot.local.model` does the same but closes connections that idle for 5 s, as uvicorn does
unless told otherwise; between two samples they idle longer, and a connection lost in the middle of
a measurement is not what is measured.
"""

from __future__ import annotations

import pkgutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from bot.local.model import BENCH_MIND, ModelServer

KEEP_ALIVE_S = 300


@contextmanager
def standin(latency_s: float, mind: str = BENCH_MIND) -> Iterator[str]:
    """The URL of a stand-in that answers each call after `latency_s`."""
    command = [sys.executable, "-m", "benchmarks.standin", str(latency_s), mind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def serve(latency_s: float, mind: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        ModelServer(pkgutil.resolve_name(mind), latency_s=latency_s).app,
        log_level="error",
        lifespan="off",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    serve(float(sys.argv[1]), sys.argv[2])
