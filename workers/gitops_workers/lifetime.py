"""How a worker process begins and ends: its runs may end by themselves for a while, then they are interrupted."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from celery import signals

from gitops_reconciler.errors import StoreUnavailableError

if TYPE_CHECKING:
    from gitops_workers.app import FleetApp

_log = logging.getLogger("gitops_workers")


def hook_lifetime(app: FleetApp) -> None:
    """Build the parts of a worker before its threads, and let go of them after the last task."""
    ending = _Ending(app)

    def begin(**_: object) -> None:
        app.build_runs()
        try:
            app.notifier.begin()
        except StoreUnavailableError as error:
            _log.warning("%s", error)

    def end(**_: object) -> None:
        ending.is_over()
        app.runs.close()

    for signal, act in (
        (signals.worker_init, begin),
        (signals.worker_shutting_down, ending.asked_for),
        (signals.worker_shutdown, end),
    ):
        signal.connect(act, weak=False, dispatch_uid=f"gitops-{act.__qualname__}")


class _Ending:
    """Interrupts the runs a grace after the first wish to end, and at the second one at once."""

    def __init__(self, app: FleetApp) -> None:
        self._app = app
        self._timer: threading.Timer | None = None

    def asked_for(self, **_: object) -> None:
        """Note a SIGTERM; the pool waits for its tasks from here on."""
        is_first = self._timer is None
        if self._timer is not None:
            self._timer.cancel()
        grace = self._app.settings.lease_grace.total_seconds()
        self._timer = threading.Timer(grace if is_first else 0.0, self._app.runs.stop)
        self._timer.daemon = True
        self._timer.start()

    def is_over(self) -> None:
        """Forget the interruption: nothing runs any more."""
        if self._timer is not None:
            self._timer.cancel()
