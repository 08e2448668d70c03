"""The supervisor: it alone renews the lease and completes the run; it starts one run process and ends it in time."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.forking import fork, stop_on_sigterm
from gitops_reconciler.supervise.leftovers import Record, remove_record
from gitops_reconciler.supervise.linux import adopt_orphans
from gitops_reconciler.supervise.order import Interruption, Order, Parts, RunEnd
from gitops_reconciler.supervise.procfs import Identity
from gitops_reconciler.supervise.renewals import Renewals
from gitops_reconciler.supervise.run_process import RESULT_LIMIT, Keepers, run_process
from gitops_reconciler.supervise.watching import Watch, end_descendants

_LONGEST_PAUSE_SECONDS = 0.5
_GIVE_UP_SECONDS = 5.0  # after SIGKILL; the guard, and with it the flock, waits on
_READ_SIZE = 1 << 16


def supervise(order: Order, parts: Parts, board: Board, *, lock: int, line: int, guard: Identity) -> int:
    """See one run through, from its start to its record; `lock` is the flock that the guard took."""
    os.setsid()
    adopt_orphans()
    stop_on_sigterm(board)
    gc.enable()
    me = os.getpid()
    board.supervisor_beat = boottime()
    board.supervisor = Identity.of(me)
    Record.of_this_process(order.run, guard).write(Path(order.leftover))
    renewals = Renewals(parts.lease(order), order, board)
    renewals.turn()  # ending leftovers may have taken a while
    started_at = datetime.now(UTC)
    if reason := board.due(boottime()):
        board.begin_ending(reason)
        ended, is_clean = _Ended(b"", 0), True
    else:
        supervision = _Supervision(
            order, board, renewals, _start(order, parts, board, lock=lock, line=line, guard=guard)
        )
        ended = supervision.watch()
        is_clean = supervision.end_the_rest(is_good=ended.exit == 0)
    if is_clean:
        board.set_clean()
        remove_record(Path(order.leftover), order.run)
        # Nothing of the run lives that could have inherited the lock. Who is asked for next must not find it taken.
        fcntl.flock(lock, fcntl.LOCK_UN)
    renewals.complete(_run_end(ended, board, started_at))
    board.set_completed()
    return 0


@dataclass(frozen=True, slots=True)
class _Child:
    """The run process and the pipe of its result."""

    pid: int
    reader: int


@dataclass(frozen=True, slots=True)
class _Ended:
    received: bytes
    exit: int


def _start(order: Order, parts: Parts, board: Board, *, lock: int, line: int, guard: Identity) -> _Child:
    reader, writer = os.pipe()  # close-on-exec: no tool ever holds it
    keepers = Keepers(supervisor=os.getpid(), guard=guard.pid)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the run process can hear it

    def step() -> int:
        os.close(reader)
        os.close(line)
        return run_process(order, parts, board, keepers=keepers, writer=writer, lock=lock)

    pid = fork("gitops-run", board, step)
    os.close(writer)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    return _Child(pid, reader)


class _Supervision:
    """One run process, watched to its end and beyond."""

    def __init__(self, order: Order, board: Board, renewals: Renewals, child: _Child) -> None:
        self._order, self._board, self._renewals, self._child = order, board, renewals, child
        self._watch = Watch(board, order, above=os.getpid())
        self._received = bytearray()

    def watch(self) -> _Ended:
        """Wait for the end of the run process, not of its pipe, which a fork of it may keep open."""
        os.set_blocking(self._child.reader, False)
        handle = os.pidfd_open(self._child.pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self._child.reader, select.POLLIN)
        while not self._is_beyond_help():
            self._turn()
            ready = dict(poll.poll(self._pause_seconds() * 1000))
            if self._child.reader in ready and not self._drain():
                poll.unregister(self._child.reader)
            if handle in ready:
                self._drain()
                break
        os.close(handle)
        return _Ended(bytes(self._received), _exit_of(self._child.pid))

    def _turn(self) -> None:
        self._board.supervisor_beat = boottime()
        self._watch.turn()  # first: after a freeze the clock decides, not an answer that waited in a socket
        self._renewals.turn()
        self._watch.turn()

    def _pause_seconds(self) -> float:
        return min(self._watch.pause_seconds, self._renewals.pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _is_beyond_help(self) -> bool:
        """Whether SIGKILL did not end the run process: it hangs in the kernel."""
        kill_at = self._board.ending_at + self._order.grace_seconds
        return self._board.ending_at > 0 and boottime() > kill_at + _GIVE_UP_SECONDS

    def _drain(self) -> bool:
        """Take what is in the pipe; False at its end. More than the limit is read, but not kept."""
        try:
            while chunk := os.read(self._child.reader, _READ_SIZE):
                self._received += chunk[: RESULT_LIMIT + 2 - len(self._received)]
        except BlockingIOError:
            return True
        return False

    def end_the_rest(self, *, is_good: bool) -> bool:
        """End what the run process left; True once nothing lives.

        After a good end that are stragglers, which get SIGTERM and a moment. After any other the tools may still be
        at work, and get the grace.
        """
        now = boottime()
        if is_good and self._board.begin_ending(Interruption.NONE):
            first, until = signal.SIGTERM, now + self._order.tidy_seconds
        else:
            self._watch.interrupt(Interruption.NONE)
            first, until = None, self._board.ending_at + self._order.grace_seconds
        give_up_at = max(until, now) + _GIVE_UP_SECONDS
        return end_descendants(first, until=until, give_up_at=give_up_at, turn=self._turn)


def _exit_of(pid: int) -> int:
    """Return the exit code, negative for a signal; the process stays unreaped, so its number stays its own."""
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if status is None:
        return -signal.SIGKILL
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _run_end(ended: _Ended, board: Board, started_at: datetime) -> RunEnd:
    result = _parse(ended.received)
    failure = board.failure
    if result is None and not failure and ended.received:
        failure = f"the run process wrote {len(ended.received)} bytes that are no result"
    return RunEnd(
        result=result,
        exit=ended.exit,
        interrupted=board.reason,
        started_at=started_at.isoformat(),
        ended_at=datetime.now(UTC).isoformat(),
        failure=failure,
    )


def _parse(received: bytes) -> dict[str, Any] | None:
    """Return the result: exactly one line of JSON, an object, with its newline, within the limit; else None."""
    line, newline, rest = received.partition(b"\n")
    if not newline or rest or len(line) > RESULT_LIMIT:
        return None
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None
