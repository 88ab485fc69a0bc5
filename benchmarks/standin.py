"""The model stand-in in a separate process, like a server in the network."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from standins.model import ModelServer

from bot.local.server import listen

BENCH_RESPONDER = "benchmarks.bench_model:bench"
KEEP_ALIVE_S = 300
"""Seconds that a connection may be idle: a client keeps it between two calls."""


@contextmanager
def standin(latency_s: float, responder: str = BENCH_RESPONDER) -> Iterator[str]:
    """Yield the URL of a stand-in that answers each call after `latency_s`."""
    command = [sys.executable, "-m", "benchmarks.standin", responder, str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def main() -> None:
    """Serve a scripted model (`module:name`) until interrupted; print the URL first."""
    responder, latency_s = sys.argv[1:]
    server = ModelServer(pkgutil.resolve_name(responder), latency_s=float(latency_s))
    listener = listen(0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        server.app,
        log_level="error",
        lifespan="off",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
