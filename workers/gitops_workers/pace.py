"""A worker whose broker answers, but refuses to work, connects again and again: not more often than it helps.

So does a master that became a read-only replica. Celery itself would try hundreds of times a second, each with a
traceback, before its own brake of one second.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from celery import bootsteps

_AT_ONCE = 3
_WITHIN_SECONDS = 10.0
_PAUSE_SECONDS = 1.0


class Pace(bootsteps.StartStopStep):
    """The step of a Celery consumer that holds back restarts which follow one another."""

    def __init__(
        self,
        parent: Any,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        **kwargs: Any,
    ) -> None:
        """`clock` tells seconds that only rise."""
        super().__init__(parent, **kwargs)
        self._clock, self._sleep = clock, sleep
        self._ends: deque[float] = deque(maxlen=_AT_ONCE)

    def stop(self, parent: Any) -> None:
        """Wait a moment when there were too many ends of late: all steps end before the consumer begins anew."""
        if len(self._ends) == _AT_ONCE and self._clock() - self._ends[0] < _WITHIN_SECONDS:
            self._sleep(_PAUSE_SECONDS)
        self._ends.append(self._clock())
