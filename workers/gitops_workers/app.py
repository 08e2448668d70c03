"""The Celery application of the fleet: a factory, and no global instance.

Messages are hints and Redis holds the truth (DESIGN section 3), so that a message may be lost, doubled or late. That is
why they are acknowledged early and never restored; CELERY.md section 2.4 tells what each setting prevents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Protocol

from celery import Celery

from gitops_reconciler.notify.channels import build_channels
from gitops_reconciler.settings import Settings
from gitops_reconciler.wiring import Fleet, broker_is_store, fleet_runner
from gitops_reconciler.work.redis import Waker
from gitops_workers.fairness import Fairness
from gitops_workers.lifetime import hook_lifetime
from gitops_workers.logs import hook_logging
from gitops_workers.messages import (
    BUILT_IN_POOLS,
    NOTIFY_QUEUE,
    broker_url,
    consumed_pools,
    notifies,
    sentinel_options,
    tick_queue,
)
from gitops_workers.notifier import Notifier
from gitops_workers.pace import Pace
from gitops_workers.presence import Presence
from gitops_workers.producer import Producer, queue_named
from gitops_workers.tasks import register_tasks
from gitops_workers.watchdog import Watchdog

_SOCKET_SECONDS = 5


class Runs(Protocol):
    """What a tick task calls; the fleet's runner is one."""

    def run(self, item: str) -> object:
        """Claim the item and run it to its end; nothing happens when there is nothing to do."""
        ...

    def wind_down(self) -> None:
        """Begin no more runs: an item that is still handed over is woken again, for another worker."""
        ...

    def stop(self) -> None:
        """Interrupt the runs under way, and any that is just about to begin."""
        ...

    def close(self) -> None:
        """Let go of what the runs were started with."""
        ...


MakeRuns = Callable[[Settings, Waker | None], Runs]


class FleetApp(Celery):
    """Celery with the settings of the fleet, and with the parts that a worker process builds once."""

    events_cls = "gitops_workers.consumer:FleetEvents"

    def __init__(self, settings: Settings, make_runs: MakeRuns) -> None:
        """Configure for these settings; nothing is connected yet."""
        super().__init__("gitops_workers")
        self.settings = settings
        self._make_runs = make_runs
        self.conf.update(celery_settings(settings))
        register_tasks(self)
        hook_lifetime(self)
        self.steps["worker"].update({Presence, Watchdog})
        self.steps["consumer"].update({Fairness, Pace})

    @property
    def waker(self) -> Waker | None:
        """What sends messages where the store's scripts can't: to a broker of its own."""
        return None if broker_is_store(self.settings) else Producer(self)

    @cached_property
    def fleet(self) -> Fleet:
        """Store and work protocol, over one client."""
        return Fleet(self.settings, self.waker)

    @cached_property
    def runs(self) -> Runs:
        """What runs items; its warm server is started by the first look at it."""
        return self._make_runs(self.settings, self.waker)

    def build_runs(self) -> None:
        """Build `runs` now: the warm server must be started by the main thread, before there are others."""
        _ = self.runs

    @cached_property
    def notifier(self) -> Notifier:
        """What sends alerts."""
        return Notifier(self.fleet.client, build_channels(self.settings))


def create_app(settings: Settings, *, make_runs: MakeRuns = fleet_runner) -> FleetApp:
    """Return the application of this fleet; `make_runs` makes what the tick task calls."""
    hook_logging(settings)
    return FleetApp(settings, make_runs)


def celery_settings(settings: Settings) -> Mapping[str, Any]:
    """Return everything that differs from Celery's defaults, and what must not change with them."""
    return {**_messages(settings), **_broker(settings), **_worker(settings), **_beat(settings)}


def _messages(settings: Settings) -> Mapping[str, Any]:
    queues = {*BUILT_IN_POOLS, *consumed_pools(settings)}
    return {
        "result_backend": None,
        "task_serializer": "json",
        "accept_content": ["json"],  # never pickle: who can write to Redis could run code here
        "result_accept_content": ["json"],
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_default_queue": NOTIFY_QUEUE,
        "task_create_missing_queues": False,
        "task_queues": [queue_named(NOTIFY_QUEUE), *(queue_named(tick_queue(pool)) for pool in sorted(queues))],
        "task_time_limit": None,  # threads know none; the supervisor of a run keeps its deadline
        "task_soft_time_limit": None,
        "enable_utc": True,
        "timezone": "UTC",
    }


def _broker(settings: Settings) -> Mapping[str, Any]:
    return {
        "broker_url": broker_url(settings),
        "broker_transport_options": {
            "ack_emulation": False,  # no un-acked messages that a reconnect would run a second time
            "socket_timeout": _SOCKET_SECONDS,  # without one a half-open connection hangs a worker for ever
            "socket_connect_timeout": _SOCKET_SECONDS,
            "socket_keepalive": True,
            "health_check_interval": _SOCKET_SECONDS,
            "visibility_timeout": 86400,
            "client_name": "gitops-worker",
            "priority_steps": [0],  # messages have no priority: one list a queue, not four
            **sentinel_options(settings),
        },
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_channel_error_retry": True,  # full memory, a read-only replica: as if it were away, and no crash
        "broker_pool_limit": 10,
        "broker_pool_acquire_timeout": 10,
        "task_publish_retry_policy": {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 1},
    }


def _worker(settings: Settings) -> Mapping[str, Any]:
    return {
        "task_acks_late": False,
        "task_reject_on_worker_lost": False,
        "worker_pool": "gitops_workers.pool:TaskPool",
        "worker_consumer": "gitops_workers.consumer:FleetConsumer",
        "worker_concurrency": settings.worker_slots,
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": True,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_soft_shutdown_timeout": 0,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
    }


def _beat(settings: Settings) -> Mapping[str, Any]:
    return {
        "beat_scheduler": "gitops_workers.scheduler:SweepScheduler",
        "beat_max_loop_interval": settings.sweep_interval.total_seconds(),
        "beat_schedule": {},
    }


def worker_queues(settings: Settings) -> list[str]:
    """Return the queues that a worker consumes from its start; pools that come later are added while it runs."""
    queues = [tick_queue(pool) for pool in consumed_pools(settings)]
    return [*queues, NOTIFY_QUEUE] if notifies(settings) else queues
