"""A worker for bad weather: notes each message and each run in the store itself, past a proxy, and hangs when told to.

`python -m tests.support.weather_worker NAME`. Its runs are supervised processes as real ones are; what they do is
counted in the keys below.
"""

import json
import os
import sys
import time
from typing import Any

import redis
from celery import bootsteps, signals
from redis.exceptions import RedisError

from gitops_reconciler.clock import SystemClock
from gitops_reconciler.outcomes import NextAsk, RunState, TargetStatus
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.runs.launching import FleetRunner
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.supervise.order import Order
from gitops_reconciler.supervise.zygote import Zygote
from gitops_reconciler.wiring import Fleet, FleetParts
from gitops_reconciler.work.redis import Waker
from gitops_workers.app import create_app
from gitops_workers.roles import run_worker

RECEIVED = "weather:received"
"""Prefix of counters by worker and item: how many messages were taken."""
RAN = "weather:ran"
"""Prefix of counters by item: how many runs began."""
PROCESSES = "weather:processes"
"""Hash: item -> pid of its last run process."""
HOLD = "weather:hold"
"""While this key is there, runs of items that end in `-long` do not end by themselves."""
HANG = "weather:hang"
"""Seconds for which the event loop of one worker stands still, once; -1: for ever."""
DEAF = "weather:deaf"
"""Once there, one worker takes no message any more although its event loop turns."""
DIRECT = "WEATHER_DIRECT"
"""Variable: the store's address past any proxy."""
TRANSPORT = "WEATHER_TRANSPORT"
"""Variable: JSON of transport options that differ from ours."""


def direct_client() -> TextRedis:
    """A client of the store past any proxy."""
    return as_text(redis.Redis.from_url(os.environ[DIRECT], decode_responses=True))


def _is_held(client: TextRedis) -> bool:
    try:
        return bool(client.exists(HOLD))
    except (RedisError, OSError):
        return True


class WeatherParts(FleetParts):
    """Leases are real; a run waits while it is held, and has changed something."""

    def body(self, order: Order, lock_fd: int) -> dict[str, Any]:
        client = direct_client()
        client.hset(PROCESSES, order.item, str(os.getpid()))
        client.incr(f"{RAN}:{order.item}")
        while order.item.endswith("-long") and _is_held(client):
            time.sleep(0.05)
        is_early = order.item.endswith("-early")
        return {
            "state": (RunState.UNREACHABLE if is_early else RunState.CHANGED).value,
            "reason": "Unreachable" if is_early else "Applied",
            "message": "as asked",
            "status": (TargetStatus.UNREACHABLE if is_early else TargetStatus.READY).value,
            "next_ask": (NextAsk.BACKOFF if is_early else NextAsk.INTERVAL).value,
            "applied": not is_early,
        }


def weather_parts() -> WeatherParts:
    """What the zygote of such a worker is told to load."""
    return WeatherParts()


def make_runs(settings: Settings, waker: Waker | None) -> FleetRunner:
    """A runner whose runs are supervised processes."""
    for folder in (settings.layout.root, settings.layout.logs):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fleet = Fleet(settings, waker)
    return FleetRunner(
        work=fleet.work,
        launcher=Zygote(parts="tests.support.weather_worker:weather_parts"),
        settings=settings,
        clock=SystemClock(),
        read_run=fleet.store.run,
    )


class Weather(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Lets a worker's event loop hang, or its consumer take nothing, as the store's keys say."""

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:
        hub.call_repeatedly(0.1, self._look, worker, direct_client())

    def _look(self, worker: Any, client: TextRedis) -> None:
        wish = client.get(HANG)
        if wish and client.delete(HANG):
            time.sleep(3600 if wish == "-1" else float(wish))
        if client.delete(DEAF):
            worker.consumer.task_consumer.channel.qos.can_consume = lambda: False


def main(name: str) -> int:
    """Be such a worker."""
    app = create_app(load_settings(), make_runs=make_runs)
    app.conf.broker_transport_options.update(json.loads(os.environ.get(TRANSPORT, "{}")))
    app.steps["worker"].add(Weather)
    client = direct_client()

    def note(request: Any, **_: object) -> None:
        if request.args:
            client.incr(f"{RECEIVED}:{name}:{request.args[0]}")

    signals.task_received.connect(note, weak=False)
    return run_worker(app, name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
