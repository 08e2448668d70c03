"""The guard: outermost process of one run. It holds the flock until nothing lives, and ends what a supervisor left.

Being a subreaper, it is where everything goes whose ancestors were killed; so "all gone" is what waitpid says.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.forking import attach_log, fork, stop_on_sigterm
from gitops_reconciler.supervise.leftovers import remove_record, take_lock
from gitops_reconciler.supervise.linux import adopt_orphans
from gitops_reconciler.supervise.order import Interruption, Order, Parts
from gitops_reconciler.supervise.procfs import Identity
from gitops_reconciler.supervise.supervisor import supervise
from gitops_reconciler.supervise.watching import GUARD_LATE_SECONDS, Watch, end_descendants


def guard(order: Order, parts: Parts, board: Board, *, line: int) -> int:
    """See one run through; `line` is held open until guard and supervisor are gone."""
    os.setsid()
    adopt_orphans()
    stop_on_sigterm(board)
    me = os.getpid()
    _beat(board)
    board.guard = Identity.of(me)
    attach_log(Path(order.log))
    lock = take_lock(Path(order.lock), Path(order.leftover), order.grace_seconds)
    if lock is None:
        board.set_busy()
        return 0
    child = fork("gitops-super", board, lambda: supervise(order, parts, board, lock=lock, line=line, guard=board.guard))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    watch = Watch(board, order, above=me, late_seconds=GUARD_LATE_SECONDS)
    _until_supervisor_ends(child, board, watch)
    if not board.is_clean:
        _end_what_it_left(order, board, watch)
    os.close(lock)  # before the line ends: who waits for that finds the lock free
    return 0


def _until_supervisor_ends(child: int, board: Board, watch: Watch) -> None:
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    while not poll.poll(watch.pause_seconds * 1000):
        _beat(board)
        watch.turn()
        if watch.is_grace_over and watch.is_frozen(board.supervisor_beat):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)


def _end_what_it_left(order: Order, board: Board, watch: Watch) -> None:
    watch.interrupt(Interruption.NONE)
    # What we are asked to end may belong to another user: then the flock stays held as long as that lives.
    until = board.ending_at + order.grace_seconds if board.group.pid else boottime()
    end_descendants(None, until=until, give_up_at=float("inf"), turn=lambda: _beat(board))
    remove_record(Path(order.leftover), order.run)
    board.set_clean()


def _beat(board: Board) -> None:
    board.guard_beat = boottime()
