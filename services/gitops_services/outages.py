"""Remembers for a moment that Redis is silent: a crowd is told so at once, and not one by one as threads get free."""

from __future__ import annotations

import time

from redis.exceptions import TimeoutError as RedisTimeoutError

from gitops_services.problems import unavailable

_REFUSED_SECONDS = 1.0


class Outages:
    """Any thread may call. Only silence counts: a connection that is refused keeps nobody waiting."""

    def __init__(self) -> None:
        """Begin in good weather."""
        self._until = 0.0

    def note(self, error: BaseException | None) -> None:
        """Look at an error, and at what it came from; if Redis did not answer in time, refuse requests for a second."""
        while error is not None:
            if isinstance(error, RedisTimeoutError):
                self._until = time.monotonic() + _REFUSED_SECONDS
                return
            error = error.__cause__

    def refuse(self) -> None:
        """Raise the problem for a store that does not answer while that is so."""
        if time.monotonic() < self._until:
            raise unavailable()
