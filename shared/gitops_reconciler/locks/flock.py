"""The flock of (kind, target): freed by the kernel when its holder ends, so that no stale lock can be left behind."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gitops_reconciler.layout import Layout
from gitops_reconciler.locks.base import Held
from gitops_reconciler.settings import load_settings


@dataclass(frozen=True, slots=True)
class FileLocks:
    """Locks below `locks/` of a state folder; fleet runs and local ticks of one host meet here."""

    layout: Layout

    @contextmanager
    def hold(self, kind: str, target: str) -> Iterator[Held | None]:
        """Take the lock at once or give None. The file is never unlinked and never unlocked but by closing it."""
        path = self.layout.lock(kind, target)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_free = False
            else:
                is_free = True
            yield Held(kind=kind, target=target, token=_next_token(descriptor)) if is_free else None
        finally:
            os.close(descriptor)


def _next_token(descriptor: int) -> int:
    """Rise with each holder, by the same rule as in Redis: max(previous + 1, time in microseconds)."""
    previous = os.pread(descriptor, 32, 0)
    token = max(int(previous) + 1 if previous.isdigit() else 0, time.time_ns() // 1000)
    os.pwrite(descriptor, str(token).encode(), 0)
    return token


@contextmanager
def backend_lock(backend: str, target: str) -> Iterator[bool]:
    """Hold the lock of (backend, target) on this host; yields False at once when another run has it."""
    with FileLocks(load_settings().layout).hold(backend, target) as held:
        yield held is not None
