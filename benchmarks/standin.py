"""The model stand-in in a process of its own, as a server of the network would be.

`python -m bot.local.model` does the same, but closes connections that idle for 5 s, as uvicorn does
unless told otherwise, and may hold a response back for 40 ms (Nagle's delay). Between two samples
connections idle longer; neither is what is measured.
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
    # asyncio turns Nagle's delay (40 ms a response) off only where the protocol is named
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
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
