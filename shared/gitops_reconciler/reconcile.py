"""One tick of one target: lease, git sync, apply, then record or notify. The order is the contract (R0.11).

The same steps serve the library, the one-shot CLI and the fleet; only the parts differ. The wrapper never reads a
diff, and the backend never sees a trigger, a revision or a schedule.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gitops_reconciler.clock import Clock, SystemClock
from gitops_reconciler.errors import Reason
from gitops_reconciler.git.base import SyncResult
from gitops_reconciler.git.clones import current_sha, sync_git
from gitops_reconciler.locks.base import Locks
from gitops_reconciler.locks.flock import FileLocks
from gitops_reconciler.models import DRY_RUN_WOULD_CHANGE, ApplyResult, BackEnd, ManagedTarget, Status
from gitops_reconciler.outcomes import (
    RUN_STATE_OF_RESULT,
    NextAsk,
    Outcome,
    RunState,
    describe_error,
    reason_of_error,
    state_of_error,
    status_of_outcome,
)
from gitops_reconciler.settings import load_settings
from gitops_reconciler.store.base import Records
from gitops_reconciler.store.files import FileStore

_log = logging.getLogger("gitops_reconciler")
_SHOWN_MESSAGE = 200


class Syncer(Protocol):
    """Makes a target's folder equal to its revision."""

    def sync(self, target: ManagedTarget) -> SyncResult:
        """Fetch and check out; raises a `GitError` (the run fails) or a `WaitingError` (it is asked again)."""
        ...


class CloneSyncer:
    """Library use: the target's `repo` is an existing clone, made equal to its remote branch."""

    def sync(self, target: ManagedTarget) -> SyncResult:
        """Fetch and reset tracked files; with `sync=False` only tell where the folder stands."""
        if target.sync:
            return sync_git(target.repo, target.branch)
        sha = current_sha(target.repo)
        return SyncResult(tree=target.repo, old=sha, new=sha)


def kind_of(backend: BackEnd) -> str:
    """Return the kind under which a backend's targets are locked: its own word, else its type's name."""
    kind = getattr(backend, "kind", None)
    return kind if isinstance(kind, str) else type(backend).__name__.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """Runs ticks with the parts that it was given."""

    locks: Locks
    syncer: Syncer
    records: Records
    clock: Clock
    reads_outputs: bool = False

    def tick(self, target: ManagedTarget) -> Outcome:
        """Make one attempt to converge the target. Returns an outcome for every failure; never waits, never loops."""
        return self._once(target, lambda backend: backend.apply(), Reason.APPLIED)

    def destroy(self, target: ManagedTarget) -> Outcome:
        """Tear the target down, under the same lock and with the same care; only ever called for an explicit wish."""
        return self._once(target, lambda backend: backend.destroy(), Reason.DESTROYED)

    def _once(self, target: ManagedTarget, act: Callable[[BackEnd], Status], done: Reason) -> Outcome:
        with self.locks.hold(kind_of(target.backend), target.name) as held:
            if held is None:
                _log.info("previous tick still running, skipping: %s", target.name)
                return Outcome(
                    target=target.name,
                    state=RunState.SKIPPED,
                    reason=Reason.BUSY,
                    message="previous tick still running",
                    next_ask=NextAsk.BACKOFF,
                )
            outcome = self._attempt(target, act, done)
            self._leave_word(target, outcome)
        return outcome

    def _attempt(self, target: ManagedTarget, act: Callable[[BackEnd], Status], done: Reason) -> Outcome:
        started = self.clock.now()
        synced: SyncResult | None = None
        try:
            synced = self.syncer.sync(target)
            status = act(target.backend)
            outcome = _outcome_of_status(target.name, status, done)
            if self.reads_outputs and outcome.was_applied:
                outcome = replace(outcome, outputs=_outputs(target.backend))
        except Exception as error:  # noqa: BLE001  # the outer edge of a tick: every failure is an outcome (R0.14)
            _log.debug("tick of %s ended with an error", target.name, exc_info=True)
            state, next_ask = state_of_error(error)
            outcome = Outcome(
                target=target.name,
                state=state,
                reason=reason_of_error(error),
                message=describe_error(error),
                next_ask=next_ask,
            )
        return replace(
            outcome,
            revision=synced.new if synced else "",
            subject=synced.subject if synced else "",
            started_at=started,
            ended_at=self.clock.now(),
        )

    def _leave_word(self, target: ManagedTarget, outcome: Outcome) -> None:
        log = _log.warning if outcome.is_failure else _log.info
        log("tick of %s: %s: %s", target.name, outcome.state.value, outcome.message[:_SHOWN_MESSAGE])
        if outcome.was_applied or outcome.reason is Reason.DESTROYED:
            self.records.record(outcome)
        else:
            self.records.attempted(outcome)
        if outcome.is_failure:
            _notify(target, outcome)


def _outcome_of_status(target: str, status: Status, done: Reason) -> Outcome:
    state = RUN_STATE_OF_RESULT[status.result]
    is_dry = status.message.startswith(DRY_RUN_WOULD_CHANGE)
    has_failed = status.result is ApplyResult.FAILED
    reason = Reason.APPLY_FAILED if has_failed else Reason.DRY_RUN if is_dry else done
    return Outcome(
        target=target,
        state=state,
        reason=reason,
        message=status.message,
        counts=status.counts,
        was_applied=reason is Reason.APPLIED,
        next_ask=NextAsk.NEVER if reason is Reason.DESTROYED else NextAsk.INTERVAL,
    )


def _outputs(backend: BackEnd) -> dict[str, Any] | None:
    try:
        return backend.get_outputs()
    except Exception:  # noqa: BLE001  # applied and confirmed: unreadable outputs make it no failure
        _log.warning("outputs could not be read", exc_info=True)
        return None


def _notify(target: ManagedTarget, outcome: Outcome) -> None:
    try:
        target.notify(target.name, status_of_outcome(outcome))
    except Exception:  # noqa: BLE001  # the user's own code must neither break the tick nor lose the record (R0.18)
        _log.exception("notifier of %s failed", target.name)


def tick(target: ManagedTarget) -> Outcome:
    """Make one attempt to converge a target on this host: flock, git sync, apply, record or notify.

    Needs neither Redis nor Celery; state lies below GITOPS_STATE_DIR.
    """
    layout = load_settings().layout
    reconciler = Reconciler(
        locks=FileLocks(layout), syncer=CloneSyncer(), records=FileStore(layout), clock=SystemClock()
    )
    return reconciler.tick(target)


def run(targets: Sequence[ManagedTarget]) -> list[Outcome]:
    """Tick targets one after the other, each under its own lock; one that is busy or fails does not stop the next."""
    return [tick(target) for target in targets]
