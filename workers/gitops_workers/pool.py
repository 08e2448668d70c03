"""A pool of threads that wakes the worker when a slot gets free, and knows which queues hold its slots.

Without prefetching, Celery's own thread pool takes the next message only at the next poll, up to a second later: two
threads do four ticks a second instead of a thousand (CELERY.md section 2.5).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadPool

from gitops_workers.fairness import Slots

_READ_SIZE = 4096
_REQUEST = 2  # where the arguments of a traced task hold what is known of its message


class TaskPool(ThreadPool):
    """Celery's thread pool with a pipe to the worker's event loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slots = Slots(self.limit)
        self.on_freed: Callable[[], None] = lambda: None
        """Called in the event loop after slots got free."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def register_with_event_loop(self, hub: Any) -> None:
        """Have the loop woken by our pipe; called again after each reconnect, when the loop was emptied."""
        hub.add_reader(self._reader, self._swallow)

    def on_apply(self, target: Any, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> ApplyResult:
        """Run a task in a thread; its end wakes the loop."""
        queue = _queue_of(args or ())
        self.slots.take(queue)
        try:
            result = super().on_apply(target, args, kwargs, *more, **options)
        except BaseException:
            self.slots.free(queue)
            raise
        result.f.add_done_callback(partial(self._wake, queue))
        return result

    def on_stop(self) -> None:
        """Wait for the tasks, those too that have not begun: they give their messages back."""
        self.executor.shutdown()

    def _swallow(self, *_: object) -> None:
        with suppress(BlockingIOError):
            os.read(self._reader, _READ_SIZE)
        self.on_freed()

    def _wake(self, queue: str, _ended: object) -> None:
        self.slots.free(queue)
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._writer, b".")


def _queue_of(args: Sequence[Any]) -> str:
    """Return the queue that a task's message came from; messages of ours name it as their routing key."""
    request = args[_REQUEST] if len(args) > _REQUEST else None
    delivery = request.get("delivery_info") if isinstance(request, dict) else None
    return str((delivery or {}).get("routing_key", ""))
