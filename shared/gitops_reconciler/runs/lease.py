"""The lease as a supervisor sees it: renewals, and one completion that writes the run's end."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.clock import Clock
from gitops_reconciler.runs.ending import completion_of
from gitops_reconciler.supervise.order import Order, RunEnd
from gitops_reconciler.work.base import Renewal, Work

_JITTER = 0.05


def spread(seconds: float) -> float:
    """Return an interval within five percent of what was asked for."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  # spreads load, protects nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLease:
    """One claim in Redis; implements the supervisor's `Lease`."""

    work: Work
    order: Order
    clock: Clock
    jitter: Callable[[float], float] = spread

    def renew(self) -> Renewal:
        """Prolong the lease by one ttl."""
        order = self.order
        return self.work.renew(order.item, order.token, order.run, ttl_ms=round(order.ttl_seconds * 1000))

    def complete(self, ended: RunEnd) -> bool:
        """Write the end; the log file goes with it, where it can."""
        completion = completion_of(self.order, ended, now=self.clock.now(), jitter=self.jitter)
        recorded = self.work.complete(self.order.item, self.order.token, self.order.run, completion)
        with suppress(OSError):
            Path(self.order.log).unlink()
        return recorded
