"""Kernel restrictions on a process, so that it can do nothing but compute, whatever runs in it."""

import ctypes
import os
import resource
import sys
from collections.abc import Mapping

CPU_SECONDS = 5
MEMORY_BYTES = 256 * 2**20

_NOBODY = 65534
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_SYSTEM_CALLS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    # read write mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn sched_yield mremap madvise
    # exit gettimeofday sigaltstack futex restart_syscall clock_gettime exit_group getrandom
    "x86_64": (
        0xC000003E,
        (0, 1, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 60, 96, 131, 202, 219, 228, 231, 318),
    ),
    "aarch64": (
        0xC00000B7,
        (63, 64, 222, 226, 215, 214, 134, 135, 139, 124, 216, 233, 93, 169, 132, 98, 128, 113, 94, 278),
    ),
}
"""For each architecture: its audit number, and the system calls that computing needs.

Any other ends the process.
"""


def limit() -> None:
    """Limits from the start, before anything is read."""
    for name, most in (("CPU", CPU_SECONDS), ("AS", MEMORY_BYTES), ("FSIZE", 0), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def wall_in() -> list[str]:
    """Drop what the kernel lets a process drop; returns what worked (`executor.WALLS`)."""
    held: list[str] = []
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if libc is not None and 0 in (libc.unshare(flags) for flags in (_NEW_NETWORK, _NEW_USER | _NEW_NETWORK)):
        held.append("network_namespace")
    try:
        if os.geteuid() == 0:  # the limit of processes does not bind root
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        held.append("unprivileged")
    except OSError:
        pass
    # Open are the three that `executor` gave: with no more, there is no file and no socket to open.
    for name, most in (("NPROC", 0), ("NOFILE", 3)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    if libc is not None and _filter_system_calls(libc):
        held.append("system_call_filter")
    return held


def _filter_system_calls(libc: ctypes.CDLL) -> bool:
    """A seccomp filter: a program of 8-byte instructions (code, jump if true, jump if false, operand)."""
    machine = os.uname().machine
    if machine not in _SYSTEM_CALLS or sys.maxsize < 2**32:
        return False
    audit, calls = _SYSTEM_CALLS[machine]
    load, equal, end = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 4), (equal, 1, 0, audit), (end, 0, 0, 0x80000000), (load, 0, 0, 0)]
    steps += [(equal, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    steps += [(end, 0, 0, 0x80000000), (end, 0, 0, 0x7FFF0000)]  # kill the process; allow
    program = b"".join(
        code.to_bytes(2, sys.byteorder) + bytes([true, false]) + operand.to_bytes(4, sys.byteorder)
        for code, true, false, operand in steps
    )

    class _Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    long = ctypes.c_ulong
    if libc.prctl(_NO_NEW_PRIVILEGES, long(1), long(0), long(0), long(0)) != 0:
        return False
    given = _Filter(len(steps), program)
    return libc.prctl(_SECCOMP, long(_FILTER), ctypes.byref(given), long(0), long(0)) == 0
