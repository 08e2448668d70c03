"""A worker process whose runs are simple: each claims its item, notes it in a list of the store, and completes."""

import sys
import threading
from dataclasses import dataclass, field
from uuid import uuid4

from gitops_reconciler.outcomes import NextAsk
from gitops_reconciler.redis_text import as_text
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


LEDGER = "test:ledger"
"""List: `begin item generation` and `end item generation` of every run, in order."""
SECONDS = "test:seconds"
"""How long each run takes; absent: no time."""


def hold_of(pool: str) -> str:
    """The key that holds the runs of one pool as `HOLD` holds all."""
    return f"{HOLD}:{pool}"


@dataclass
class NotedRuns:
    """What the tick task calls in tests."""

    settings: Settings
    waker: Waker | None
    _stop: threading.Event = field(default_factory=threading.Event)
    _is_winding_down: bool = False

    def __post_init__(self) -> None:
        self._fleet = Fleet(self.settings, self.waker)

    def run(self, item: str) -> None:
        if self._is_winding_down:
            self._fleet.work.hand_back(item)
            return
        claim = self._fleet.work.claim(item, uuid4().hex, ttl_ms=60_000, holder="test")
        if not isinstance(claim, Claim):
            return
        client = self._fleet.client
        client.rpush(RAN, item)
        client.rpush(LEDGER, f"begin {item} {claim.generation}")
        self._stop.wait(float(as_text(client).get(SECONDS) or 0))
        while client.exists(HOLD, hold_of(claim.pool)) and not self._stop.wait(0.05):
            pass
        if self._stop.is_set():
            client.rpush(STOPPED, item)
        client.rpush(LEDGER, f"end {item} {claim.generation}")
        self._fleet.work.complete(item, claim.token, claim.run, _end(has_failed=item.endswith("-fails")))

    def wind_down(self) -> None:
        self._is_winding_down = True

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
