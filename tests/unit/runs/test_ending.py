"""From the end of a run process to what the store is told."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.errors import Reason
from gitops_reconciler.models import ChangeCounts
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState
from gitops_reconciler.runs.ending import completion_of, cron_due_in_ms, outcome_to_line
from gitops_reconciler.supervise.order import Interruption, Order, RunEnd
from gitops_reconciler.work.base import Completion

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def order(log: Path = Path("/nowhere"), **payload: Any) -> Order:
    return Order(
        run="a" * 32,
        item="default/web",
        kind="stdshell",
        token=1,
        generation=1,
        ttl_seconds=60,
        renewal_seconds=10,
        grace_seconds=25,
        deadline_seconds=120,
        claimed_at=0,
        lock="",
        leftover="",
        log=str(log),
        payload=payload,
    )


def end(result: dict[str, Any] | None, *, code: int = 0, interrupted: Interruption = Interruption.NONE) -> RunEnd:
    return RunEnd(result=result, exit=code, interrupted=interrupted, started_at="", ended_at="")


def line(outcome: Outcome) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(json.dumps(outcome_to_line(outcome, tools={}, document_hash="h", digest="d")))
    return said


def completed(of: RunEnd, **payload: Any) -> Completion:
    return completion_of(order(**payload), of, now=NOW, jitter=lambda seconds: seconds)


CHANGED = Outcome(
    target="web",
    state=RunState.CHANGED,
    reason=Reason.APPLIED,
    message="done",
    revision="a" * 40,
    counts=ChangeCounts(added=2),
    was_applied=True,
)


def test_a_confirmed_run_applies_its_revision_and_is_due_after_the_interval() -> None:
    done = completed(end(line(CHANGED)), schedule={"interval": 600})
    assert (done.status, done.applied, done.due_in_ms) == ("ready", True, 600_000)
    assert done.record["revision"] == "a" * 40
    assert json.loads(done.record["counts"]) == {"added": 2, "changed": 0, "removed": 0}


def test_a_run_process_that_died_without_a_word_is_a_failure_of_unknown_outcome() -> None:
    done = completed(end(None, code=-9), schedule={"interval": 600})
    assert done.record["reason"] == "RunCrashed"
    assert "signal 9" in done.record["message"]
    assert (done.status, done.applied, done.next_ask) == ("failed", False, NextAsk.BACKOFF)


@pytest.mark.req("R0.57")
@pytest.mark.parametrize(
    ("interrupted", "state", "reason", "next_ask"),
    [
        (Interruption.DEADLINE, "failed", "DeadlineExceeded", NextAsk.INTERVAL),
        (Interruption.LEASE, "aborted", "LeaseLost", NextAsk.BACKOFF),
        (Interruption.STOPPED, "aborted", "Interrupted", NextAsk.BACKOFF),
    ],
)
def test_an_interrupted_run_says_why(interrupted: Interruption, state: str, reason: str, next_ask: NextAsk) -> None:
    failed = Outcome(target="web", state=RunState.FAILED, reason=Reason.INTERRUPTED, message="terraform: interrupted")
    for said in (None, line(failed)):
        done = completed(end(said, interrupted=interrupted))
        assert (done.record["state"], done.record["reason"], done.next_ask) == (state, reason, next_ask)
        assert not done.applied
    assert "terraform: interrupted" in done.record["message"]


def test_a_run_that_was_done_when_the_interruption_came_keeps_its_result() -> None:
    done = completed(end(line(CHANGED), interrupted=Interruption.LEASE))
    assert (done.record["state"], done.applied) == ("changed", True)


def test_a_target_without_a_schedule_has_no_due_time() -> None:
    assert completed(end(line(CHANGED)), schedule={}).due_in_ms is None


def test_the_log_goes_into_the_record_by_its_tail(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"line {number}\n" for number in range(20_000)))
    done = completion_of(order(log), end(line(CHANGED)), now=NOW, jitter=lambda seconds: seconds)
    kept = done.record["log"].splitlines()
    assert kept[0].startswith("(the first ")
    assert kept[1].startswith("line ")
    assert kept[-1] == "line 19999"
    assert len(done.record["log"]) < 70_000


def test_cron_follows_the_clock_of_its_time_zone() -> None:
    assert cron_due_in_ms("*/10 * * * *", "UTC", NOW) == 600_000
    assert cron_due_in_ms("0 14 * * *", "Europe/Berlin", NOW) == 3_600_000
