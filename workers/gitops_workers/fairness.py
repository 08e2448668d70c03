"""Every pool in use keeps a slot, so that slow runs of one keep no worker from serving another.

A worker asks for the next message of all its queues in one blocking call. Which queues that names is decided anew for
each call, by the queue cycle of kombu's channel; ours leaves out those whose pool may take no more slots now. So a
message is only ever taken by a worker that can run it, and the others stay where another worker finds them. When a
slot gets free for a queue that was left out, the call under way is ended from the side, by CLIENT UNBLOCK.

Cancelling Celery's consumer of a queue instead would change what the worker says that it serves, and can't recall the
call under way.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty
from typing import Any

from celery import bootsteps
from celery.worker import state
from redis.exceptions import RedisError, ResponseError

_log = logging.getLogger("gitops_workers")


class Slots:
    """Who holds the slots of a worker. Any thread may call."""

    def __init__(self, total: int) -> None:
        """Begin with all slots free and no queue in use."""
        self._total = total
        self._held: Counter[str] = Counter()
        self._busy = 0
        self._in_use: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def take(self, queue: str) -> None:
        """Note that a task of this queue has a slot."""
        with self._lock:
            self._held[queue] += 1
            self._busy += 1

    def free(self, queue: str) -> None:
        """Note that it ended."""
        with self._lock:
            self._held[queue] -= 1
            self._busy -= 1

    def keep_for(self, queues: Iterable[str]) -> bool:
        """Keep a slot for each of these from now on; whether that is something new."""
        wanted = frozenset(queues)
        is_new, self._in_use = wanted != self._in_use, wanted
        return is_new

    def may_take(self, queue: str) -> bool:
        """Whether a task of this queue may have one more slot.

        The first slot it always may. Any further one only if the slots that are left then are enough for all other
        queues in use that have none.
        """
        with self._lock:
            left = self._total - self._busy - 1
            if left < 0 or not self._held[queue]:
                return left >= 0
            return left >= sum(1 for other in self._in_use if other != queue and not self._held[other])


class FairCycle:
    """The order in which a channel looks into its queues, less those that may take no more: a strategy of kombu's."""

    def __init__(self, channel: Any, slots: Slots) -> None:
        """Decide for this channel of kombu's Redis transport."""
        self.items: list[str] = []
        self._channel, self._slots = channel, slots
        self._left_out: list[str] = []
        self._socket: object = None
        self._client_id: int | None = None

    def update(self, items: Iterable[str]) -> None:
        """Take these queues from now on."""
        self.items[:] = items

    def rotate(self, last_used: str) -> str:
        """Put the queue that was served to the end."""
        if last_used in self.items:
            self.items.remove(last_used)
            self.items.append(last_used)
        return last_used

    def consume(self, n: int) -> list[str]:
        """Return the queues that the next blocking call names, the one served last at the end."""
        queues = self.items[:n]
        asked = [queue for queue in queues if self._slots.may_take(queue)]
        self._left_out = [queue for queue in queues if queue not in asked] if len(asked) < len(queues) else []
        self._learn_client_id()
        return asked

    def reconsider(self) -> None:
        """End the call under way if a queue that it leaves out may be asked for by now; called in the event loop."""
        if self._channel._in_poll and any(map(self._slots.may_take, self._left_out)):
            self._left_out = []  # once is enough
            self.interrupt()

    def interrupt(self) -> None:
        """End the call under way: its answer comes at once, be it empty. A server that allows it not takes a second."""
        if self._client_id is None:
            return
        with suppress(RedisError, OSError), self._channel.conn_or_acquire() as client:
            client.client_unblock(self._client_id)

    def _learn_client_id(self) -> None:
        """Ask the server, once a connection, how it calls the one that blocks; no call is under way now."""
        connection = self._channel.client.connection
        if connection._sock is not None and connection._sock is self._socket:
            return
        connection.send_command("CLIENT", "ID")
        try:
            self._client_id = int(connection.read_response())
        except ResponseError as error:
            self._client_id = None
            _log.warning("server tells no client id, a slot that gets free may wait for a second: %s", error)
        self._socket = connection._sock


class Fairness(bootsteps.StartStopStep):
    """The step of a worker's consumer that does this; started again after each reconnect, with a new channel."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._cycle: FairCycle | None = None

    def start(self, consumer: Any) -> None:
        """Put our cycle into the channel."""
        channel, pool = consumer.task_consumer.channel, consumer.pool
        self._cycle = FairCycle(channel, pool.slots)
        self._cycle.update(channel.active_queues)
        channel._queue_cycle = self._cycle
        pool.on_freed = self._cycle.reconsider

    def stop(self, consumer: Any) -> None:
        """At the end of the worker, take what a call under way was answered: a task gives its message back."""
        cycle, self._cycle = self._cycle, None
        if cycle is None or state.should_stop is None or consumer.task_consumer is None:
            return
        channel = consumer.task_consumer.channel
        if channel._in_poll:
            cycle.interrupt()
            with suppress(Empty, RedisError, OSError):
                channel._brpop_read()
