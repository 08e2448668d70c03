"""The contract of channels: one message about one transition goes out, or an error says why not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

_GOOD = frozenset({"recovered", "resumed", "pool_alive"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A transition that people should know of. `key` is stable over retries and reminders of one breakage."""

    key: str
    event: str
    """failed, recovered, unreachable, stalled, stale …; of the fleet: paused, resumed, pool_dead, pool_alive."""
    target: str
    """Empty where it is about the whole fleet."""
    kind: str
    reason: str
    message: str
    run: str
    revision: str
    at: datetime

    @property
    def is_good(self) -> bool:
        """Whether it tells the end of a breakage."""
        return self.event in _GOOD


class Channel(Protocol):
    """A way to reach people or machines."""

    def send(self, alert: Alert) -> None:
        """Deliver the alert.

        Raises:
            DeliveryError: it was not accepted; the caller tries again later.

        """
        ...
