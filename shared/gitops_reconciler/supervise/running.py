"""The worker's side of one run: waits for its end, and acts where guard and supervisor no longer can."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.clock import boottime
from gitops_reconciler.errors import ReconcileError
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.leftovers import end_leftovers
from gitops_reconciler.supervise.order import Interruption, Order
from gitops_reconciler.supervise.procfs import send, wait_for_end
from gitops_reconciler.supervise.watching import WORKER_LATE_SECONDS, Watch

_LAUNCHES = 3
TAKE_UP_SECONDS = 10.0
"""What a zygote has to take up an order; it needs milliseconds, unless it is frozen."""

_OVERDUE_SECONDS = 1.0  # what it has for an order that should be over by now
_DEATH_SECONDS = 5.0  # a killed process closes its files a moment before it counts as dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """An order in the hands of a zygote."""

    board: Board
    line: int
    """The life line of guard and supervisor."""
    replace_server: Callable[[], None]
    """Kills the zygote that got it, unless somebody has already, and starts another one for those that come."""
    at: float


Launch = Callable[[Order], Launched]
"""Hands an order to a zygote."""


class Running:
    """One run that a zygote was ordered. Any thread may wait, stop and ask."""

    def __init__(self, order: Order, launch: Launch, *, take_up_seconds: float = TAKE_UP_SECONDS) -> None:
        self.order = order
        self._launch = launch
        self._take_up_seconds = take_up_seconds
        self._waiting, self._state = threading.Lock(), threading.Lock()
        self._was_seen_through: bool | None = None
        self._is_stop_asked = self._is_over = False
        self.is_busy = self.was_left_lying = False
        self.failure = ""
        self._launched = launch(order)

    @property
    def _board(self) -> Board:
        return self._launched.board

    def stop(self) -> None:
        """Have the run interrupted with the reason `stopped`, within a second; no effect once it is over."""
        with self._state:
            self._is_stop_asked = True
            if not self._is_over:
                self._board.ask_stop()

    def wait(self) -> bool:
        """Wait until nothing of the run lives; wakes up once a second.

        True: its supervisor saw it through and offered its end to the store. False: it did not. Then either the run
        was not started, as `is_busy` (the flock is held by a living run or leftover), `was_left_lying` (by a frozen
        server) or `failure` say, or its keepers were killed: what they left was ended, and the lease runs out.
        """
        with self._waiting:
            if self._was_seen_through is None:
                self._was_seen_through = self._wait()
            return self._was_seen_through

    def _wait(self) -> bool:
        for _ in range(_LAUNCHES):
            launched = self._launched
            if not self._until_line_ends(launched) or launched.board.guard.pid or launched.board.failure:
                break
            if not self._launch_again():
                break
        board = self._board
        self._end_what_they_left(board)
        self.is_busy, was_seen_through = board.is_busy, board.is_completed
        self.failure = board.failure or self.failure
        self.was_left_lying = not board.guard.pid and not self.failure
        with self._state:
            self._is_over = True
            self._close_files()
        return was_seen_through

    def _until_line_ends(self, launched: Launched) -> bool:
        """Wait for the end of guard and supervisor; False: no need to, or no hope."""
        board = launched.board
        watch = Watch(board, self.order, above=None, late_seconds=WORKER_LATE_SECONDS)
        poll = select.poll()
        poll.register(launched.line, select.POLLIN)
        while not poll.poll(watch.pause_seconds * 1000):
            if board.is_completed:  # what can't be ended keeps the flock, not our thread
                if board.is_clean and board.guard.is_stopped:
                    send(board.guard, signal.SIGKILL)
                return False
            if not board.guard.pid and self._is_hopeless(launched):
                return False
            watch.turn()
            if watch.is_grace_over and watch.is_frozen(max(board.supervisor_beat, board.guard_beat)):
                _kill_keepers(board)
        return True

    def _is_hopeless(self, launched: Launched) -> bool:
        """Say whether it is too late for an order that was not taken up; a server that let it lie is replaced.

        With a frozen server goes what it was sent: the lines of all these orders end, and they are launched again.
        """
        now = boottime()
        is_overdue = launched.board.due(now - _OVERDUE_SECONDS) is not None
        if is_overdue:
            launched.board.ask_stop()  # nothing may start once we have left
        if is_overdue or now - launched.at > self._take_up_seconds:
            try:
                launched.replace_server()
            except ReconcileError as error:
                self.failure = str(error)
                launched.board.ask_stop()
                return True
        return is_overdue

    def _launch_again(self) -> bool:
        """Order the run once more: the line is closed everywhere, so no zygote has, or ever had, the order."""
        try:
            launched = self._launch(self.order)
        except ReconcileError as error:
            self.failure = str(error)
            return False
        with self._state:
            self._close_files()
            self._launched = launched
            if self._is_stop_asked:
                launched.board.ask_stop()
        return True

    def _close_files(self) -> None:
        os.close(self._launched.line)
        self._launched.board.close()

    def _end_what_they_left(self, board: Board) -> None:
        if board.is_clean or board.is_completed or not board.group.pid:
            return
        for keeper in (board.supervisor, board.guard):
            wait_for_end(keeper, _DEATH_SECONDS)
        told_at = None if board.begin_ending(Interruption.NONE) else board.ending_at
        lock, leftover = Path(self.order.lock), Path(self.order.leftover)
        end_leftovers(lock, leftover, self.order.grace_seconds, is_locked_by_us=False, ending_at=told_at)


def _kill_keepers(board: Board) -> None:
    """Kill guard and supervisor, both frozen or dead: the line ends, and we end what they left."""
    for keeper in (board.supervisor, board.guard):
        send(keeper, signal.SIGKILL)
