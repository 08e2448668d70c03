"""What lives on when guard and supervisor of a run die together: found by its record, and ended.

The record lies beside the lock from before the first process of a run until the last one is gone, so that its
presence means: this did not end well.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.order import RUN_MARK
from gitops_reconciler.supervise.procfs import (
    Identity,
    Process,
    all_processes,
    autogroup_of,
    environ_of,
    holds_flock,
    machine,
    read_process,
    send,
    wait_for_end,
)

_GIVE_UP_SECONDS = 5.0  # after SIGKILL: another user's process, or one that hangs in the kernel
_LOOK_AGAIN_SECONDS = 0.2
_DEATH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """By what the processes of one run are recognised."""

    run: str
    machine: str
    guard: Identity
    supervisor: Identity
    """Leader of the session."""
    autogroup: str
    ending_at: float = 0.0
    """When the run got its one SIGINT; 0: not yet."""

    @classmethod
    def of_this_process(cls, run: str, guard: Identity) -> Record:
        """Return the record that a supervisor writes of itself, once it leads its session."""
        me = Identity.of(os.getpid())
        return cls(run=run, machine=machine(), guard=guard, supervisor=me, autogroup=autogroup_of(me.pid))

    def write(self, path: Path) -> None:
        """Write the record in one go."""
        draft = path.with_name(f"{path.name}.{self.run}")
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(path)

    @classmethod
    def parse(cls, text: bytes) -> Record | None:
        """Return what was written, or None when it is no record."""
        try:
            values: dict[str, Any] = json.loads(text)
            return cls(**{**values, **{name: Identity(*values[name]) for name in ("guard", "supervisor")}})
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def mark_ending(path: Path, at: float) -> None:
    """Note that the run has had its SIGINT, so that who finds leftovers later does not send a second one."""
    with contextlib.suppress(OSError), path.open("r+b") as file:
        _mark(file.fileno(), at)


def _mark(fd: int, at: float) -> None:
    record = _read(fd)
    if record is not None:
        data = json.dumps(asdict(replace(record, ending_at=at))).encode()
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))


def _read(fd: int) -> Record | None:
    return Record.parse(os.pread(fd, 1 << 16, 0))


def remove_record(path: Path, run: str) -> None:
    """Remove the record of this run; that of another one stays."""
    with contextlib.suppress(OSError):
        record = Record.parse(path.read_bytes())
        if record is not None and record.run == run:
            path.unlink()


def take_lock(lock: Path, leftover: Path, grace_seconds: float) -> int | None:
    """Take the flock of a target, after ending what a dead run left there; None while somebody else is at it.

    Heirs share it: one that unlocks it unlocks it for all, so a supervisor does that once none lives, and nobody else.
    The file is never removed.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    fd = _try_lock(lock)
    if not leftover.exists():
        return fd
    is_over = end_leftovers(lock, leftover, grace_seconds, is_locked_by_us=fd is not None)
    if is_over:
        return _try_lock(lock) if fd is None else fd
    if fd is not None:
        os.close(fd)
    return None


def _try_lock(path: Path) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def end_leftovers_of(lock: Path, leftover: Path, grace_seconds: float) -> bool:
    """End what a dead run of a target left on this host; for a run that takes the flock itself (`gitops tick`).

    True once nothing of it lives, which is at once where there is no record; False while a run is at work, or what is
    left can't be ended (another user's process). Takes up to the grace and 5 s.
    """
    if not leftover.exists():
        return True
    fd = take_lock(lock, leftover, grace_seconds)
    if fd is None:
        return False
    os.close(fd)
    return True


