"""One tick, with recording parts: the order of its steps and what each failure becomes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.clock import SystemClock
from gitops_reconciler.errors import (
    EngineLockedError,
    Reason,
    RepositoryUnreachableError,
    SpecError,
    UnreachableError,
)
from gitops_reconciler.git.base import SyncResult
from gitops_reconciler.locks.base import Held
from gitops_reconciler.models import ApplyResult, ManagedTarget, Status
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState, TargetStatus, target_status
from gitops_reconciler.reconcile import Reconciler, tick

SHA = "b" * 40


@dataclass
class Recorder:
    """All parts of a tick in one, writing down what is called."""

    answer: Status | Exception = field(default_factory=lambda: Status(result=ApplyResult.CHANGED, message="m"))
    sync_error: Exception | None = None
    is_busy: bool = False
    calls: list[str] = field(default_factory=list)
    seen: list[tuple[object, ...]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    notified: list[tuple[str, Status]] = field(default_factory=list)
    kind: str = "recorder"

    @contextmanager
    def hold(self, kind: str, target: str) -> Iterator[Held | None]:
        self.calls.append("lock")
        yield None if self.is_busy else Held(kind=kind, target=target, token=1)

    def sync(self, target: ManagedTarget) -> SyncResult:
        self.calls.append("sync")
        if self.sync_error:
            raise self.sync_error
        return SyncResult(tree=target.repo, old=None, new=SHA)

    def apply(self, *arguments: object) -> Status:
        self.calls.append("apply")
        self.seen.append(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def destroy(self) -> Status:
        self.calls.append("destroy")
        return Status(result=ApplyResult.CHANGED, message="gone")

    def get_outputs(self) -> dict[str, Any]:
        self.calls.append("outputs")
        return {"url": "x"}

    def record(self, outcome: Outcome) -> None:
        self.calls.append("record")
        self.outcomes.append(outcome)

    def attempted(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def notify(self, name: str, status: Status) -> None:
        self.calls.append("notify")
        self.notified.append((name, status))

    def reconciler(self, *, reads_outputs: bool = False) -> Reconciler:
        return Reconciler(locks=self, syncer=self, records=self, clock=SystemClock(), reads_outputs=reads_outputs)

    def target(self) -> ManagedTarget:
        return ManagedTarget(name="web", backend=self, repo=Path("/srv/x"), notify=self.notify)

    def tick(self) -> Outcome:
        return self.reconciler().tick(self.target())


@pytest.mark.req("R0.11", "R0.25", "R0.54")
@pytest.mark.parametrize("result", [ApplyResult.CHANGED, ApplyResult.NO_CHANGE])
def test_a_good_tick_locks_syncs_applies_and_records(result: ApplyResult) -> None:
    recorder = Recorder(answer=Status(result=result, message="m"))
    outcome = recorder.tick()
    assert recorder.calls == ["lock", "sync", "apply", "record"]
    assert (outcome.state.value, outcome.revision, outcome.was_applied) == (result.value, SHA, True)


@pytest.mark.req("R0.11", "R0.13")
def test_a_failed_apply_is_notified_once_and_recorded_as_an_attempt_only() -> None:
    failed = Status(result=ApplyResult.FAILED, message="no disk")
    recorder = Recorder(answer=failed)
    outcome = recorder.tick()
    assert recorder.calls == ["lock", "sync", "apply", "notify"]
    assert recorder.notified == [("web", failed)]
    assert not outcome.was_applied


@pytest.mark.req("R0.12")
def test_a_busy_lock_skips_at_once_and_touches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(is_busy=True)
    with caplog.at_level(logging.INFO):
        outcome = recorder.tick()
    assert recorder.calls == ["lock"]
    assert (outcome.state, outcome.reason, recorder.outcomes) == (RunState.SKIPPED, Reason.BUSY, [])
    assert "previous tick still running, skipping" in caplog.text


@pytest.mark.req("R0.14")
def test_an_exception_out_of_apply_becomes_a_failed_run_that_names_it() -> None:
    recorder = Recorder(answer=RuntimeError("x"))
    outcome = recorder.tick()
    assert (outcome.state, outcome.message) == (RunState.FAILED, "RuntimeError: x")
    assert recorder.notified == [("web", Status(result=ApplyResult.FAILED, message="RuntimeError: x"))]


@pytest.mark.req("R0.15")
def test_a_failed_sync_is_a_failed_run_without_an_apply() -> None:
    recorder = Recorder(sync_error=RepositoryUnreachableError("https://h/r.git does not answer"))
    outcome = recorder.tick()
    assert recorder.calls == ["lock", "sync", "notify"]
    assert (outcome.state, outcome.next_ask, outcome.revision) == (RunState.FAILED, NextAsk.BACKOFF, "")
    assert "does not answer" in outcome.message


@pytest.mark.parametrize(
    ("error", "state", "next_ask", "status"),
    [
        (UnreachableError("pi does not answer"), RunState.UNREACHABLE, NextAsk.BACKOFF, TargetStatus.UNREACHABLE),
        (EngineLockedError("state is locked"), RunState.SKIPPED, NextAsk.BACKOFF, None),
        (SpecError("no such field"), RunState.FAILED, NextAsk.STALLED, TargetStatus.STALLED),
        (ValueError("bug"), RunState.FAILED, NextAsk.INTERVAL, TargetStatus.FAILED),
    ],
)
def test_each_class_of_error_says_what_follows(
    error: Exception, state: RunState, next_ask: NextAsk, status: TargetStatus | None
) -> None:
    outcome = Recorder(answer=error).tick()
    assert (outcome.state, outcome.next_ask, target_status(outcome)) == (state, next_ask, status)


def test_waiting_alerts_nobody() -> None:
    recorder = Recorder(answer=EngineLockedError("state is locked by ann"))
    recorder.tick()
    assert recorder.notified == []


@pytest.mark.req("R0.18")
def test_a_notifier_that_raises_neither_breaks_the_tick_nor_loses_the_record() -> None:
    recorder = Recorder(answer=Status(result=ApplyResult.FAILED, message="no"))

    def broken(name: str, status: Status) -> None:
        raise OSError(name, status)

    target = recorder.target().model_copy(update={"notify": broken})
    outcome = recorder.reconciler().tick(target)
    assert outcome.state is RunState.FAILED
    assert len(recorder.outcomes) == 1


@pytest.mark.req("R0.37")
def test_a_dry_run_that_would_change_confirms_nothing() -> None:
    recorder = Recorder(answer=Status(result=ApplyResult.NO_CHANGE, message="dry-run: would change +1 ~0 -0"))
    outcome = recorder.tick()
    assert not outcome.was_applied
    assert target_status(outcome) is TargetStatus.PENDING
    assert "record" not in recorder.calls


@pytest.mark.req("R0.24", "R0.30")
def test_the_backend_never_sees_a_revision_a_repository_or_a_trigger() -> None:
    recorder = Recorder()
    recorder.tick()
    assert recorder.seen == [()]


def test_outputs_are_read_after_a_confirmed_apply_and_only_then() -> None:
    good, bad = Recorder(), Recorder(answer=Status(result=ApplyResult.FAILED))
    outcome = good.reconciler(reads_outputs=True).tick(good.target())
    bad.reconciler(reads_outputs=True).tick(bad.target())
    assert outcome.outputs == {"url": "x"}
    assert "outputs" not in bad.calls


@pytest.mark.req("R0.74")
def test_destroy_goes_through_the_same_lock_and_leaves_its_word() -> None:
    recorder = Recorder()
    outcome = recorder.reconciler().destroy(recorder.target())
    assert recorder.calls == ["lock", "sync", "destroy", "record"]
    assert (outcome.reason, outcome.next_ask) == (Reason.DESTROYED, NextAsk.NEVER)
    assert target_status(outcome) is TargetStatus.DESTROYED


@pytest.mark.req("R0.62")
def test_tick_has_one_parameter() -> None:
    assert list(inspect.signature(tick).parameters) == ["target"]


@pytest.mark.req("R0.26")
def test_the_reconciler_never_sleeps() -> None:
    import gitops_reconciler.reconcile as module

    source = inspect.getsource(module)
    assert "sleep" not in source
    assert "while " not in source


@pytest.mark.req("R0.73")
@pytest.mark.parametrize("answer", [Status(result=ApplyResult.CHANGED, message="m" * 500), RuntimeError("m" * 500)])
def test_every_tick_logs_one_outcome_line(answer: Status | Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Recorder(answer=answer).tick()
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("tick of web")]
    assert "m" * 150 in line
    assert len(line) < 250
