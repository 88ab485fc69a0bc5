"""Isolation of every test: only loopback, no settings of the host, a state folder of its own."""

from __future__ import annotations

import atexit
import gc
import ipaddress
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpcore2
import hypothesis
import pytest
import typer.main

if TYPE_CHECKING:
    from bot_kit import Shell

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = re.compile(
    r"(?:ANTHROPIC|SLACK|ASSISTANT|GOOGLE|GMAIL|GIT)_.*|DATABASE_URL.*|.*_PROXY"
    r"|(?:FORCE|NO)_COLOR|COLUMNS|LINES|PYTHONUNBUFFERED",
    re.IGNORECASE,
)
"""Environment variables of services, proxies, git, terminals and Python's output buffer."""

# The same examples on each machine, however slow; `--hypothesis-profile default` draws new ones.
hypothesis.settings.load_profile("ci")


class NetworkBlocked(RuntimeError):
    """A test tried to reach an address beyond this machine."""


def _refuse_unless_loopback(host: Any) -> None:
    if isinstance(host, bytes):
        host = host.decode()
    if not isinstance(host, str) or host in ("", "localhost"):
        return
    try:
        if ipaddress.ip_address(host.split("%")[0]).is_loopback:
            return
    except ValueError:
        pass
    raise NetworkBlocked(f"A test tried to reach {host!r}; tests may use loopback only.")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Exempt what collection imports from garbage collections: with a million objects, each
    would stop all loops of a test for up to a second."""
    gc.disable()
    try:
        collected = yield
        gc.collect()
        gc.freeze()
        atexit.register(gc.unfreeze)  # nanobind counts leftovers at exit
    finally:
        gc.enable()
        gc.set_threshold(2_000, 10, 100)  # collections took a tenth of the tests' CPU time
    return collected


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures of pg_kit.py, except in a process that only starts the workers."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("pg_kit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as system tests those that use a browser, or serve the whole bot to a hostile model.

    The longest tests come first, so that at the end no worker waits for another's long test.
    """
    for item in items:
        is_browsing = "browser" in getattr(item, "fixturenames", ())
        if is_browsing or item.path.parent.name == "attacks":
            item.add_marker(pytest.mark.system)
    items.sort(key=_seconds_allowed, reverse=True)


def _seconds_allowed(item: pytest.Item) -> int:
    marker = item.get_closest_marker("timeout")
    return int(marker.args[0]) if marker else 0


@pytest.fixture(scope="session", autouse=True)
def _sealed() -> Iterator[None]:
    """Block look-ups and connections beyond loopback, and hide the host's keys and endpoints."""
    look_up = socket.getaddrinfo

    def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_unless_loopback(host)
        return look_up(host, *args, **kwargs)

    def guard_connect(connect: Callable[..., Any]) -> Callable[..., Any]:
        def guarded_connect(self: socket.socket, address: Any) -> Any:
            if isinstance(address, tuple):
                _refuse_unless_loopback(address[0])
            return connect(self, address)

        return guarded_connect

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", guarded_look_up)
        patch.setattr(socket.socket, "connect", guard_connect(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", guard_connect(socket.socket.connect_ex))
        for name in filter(OUTSIDE.fullmatch, tuple(os.environ)):
            patch.delenv(name)
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Accept Ctrl-C: a shell's background job ignores it, and so would processes of tests."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the key file that is made at first use out of the developer's configuration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_read_once() -> Iterator[None]:
    """Read the machine's certificates once, not for each client of the SDK (30 to 50 ms)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> Iterator[None]:
    """Build the command line once, not for each call (20 ms)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_handler_of_dbos() -> None:
    """Keep dbos from logging to the stderr of its first test, which is closed later."""
    logging.getLogger("dbos").addHandler(logging.NullHandler())


@pytest.fixture(scope="session", autouse=True)
def _no_copied_database_left(_own_configuration: None) -> Iterator[None]:
    """Drop the databases that pg_kit.py copies."""
    from pg_kit import COPIED  # not at the top: starting workers needs no bot

    with COPIED:
        yield


@pytest.fixture(autouse=True)
def _failure_keeps_to_itself() -> Iterator[None]:
    """Warn of what a failed test left open with that test, not with the next one.

    Until the next one begins, pytest keeps the traceback, and all that its frames hold.
    """
    yield
    if hasattr(sys, "last_value"):
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        gc.collect()


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of this test alone, not yet created; also that of processes it starts.

    The test runs in `tmp_path`, so that an `assistant.yaml` or `.env` of the checkout is not read.
    """
    folder = tmp_path / "data"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSISTANT_DATA_DIR", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    return folder


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """The command line, in the process of the test."""
    from bot_kit import Shell

    return Shell(capsys)


@pytest.fixture(scope="session")
def dev_data() -> Path:
    """The development data beside the checkout: a Slack export, its labels, mail, a database."""
    folder = ROOT.parent / "shared" / "data" / "dev"
    if not folder.is_dir():
        pytest.skip("the development data (../shared/data/dev) is not on this machine")
    return folder
