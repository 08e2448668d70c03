"""From what a run process said, and how it ended, to what the store is told: a total mapping."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gitops_reconciler.errors import Reason
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState, target_status
from gitops_reconciler.supervise.order import Order, RunEnd
from gitops_reconciler.work.base import Completion

_LOG_TAIL = 64 << 10
_LONGEST_MESSAGE = 4000
_INTERRUPTED = {
    "deadline": (
        RunState.FAILED,
        Reason.DEADLINE_EXCEEDED,
        NextAsk.INTERVAL,
        "ended at its deadline of {deadline:g} s",
    ),
    "lease": (RunState.ABORTED, Reason.LEASE_LOST, NextAsk.BACKOFF, "interrupted: the lease could not be kept"),
    "stopped": (RunState.ABORTED, Reason.INTERRUPTED, NextAsk.BACKOFF, "interrupted: the fleet was stopped"),
}


def outcome_to_line(outcome: Outcome, *, tools: dict[str, str], document_hash: str, digest: str) -> dict[str, Any]:
    """Return the JSON object that a run process writes to its pipe: no outputs, only their digest."""
    return {
        "state": outcome.state.value,
        "reason": outcome.reason.value,
        "message": outcome.message[:_LONGEST_MESSAGE],
        "revision": outcome.revision,
        "subject": outcome.subject,
        "author": outcome.author,
        "counts": outcome.counts.model_dump() if outcome.counts else None,
        "status": status.value if (status := target_status(outcome)) else None,
        "next_ask": outcome.next_ask.value,
        "applied": outcome.was_applied,
        "tools": tools,
        "document_hash": document_hash,
        "outputs_digest": digest,
    }


def completion_of(order: Order, end: RunEnd, *, now: datetime, jitter: Callable[[float], float]) -> Completion:
    """Return what the end of a run writes; `jitter` spreads intervals, so that a herd does not stay one."""
    said = _said(order, end)
    record = {
        "state": said["state"],
        "reason": said["reason"],
        "message": said["message"],
        "revision": said.get("revision") or "",
        "subject": said.get("subject") or "",
        "author": said.get("author") or "",
        "counts": json.dumps(said.get("counts")),
        "tools": json.dumps(said.get("tools") or {}),
        "document_hash": said.get("document_hash") or "",
        "exit": str(end.exit),
        "interrupted": end.interrupted,
        "log": _tail(Path(order.log)),
    }
    next_ask = NextAsk(said["next_ask"])
    return Completion(
        record=record,
        status=said.get("status"),
        next_ask=next_ask,
        due_in_ms=_due_in_ms(order.payload.get("schedule") or {}, next_ask, now, jitter),
        applied=bool(said.get("applied")),
        outputs_digest=said.get("outputs_digest") or "",
    )


def _said(order: Order, end: RunEnd) -> dict[str, Any]:
    said = end.result
    if end.interrupted and (said is None or said["state"] not in {RunState.NO_CHANGE, RunState.CHANGED}):
        state, reason, next_ask, text = _INTERRUPTED[end.interrupted]
        detail = f"; {said['message']}" if said and said.get("message") else ""
        message = text.format(deadline=order.deadline_seconds) + detail
        return {**(said or {}), **_failure(state, reason, next_ask, message)}
    if said is None:
        how = f"signal {-end.exit}" if end.exit < 0 else f"exit {end.exit}"
        message = f"the run process ended without a result ({how}): outcome unknown"
        return _failure(RunState.FAILED, Reason.RUN_CRASHED, NextAsk.BACKOFF, message)
    return said


def _failure(state: RunState, reason: Reason, next_ask: NextAsk, message: str) -> dict[str, Any]:
    outcome = Outcome(target="", state=state, reason=reason, next_ask=next_ask)
    status = target_status(outcome)
    return {
        "state": state.value,
        "reason": reason.value,
        "message": message[:_LONGEST_MESSAGE],
        "next_ask": next_ask.value,
        "status": status.value if status else None,
        "applied": False,
    }


def _due_in_ms(
    schedule: dict[str, Any], next_ask: NextAsk, now: datetime, jitter: Callable[[float], float]
) -> int | None:
    if next_ask is NextAsk.NEVER:
        return None
    if "interval" in schedule:
        return round(jitter(float(schedule["interval"])) * 1000)
    if "cron" in schedule:
        return cron_due_in_ms(str(schedule["cron"]), str(schedule.get("time_zone") or "UTC"), now)
    return None


def cron_due_in_ms(expression: str, time_zone: str, now: datetime) -> int:
    """Return milliseconds until a cron expression is due next, by the clock of its time zone."""
    from cronsim import CronSim  # only hosts with the extra `worker` run schedules

    upcoming = next(CronSim(expression, now.astimezone(ZoneInfo(time_zone))))
    return max(0, round((upcoming - now).total_seconds() * 1000))


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOG_TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return (
        text
        if size <= _LOG_TAIL
        else f"(the first {size - _LOG_TAIL} bytes are left out)\n{text.partition(chr(10))[2]}"
    )
