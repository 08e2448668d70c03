"""A worker says that it lives, learns of new pools, and sends task events only while Flower runs.

All of it happens in the worker's own event loop and not in a thread, so that a worker whose loop hangs goes silent.
"""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from celery import bootsteps
from celery.worker import state
from redis.exceptions import RedisError

from gitops_reconciler import keys
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.redis_clients import Patience, blocking_client
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.runs.epochs import EpochFile, HostEpoch
from gitops_reconciler.settings import Settings
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.wiring import work_options
from gitops_reconciler.work.redis import RedisWork
from gitops_workers.messages import EVERY_POOL, NOTIFY_QUEUE, consumed_pools, tick_queue

_log = logging.getLogger("gitops_workers")

SIGN_SECONDS = 5.0
REFRESH_SECONDS = 2.0
GONE_AFTER_SECONDS = 60.0
_ANSWER_SECONDS = 1.0  # the loop stands still meanwhile
_TASK_EVENTS = "task"  # a group of Celery's events


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOfLife:
    """What a worker leaves in `keys.WORKERS`, as JSON."""

    name: str
    host: str
    pid: int
    version: str
    pools: tuple[str, ...]
    channels: tuple[str, ...]
    slots: int
    busy: int
    at: int
    """Epoch milliseconds by the store's clock."""

    def to_json(self) -> str:
        """Return the entry."""
        return json.dumps(asdict(self), sort_keys=True)


def drop_silent(client: TextRedis) -> int:
    """Drop the entries of workers that were not heard of for a minute; returns how many."""
    oldest_ms = store_ms(client) - GONE_AFTER_SECONDS * 1000
    gone = [name for name, sign in signs(client).items() if int(sign.get("at", 0)) < oldest_ms]
    return client.hdel(keys.WORKERS, *gone) if gone else 0


def signs(client: TextRedis) -> dict[str, dict[str, Any]]:
    """Return what workers said of themselves last, by name; `{}` for an entry that can't be read."""
    return {name: _parsed(text) for name, text in client.hgetall(keys.WORKERS).items()}


def store_ms(client: TextRedis) -> int:
    """Return the store's time in epoch milliseconds."""
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _parsed(text: str) -> dict[str, Any]:
    try:
        sign = json.loads(text)
    except ValueError:
        return {}
    return sign if isinstance(sign, dict) else {}


def _client(settings: Settings) -> TextRedis:
    """Return a client that rather gives up than holds up the event loop."""
    url = settings.redis_url.get_secret_value() if settings.redis_url else ""
    return as_text(blocking_client(url, Patience(answer_seconds=_ANSWER_SECONDS)))


def _version() -> str:
    try:
        return version("gitops-reconciler")
    except PackageNotFoundError:
        return ""


class Presence(bootsteps.StartStopStep):
    """The step of a Celery worker that does this."""

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._settings: Settings = worker.app.settings
        self._client = _client(self._settings)
        self._version = _version()
        # Alerts that it causes are sent by way of beat: the loop must not wait for a broker.
        work = RedisWork(self._client, options=work_options(self._settings))
        self._epoch = HostEpoch(EpochFile(self._settings.layout.epoch_file), RedisStore(self._client), work)
        self._failing: set[str] = set()
        """Which of our acts the store refused last."""

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:
        """Begin; called again after each reconnect to the broker, when the loop's timers were dropped."""
        for seconds, act in ((SIGN_SECONDS, self._sign), (REFRESH_SECONDS, self._refresh)):
            hub.call_soon(self._guarded, act, worker)
            hub.call_repeatedly(seconds, self._guarded, act, worker)

    def stop(self, worker: Any) -> None:
        """Say goodbye."""
        try:
            self._client.hdel(keys.WORKERS, worker.hostname)
        except (RedisError, OSError):
            _log.debug("no goodbye to the store; the entry goes by itself")

    def _guarded(self, act: Any, worker: Any) -> None:
        """Keep the store's troubles out of the loop, which would take them for the broker's."""
        try:
            act(worker)
        except (RedisError, OSError, StoreUnavailableError) as error:
            if not self._failing:
                _log.warning("store does not serve this worker: %s", trouble(error))
            self._failing.add(act.__name__)
        else:
            if self._failing == {act.__name__}:
                _log.info("store serves this worker again")
            self._failing.discard(act.__name__)

    def _sign(self, worker: Any) -> None:
        sign = SignOfLife(
            name=worker.hostname,
            host=platform.node(),
            pid=os.getpid(),
            version=self._version,
            pools=tuple(_pools(worker.app.amqp.queues.consume_from)),
            channels=tuple(worker.app.notifier.channels),
            slots=worker.concurrency,
            busy=len(state.active_requests),
            at=store_ms(self._client),
        )
        self._client.hset(keys.WORKERS, worker.hostname, sign.to_json())

    def _refresh(self, worker: Any) -> None:
        with self._client.pipeline(transaction=False) as pipe:
            pipe.exists(keys.FLOWER)
            pipe.smembers(keys.POOLS)
            pipe.get(keys.EPOCH)
            is_watched, pools, epoch = pipe.execute()
        self._epoch.is_ours(str(epoch or ""))  # pauses the fleet if not
        _toggle_task_events(worker.consumer.event_dispatcher, is_wanted=bool(is_watched))
        if EVERY_POOL in self._settings.pools:
            for pool in consumed_pools(self._settings, pools):
                if tick_queue(pool) not in worker.app.amqp.queues.consume_from:
                    worker.consumer.add_task_queue(tick_queue(pool))
                    _log.info("serving a new pool", extra={"pool": pool})
        _keep_slots(worker, pools)


def _keep_slots(worker: Any, pools: Iterable[str]) -> None:
    """Keep a slot for each pool that has items and that this worker serves, and for alerts if it sends them."""
    consumed = set(worker.app.amqp.queues.consume_from)
    if worker.pool.slots.keep_for(consumed & {NOTIFY_QUEUE, *map(tick_queue, pools)}):
        worker.pool.on_freed()


def _pools(queues: Iterable[str]) -> list[str]:
    prefix = keys.TICK_QUEUE_PREFIX
    return sorted(queue.removeprefix(prefix) for queue in queues if queue.startswith(prefix))


def _toggle_task_events(dispatcher: Any, *, is_wanted: bool) -> None:
    """Let the worker send task events, or keep it from it: they cost a sixth of its rate (CELERY.md section 6)."""
    if dispatcher is None:
        return
    if is_wanted:
        dispatcher.groups.add(_TASK_EVENTS)
    else:
        dispatcher.groups.discard(_TASK_EVENTS)
