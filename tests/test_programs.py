"""Worker programs: their limits and permissions while they read untrusted text."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_kit import until
from timing import WAIT_S

import scopes
from scopes.confinement import CLONE, CLONE3, DENIED_CALLS, FORKS, MACHINES, SIGNALS_SINCE, TGKILL
from scopes.programs import BOOT, PACKAGE, WorkerProcess

ROOT = Path(scopes.__file__).parent.parent
MB = 1 << 20


PROGRAMS = {
    "scopes.pages.worker": (),
    "scopes.google.mail_text": (),
    "scopes.databases.duck_program": (512,),
    "scopes.documents.worker": (),
    "scopes.chart_program": (),
}


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def limits_of(pid: int, limit: int) -> int:
    return resource.prlimit(pid, limit)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into other processes")
@pytest.mark.parametrize("module", PROGRAMS)
async def test_each_worker_program_has_limits_and_an_empty_environment(module: str) -> None:
    program = WorkerProcess(module, 60, *PROGRAMS[module])
    program.start()
    try:
        await until(lambda: program.pid, 60)
        pid = program.pid
        assert pid
        await until(lambda: limits_of(pid, resource.RLIMIT_AS) != resource.RLIM_INFINITY, 60)
        assert 512 * MB <= limits_of(pid, resource.RLIMIT_AS) <= 2_048 * MB
        assert limits_of(pid, resource.RLIMIT_CORE) == 0
        assert environment_of(pid) in ("", "LC_CTYPE=C.UTF-8\0")
        assert os.getsid(pid) == pid
    finally:
        await program.aclose()


@pytest.mark.parametrize("module", PROGRAMS)
def test_each_worker_program_exits_when_its_parent_is_gone(module: str) -> None:
    argv = [sys.executable, "-I", "-c", BOOT, str(PACKAGE), str(os.getppid()), module]
    numbers = map(str, PROGRAMS[module])
    with subprocess.Popen([*argv, *numbers], stdin=subprocess.PIPE) as program:
        assert program.wait(WAIT_S) == 1  # though its input is still open


MACHINE = platform.machine()
FILTERS = MACHINE in MACHINES and Path("/proc/sys/kernel/seccomp/actions_avail").exists()
LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) if sys.platform == "linux" else 0
filtered = pytest.mark.skipif(not FILTERS, reason="this kernel has no filters of calls")
landlocked = pytest.mark.skipif(LANDLOCK < 1, reason="this kernel has no landlock(7)")

TRY = """
import ctypes, errno, os, signal, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    words = [ctypes.c_long(each) for each in arguments]
    done = libc.syscall(ctypes.c_long(number), *words)
    if done == 0 and number in FORKS: os._exit(0)
    return errno.errorcode[ctypes.get_errno()] if done < 0 else "done"
def tried(work):
    try:
        return work() or "done"
    except OSError as error:
        return errno.errorcode[error.errno]
def opened(path, flags=os.O_RDONLY):
    os.close(os.open(path, flags))
def forked():
    if not (pid := os.fork()): os._exit(0)
    os.waitpid(pid, 0)
"""


def run_confined(code: str, reads: bool = False) -> subprocess.CompletedProcess[str]:
    """Run this code in a process that is confined first."""
    before = f"from scopes.confinement import confine\nconfine(reads={reads})\n"
    return run(code, TRY + before)


def run(code: str, before: str = TRY) -> subprocess.CompletedProcess[str]:
    numbers = [n for calls in (*FORKS.values(), CLONE) for n in calls]
    argv = [sys.executable, "-c", f"FORKS = {numbers}\n{before}{code}"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def stdout_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CALLS = """
execve execveat socket socketpair connect bind listen accept accept4 sendto sendmsg sendmmsg
kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal pidfd_open pidfd_getfd
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp migrate_pages
move_pages setpriority ioprio_set sched_setparam sched_setscheduler sched_setattr sched_setaffinity
mount umount2 pivot_root chroot unshare setns open_tree move_mount fsopen fsconfig fsmount fspick
mount_setattr open_by_handle_at bpf io_uring_setup userfaultfd perf_event_open add_key request_key
keyctl kexec_load kexec_file_load init_module finit_module delete_module
"""


@filtered
def test_denied_system_calls_fail() -> None:
    which = MACHINES[MACHINE][0]
    numbers = {name: DENIED_CALLS[name][which] for name in CALLS.split()}
    if MACHINE == "x86_64":
        numbers |= {name: calls[0] for name, calls in FORKS.items()}
    calls = f"print(*[call(number, *[-1] * 6) for number in {list(numbers.values())}])"
    assert dict(zip(numbers, stdout_of(run_confined(calls)).split(), strict=True)) == dict.fromkeys(
        numbers, "EPERM"
    )
    # a filter cannot read the arguments of this one
    assert stdout_of(run_confined(f"print(call({CLONE3[0]}, -1, -1))")) == "ENOSYS"


ATTEMPTS = (
    "__import__('socket').socket()",
    "__import__('socket').socketpair()",
    "subprocess.run(['/bin/true'])",
    "os.execv('/bin/true', ['true'])",
    "os.kill(os.getppid(), 0)",
    "call(TGKILL, os.getppid(), os.getppid(), 0)",
    "__import__('resource').prlimit(os.getppid(), 7)",
    "os.setpriority(os.PRIO_PROCESS, os.getppid(), 0)",
    "call(CLONE, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)",
    "forked()",
)


@filtered
def test_confined_program_cannot_open_sockets_or_start_or_reach_processes() -> None:
    which = MACHINES[MACHINE][0]
    numbers = f"TGKILL, CLONE = {TGKILL[which]}, {CLONE[which]}\n"
    tried = "".join(f"print(tried(lambda: {attempt}))\n" for attempt in ATTEMPTS)
    assert stdout_of(run_confined(numbers + tried)).split() == ["EPERM"] * len(ATTEMPTS)
    capabilities = """
found = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("Cap"))
print(int(found["CapEff"], 16) & ~0b110, int(found["CapPrm"], 16) & ~0b110)"""
    assert stdout_of(run_confined(capabilities, reads=True)) == "0 0", "none but those to read"


@filtered
@pytest.mark.skipif(MACHINE != "x86_64", reason="its calls have one form only")
def test_system_call_of_another_architecture_kills_the_program() -> None:
    assert run_confined("call(0x40000000 + 39)").returncode == -signal.SIGSYS
    old = """
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, getpid; int 0x80; ret
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()"""
    died_of = -run_confined(old).returncode
    assert died_of in (signal.SIGSYS, signal.SIGSEGV)  # as far as the kernel knows it


@filtered
def test_confinement_applies_to_running_threads() -> None:
    code = """
from scopes.confinement import confine
go, results = threading.Event(), []
def late(): go.wait(); results.append(tried(lambda: __import__("socket").socket() and None))
thread = threading.Thread(target=late); thread.start()
confine(); go.set(); thread.join(); print(*results)"""
    assert stdout_of(run(code)) == "EPERM"


@landlocked
@pytest.mark.parametrize("reads", [False, True])
def test_confined_program_cannot_change_files_or_inspect_other_processes(
    tmp_path: Path, reads: bool
) -> None:
    file, new = tmp_path / "mine", tmp_path / "new"
    file.write_text("mine")
    attempts = (
        *(f"opened({str(file)!r}, os.O_{how})" for how in ("WRONLY", "RDWR", "TRUNC | os.O_RDWR")),
        f"os.unlink({str(file)!r})",
        f"os.mkdir({str(new)!r})",
        f"opened({str(new)!r}, os.O_CREAT | os.O_WRONLY)",
        "opened('/proc/%d/environ' % os.getppid())",
        "opened('/proc/%d/mem' % os.getppid(), os.O_RDWR)",
    )
    tried = "".join(f"print(tried(lambda: {attempt}))\n" for attempt in attempts)
    assert stdout_of(run_confined(tried, reads=reads)).split() == ["EACCES"] * len(attempts)
    assert file.read_text() == "mine"


@landlocked
def test_confined_program_opens_non_library_files_only_with_reads_enabled(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("secret")
    paths = [str(path) for path in (file, ROOT / "pyproject.toml", "/etc/passwd")]
    attempt = f"print(*[tried(lambda: opened(path)) for path in {paths}])\n"
    listing = f"print(tried(lambda: os.listdir({str(tmp_path)!r}) and None))"
    assert stdout_of(run_confined(attempt, reads=True)) == "done done done"
    assert stdout_of(run_confined(attempt + listing)).split() == ["EACCES"] * 4


@pytest.mark.skipif(LANDLOCK < SIGNALS_SINCE, reason="this landlock(7) knows nothing of signals")
def test_confined_program_cannot_signal_processes_through_file_descriptors() -> None:
    code = """
import fcntl, time
other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
from scopes.confinement import confine
confine()
ours, theirs = os.pipe()
fcntl.fcntl(ours, fcntl.F_SETOWN, other.pid)
fcntl.fcntl(ours, fcntl.F_SETSIG, signal.SIGKILL)
fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
os.write(theirs, b"x")
time.sleep(0.3)
print(other.poll())"""
    assert stdout_of(run(code)) == "None"


HOSTILE = """
class Hostile:
    def read(self, *_):
        socket = tried(lambda: __import__("socket").socket() and None)
        os.write(2, " ".join((
            socket, tried(forked), tried(lambda: os.unlink(FILE)), tried(lambda: opened(FILE))
        )).encode())
        os._exit(0)
    def close(self): pass
    __iter__ = read
Hostile.buffer = Hostile()
sys.stdin = Hostile.buffer
"""
"""A standard input that runs code in the program that reads it."""
HOSTILE_RESULTS = {
    "scopes.pages.worker": "EPERM EPERM EACCES EACCES",
    "scopes.google.mail_text": "EPERM EPERM EACCES EACCES",
    "scopes.documents.worker": "EPERM EPERM EACCES EACCES",
    "scopes.databases.duck_program": "EPERM EPERM EACCES done",
    "scopes.chart_program": "EPERM EPERM EACCES done",
}


@filtered
@landlocked
@pytest.mark.parametrize("module", PROGRAMS)
def test_each_worker_program_drops_unneeded_permissions(module: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("of the bot")
    code = f"FORKS, FILE = [], {str(file)!r}\n{TRY}{HOSTILE}{BOOT}"
    quiet = ("-W", "ignore::DeprecationWarning")  # Python 3.12 and newer: of a fork beside threads
    argv = [sys.executable, "-I", *quiet, "-c", code, str(PACKAGE), str(os.getpid()), module]
    numbers = map(str, PROGRAMS[module])
    done = subprocess.run([*argv, *numbers], capture_output=True, timeout=60, check=False)
    assert done.stderr.decode() == HOSTILE_RESULTS[module]
