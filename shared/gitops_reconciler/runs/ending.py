"""From what a run process said, and how it ended, to what the store is told: a total mapping, it never raises.

The end of an applied run must reach the store. So whatever is odd about it (a line that is none, a schedule that can't
be computed) is written down as a part of the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, ValidationError

from gitops_reconciler.errors import Reason
from gitops_reconciler.models import ChangeCounts
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState, TargetStatus, target_status
from gitops_reconciler.supervise.order import Order, RunEnd
from gitops_reconciler.work.base import Completion

_LOG_TAIL = 64 << 10
_LOG_TAIL_OF_A_NO_OP = 8 << 10  # most runs are one, and their logs are read by nobody
_LONGEST_MESSAGE = 4000
_LARGEST_MESSAGE = 64 << 10  # characters; as JSON they take less than a result may have
_LONGEST_PLACE = 200
_HOUR_SECONDS = 3600.0
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


def _writable(value: object) -> object:
    """Half of a surrogate pair is valid in JSON, but in no store."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _ended(state: RunState) -> RunState:
    if state in {RunState.QUEUED, RunState.RUNNING, RunState.LOST}:
        message = f"'{state}' is no end of a run"
        raise ValueError(message)
    return state


_Text = Annotated[str, BeforeValidator(_writable)]
_OptionalText = Annotated[str, BeforeValidator(lambda value: "" if value is None else _writable(value))]


class _Line(BaseModel):
    """What a run process says of its run, or what is said in its stead."""

    model_config = ConfigDict(frozen=True)

    state: Annotated[RunState, AfterValidator(_ended)]
    reason: Reason
    message: _Text
    next_ask: NextAsk
    status: TargetStatus | None = None
    applied: StrictBool = False
    revision: _OptionalText = ""
    seen_revision: _OptionalText = ""
    kept: dict[_Text, _Text] | None = None
    subject: _OptionalText = ""
    author: _OptionalText = ""
    counts: ChangeCounts | None = None
    tools: dict[_Text, _Text] = Field(default_factory=dict)
    document_hash: _OptionalText = ""
    outputs_digest: _OptionalText = ""


def outcome_to_line(outcome: Outcome, *, tools: dict[str, str], document_hash: str, digest: str) -> dict[str, Any]:
    """Return the JSON object that a run process writes to its pipe, before redaction: no outputs, only their digest."""
    return {
        "state": outcome.state.value,
        "reason": outcome.reason.value,
        "message": _bounded(outcome.message),
        "revision": outcome.revision,
        "seen_revision": outcome.seen_revision,
        "kept": outcome.kept,
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


def _bounded(message: str) -> str:
    """Return what fits a result, cut between lines: a secret that were cut in two would not be found any more.

    To what a record holds it is cut after its redaction, by `completion_of`.
    """
    return message if len(message) <= _LARGEST_MESSAGE else message[:_LARGEST_MESSAGE].rpartition("\n")[0]


def completion_of(order: Order, end: RunEnd, *, now: datetime, jitter: Callable[[float], float]) -> Completion:
    """Return what the end of a run writes; `jitter` spreads intervals, so that a herd does not stay one."""
    said = _said(order, end)
    due_in_ms, problem = _due_in_ms(order.payload.get("schedule"), said.next_ask, now, jitter)
    record = {
        "state": said.state.value,
        "reason": said.reason.value,
        "message": "; ".join(part for part in (said.message[:_LONGEST_MESSAGE], problem) if part),
        "revision": said.revision,
        "seen_revision": said.seen_revision,
        "subject": said.subject,
        "author": said.author,
        "counts": json.dumps(said.counts.model_dump() if said.counts else None),
        "tools": json.dumps(said.tools),
        "document_hash": said.document_hash,
        "exit": str(end.exit),
        "interrupted": str(end.interrupted),
        **({} if said.kept is None else {"kept": json.dumps(said.kept)}),
        "log": _tail(Path(order.log), _LOG_TAIL_OF_A_NO_OP if said.state is RunState.NO_CHANGE else _LOG_TAIL),
    }
    return Completion(
        record=record,
        status=said.status.value if said.status else None,
        next_ask=said.next_ask,
        due_in_ms=due_in_ms,
        applied=said.applied,
        outputs_digest=said.outputs_digest,
    )


def _said(order: Order, end: RunEnd) -> _Line:
    said, problem = _read(end)
    if end.interrupted and (said is None or said.state not in {RunState.NO_CHANGE, RunState.CHANGED}):
        state, reason, next_ask, text = _INTERRUPTED[end.interrupted]
        parts = (text.format(deadline=order.deadline_seconds), said.message if said else problem)
        failure = _failure(state, reason, next_ask, "; ".join(part for part in parts if part))
        return said.model_copy(update=failure.model_dump(exclude_unset=True)) if said else failure
    if said is not None:
        return said
    how = f"signal {-end.exit}" if end.exit < 0 else f"exit {end.exit}"
    why = f": {problem}" if problem else ""
    message = f"the run process ended without a result ({how}){why}: outcome unknown"
    return _failure(RunState.FAILED, Reason.RUN_CRASHED, NextAsk.BACKOFF, message)


def _read(end: RunEnd) -> tuple[_Line | None, str]:
    """Return the line of the run process, or None and what is known of why there is none that can be used."""
    if end.result is None:
        return None, end.failure
    try:
        return _Line.model_validate(end.result), ""
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])[:_LONGEST_PLACE]
        given = (
            f", not '{first['input'][:_LONGEST_PLACE]}'"
            if first["type"] == "enum" and isinstance(first["input"], str)
            else ""
        )
        return None, str(_writable(f"what it said can't be used, '{place}': {first['msg']}{given}"))


