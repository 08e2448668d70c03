"""Celery's consumer and events, but such as no outage of the broker makes deaf.

Celery waits up to half a minute between two attempts to connect, and logs each of them. And it repeats a heartbeat for
ever, inside its event loop, which then neither hears of a wish to end nor replaces its connection (CELERY.md, row H1).
"""

from __future__ import annotations

import logging
from typing import Any

from celery.app.events import Events
from celery.events.dispatcher import EventDispatcher
from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown

_log = logging.getLogger("gitops_workers")

_FIRST_PAUSE_SECONDS = 0.2
_PAUSE_GROWTH_SECONDS = 0.4
LONGEST_PAUSE_SECONDS = 2.0


class FleetConsumer(Consumer):
    """What `worker_consumer` names."""

    _is_away = False

    def ensure_connected(self, conn: Any) -> Any:
        """Return the connection once the broker takes it, however long that takes; a wish to end is heard meanwhile."""
        connection = conn.ensure_connection(
            self._note,
            None,  # for ever
            interval_start=_FIRST_PAUSE_SECONDS,
            interval_step=_PAUSE_GROWTH_SECONDS,
            interval_max=LONGEST_PAUSE_SECONDS,
            callback=maybe_shutdown,
        )
        self.first_connection_attempt = False
        if self._is_away:
            _log.info("broker answers this worker again")
        self._is_away = False
        return connection

    def _note(self, error: Exception, _pause_seconds: float) -> None:
        if not self._is_away:
            _log.error("broker does not answer this worker, which tries on: %s", error)
        self._is_away = True


class FleetDispatcher(EventDispatcher):
    """Sends each event once; one that the broker did not take goes out with the connection that comes next."""

    def _publish(self, event: Any, producer: Any, routing_key: str, **options: Any) -> None:
        super()._publish(event, producer, routing_key, **{**options, "retry": False})


class FleetEvents(Events):
    """What `FleetApp.events_cls` names."""

    dispatcher_cls = FleetDispatcher
