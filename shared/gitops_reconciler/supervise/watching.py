"""Ending a run: one SIGINT when it is due, SIGKILL at the end of the grace, until nothing of it lives.

Supervisor, guard and worker run the same watch over the same board, each a little later than the one before, so that
whoever is frozen or dead is overtaken by the next.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.leftovers import mark_ending
from gitops_reconciler.supervise.order import Interruption, Order
from gitops_reconciler.supervise.procfs import descendants, send

GUARD_LATE_SECONDS = 0.3
WORKER_LATE_SECONDS = 0.6

_LONGEST_PAUSE_SECONDS = 1.0  # poll() waits on CLOCK_MONOTONIC, which stands still while the machine sleeps
_AGAIN_SECONDS = 0.2
_HOPELESS_SECONDS = 5.0  # after SIGKILL: another user's process, or one that hangs in the kernel
_FIRST_PAUSE_SECONDS = 0.005
_FROZEN_SECONDS = 5.0
_STUCK_SECONDS = 60.0  # while a supervisor only waits for the store: killing it loses the record of the run


class Watch:
    """Looks at the board and acts when it is time.

    `above` is the process below which there is nothing but this run: guard and supervisor name themselves. The worker
    must not, below it is more than one run; it signals the recorded group alone.
    """

    def __init__(self, board: Board, order: Order, *, above: int | None, late_seconds: float = 0.0) -> None:
        self._board, self._order = board, order
        self._above, self._late_seconds = above, late_seconds

    @property
    def is_grace_over(self) -> bool:
        """Whether whatever lives now may be killed; by anyone, since twice does not harm."""
        return bool(self._board.ending_at) and boottime() >= self._kill_at

    def is_frozen(self, beat_at: float) -> bool:
        """Whether a keeper that looked then for the last time won't come back by itself."""
        return boottime() - beat_at > (_STUCK_SECONDS if self._board.is_clean else _FROZEN_SECONDS)

    @property
    def _kill_at(self) -> float:
        return self._board.ending_at + self._order.grace_seconds

    @property
    def pause_seconds(self) -> float:
        """How long nothing will have to be done, at most a second."""
        if self._board.ending_at:
            left = self._kill_at - boottime()
        else:
            left = min(self._board.interrupt_at, self._board.deadline_at) + self._late_seconds - boottime()
        if self._board.is_clean or left < -_HOPELESS_SECONDS:
            return _LONGEST_PAUSE_SECONDS
        return min(left, _LONGEST_PAUSE_SECONDS) if left > 0 else _AGAIN_SECONDS

    def turn(self) -> None:
        """Interrupt the run if that is due, kill it if its grace is over."""
        if self._board.is_clean:
            return
        if not self._board.ending_at:
            reason = self._board.due(boottime() - self._late_seconds)
            if reason is not None:
                self.interrupt(reason)
        elif self.is_grace_over:
            self.kill()

    def interrupt(self, reason: Interruption) -> None:
        """Send SIGINT to the run's group and to all that left it, unless anyone ever did."""
        if self._board.group.pid and self._board.begin_ending(reason):
            mark_ending(Path(self._order.leftover), self._board.ending_at)
            self._signal(signal.SIGINT)

    def kill(self) -> None:
        """Send SIGKILL to everything of the run."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        group = self._board.group
        is_group_told = group.pid > 1 and group.is_unreaped
        if is_group_told:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group.pid, number)  # one moment for all of it, new forks included
        for process in [] if self._above is None else descendants(self._above):
            was_told = is_group_told and process.group == group.pid
            if not was_told and process.identity != self._board.supervisor:
                send(process.identity, number)


def end_descendants(first: signal.Signals | None, *, until: float, give_up_at: float, turn: Callable[[], None]) -> bool:
    """End all that lives below this subreaper: the first signal now, SIGKILL from `until` on.

    True once there is nothing (waitpid says so, no list of pids has to be trusted); False when something can't be
    ended by `give_up_at`. `turn` is called about each 0.2 s. SIGCHLD must be blocked, so that it ends a pause.
    """
    pause = _FIRST_PAUSE_SECONDS
    while reap():
        now = boottime()
        if now >= give_up_at:
            return False
        number = signal.SIGKILL if now >= until else first
        first = None
        if number is not None:
            for process in descendants(os.getpid()):
                send(process.identity, number)
        signal.sigtimedwait([signal.SIGCHLD], min(pause, until - now) if until > now else pause)
        longest = _LONGEST_PAUSE_SECONDS if now > until + _HOPELESS_SECONDS else _AGAIN_SECONDS
        pause = min(pause * 2, longest)
        turn()
    return True


def reap() -> bool:
    """Collect children that ended; False: none is left, and for a subreaper that means no descendant either."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
