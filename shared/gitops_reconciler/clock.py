"""Time as parts that are passed in: wall clock for people, boot time for leases and deadlines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, twice: for records and for measuring."""

    def now(self) -> datetime:
        """Return the wall-clock time, always in UTC."""
        ...

    def boottime(self) -> float:
        """Return seconds since boot, counting suspend (CLOCK_BOOTTIME): the only clock for leases and deadlines."""
        ...


class SystemClock:
    """The real clock of this machine."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)

    def boottime(self) -> float:
        """Return CLOCK_BOOTTIME where the system has it, else the monotonic clock."""
        return boottime()


def boottime() -> float:
    """Seconds since boot; unlike CLOCK_MONOTONIC it goes on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A moment on the boot-time clock until which work may go on; `at=None` means without end."""

    at: float | None = None

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline that many seconds from now."""
        return cls(at=boottime() + seconds)

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds left, never below 0; None when there is no deadline."""
        return None if self.at is None else max(0.0, self.at - boottime())

    @property
    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return self.at is not None and boottime() >= self.at

    def sooner(self, seconds: float) -> Deadline:
        """Return the earlier of this deadline and that many seconds from now."""
        other = boottime() + seconds
        return Deadline(at=other if self.at is None else min(self.at, other))
