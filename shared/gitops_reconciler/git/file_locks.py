"""Short file locks around a mirror or a checkout: across threads, processes and users of one state folder.

The kernel frees them when the last process that has the file open ends; git inherits them, so that a lock also covers
a git whose caller was killed. They are never unlocked but by closing, and their files never removed.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import RepositoryUnreachableError

_FIRST_NAP_SECONDS = 0.002
_LONGEST_NAP_SECONDS = 0.1
_LONGEST_NOTE = 100


@contextmanager
def hold_file(path: Path, *, of: str, deadline: Deadline) -> Iterator[int]:
    """Hold the lock at a path, for which others wait; yields its descriptor.

    Raises:
        RepositoryUnreachableError: `of` was busy until the deadline; says since when, and by which process.

    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _wait_for(descriptor, of, deadline)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} by process {os.getpid()}".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, of: str, deadline: Deadline) -> None:
    # The kernel offers no wait for a flock that ends at a given time (only signals could end it): so we look again and
    # again, at most every tenth of a second.
    nap, never = _FIRST_NAP_SECONDS, threading.Event()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if deadline.is_over:
                since = os.pread(descriptor, _LONGEST_NOTE, 0).decode("ascii", "replace")
                raise RepositoryUnreachableError(
                    f"{of} has been busy since {since or 'some time'}; it is tried again"
                ) from None
            never.wait(nap)
            nap = min(nap * 2, _LONGEST_NAP_SECONDS)
        else:
            return
