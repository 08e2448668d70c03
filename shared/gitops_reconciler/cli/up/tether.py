"""Becomes another program, which then dies with its parent; a script by itself, started as `python -I -S tether.py`.

    tether.py --parent PID [--lock FILE] [--socket FILE] -- COMMAND …

With `--lock` it waits for that lock and holds it as long as the program lives; with `--socket` it waits until a Redis
server answers there. It imports nothing of ours, so that it costs a hundredth of a second.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import sys
import time

PR_SET_PDEATHSIG = 1
PATIENCE_SECONDS = 30
PAUSE_SECONDS = 0.02


def main(arguments: list[str]) -> None:
    """Do what the arguments say; never returns."""
    at = arguments.index("--")
    options = dict(zip(arguments[:at:2], arguments[1:at:2], strict=True))
    command = arguments[at + 1 :]
    die_with(int(options["--parent"]))
    if "--lock" in options:
        hold(options["--lock"])
    if "--socket" in options:
        await_answer(options["--socket"])
    os.execv(command[0], command)  # noqa: S606  # that is what we are for; no shell is wanted


def die_with(parent: int) -> None:
    """Be killed when the parent ends, or now if it has: PR_SET_PDEATHSIG outlives exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def hold(path: str) -> None:
    """Lock a file and keep it locked over exec; whoever else holds it has half a minute to end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write("waiting for the end of an earlier server of this state folder\n")
        sys.stderr.flush()
        signal.alarm(PATIENCE_SECONDS)  # ends us
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        signal.alarm(0)
    os.set_inheritable(descriptor, True)  # its only parameter


def await_answer(path: str) -> None:
    """Return when the server answers, or after half a minute: the program then copes by itself."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not answers(path) and time.monotonic() < end:
        time.sleep(PAUSE_SECONDS)


def answers(path: str) -> bool:
    """Whether a server is ready behind a socket: while it loads its data it answers with an error."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(path)
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


if __name__ == "__main__":
    main(sys.argv[1:])
