"""Programs beside the bot: what they may take, and that they end with it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from select import select

import pytest
from engine_kit import until

import scopes
from scopes.programs import BOOT, PACKAGE, started

ROOT = Path(scopes.__file__).parent.parent
MB = 1 << 20
LIMITED = (
    "from scopes.process_limits import die_with_parent, limit; import os, resource, sys, time; "
)


def ran(code: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", LIMITED + code]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("limits", "code", "error"),
    [
        ("memory=300 << 20", "bytes(400 << 20)", "MemoryError"),
        ("file_bytes=10", "open({0!r}, 'wb', 0).write(bytes(10)); print(os.write(1, b'on') and 7); "
         "open({0!r}, 'ab', 0).write(b'x')", "File too large"),
        ("files=5", "[os.dup(0) for _ in range(9)]", "Too many open files"),
    ],
)  # fmt: skip
def test_what_takes_more_fails(tmp_path: Path, limits: str, code: str, error: str) -> None:
    done = ran(f"limit({limits}); " + code.format(str(tmp_path / "file")))
    assert done.returncode != 0
    assert error in done.stderr


WORK = """
def work(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
"""


def test_what_computes_for_too_long_is_ended_unless_it_is_given_more_time() -> None:
    once = f"exec({WORK!r}); limit(seconds=1); work(3)"
    assert ran(once).returncode == -signal.SIGXCPU
    assert ran(f"exec({WORK!r}); [(limit(seconds=1), work(0.5)) for _ in range(4)]").returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux's")
def test_the_kernel_ends_it_with_its_parent_whatever_it_does() -> None:
    deaf = (
        LIMITED
        + "import signal; die_with_parent(os.getppid()); signal.signal(15, signal.SIG_IGN); "
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {deaf!r}])"
    bot = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert bot.stdout
    with bot:
        child = int(bot.stdout.readline())
        os.kill(child, 0)
        bot.kill()
        ended, _, _ = select([bot.stdout], [], [], 20)  # once nobody holds the pipe any more
        assert ended


PROGRAMS = {
    "scopes.pages.worker": (),
    "scopes.google.gmail_payload": (),
    "scopes.databases.duck_program": (512,),
    "scopes.pages.pdf": (5, 9, 9_000),
    "scopes.chart_program": (5,),
}


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def limits_of(pid: int, limit: int) -> int:
    return resource.prlimit(pid, limit)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into other processes")
@pytest.mark.parametrize("module", PROGRAMS)
async def test_each_of_our_programs_is_limited_and_knows_nothing_of_the_bot(module: str) -> None:
    program = await started(module, *PROGRAMS[module])
    pid = program.pid
    try:
        await until(lambda: limits_of(pid, resource.RLIMIT_AS) != resource.RLIM_INFINITY, 60)
        assert 512 * MB <= limits_of(pid, resource.RLIMIT_AS) <= 2_048 * MB
        assert limits_of(pid, resource.RLIMIT_CORE) == 0
        assert environment_of(pid) in ("", "LC_CTYPE=C.UTF-8\0")
        assert os.getsid(pid) == pid
    finally:
        program.kill()
        await program.communicate()


@pytest.mark.parametrize("module", PROGRAMS)
def test_each_of_them_ends_at_once_where_the_bot_has_ended_before(module: str) -> None:
    argv = [sys.executable, "-I", "-c", BOOT, str(PACKAGE), str(os.getppid()), module]
    numbers = map(str, PROGRAMS[module])
    with subprocess.Popen([*argv, *numbers], stdin=subprocess.PIPE) as program:
        assert program.wait(60) == 1  # though its input goes on
