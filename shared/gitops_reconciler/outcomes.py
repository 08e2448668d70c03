"""What became of a tick, a target and a document: separate closed types with total mappings between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from gitops_reconciler.errors import (
    GitError,
    GitopsError,
    Reason,
    StalledError,
    StillStalledError,
    StoreUnavailableError,
    UnreachableError,
    WaitingError,
)
from gitops_reconciler.models import ApplyResult, ChangeCounts, Status


class Trigger(StrEnum):
    """Why a tick was asked for."""

    SCHEDULE = "schedule"
    WEBHOOK = "webhook"
    MANUAL = "manual"
    DEPENDENCY = "dependency"
    SOURCE = "source"
    RETRY = "retry"
    DRIFT = "drift"


class RunState(StrEnum):
    """How far one run has come, or how it ended."""

    QUEUED = "queued"
    RUNNING = "running"
    NO_CHANGE = "no_change"
    CHANGED = "changed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ABORTED = "aborted"
    LOST = "lost"
    UNREACHABLE = "unreachable"


class TargetStatus(StrEnum):
    """What a target is in; `ready` is only what was applied and confirmed."""

    PENDING = "pending"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"
    STALLED = "stalled"
    UNREACHABLE = "unreachable"
    STALE = "stale"
    DELETING = "deleting"
    DESTROYED = "destroyed"
    SUSPENDED = "suspended"


class Verb(StrEnum):
    """What a sync did to a document."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    MOVED = "moved"
    STALE = "stale"
    DELETED = "deleted"


class NextAsk(StrEnum):
    """What a run's end means for the next one (DESIGN section 3, ends and retries)."""

    INTERVAL = "interval"
    """Settled, well or badly: the next interval."""
    BACKOFF = "backoff"
    """Ended before the apply: asked again after 10 s, doubling to 15 min."""
    STALLED = "stalled"
    """Not until a new revision or a person."""
    NEVER = "never"
    """Destroyed: nothing is due."""


RUN_STATE_OF_RESULT = {
    ApplyResult.NO_CHANGE: RunState.NO_CHANGE,
    ApplyResult.CHANGED: RunState.CHANGED,
    ApplyResult.FAILED: RunState.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one tick did: never raised, always returned."""

    target: str
    state: RunState
    reason: Reason
    message: str = ""
    subject: str = ""
    """First line of the revision's commit message."""
    author: str = ""
    """Who made the revision, as its commit says."""
    kept: dict[str, str] | None = None
    """Of a sync: targets that it left as they are -> the revision of the documents that hold for them."""
    seen_revision: str = ""
    """Full SHA that a sync looked at, also when nothing came of it."""
    revision: str = ""
    """Full SHA that was applied, or fetched and not applied; empty when the sync failed or there is no git."""
    counts: ChangeCounts | None = None
    outputs: dict[str, Any] | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    next_ask: NextAsk = NextAsk.INTERVAL
    was_applied: bool = False
    """Whether the revision now counts as applied: True only for a confirmed apply that was no dry run."""
    tools: dict[str, str] = field(default_factory=dict)
    """Name and version of the tools that took part."""

    @property
    def is_failure(self) -> bool:
        """Whether someone should be told."""
        return self.state in {RunState.FAILED, RunState.UNREACHABLE, RunState.LOST, RunState.ABORTED}


_FOLLOWS: tuple[tuple[type[GitopsError], tuple[RunState, NextAsk]], ...] = (
    (StillStalledError, (RunState.SKIPPED, NextAsk.INTERVAL)),
    (WaitingError, (RunState.SKIPPED, NextAsk.BACKOFF)),
    (UnreachableError, (RunState.UNREACHABLE, NextAsk.BACKOFF)),
    (StalledError, (RunState.FAILED, NextAsk.STALLED)),
    (GitError, (RunState.FAILED, NextAsk.BACKOFF)),
)
"""The first that fits; what fits none is a failed run that waits for its interval."""


def state_of_error(error: BaseException) -> tuple[RunState, NextAsk]:
    """Map an exception out of a tick to the run's state and what follows; every error has an answer."""
    if _is_of_the_store(error):  # says nothing of the target, and must not cost the ask that this run serves
        return RunState.ABORTED, NextAsk.BACKOFF
    follows = (follows for kind, follows in _FOLLOWS if isinstance(error, kind))
    return next(follows, (RunState.FAILED, NextAsk.INTERVAL))


def reason_of_error(error: BaseException) -> Reason:
    """Return the stable reason of an exception; one from outside the tree is a failed apply."""
    if _is_of_the_store(error):
        return Reason.STORE_UNAVAILABLE
    return error.reason if isinstance(error, GitopsError) else Reason.APPLY_FAILED


def _is_of_the_store(error: BaseException) -> bool:
    """Whether the store did not answer; the client's errors are known by name, as the library works without Redis."""
    names = {kind.__module__ for kind in type(error).__mro__}
    return isinstance(error, StoreUnavailableError) or "redis.exceptions" in names


def describe_error(error: BaseException) -> str:
    """Return the message of a run record: our own errors speak for themselves, others with their type's name."""
    text = str(error)
    if isinstance(error, GitopsError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


STATUS_OF_RUN_STATE: dict[RunState, TargetStatus | None] = {
    RunState.QUEUED: None,
    RunState.RUNNING: TargetStatus.RUNNING,
    RunState.NO_CHANGE: TargetStatus.READY,
    RunState.CHANGED: TargetStatus.READY,
    RunState.FAILED: TargetStatus.FAILED,
    RunState.SKIPPED: None,
    RunState.ABORTED: None,
    RunState.LOST: None,
    RunState.UNREACHABLE: TargetStatus.UNREACHABLE,
}
"""None: the target keeps the status that it had before the run."""


def target_status(outcome: Outcome) -> TargetStatus | None:
    """Return the status that a target has after this run; None keeps the one before it."""
    if outcome.reason is Reason.DESTROYED:
        return TargetStatus.DESTROYED
    if outcome.next_ask is NextAsk.STALLED and outcome.state is RunState.FAILED:
        return TargetStatus.STALLED
    if outcome.state in {RunState.NO_CHANGE, RunState.CHANGED} and not outcome.was_applied:
        return TargetStatus.PENDING
    return STATUS_OF_RUN_STATE[outcome.state]


def status_of_outcome(outcome: Outcome) -> Status:
    """Return what a notifier of the library is called with."""
    result = {RunState.NO_CHANGE: ApplyResult.NO_CHANGE, RunState.CHANGED: ApplyResult.CHANGED}
    return Status(result=result.get(outcome.state, ApplyResult.FAILED), message=outcome.message, counts=outcome.counts)
