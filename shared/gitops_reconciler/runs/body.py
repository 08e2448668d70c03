"""What a run process does: read the item's own state, do the run, and say in one JSON object what came of it."""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from dataclasses import replace
from functools import partial
from typing import Any

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import UnknownTargetError
from gitops_reconciler.logs import RunLogWriter
from gitops_reconciler.outcomes import Outcome, Trigger, describe_error, reason_of_error, state_of_error
from gitops_reconciler.runs.ending import first_due_in_ms, outcome_to_line
from gitops_reconciler.runs.parts import RunParts
from gitops_reconciler.runs.target_run import TargetRun
from gitops_reconciler.supervise.order import Order
from gitops_reconciler.sync import SourceSync, SyncOrder
from gitops_reconciler.work.base import SOURCE_KIND, Guard

_SAID_BY_OTHERS = {"message", "subject", "author", "tools"}
"""Fields of the line that tools and people wrote: redacted by value. The others are words of the protocol."""


def run_order(order: Order, lock_fd: int, parts: RunParts) -> dict[str, Any]:
    """Do the run that was ordered; returns the line for the supervisor, whatever happens."""
    log = RunLogWriter(sys.stdout, parts.redactor)
    document_hash = ""
    sync = _source_sync(parts, log)
    try:
        view = parts.store.item(order.item)
        if view is None:
            message = f"'{order.item}' is not registered any more"
            raise UnknownTargetError(message)
        document_hash = view.fields.get("document_hash", "")
        if order.kind == SOURCE_KIND:
            outcome = sync.run(_sync_order(order))
        else:
            run = TargetRun(order=order, view=view, parts=parts, log=log, lock_fd=lock_fd)
            outcome = run.run()
            document_hash = run.view.fields.get("document_hash", "")
    except Exception as error:  # noqa: BLE001  # the outer edge of a run process: the supervisor must get a line
        log.line("".join(traceback.format_exception(error)))
        outcome = _outcome_of_error(order.item, error)
    outcome = replace(outcome, seen_revision="".join(sync.seen))
    log.line(f"{outcome.state.value}: {outcome.message}")
    line = outcome_to_line(
        outcome, tools=log.tools, document_hash=document_hash, digest=outputs_digest(outcome.outputs)
    )
    return {name: parts.redactor.value(value) if name in _SAID_BY_OTHERS else value for name, value in line.items()}


def _source_sync(parts: RunParts, log: RunLogWriter) -> SourceSync:
    return SourceSync(
        store=parts.store,
        work=parts.work,
        mirrors=parts.mirrors,
        clock=parts.clock,
        log=log,
        defaults=parts.defaults,
        first_due_in_ms=partial(first_due_in_ms, now=parts.clock.now()),
    )


def _sync_order(order: Order) -> SyncOrder:
    epoch, number = order.payload["asked"]
    return SyncOrder(
        item=order.item,
        guard=Guard(item=order.item, token=order.token, run=order.run),
        asked=(epoch, number),
        deadline=Deadline(at=order.claimed_at + order.deadline_seconds),
        triggers=frozenset(Trigger(name) for name in order.payload["triggers"]),
    )


def _outcome_of_error(item: str, error: Exception) -> Outcome:
    state, next_ask = state_of_error(error)
    return Outcome(
        target=item, state=state, reason=reason_of_error(error), message=describe_error(error), next_ask=next_ask
    )


def outputs_digest(outputs: dict[str, Any] | None) -> str:
    """Return a digest that changes exactly when the outputs do; empty when they are not known."""
    if outputs is None:
        return ""
    text = json.dumps(outputs, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