def end_leftovers(
    lock: Path, leftover: Path, grace_seconds: float, *, is_locked_by_us: bool, ending_at: float | None = None
) -> bool:
    """End the processes of the record and remove it; True once none lives.

    `ending_at` says that SIGINT was sent then, and the rest of the grace is waited for.
    """
    with _alone_with(leftover) as (fd, is_ours):
        if fd is None:
            return is_ours
        record = _read(fd)
        if record is None:  # its writer was killed before it started anything, unless it is just writing
            is_over = is_locked_by_us
        else:
            search = _Search(record, lock)
            may_begin = search.may_begin(is_locked_by_us=is_locked_by_us)
            is_over = may_begin and _end_all(search, fd, grace_seconds, ending_at)
        if is_over:
            leftover.unlink(missing_ok=True)
        return is_over


@contextlib.contextmanager
def _alone_with(path: Path) -> Iterator[tuple[int | None, bool]]:
    """Give (descriptor of the record, True); (None, True): there is no record; (None, False): another is at it."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield None, True
        return
    try:
        yield (fd, True) if _is_ours_alone(fd, path) else (None, not path.exists())
    finally:
        os.close(fd)


def _is_ours_alone(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(path.stat(), os.fstat(fd))  # or it was removed, or replaced, just before
    except (BlockingIOError, FileNotFoundError):
        return False


class _Search:
    """Finds the processes of one record."""

    def __init__(self, record: Record, lock: Path) -> None:
        self._record, self._lock = record, lock
        self._is_same_machine = record.machine == machine()
        self._mark = f"{RUN_MARK}={record.run}".encode()

    @property
    def told_at(self) -> float:
        return self._record.ending_at if self._is_same_machine else 0.0

    def may_begin(self, *, is_locked_by_us: bool) -> bool:
        """Whether this is a dead run: not one at work here, nor in a container whose processes we can't see."""
        if not self._is_same_machine:
            return is_locked_by_us
        # Who gave up the lock is about to be dead: a killed process closes its files first.
        seconds = _DEATH_SECONDS if is_locked_by_us else 0.0
        return all(wait_for_end(keeper, seconds) for keeper in (self._record.guard, self._record.supervisor))

    def find(self) -> list[Process]:
        """Return what lives: marked in its environ, of the session, or holding the flock of the dead guard."""
        table = all_processes()
        lock = self._lock.stat() if self._is_same_machine and self._lock.exists() else None
        return [
            process
            for process in table.values()
            if process.is_alive
            and process.pid != os.getpid()
            and (
                self._is_of_session(process)
                or self._mark in environ_of(process.pid)
                or (lock is not None and holds_flock(process.pid, lock, self._record.guard.pid))
            )
        ]

    def _is_of_session(self, process: Process) -> bool:
        """Session numbers are used again once a session is empty, so look twice before killing by one."""
        leader = self._record.supervisor
        if not self._is_same_machine or process.session != leader.pid or process.started < leader.started:
            return False
        now = read_process(leader.pid)
        is_reused = now is not None and now.started != leader.started
        return not is_reused and autogroup_of(process.pid) == self._record.autogroup


def _end_all(search: _Search, fd: int, grace_seconds: float, ending_at: float | None) -> bool:
    begin = boottime()
    ending_at = ending_at or search.told_at or None
    until = (ending_at or begin) + grace_seconds
    give_up_at = max(until, begin) + _GIVE_UP_SECONDS  # who told it may have died long ago
    while found := search.find():
        now = boottime()
        if now >= give_up_at:
            return False
        if now >= until:
            _send_all(found, signal.SIGKILL)
        elif ending_at is None:
            ending_at = now
            _mark(fd, now)
            _send_all(found, signal.SIGINT)
        left = until - now
        _wait_for_any(found, min(_LOOK_AGAIN_SECONDS, left) if left > 0 else _LOOK_AGAIN_SECONDS)
    return True


def _send_all(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        send(process.identity, number)


def _wait_for_any(processes: list[Process], seconds: float) -> None:
    """Wait until one of them ends, at most so long."""
    poll = select.poll()
    with contextlib.ExitStack() as stack:
        for process in processes:
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(process.pid)
                stack.callback(os.close, handle)
                poll.register(handle, select.POLLIN)
        poll.poll(seconds * 1000)
