"""The few calls of the Linux kernel that Python does not wrap, and the one place that says so elsewhere."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path

from gitops_reconciler.errors import NotBuiltError

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_ENV_START = 47  # fields of /proc/<pid>/stat are counted from the third on


def require_linux() -> None:
    """Refuse other systems, and kernels or sandboxes that lack what we need, before anything is started.

    Raises:
        NotBuiltError: with what to do instead.

    """
    if sys.platform != "linux":
        raise NotBuiltError(
            f"workers need Linux (this is '{sys.platform}'): runs are supervised by means of its kernel; "
            "run a worker in a container, or single ticks with `gitops tick NAME`"
        )
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise NotBuiltError(
            f"workers need Linux 5.3 or later, and pidfd_open allowed by the container's seccomp profile: {error}"
        ) from error


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: ctypes.c_ulong | ctypes.c_char_p) -> None:
    nothing = ctypes.c_ulong(0)
    if _libc().prctl(option, value, nothing, nothing, nothing):
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def adopt_orphans() -> None:
    """Make orphans below this process its children: neither setsid nor a double fork leads out of it.

    Fork clears it, so every process says it for itself.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def signal_when_parent_ends(signum: int, parent: int) -> None:
    """Get this signal when the parent, a single thread, dies, or now if it already has. Fork clears it."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signum))
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def set_name(name: str) -> None:
    """Show this name (at most 15 bytes) in `ps -o comm` and `top`."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def overwrite_environ(name: str, value: str) -> bool:
    """Write a variable where /proc/<pid>/environ reads it, also for forks that never exec.

    The kernel shows the block that the last exec put on the stack, whatever `os.environ` says. So the program must
    have been started with a placeholder at least as long as the value. False: there was none.
    """
    os.environ[name] = value
    stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    start, end = int(stat[_ENV_START]), int(stat[_ENV_START + 1])
    block = ctypes.string_at(start, end - start)
    prefix = f"{name}=".encode()
    at = 0 if block.startswith(prefix) else block.find(b"\0" + prefix) + 1
    room = block.find(b"\0", at) - at - len(prefix)
    if not block.startswith(prefix, at) or room < len(value):
        return False
    ctypes.memmove(start + at + len(prefix), value.encode(), len(value))
    return True
