"""The run process: does the work of one run, in its own group, and answers with one line of JSON."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.forking import FAILED
from gitops_reconciler.supervise.leftovers import mark_ending
from gitops_reconciler.supervise.linux import overwrite_environ, signal_when_parent_ends
from gitops_reconciler.supervise.order import RUN_MARK, Interruption, Order, Parts
from gitops_reconciler.supervise.procfs import Identity

RESULT_LIMIT = 1 << 20
"""Bytes of the one line; outputs beyond that do not belong into a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepers:
    """Whose child a run process is while somebody watches over it."""

    supervisor: int
    guard: int

    @property
    def are_gone(self) -> bool:
        """Whether both were killed, so that nobody but us ends what this run started."""
        return os.getppid() not in {self.supervisor, self.guard}


def run_process(order: Order, parts: Parts, board: Board, *, keepers: Keepers, writer: int, lock: int) -> int:
    """Run the body and write its result; SIGINT is blocked until the body begins."""
    os.setpgid(0, 0)
    board.group = Identity.of(os.getpid())
    _end_group_when_alone(order, board, keepers)
    os.set_inheritable(lock, True)  # the signature of the standard library
    overwrite_environ(RUN_MARK, order.run)
    gc.enable()
    try:
        line = _line_of_body(order, parts, lock)
    finally:
        if keepers.are_gone:
            os.killpg(0, signal.SIGKILL)
    if len(line) > RESULT_LIMIT:
        board.failure = f"the result has {len(line)} bytes, more than {RESULT_LIMIT}"
        return FAILED
    with open(writer, "wb") as pipe:
        pipe.write(line + b"\n")
    return 0


def _line_of_body(order: Order, parts: Parts, lock: int) -> bytes:
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # An ignored SIGINT would stay ignored in every tool.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    result = parts.body(order, lock)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return json.dumps(result).encode()


def _end_group_when_alone(order: Order, board: Board, keepers: Keepers) -> None:
    """Last line of defence: supervisor and guard died together, so we interrupt our own group, and later kill it."""
    me = os.getpid()

    def kill_group(*_: object) -> None:
        os.killpg(0, signal.SIGKILL)

    def parent_ended(*_: object) -> None:
        if os.getpid() != me:  # a fork of the body inherited this handler
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif keepers.are_gone:
            signal.signal(signal.SIGALRM, kill_group)
            is_first = board.begin_ending(Interruption.NONE)
            left = board.ending_at + order.grace_seconds - boottime()
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))
            if is_first:
                mark_ending(Path(order.leftover), board.ending_at)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(0, signal.SIGINT)

    signal.signal(signal.SIGTERM, parent_ended)
    signal_when_parent_ends(signal.SIGTERM, keepers.supervisor)
