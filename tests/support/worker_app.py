"""A worker process whose runs are simple: each claims its item, notes it in a list of the store, and completes."""

import sys
import threading
from dataclasses import dataclass, field
from uuid import uuid4

from gitops_reconciler.outcomes import NextAsk
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.wiring import Fleet
from gitops_reconciler.work.base import Claim, Completion
from gitops_reconciler.work.redis import Waker
from gitops_workers.app import create_app
from gitops_workers.roles import run_worker

RAN = "test:ran"
"""List: the items that were run, in order."""
HOLD = "test:hold"
"""While this key is there, runs do not end by themselves."""
STOPPED = "test:stopped"
"""List: the items whose runs were interrupted."""


@dataclass
class NotedRuns:
    """What the tick task calls in tests."""

    settings: Settings
    waker: Waker | None
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._fleet = Fleet(self.settings, self.waker)

    def run(self, item: str) -> None:
        claim = self._fleet.work.claim(item, uuid4().hex, ttl_ms=60_000, holder="test")
        if not isinstance(claim, Claim):
            return
        self._fleet.client.rpush(RAN, item)
        while self._fleet.client.exists(HOLD) and not self._stop.wait(0.05):
            pass
        if self._stop.is_set():
            self._fleet.client.rpush(STOPPED, item)
        fails = item.endswith("-fails")
        state, status = ("failed", "failed") if fails else ("changed", "ready")
        record = {
            "state": state,
            "reason": "ApplyFailed" if fails else "Applied",
            "message": "as asked",
            "revision": "",
        }
        completion = Completion(
            record=record, status=status, next_ask=NextAsk.INTERVAL, due_in_ms=None, applied=not fails
        )
        self._fleet.work.complete(item, claim.token, claim.run, completion)

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        pass


def _end(*, has_failed: bool) -> Completion:
    state, status, reason = ("failed", "failed", "ApplyFailed") if has_failed else ("changed", "ready", "Applied")
    return Completion(
        record={"state": state, "reason": reason, "message": "as asked", "revision": ""},
        status=status,
        next_ask=NextAsk.INTERVAL,
        due_in_ms=None,
        applied=not has_failed,
    )


if __name__ == "__main__":
    sys.exit(run_worker(create_app(load_settings(), make_runs=NotedRuns), sys.argv[1]))
