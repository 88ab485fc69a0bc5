"""Stand-ins in separate processes, like servers in the network."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import uvicorn
from standins.model import ModelServer
from starlette.types import ASGIApp

from bot.local.server import listen

FANOUT = "benchmarks.fanout_model:fanout"
KEEP_ALIVE_S = 300
"""Seconds that a connection may be idle: a client keeps it between two calls."""


@contextmanager
def process_of(app: str, *arguments: str) -> Iterator[str]:
    """Serve an ASGI app in a process; yield its URL. `app` is `module:name` of what makes it."""
    command = [sys.executable, "-m", "benchmarks.standin", app, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def standin(latency_s: float, responder: str = FANOUT) -> AbstractContextManager[str]:
    """Serve a scripted model (`module:name`) that answers each call after `latency_s`."""
    return process_of("benchmarks.standin:model", responder, str(latency_s))


def model(responder: str, latency_s: str) -> ASGIApp:
    return ModelServer(pkgutil.resolve_name(responder), latency_s=float(latency_s)).app


def main() -> None:
    """Serve until interrupted; print the URL first."""
    app, *arguments = sys.argv[1:]
    listener = listen(0)
    config = uvicorn.Config(
        pkgutil.resolve_name(app)(*arguments),
        log_level="error",
        lifespan="off",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
