"""The processes of `gitops up`, and the order in which they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gitops_reconciler.layout import Layout
from gitops_reconciler.settings import Settings

_TETHER = Path(__file__).with_name("tether.py")
SERVER, FLOWER, BEAT, RECEIVER = "server", "flower", "beat", "receiver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One process that is kept running."""

    name: str
    command: Sequence[str]
    rank: int
    """Those with a higher one end before those with a lower one."""
    stop_seconds: float
    """How long it may take to end before it is killed."""
    lock: Path | None = None
    """Held while it lives."""
    waits_for: Path | None = None
    """The socket of the server that must answer first."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def tethered(self) -> list[str]:
        """Return the command that starts it as a child which dies with us."""
        options = {"--parent": str(os.getpid())}
        if self.lock is not None:
            options["--lock"] = str(self.lock)
        if self.waits_for is not None:
            options["--socket"] = str(self.waits_for)
        parts = [part for pair in options.items() for part in pair]
        return [sys.executable, "-I", "-S", str(_TETHER), *parts, "--", *self.command]


def server_role(command: Sequence[str], layout: Layout) -> Role:
    """Return the embedded server: the last to end, and never two on the same data."""
    return Role(name=SERVER, command=command, rank=1, stop_seconds=20, lock=layout.redis / "server.lock")


def fleet_roles(
    settings: Settings, *, workers: int, has_flower: bool, waits_for: Path | None, environment: Mapping[str, str]
) -> list[Role]:
    """Return everything that talks to the server."""
    # Runs may end by themselves for the worker's grace, then they are interrupted and have their own.
    worker_seconds = (settings.worker_grace + settings.lease_grace).total_seconds() + 25

    def role(name: str, module: str, *arguments: str, rank: int, stop_seconds: float = 10) -> Role:
        return Role(
            name=name,
            command=(sys.executable, "-m", module, *arguments),
            rank=rank,
            stop_seconds=stop_seconds,
            waits_for=waits_for,
            environment=environment,
        )

    names = [f"worker-{number}" for number in range(1, workers + 1)]
    found = [
        role(RECEIVER, "gitops_services", rank=5, stop_seconds=20),
        role(BEAT, "gitops_workers", "beat", rank=4),
        *(
            role(name, "gitops_workers", "worker", "--name", name, rank=3, stop_seconds=worker_seconds)
            for name in names
        ),
    ]
    return [*found, role(FLOWER, "gitops_workers", "flower", rank=2)] if has_flower else found
