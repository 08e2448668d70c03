"""Sends messages through Celery, for a fleet whose broker is not the store's own database."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from celery import Celery
from kombu.entity import Queue
from kombu.exceptions import KombuError

from gitops_workers.messages import NOTIFY_QUEUE, NOTIFY_TASK, TICK_TASK, tick_queue

_log = logging.getLogger("gitops_workers")


def queue_named(name: str) -> Queue:
    """Return the declaration of a queue."""
    return Queue(name, routing_key=name)  # type: ignore[no-untyped-call]  # kombu's types are half done


class Producer:
    """The waker of `RedisWork`. It never fails its caller: a hint that is not sent is sent again by a sweep."""

    def __init__(self, app: Celery) -> None:
        """Send through this application's connections."""
        self._app = app

    def __call__(self, wakes: Sequence[tuple[str, str]]) -> None:
        """Send a message for each (item, pool); ("", "") is for the notifier."""
        try:
            with self._app.producer_pool.acquire(block=True, timeout=10) as producer:
                for item, pool in wakes:
                    self._send(item, pool, producer)
        except (KombuError, OSError) as error:
            _log.warning("broker took no message; a sweep sends it again", extra={"why": type(error).__name__})

    def _send(self, item: str, pool: str, producer: Any) -> None:
        task, args, queue = (TICK_TASK, [item], tick_queue(pool)) if item else (NOTIFY_TASK, [], NOTIFY_QUEUE)
        # A queue object: a pool that this process has not heard of is no error.
        self._app.send_task(task, args=args, queue=queue_named(queue), producer=producer)
