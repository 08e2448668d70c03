"""The two tasks. A message carries a name and nothing else; what is to be done is read from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops_reconciler.errors import GitopsError
from gitops_workers.messages import NOTIFY_TASK, TICK_TASK

if TYPE_CHECKING:
    from gitops_workers.app import FleetApp


def register_tasks(app: FleetApp) -> None:
    """Register the tasks with this application alone; errors that we expect are logged in one line."""

    @app.task(name=TICK_TASK, shared=False, throws=(GitopsError,))
    def tick(item: str) -> None:
        app.runs.run(item)

    @app.task(name=NOTIFY_TASK, shared=False, throws=(GitopsError,))
    def notify() -> None:
        app.notifier.drain()
