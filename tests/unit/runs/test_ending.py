"""From the end of a run process to what the store is told."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_reconciler.errors import Reason
from gitops_reconciler.models import ChangeCounts
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState
from gitops_reconciler.redaction import Redactor
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


KEYS = sorted(line(CHANGED))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    SCALARS | st.sampled_from([*RunState, *NextAsk, *Reason]).map(lambda member: member.value),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
LINES = st.dictionaries(st.sampled_from(KEYS) | st.text(), VALUES) | st.dictionaries(
    st.sampled_from(KEYS), VALUES, min_size=1, max_size=2
).map(lambda odd: {**line(CHANGED), **odd})


@given(LINES, st.sampled_from(Interruption), VALUES)
def test_whatever_a_run_process_says_its_end_can_be_written(
    said: dict[str, Any], interrupted: Interruption, schedule: object
) -> None:
    done = completed(end(said, interrupted=interrupted), schedule=schedule)
    assert RunState(done.record["state"]) not in {RunState.QUEUED, RunState.RUNNING}
    for text in done.record.values():
        text.encode()


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        ({"state": "finished"}, "'state': .*, not 'finished'"),
        ({"state": "running"}, "'running' is no end of a run"),
        ({"next_ask": "soon"}, "'next_ask': .*, not 'soon'"),
        ({"status": "fine"}, "'status': .*, not 'fine'"),
        ({"message": 7}, "'message': "),
        ({"applied": "yes"}, "'applied': "),
        ({"counts": [1]}, "'counts': "),
    ],
)
def test_a_line_that_can_not_be_used_is_a_crash_that_says_what_was_wrong(odd: dict[str, Any], what: str) -> None:
    done = completed(end({**line(CHANGED), **odd}), schedule={"interval": 600})
    assert (done.record["state"], done.record["reason"]) == ("failed", "RunCrashed")
    assert re.search(what, done.record["message"])
    assert (done.status, done.applied, done.next_ask) == ("failed", False, NextAsk.BACKOFF)


def test_a_key_that_is_missing_is_named() -> None:
    said = {name: value for name, value in line(CHANGED).items() if name != "next_ask"}
    assert "'next_ask': Field required" in completed(end(said)).record["message"]


def test_half_a_character_does_not_cost_an_applied_run_its_record() -> None:
    done = completed(end({**line(CHANGED), "message": "caf\ud83d", "subject": "\udce9"}))
    assert (done.record["state"], done.record["message"], done.record["subject"]) == ("changed", "caf?", "?")


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "0 3 * * *", "time_zone": "Mars/Base"},
        {"cron": "at three"},
        {"cron": "0 0 30 2 *"},
        {"interval": "often"},
        {"interval": float("inf")},
    ],
)
def test_a_schedule_that_can_not_be_computed_becomes_an_hourly_one_and_says_so(schedule: dict[str, Any]) -> None:
    done = completed(end(line(CHANGED)), schedule=schedule)
    assert (done.record["state"], done.applied, done.due_in_ms) == ("changed", True, 3_600_000)
    assert done.record["message"].startswith("done; schedule ")
    assert "it is due again in 1 h" in done.record["message"]


def test_a_crash_says_what_the_run_process_died_of() -> None:
    ended = RunEnd(
        result=None, exit=1, interrupted=Interruption.NONE, started_at="", ended_at="", failure="MemoryError: no room"
    )
    assert "(exit 1): MemoryError: no room: outcome unknown" in completed(ended).record["message"]


def test_a_message_is_cut_only_after_its_redaction() -> None:
    secret = "correct-horse-battery-staple"
    outcome = replace(CHANGED, message="x" * 3990 + secret)
    said = Redactor([secret]).value(line(outcome))
    message = completed(end(said)).record["message"]
    assert message == "x" * 3990 + "***"
    assert len(completed(end(line(replace(CHANGED, message="x" * 9000)))).record["message"]) == 4000


def test_a_huge_message_still_fits_a_result_and_is_cut_between_lines() -> None:
    message = line(replace(CHANGED, message="a line with a secret\n" * 100_000))["message"]
    assert len(message) <= 65_536
    assert set(message.split("\n")) == {"a line with a secret"}
