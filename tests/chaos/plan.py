"""What one campaign is: its seed, its size, the times of its leases, and what is broken on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Breakage(StrEnum):
    """A protection that is taken away, so that the checker can show that it would notice."""

    NONE = "none"
    LEASE = "lease"
    """Leases vanish from the store while they are held."""
    FLOCK = "flock"
    """As `lease`, on one host, whose guards do not lock either."""
    SWEEP = "sweep"
    """Nobody sweeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One campaign. Seconds everywhere."""

    seed: int
    fault_seconds: float
    targets: int = 200
    hosts: int = 2
    """Worker 3 has a state folder, and so flocks, of its own where it is 2."""
    faults_a_minute: float = 36.0
    breakage: Breakage = Breakage.NONE
    ttl: float = 8.0
    renewal: float = 1.2
    grace: float = 2.0
    sweep: float = 0.5
    interval: float = 120.0
    """Of every second target; the others are `off`, so that no schedule hides a trigger that was lost."""
    quiet_seconds: float = 180.0
    """How long a fleet that nobody disturbs any more may take to converge."""
    slots: int = 8

    @property
    def handover_bound(self) -> float:
        """Within what a dead holder's target is at work again, at the 95th percentile."""
        return self.ttl + self.sweep + 2.0

    @property
    def free_bound(self) -> float:
        """Within what the store gives a dead holder up, at the 95th percentile."""
        return self.ttl + self.sweep
