"""The worker's side of one run: waits for its end, and acts where guard and supervisor no longer can."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from gitops_reconciler.clock import boottime
from gitops_reconciler.errors import ReconcileError
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.leftovers import end_leftovers
from gitops_reconciler.supervise.order import Interruption, Order
from gitops_reconciler.supervise.procfs import send, wait_for_end
from gitops_reconciler.supervise.watching import WORKER_LATE_SECONDS, Watch

_LAUNCHES = 3
_TAKE_UP_SECONDS = 1.0  # what a zygote has for an order that is overdue already
_DEATH_SECONDS = 5.0  # a killed process closes its files a moment before it counts as dead

Launch = Callable[[Order], tuple[Board, int]]
"""Hands an order to a zygote; answers with the board and the life line of guard and supervisor."""


class Running:
    """One run that a zygote was ordered. Any thread may wait, stop and ask."""

    def __init__(self, order: Order, launch: Launch) -> None:
        self.order = order
        self._launch = launch
        self._waiting, self._state = threading.Lock(), threading.Lock()
        self._was_seen_through: bool | None = None
        self._is_stop_asked = self._is_over = False
        self.is_busy = False
        self.failure = ""
        self._board, self._line = launch(order)

    def stop(self) -> None:
        """Have the run interrupted with the reason `stopped`, within a second; no effect once it is over."""
        with self._state:
            self._is_stop_asked = True
            if not self._is_over:
                self._board.ask_stop()

    def wait(self) -> bool:
        """Wait until nothing of the run lives; wakes up once a second.

        True: its supervisor saw it through and offered its end to the store. False: it did not. Then either the run
        was not started, as `is_busy` (the flock is held by a living run or leftover) or `failure` say, or its keepers
        were killed: what they left was ended, and the lease runs out by itself.
        """
        with self._waiting:
            if self._was_seen_through is None:
                self._was_seen_through = self._wait()
            return self._was_seen_through

    def _wait(self) -> bool:
        for _ in range(_LAUNCHES):
            board = self._board
            if not self._until_line_ends(board) or board.guard.pid or board.failure:
                break
            if not self._launch_again():
                break
        board = self._board
        self._end_what_they_left(board)
        self.is_busy, was_seen_through = board.is_busy, board.is_completed
        self.failure = board.failure or self.failure or ("" if board.guard.pid else "no server took up the order")
        with self._state:
            self._is_over = True
            self._close_files()
        return was_seen_through

    def _until_line_ends(self, board: Board) -> bool:
        """Wait for the end of guard and supervisor; False: no need to, or no hope."""
        watch = Watch(board, self.order, above=None, late_seconds=WORKER_LATE_SECONDS)
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        while not poll.poll(watch.pause_seconds * 1000):
            if board.is_completed:  # what can't be ended keeps the flock, not our thread
                return False
            if not board.guard.pid and board.due(boottime() - _TAKE_UP_SECONDS):
                board.ask_stop()  # a frozen zygote: nothing may start once we have left
                return False
            watch.turn()
            if watch.is_grace_over and watch.is_frozen(max(board.supervisor_beat, board.guard_beat)):
                _kill_keepers(board)
        return True

    def _launch_again(self) -> bool:
        """Order the run once more: the line is closed everywhere, so no zygote has, or ever had, the order."""
        try:
            board, line = self._launch(self.order)
        except ReconcileError as error:
            self.failure = str(error)
            return False
        with self._state:
            self._close_files()
            self._board, self._line = board, line
            if self._is_stop_asked:
                board.ask_stop()
        return True

    def _close_files(self) -> None:
        os.close(self._line)
        self._board.close()

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
