"""A pool of threads that wakes the worker when a slot gets free.

Without prefetching, Celery's own thread pool takes the next message only at the next poll, up to a second later: two
threads do four ticks a second instead of a thousand (CELERY.md section 2.5).
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadPool

_READ_SIZE = 4096


class TaskPool(ThreadPool):
    """Celery's thread pool with a pipe to the worker's event loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def register_with_event_loop(self, hub: Any) -> None:
        """Have the loop woken by our pipe; called again after each reconnect, when the loop was emptied."""
        hub.add_reader(self._reader, self._swallow)

    def on_apply(self, *args: Any, **kwargs: Any) -> ApplyResult:
        """Run a task in a thread; its end wakes the loop."""
        result = super().on_apply(*args, **kwargs)
        result.f.add_done_callback(self._wake)
        return result

    def _swallow(self, *_: object) -> None:
        with suppress(BlockingIOError):
            os.read(self._reader, _READ_SIZE)

    def _wake(self, _ended: object) -> None:
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._writer, b".")
