"""Confine programs of ours that read the files and mails of strangers (`scopes.programs`).

If such bytes exploit a fault of a C library, they can start no program, open no socket, and reach
no other process. On Linux only, by seccomp(2) and landlock(7), as far as the kernel supports them.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import pack, unpack
from typing import Final

from scopes.programs import limit, serve

MEMORY: Final = 512 << 20
"""Bytes of address space of a program that reads what strangers wrote."""
MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> index of its call numbers in the tables below, and its number in linux/audit.h."""
DENIED_CALLS: Final = {
    **{"execve": (59, 221), "execveat": (322, 281)},
    **{"socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200)},
    **{"listen": (50, 201), "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206)},
    **{"sendmsg": (46, 211), "sendmmsg": (307, 269)},
    **{"kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138)},
    **{"rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424)},
    **{"pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "process_mrelease": (448, 448)},
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    **{"process_madvise": (440, 440), "kcmp": (312, 272), "migrate_pages": (256, 238)},
    **{"move_pages": (279, 239), "setpriority": (141, 140), "ioprio_set": (251, 30)},
    **{"sched_setparam": (142, 118), "sched_setscheduler": (144, 119)},
    **{"sched_setattr": (314, 274), "sched_setaffinity": (203, 122)},
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51)},
    **{"unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428)},
    **{"move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431)},
    **{"fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442)},
    **{"open_by_handle_at": (304, 265), "bpf": (321, 280), "io_uring_setup": (425, 425)},
    **{"userfaultfd": (323, 282), "perf_event_open": (298, 241), "add_key": (248, 217)},
    **{"request_key": (249, 218), "keyctl": (250, 219), "kexec_load": (246, 104)},
    **{"kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273)},
    **{"delete_module": (176, 106)},
}
"""Calls that fail with EPERM: their numbers on each of the machines (asm/unistd.h)."""
FORKS: Final = {"fork": (57, -1), "vfork": (58, -1)}
CLONE, CLONE3, TGKILL, PRLIMIT = (56, 220), (435, 435), (234, 131), (302, 261)
PRCTL, SECCOMP, CAPGET, CAPSET = (157, 167), (317, 277), (125, 90), (126, 91)
X32_SYSCALL_BIT = 0x40000000
"""Numbers from here on belong to another machine that runs on x86_64."""
NAMESPACES, THREAD = 0x7E020000, 0x10000
"""Flags of clone(2)."""
LOAD, EQUAL, ABOVE, ANY, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""What a filter does: read a word, test it, answer (linux/bpf_common.h)."""
ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER, MACHINE, FIRST = 0, 4, 16
"""Offsets in a filter of the number of a call, its machine, and its first argument."""
CAPABILITIES: Final = pack("=Ii", 0x20080522, 0)
"""The version of capget(2) to use, for this process."""
ANY_FILE = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: root may read files of other users."""
PR_SET_NO_NEW_PRIVS, FILTER, ALL_THREADS = 38, 1, 1
CREATE, ADD, RESTRICT = 444, 445, 446
"""The calls of landlock(7), the same on both machines."""
ACCESS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""Version of landlock -> number of kinds of file access that it knows; later versions know 16."""
READ_ACCESS = 0b1100
"""Files and folders."""
SIGNALS, SIGNALS_SINCE = 2, 6

BpfInstruction = tuple[int, int, int, int]
_LIBC_SYSCALL = ctypes.CDLL(None).syscall if sys.platform == "linux" else None


def confine(*, reads: bool = False) -> set[str]:
    """Give up what this process does not need; to be called before it has threads.

    Returns what the kernel enforces: "calls" = denied calls fail, and "files" = it can change no
    file, nor look into another process by /proc. `reads`: it may open any file, not only the
    libraries of Python and of this machine. Open files stay open.
    """
    if _LIBC_SYSCALL is None or os.uname().machine not in MACHINES or sys.maxsize < 1 << 32:
        return set()
    _LIBC_SYSCALL.restype = ctypes.c_long
    which, machine = MACHINES[os.uname().machine]
    if _syscall(PRCTL[which], PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return set()
    _drop_capabilities(which)
    held = {"files"} if _files_held(reads) else set()
    steps = b"".join(pack("=HBBI", *s) for s in _filter(which, machine, os.getpid()))
    code = ctypes.create_string_buffer(steps, len(steps))
    program = pack("@HP", len(steps) // 8, ctypes.addressof(code))
    refused = _syscall(SECCOMP[which], FILTER, ALL_THREADS, program)
    return held if refused else held | {"calls"}


def _filter(which: int, machine: int, pid: int) -> list[BpfInstruction]:
    """Return the steps for each call; the last one allows every call that no earlier step answered.

    A signal may go to threads of this process, by which abort(3) ends it, and a limit may be set on
    it alone. clone3(2) seems not to exist: a filter cannot see its flags, and libraries use clone.
    """
    refused = [(RETURN, 0, 0, ERROR | errno.EPERM)]
    allowed = [(RETURN, 0, 0, ALLOW)]
    denied = DENIED_CALLS | FORKS
    new = [(LOAD, 0, 0, FIRST), (ANY, 0, 1, NAMESPACES), *refused]
    return [
        *((LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, machine), (RETURN, 0, 0, KILL)),
        *((LOAD, 0, 0, NUMBER), (ABOVE, 0, 1, X32_SYSCALL_BIT), (RETURN, 0, 0, KILL)),
        *(s for numbers in denied.values() for s in _of(numbers[which], refused)),
        *_of(CLONE3[which], [(RETURN, 0, 0, ERROR | errno.ENOSYS)]),
        *_of(CLONE[which], [*new, (ANY, 1, 0, THREAD), *refused, *allowed]),
        *_of(TGKILL[which], [(LOAD, 0, 0, FIRST), (EQUAL, 1, 0, pid), *refused, *allowed]),
        *_of(PRLIMIT[which], [(LOAD, 0, 0, FIRST), (EQUAL, 1, 0, 0), *refused, *allowed]),
        *allowed,
    ]


def _of(number: int, steps: Sequence[BpfInstruction]) -> list[BpfInstruction]:
    """Return the steps for only this call; they end with an answer. No steps for -1."""
    return [(EQUAL, 0, len(steps), number), *steps] if number >= 0 else []


def _drop_capabilities(which: int) -> None:
    """Drop all capabilities of root except reading files: others let it look into any process."""
    had = ctypes.create_string_buffer(24)
    _syscall(CAPGET[which], CAPABILITIES, had)
    effective, permitted, *_ = unpack("=6I", had)
    kept = pack("=6I", effective & ANY_FILE, permitted & ANY_FILE, 0, 0, 0, 0)
    _syscall(CAPSET[which], CAPABILITIES, kept)


def _files_held(reads: bool) -> bool:
    """Return whether the kernel denies changing files, and opening any except libraries."""
    version = _syscall(CREATE, None, 0, 1)
    kinds = (1 << ACCESS.get(version, 16)) - 1
    rules = pack("=QQQ", kinds & ~READ_ACCESS if reads else kinds, 0, SIGNALS)
    size = len(rules) if version >= SIGNALS_SINCE else 8
    if version < 1 or (ruleset := _syscall(CREATE, rules, size, 0)) < 0:
        return False
    for folder in () if reads else _libraries():
        _syscall(ADD, ruleset, 1, pack("=Qi", READ_ACCESS, folder), 0)
        os.close(folder)
    refused = _syscall(RESTRICT, ruleset, 0)
    os.close(ruleset)
    return refused == 0


def _libraries() -> Iterator[int]:
    """Yield open folders of what Python and the machine may load or look up later."""
    roots = dict.fromkeys((sys.prefix, sys.base_prefix, "/usr", "/usr/local", "/"))
    found = [Path(root, name) for root in roots for name in ("lib", "lib64", "share")]
    for folder in (*found, Path(__file__).parent):
        with suppress(FileNotFoundError):
            yield os.open(folder, os.O_PATH | os.O_CLOEXEC)


def _syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Return the kernel's answer to a call; -1 if it refuses."""
    assert _LIBC_SYSCALL
    words = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    answer: int = _LIBC_SYSCALL(ctypes.c_long(number), *words)
    return answer


def serve_confined(
    reply: Callable[[bytes], bytes], seconds: int, memory: int = MEMORY, *, reads: bool = False
) -> None:
    """Answer requests, each in so many seconds of computing, with only the necessary rights."""
    limit(memory=memory, file_bytes=0)
    confine(reads=reads)
    logging.disable()
    warnings.simplefilter("ignore")

    def reply_limited(request: bytes) -> bytes:
        limit(seconds=seconds)
        return reply(request)

    serve(reply_limited)


def main() -> None:
    """Answer each request with what this machine enforces on our programs."""
    held = " ".join(sorted(confine()))
    serve(lambda _: held.encode())
