"""What every test stands on: no network but loopback, nothing of the host's settings, own state."""

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
"""Variables of the environment that say what a machine asks, and by which way; how its git works;
what a terminal shows; and whether Python holds back what it writes."""

# The same examples on each machine, however slow; `--hypothesis-profile default` draws new ones.
hypothesis.settings.load_profile("ci")


class NetworkBlocked(RuntimeError):
    """A test reached for an address beyond this machine."""


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
    """Leaves what is collected to no later garbage collection: with a million objects each of them
    would stop all loops of a test for up to a second."""
    gc.disable()
    try:
        collected = yield
        gc.collect()
        gc.freeze()
        atexit.register(gc.unfreeze)  # nanobind counts at the exit what is left
    finally:
        gc.enable()
        gc.set_threshold(2_000, 10, 100)  # of what tests compute, a tenth went into collecting
    return collected


def pytest_configure(config: pytest.Config) -> None:
    """Has the fixtures of pg_kit.py at hand; who starts the workers needs none of the bot."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("pg_kit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count to the system tests what serves the whole bot to a hostile model, or to a browser.

    What may take longest comes first, so that at the end no worker waits for another's long test.
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
    """Blocks look-ups and connections beyond loopback, and hides the host's keys and endpoints."""
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
    """A shell has what it starts in the background ignore Ctrl-C, and so would what tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the key file that is made at first use out of the developer's configuration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_read_once() -> Iterator[None]:
    """Each client of the SDK would read those of this machine anew, which takes 30 to 50 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> Iterator[None]:
    """Each call of the command line would build all commands anew, which takes 20 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_handler_of_dbos() -> None:
    """Else dbos keeps the stderr of the first test that starts it, which may be closed by then."""
    logging.getLogger("dbos").addHandler(logging.NullHandler())


@pytest.fixture(scope="session", autouse=True)
def _no_copied_database_left(_own_configuration: None) -> Iterator[None]:
    """Drops what pg_kit.py copies databases from."""
    from pg_kit import COPIED  # here and below: who starts the workers needs none of the bot

    with COPIED:
        yield


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


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of this test alone, not yet created; also that of processes it starts.

    The test runs in `tmp_path`, so that an `assistant.yaml` or `.env` of the checkout is not met.
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
