"""Beat looks now and then whether the store throws keys away: once it does, nothing in it can be relied on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from redis.exceptions import NoPermissionError

from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.store.fitness import Fitness, eviction_words, fitness_of

_log = logging.getLogger("gitops_workers")
_EVERY_SECONDS = 10.0


class EvictionWatch:
    """Says it when the memory policy becomes one that evicts, and pauses the fleet when keys were thrown away."""

    def __init__(
        self, client: TextRedis, pause: Callable[[str], object], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Call `pause` with the reason; `clock` tells seconds that only rise."""
        self._client, self._pause, self._clock = client, pause, clock
        self._look_at = clock()
        self._evicted: int | None = None
        self._is_said = False

    def look(self) -> None:
        """Look if it is time; raises what redis-py raises."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _EVERY_SECONDS
        try:
            fitness = fitness_of(self._client)
        except NoPermissionError:
            return  # said at the start
        self._say(fitness)
        if self._evicted is not None and fitness.evicts and fitness.evicted > self._evicted:
            gone = fitness.evicted - self._evicted
            self._pause(f"redis threw {gone} keys away, perhaps leases and asks of the fleet")
        self._evicted = fitness.evicted

    def _say(self, fitness: Fitness) -> None:
        if fitness.evicts and not self._is_said:
            _log.error("%s", eviction_words(fitness))
        elif self._is_said and not fitness.evicts:
            _log.info("redis keeps all keys again")
        self._is_said = fitness.evicts
