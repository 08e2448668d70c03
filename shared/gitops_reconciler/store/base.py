"""The contracts of the store: what one tick writes, and what readers see of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gitops_reconciler.outcomes import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Provenance: the last revision that was applied and confirmed, no-op or not."""

    sha: str
    result: str
    message: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The last run that ended, good or bad."""

    state: str
    reason: str
    message: str
    revision: str
    at: datetime | None = None


class Records(Protocol):
    """Where a tick leaves its outcome: a file, or the pipe to the supervisor who completes with the lease's token."""

    def record(self, outcome: Outcome) -> None:
        """Keep an outcome that confirmed a revision, or a destruction: it is what is applied from now on."""
        ...

    def attempted(self, outcome: Outcome) -> None:
        """Keep an outcome that confirmed nothing, as the last attempt; what is applied stays as it was."""
        ...


class Provenance(Protocol):
    """What is known of a target's past."""

    def applied(self, target: str) -> Applied | None:
        """Return what was applied last; None when nothing ever was."""
        ...

    def last_attempt(self, target: str) -> Attempt | None:
        """Return the last attempt, good or bad; None when there was none."""
        ...


class Markers(Protocol):
    """One small text per target, outside the tree."""

    def marker(self, target: str) -> str | None:
        """Return the target's marker."""
        ...

    def set_marker(self, target: str, value: str | None) -> None:
        """Keep the target's marker; None forgets it."""
        ...
