"""The contract of backends, and everything that one gets from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gitops_reconciler.clock import Clock, Deadline
from gitops_reconciler.models import BackEnd, DetectsDrift, DriftReport
from gitops_reconciler.processes import Runner
from gitops_reconciler.secrets import Secrets

__all__ = ["BackEnd", "Builder", "DetectsDrift", "DriftReport", "Marker", "OwnsResource", "RunLog", "Tools"]


class Marker(Protocol):
    """One small text per target, outside the tree: the hash that was applied last."""

    def get(self) -> str | None:
        """Return what was set last, or None."""
        ...

    def set(self, value: str | None) -> None:
        """Keep the text; None forgets it."""
        ...


class RunLog(Protocol):
    """The log of one run. Every line is redacted, cut and cleaned here, and nowhere else."""

    def line(self, text: str) -> None:
        """Append one line of output of a tool."""
        ...

    def phase(self, name: str) -> None:
        """Say that a new phase (sync, init, plan, apply, outputs) begins."""
        ...

    def tool(self, name: str, version: str) -> None:
        """Note which version of a tool took part."""
        ...


@runtime_checkable
class OwnsResource(Protocol):
    """The optional third protocol, for backends whose real thing has an address that two targets could both name."""

    def resource_key(self) -> str:
        """Return that address, the same for every target that means this thing, without any secret.

        Empty: it can belong to nobody else, or its address is not known. Called before apply and before destroy; may
        run the tool, and raises what apply would raise.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """All that a backend gets from outside; nothing is fetched, everything is passed."""

    runner: Runner
    clock: Clock
    env: Mapping[str, str]
    """The environment that tools start with; never the process' own."""
    log: RunLog
    marker: Marker
    secrets: Secrets
    deadline: Deadline
    engine_locks: Path | None = None
    """Where this host notes which command may hold an engine's lock; None: nothing is noted, no lock is ever broken."""


Builder = Callable[[Any, Tools], BackEnd]
"""Makes a backend of its config and tools; what the registry and the entry points hold."""
