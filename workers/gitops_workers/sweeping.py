"""The tick of beat, without Celery: sweep, look after the rest, and go on whatever fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from gitops_reconciler.errors import GitopsError
from gitops_reconciler.work.base import Swept

_log = logging.getLogger("gitops_workers")

_LIMIT = 500
_REWAKE_AFTER_MS = 5000
_CARE_SECONDS = 2.0


class Sweeps(Protocol):
    """The one step of the work protocol that a scheduler needs."""

    def sweep(self, *, limit: int, rewake_after_ms: int, ttl_ms: int) -> Swept:
        """Ask for what is due; raises StoreUnavailableError."""
        ...


class Sweeper:
    """Sweeps at each tick and looks after the rest now and then; whatever fails, it goes on at the next tick."""

    def __init__(
        self,
        work: Sweeps,
        *,
        interval_seconds: float,
        ttl_seconds: float,
        care: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call `care` every two seconds; `clock` tells seconds that only rise."""
        self._work = work
        self._interval_seconds = interval_seconds
        self._ttl_ms = round(ttl_seconds * 1000)
        self._care = care
        self._clock = clock
        self._care_at = clock()
        self._out_since: float | None = None

    def tick(self) -> float:
        """Return how many seconds to sleep: the interval at most, 0 when there is more to do."""
        try:
            swept = self._work.sweep(limit=_LIMIT, rewake_after_ms=_REWAKE_AFTER_MS, ttl_ms=self._ttl_ms)
            self._look_after()
        except GitopsError as error:
            self._note_outage("%s", error)
            return self._interval_seconds
        except Exception:  # noqa: BLE001  # the outer edge of beat: one bad tick must not end the fleet's schedule
            self._note_outage("a sweep failed", exc_info=True)
            return self._interval_seconds
        self._note_recovery()
        return 0.0 if swept.more else self._interval_seconds

    def _look_after(self) -> None:
        if self._clock() >= self._care_at:
            self._care_at = self._clock() + _CARE_SECONDS
            self._care()

    def _note_outage(self, message: str, *args: object, exc_info: bool = False) -> None:
        """Log the first failure of an outage alone."""
        if self._out_since is None:
            self._out_since = self._clock()
            _log.error(f"{message}; nothing that is due is asked for meanwhile", *args, exc_info=exc_info)

    def _note_recovery(self) -> None:
        if self._out_since is not None:
            _log.info("sweeps work again", extra={"seconds": round(self._clock() - self._out_since, 1)})
            self._out_since = None
