"""What follows an error that came out of a tick."""

from __future__ import annotations

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gitops_reconciler.errors import ReconcileError, StoreUnavailableError
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState, reason_of_error, state_of_error, target_status


@pytest.mark.parametrize(
    "error",
    [StoreUnavailableError("away"), RedisConnectionError("reset"), RedisTimeoutError("slow"), OutOfMemoryError("full")],
    ids=lambda error: type(error).__name__,
)
def test_a_store_that_does_not_answer_a_run_is_no_failed_apply_and_the_run_is_tried_again_soon(
    error: Exception,
) -> None:
    state, next_ask = state_of_error(error)
    reason = reason_of_error(error)
    assert (state, next_ask, reason) == (RunState.ABORTED, NextAsk.BACKOFF, "StoreUnavailable")
    ended = Outcome(target="web", state=state, reason=reason, message="", next_ask=next_ask)
    assert target_status(ended) is None


@pytest.mark.parametrize("error", [ReconcileError("no"), ConnectionError("a tool's own"), ValueError("odd")])
def test_any_other_error_is_a_failed_run_that_waits_for_its_interval(error: Exception) -> None:
    assert state_of_error(error) == (RunState.FAILED, NextAsk.INTERVAL)
