"""What a run is made of, and the small parts that stand between a reconciler and the fleet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gitops_reconciler.clock import Clock
from gitops_reconciler.git.base import Mirrors
from gitops_reconciler.layout import Layout
from gitops_reconciler.locks.base import Held
from gitops_reconciler.models import BackEnd, Status
from gitops_reconciler.outcomes import Outcome
from gitops_reconciler.processes import Runner
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.secrets import Secrets
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.sync import TickDefaults
from gitops_reconciler.work.base import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What a run is made of; wiring builds it inside the run process."""

    store: RedisStore
    work: Work
    mirrors: Mirrors
    layout: Layout
    clock: Clock
    secrets: Secrets
    redactor: Redactor
    runner: Callable[[int], Runner]
    """Makes the command runner of a run, given the descriptor of the target's flock."""
    environ: Mapping[str, str]
    """What tools start with."""
    defaults: TickDefaults


@dataclass(slots=True)
class Said:
    """Records of the fleet go through the pipe to the supervisor, who alone writes with the lease's token."""

    outcome: Outcome | None = None

    def record(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def attempted(self, outcome: Outcome) -> None:
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class AlreadyHeld:
    """The lease was claimed by the worker and is kept by the supervisor."""

    token: int

    @contextmanager
    def hold(self, kind: str, target: str) -> Iterator[Held | None]:
        yield Held(kind=kind, target=target, token=self.token)


@dataclass(frozen=True, slots=True)
class StoredMarker:
    """The marker of one target, in the store."""

    store: RedisStore
    target: str

    def get(self) -> str | None:
        return self.store.marker(self.target)

    def set(self, value: str | None) -> None:
        self.store.set_marker(self.target, value)


@dataclass
class LateBackend:
    """A backend that is bound only once the checkout is there; implements `BackEnd`."""

    kind: str
    build: Callable[[], BackEnd]
    own: Callable[[BackEnd], None] | None = None
    """Makes sure, before anything is changed, that what the backend works on is the target's own; raises otherwise."""

    @cached_property
    def _built(self) -> BackEnd:
        return self.build()

    def _owned(self) -> BackEnd:
        if self.own is not None:
            self.own(self._built)
        return self._built

    def apply(self) -> Status:
        """Apply."""
        return self._owned().apply()

    def destroy(self) -> Status:
        """Destroy."""
        return self._owned().destroy()

    def get_outputs(self) -> dict[str, Any]:
        """Return the outputs."""
        return self._built.get_outputs()


def tool_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what tools may see of this worker's environment: no setting and no secret of ours."""
    return {name: value for name, value in environ.items() if not name.startswith(("GITOPS_", "GRID_"))}
