"""How a worker process begins and ends: its runs may end by themselves for a while, then they are interrupted.

No handler of a signal runs here: one may come in the middle of another one, or of whoever holds a lock. The signals
that end a role are blocked, and a thread of its own waits for them.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery import signals
from celery.worker import state

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import StoreUnavailableError

if TYPE_CHECKING:
    from gitops_workers.app import FleetApp

_log = logging.getLogger("gitops_workers")

ENDING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
LAST_SECONDS = 15.0
"""What an interrupted run and its worker need at most after the run's own grace, while the store answers."""
_GOODBYE_SECONDS = 5.0
_EXIT_OK = 0


def hook_lifetime(app: FleetApp) -> None:
    """Build the parts of a worker before its threads, and let go of them after the last task."""

    def begin(**_: object) -> None:
        app.build_runs()
        try:
            app.notifier.begin()
        except StoreUnavailableError as error:
            _log.warning("%s", error)

    def end(**_: object) -> None:
        app.runs.close()

    for event, act in ((signals.worker_init, begin), (signals.worker_shutdown, end)):
        event.connect(act, weak=False, dispatch_uid=f"gitops-{act.__qualname__}")


def block_ending_signals() -> None:
    """Keep them from this thread and from all that it starts: they wait until somebody asks for them.

    Called before the first thread is started, or a signal ends the process in that one.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Carries out the wishes to end: takes no more work at the first one, interrupts what runs at the second one.

    The second wish is granted by itself when the grace is over, further ones change nothing. Who has not ended when
    all that can be waited for is over, since the store does not answer, leaves.
    """

    grace_seconds: float
    last_seconds: float
    """How long after the second wish it may take to end."""
    begin: Callable[[], None]
    hurry: Callable[[], None]
    leave: Callable[[], None]

    def start(self) -> threading.Thread:
        """Wait for wishes from now on, in a thread that keeps no process alive."""
        thread = threading.Thread(target=self._carry_out, name="ending", daemon=True)
        thread.start()
        return thread

    def _carry_out(self) -> None:
        block_ending_signals()
        first = signal.Signals(signal.sigwait(ENDING_SIGNALS))
        self._carefully(self.begin)
        _log.info("%s: no more work is taken", first.name, extra={"runs_may_end_for_seconds": self.grace_seconds})
        again = signal.sigtimedwait(ENDING_SIGNALS, self.grace_seconds)
        self._carefully(self.hurry)
        why = "the grace is over" if again is None else signal.Signals(again.si_signo).name
        _log.info("%s: what still runs is interrupted", why)
        deadline = Deadline.after(self.last_seconds)
        while left := deadline.remaining_seconds:
            signal.sigtimedwait(ENDING_SIGNALS, left)
        self.leave()

    @staticmethod
    def _carefully(act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:  # noqa: BLE001  # the outer edge of this thread: the next wish must be heard whatever became of this one
            _log.exception("a part of the end failed")


def ending_of_worker(app: FleetApp, wake: Callable[[], None]) -> Ending:
    """Return the ending of a worker; `wake` has its event loop look whether it should stop."""

    def begin() -> None:
        state.should_stop = _EXIT_OK
        app.runs.wind_down()
        app.notifier.wind_down()
        wake()

    def give_up() -> None:
        _leave(lambda: _log.warning("worker leaves though the store does not answer; supervisors write what ended"))

    return Ending(
        grace_seconds=app.settings.worker_grace.total_seconds(),
        last_seconds=app.settings.lease_grace.total_seconds() + LAST_SECONDS,
        begin=begin,
        hurry=app.runs.stop,
        leave=give_up,
    )


def leave_at_signal(farewell: Callable[[], None]) -> None:
    """End this process with 0 at the first signal, wherever its other threads are and whatever they wait for.

    For roles that hold nothing which another process would miss. SystemExit, which their libraries raise in a handler,
    is lost where the main thread happens to be in a destructor, and joins threads that wait for answers.
    """

    def leave() -> None:
        _leave(farewell)

    block_ending_signals()
    Ending(grace_seconds=0.0, last_seconds=0.0, begin=leave, hurry=leave, leave=leave).start()


def _leave(farewell: Callable[[], None]) -> None:
    """Say goodbye, for some seconds at most, and be gone."""

    def say_goodbye() -> None:
        try:
            farewell()
        finally:
            logging.shutdown()

    goodbye = threading.Thread(target=say_goodbye, name="goodbye", daemon=True)
    goodbye.start()
    goodbye.join(_GOODBYE_SECONDS)
    os._exit(_EXIT_OK)
