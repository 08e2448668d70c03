"""Ends a worker that does not talk to a broker that answers, so that whoever keeps it running starts it again.

Its runs live on under their supervisors. Silence is counted in looks and not in seconds: who was frozen, or slept with
its machine, has missed none, and its loop gets as long to wake up as any other.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import _current_frames  # the only way to look at another thread
from typing import Any

from celery import bootsteps, signals
from celery.bootsteps import RUN
from celery.worker import state
from redis.exceptions import RedisError

from gitops_reconciler.redis_clients import Patience, blocking_client
from gitops_reconciler.settings import Settings

_log = logging.getLogger("gitops_workers")

EXIT_CODE = 75
"""How a worker ends that was found hanging (EX_TEMPFAIL: the same may succeed when it is started again)."""
LOOKS = 10
"""How often in a row it must be found silent."""
HANGS = "its event loop stands still"
DEAF = "it takes no messages although some wait and slots are free"
_TELL_SECONDS = 2.0
_ANSWER_SECONDS = 1.0
_NO_CLIENT = "redis+socket://"  # Celery's own form; ours is unix://


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What a worker has done up to now."""

    turns: int
    """How often the timer of its event loop ran."""
    received: int
    """How many messages it took."""
    has_free_slot: bool


class Judge:
    """Tells a hang from a silence that has a reason: nothing to do, all slots taken, a broker that is away."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._last: Vitals | None = None
        self._stood = self._ignored = 0

    def look(self, vitals: Vitals, waiting: Callable[[], int | None]) -> str:
        """Return why the worker must end, or ''. `waiting` counts its messages; None: the broker does not answer."""
        last, self._last = self._last, vitals
        stands = last is not None and vitals.turns == last.turns
        takes_none = last is not None and vitals.received == last.received and vitals.has_free_slot
        count = waiting() if stands or takes_none else None
        self._stood = self._stood + 1 if stands and count is not None else 0
        self._ignored = self._ignored + 1 if takes_none and count else 0
        if self._stood >= LOOKS:
            return HANGS
        return DEAF if self._ignored >= LOOKS else ""


class Watchdog(bootsteps.StartStopStep):
    """The step of a Celery worker that looks at it from a thread of its own."""

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        settings: Settings = worker.app.settings
        self._pause_seconds = settings.worker_watchdog.total_seconds() / LOOKS
        self._turns = self._received = 0
        self._is_over = threading.Event()

    def include_if(self, worker: Any) -> bool:
        """Whether there is a watchdog: the settings may turn it off, and it must be able to ask the broker."""
        return self._pause_seconds > 0 and not _address(worker.app.settings).startswith(_NO_CLIENT)

    def start(self, worker: Any) -> None:
        """Begin to look; a worker that hangs before its loop ran is found as well."""
        signals.task_received.connect(self._count_message, weak=False, dispatch_uid="gitops-watchdog")
        threading.Thread(target=self._watch, args=(worker,), name="watchdog", daemon=True).start()

    def register_with_event_loop(self, _worker: Any, hub: Any) -> None:
        """Have the loop count its turns; called again after each reconnect, when the loop's timers were dropped."""
        hub.call_repeatedly(self._pause_seconds / 2, self._count_turn)

    def close(self, _worker: Any) -> None:
        """Look no more: from here on the loop stands still because the worker ends."""
        self._is_over.set()

    def _count_turn(self) -> None:
        self._turns += 1

    def _count_message(self, **_: object) -> None:
        self._received += 1

    def _watch(self, worker: Any) -> None:
        broker, judge = _Broker(_address(worker.app.settings)), Judge()

        def waiting() -> int | None:
            return broker.waiting(list(worker.app.amqp.queues.consume_from), worker.pool.slots.may_take)

        while not self._is_over.wait(self._pause_seconds):
            vitals = Vitals(
                turns=self._turns,
                received=self._received,
                has_free_slot=len(state.reserved_requests) < worker.concurrency,
            )
            why = judge.look(vitals, waiting)
            if why and _is_meant_to_serve(worker):
                self._end(why)

    def _end(self, why: str) -> None:
        """Say why and be gone. Said by a thread: what hangs may hold the lock of the log."""
        telling = threading.Thread(target=self._tell, args=(why,), name="last-words", daemon=True)
        telling.start()
        telling.join(_TELL_SECONDS)
        os._exit(EXIT_CODE)

    def _tell(self, why: str) -> None:
        _log.critical(
            "worker is ended to be started again: for %g s %s, and the broker answers; runs under way go on",
            self._pause_seconds * LOOKS,
            why,
            extra={"exit_code": EXIT_CODE, "stands_at": _place_of_main_thread()},
        )


def _is_meant_to_serve(worker: Any) -> bool:
    is_told_to_end = any(wish not in {None, False} for wish in (state.should_stop, state.should_terminate))
    return worker.blueprint.state == RUN and not is_told_to_end


def _place_of_main_thread() -> str:
    frame = _current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "nowhere"
    at = traceback.extract_stack(frame)[-1]
    return f"{at.filename}:{at.lineno} in {at.name}"


def _address(settings: Settings) -> str:
    secret = settings.broker_url or settings.redis_url
    return "" if secret is None else secret.get_secret_value()


class _Broker:
    """The broker on a connection of our own, which is never the one that hangs."""

    def __init__(self, address: str) -> None:
        self._client = blocking_client(address, Patience(answer_seconds=_ANSWER_SECONDS))

    def waiting(self, queues: Sequence[str], may_take: Callable[[str], bool]) -> int | None:
        """Return how many messages wait that may be taken; None when it can't be served, or takes nothing out of one.

        What waits for a slot of its pool, while others are kept for other pools, is left there on purpose.
        """
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for queue in queues[:1]:
                    pipe.ltrim(queue, 0, -1)  # changes nothing, but is a write: a replica refuses it, as it does a pop
                for queue in queues:
                    pipe.llen(queue)
                lengths = zip(queues, pipe.execute()[1:], strict=True)
                return sum(int(length) for queue, length in lengths if may_take(queue))
        except (RedisError, OSError):
            return None