def _failure(state: RunState, reason: Reason, next_ask: NextAsk, message: str) -> _Line:
    status = target_status(Outcome(target="", state=state, reason=reason, next_ask=next_ask))
    return _Line(state=state, reason=reason, message=message, next_ask=next_ask, status=status, applied=False)


def _due_in_ms(
    schedule: Any, next_ask: NextAsk, now: datetime, jitter: Callable[[float], float]
) -> tuple[int | None, str]:
    """Return when it is due, and what is wrong with a schedule that can't be computed: it becomes an hourly one."""
    if next_ask is NextAsk.NEVER or not schedule:
        return None, ""
    try:
        if "interval" in schedule:
            return round(jitter(float(schedule["interval"])) * 1000), ""
        if "cron" in schedule:
            return cron_due_in_ms(str(schedule["cron"]), str(schedule.get("time_zone") or "UTC"), now), ""
    except Exception as error:  # noqa: BLE001  # a parser, a host without time zones: nothing may cost the record
        what = f"schedule {str(schedule)[:_LONGEST_PLACE]} can't be computed"
        problem = f"{what} ({type(error).__name__}: {error}), it is due again in 1 h"
        return round(jitter(_HOUR_SECONDS) * 1000), str(_writable(problem))
    return None, ""


def first_due_in_ms(schedule: dict[str, Any], item: str, now: datetime) -> int | None:
    """Return when an item with a new or changed schedule is due first; None: by hand and by push only.

    Within the interval, at a place that its name decides: a thousand targets that get the same interval at once are not
    due at once.
    """
    share = int.from_bytes(sha256(item.encode()).digest()[:4]) / 2**32
    return _due_in_ms(schedule, NextAsk.INTERVAL, now, lambda seconds: seconds * (1 - share))[0]


def cron_due_in_ms(expression: str, time_zone: str, now: datetime) -> int:
    """Return milliseconds until a cron expression is due next, by the clock of its time zone."""
    from cronsim import CronSim  # only hosts with the extra `worker` run schedules

    upcoming = next(CronSim(expression, now.astimezone(ZoneInfo(time_zone))))
    return max(0, round((upcoming - now).total_seconds() * 1000))


def _tail(log: Path, limit: int) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    if size <= limit:
        return text
    return f"(the first {size - limit} bytes are left out)\n" + text.partition("\n")[2]
