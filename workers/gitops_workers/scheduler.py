"""Beat without a schedule of its own: each tick sweeps what is due in the store, never through a task.

The sweep is one script, so any number of beats may run; what it costs depends on what is due, not on how many targets
there are (DESIGN section 3).
"""

from __future__ import annotations

import logging
from typing import Any

from celery.beat import Scheduler
from redis.exceptions import RedisError

from gitops_reconciler.errors import SpecError, StoreUnavailableError
from gitops_reconciler.layout import DEFAULT_SOURCE
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.redis_text import as_text
from gitops_reconciler.sources import seed_default
from gitops_workers.evictions import EvictionWatch
from gitops_workers.messages import NOTIFY_QUEUE
from gitops_workers.notifier import needs_wake
from gitops_workers.pools import look_at_pools
from gitops_workers.presence import drop_silent, signs
from gitops_workers.producer import Producer
from gitops_workers.sweeping import Sweeper

_log = logging.getLogger("gitops_workers")
_ADVICE = "set maxmemory-policy noeviction, see that operators' suspensions are still there, then resume the fleet"


class SweepScheduler(Scheduler):
    """What `beat_scheduler` names. It keeps no file: all that is remembered is in the store."""

    def __init__(self, app: Any, **kwargs: Any) -> None:
        self._app = app
        self._seeded: str | None = None
        self._wake = Producer(app)
        self._evictions = EvictionWatch(as_text(app.fleet.client), self._pause)
        settings = app.settings
        self._sweeper = Sweeper(
            app.fleet.work,
            interval_seconds=settings.sweep_interval.total_seconds(),
            ttl_seconds=settings.lease_ttl.total_seconds(),
            care=self._care,
        )
        super().__init__(app, **kwargs)

    def setup_schedule(self) -> None:
        """Install no entries."""

    def tick(self, *_: Any, **__: Any) -> float:
        """Sweep once."""
        return self._sweeper.tick()

    def _care(self) -> None:
        client = as_text(self._app.fleet.client)
        try:
            self._app.fleet.epoch.check()
            self._evictions.look()
            self._seed()
            drop_silent(client)
            look_at_pools(self._app.fleet.work, self._app.settings)
            channels = {name for sign in signs(client).values() for name in sign.get("channels", [])}
            if needs_wake(client, sorted(channels)) and not client.llen(NOTIFY_QUEUE):
                self._wake([("", "")])
        except (RedisError, OSError) as error:
            message = trouble(error)
            raise StoreUnavailableError(message) from error

    def _pause(self, reason: str) -> None:
        self._app.fleet.work.pause(reason, actor="beat", advice=_ADVICE)

    def _seed(self) -> None:
        """Register the source of the settings, once per store; settings that can't be used are said once.

        A store that was emptied gets it anew: its targets are to be seen while the fleet is paused.
        """
        epoch = self._app.fleet.store.epoch()
        if epoch == self._seeded:
            return
        try:
            if seed_default(self._app.fleet.store, self._app.fleet.work, self._app.settings):
                _log.info("source registered from the settings", extra={"source": DEFAULT_SOURCE})
        except SpecError as error:
            _log.error("source not registered: %s", error)
        self._seeded = epoch
