"""The file store of one-shot use: one JSON file per target, written whole or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from gitops_reconciler.errors import Reason
from gitops_reconciler.layout import Layout
from gitops_reconciler.models import Status
from gitops_reconciler.outcomes import RUN_STATE_OF_RESULT, Outcome, RunState
from gitops_reconciler.settings import load_settings
from gitops_reconciler.store.base import Applied, Attempt


@dataclass(frozen=True, slots=True)
class FileStore:
    """Records below `targets/` of a state folder; implements Records, Provenance and Markers."""

    layout: Layout

    def record(self, outcome: Outcome) -> None:
        """Keep what is applied as `sha`, `result`, `message`, and the outcome as `last_attempt`."""
        kept = self._read(outcome.target)
        if outcome.reason is Reason.DESTROYED:
            kept = {name: value for name, value in kept.items() if name not in {"sha", "result", "message", "at"}}
        else:
            kept["sha"], kept["result"] = outcome.revision, outcome.state.value
            kept["message"], kept["at"] = outcome.message, _ended(outcome)
        self._write(outcome.target, {**kept, "last_attempt": _attempt(outcome)})

    def attempted(self, outcome: Outcome) -> None:
        """Keep the outcome as `last_attempt` alone."""
        self._write(outcome.target, {**self._read(outcome.target), "last_attempt": _attempt(outcome)})

    def applied(self, target: str) -> Applied | None:
        """Return what was applied last."""
        kept = self._read(target)
        if "sha" not in kept:
            return None
        return Applied(sha=kept["sha"], result=kept["result"], message=kept["message"], at=_time(kept.get("at")))

    def last_attempt(self, target: str) -> Attempt | None:
        """Return the last attempt, good or bad."""
        attempt = self._read(target).get("last_attempt")
        if attempt is None:
            return None
        return Attempt(**{**attempt, "at": _time(attempt.get("at"))})

    def marker(self, target: str) -> str | None:
        """Return the target's marker."""
        value = self._read(target).get("marker")
        return None if value is None else str(value)

    def set_marker(self, target: str, value: str | None) -> None:
        """Keep the target's marker; None forgets it."""
        kept = self._read(target)
        kept.pop("marker", None)
        self._write(target, kept if value is None else {**kept, "marker": value})

    def _read(self, target: str) -> dict[str, Any]:
        try:
            kept = json.loads(self.layout.record(target).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            return {}  # cut off by a crash of an older writer: nothing known is safer than half known
        return kept if isinstance(kept, dict) else {}

    def _write(self, target: str, kept: dict[str, Any]) -> None:
        path = self.layout.record(target)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f".{path.name}.{uuid4().hex}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        Path(fresh).replace(path)


def _ended(outcome: Outcome) -> str:
    return (outcome.ended_at or datetime.now(UTC)).isoformat()


def _attempt(outcome: Outcome) -> dict[str, str]:
    return {
        "state": outcome.state.value,
        "reason": outcome.reason.value,
        "message": outcome.message,
        "revision": outcome.revision,
        "at": _ended(outcome),
    }


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def record_last_sha(target: str, sha: str, status: Status) -> None:
    """Record a revision as applied to a target, in the file store of this process' settings."""
    state = RUN_STATE_OF_RESULT[status.result]
    outcome = Outcome(
        target=target,
        state=state,
        reason=Reason.APPLIED if state is not RunState.FAILED else Reason.APPLY_FAILED,
        message=status.message,
        revision=sha,
        was_applied=state is not RunState.FAILED,
    )
    store = FileStore(load_settings().layout)
    (store.record if outcome.was_applied else store.attempted)(outcome)


def last_recorded_sha(target: str) -> str | None:
    """Return the revision that was applied to a target last; None when there is none."""
    applied = FileStore(load_settings().layout).applied(target)
    return applied.sha if applied else None
