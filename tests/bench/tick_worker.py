"""`python -m tests.bench.tick_worker FD`: a Celery worker of the fleet whose runs are no-ops inside it.

Everything is the product's but the launcher: instead of a supervised run process it writes the end of a run that found
nothing to change. Beside `gitops.tick` there is `bench.raw`, which does nothing at all, on a queue like any other. Each
task that ended is one count; a byte goes to FD at each whole hundred.
"""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass

from gitops_reconciler.clock import SystemClock
from gitops_reconciler.errors import Reason
from gitops_reconciler.outcomes import Outcome, RunState
from gitops_reconciler.runs.ending import outcome_to_line
from gitops_reconciler.runs.launching import FleetRunner
from gitops_reconciler.runs.lease import WorkLease
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.supervise.order import Interruption, Order, RunEnd
from gitops_reconciler.wiring import Fleet
from gitops_reconciler.work.redis import Waker
from gitops_workers.app import FleetApp, create_app
from gitops_workers.roles import run_worker
from tests.bench.counts import A_COUNT, RAW_TASK

REVISION = "c0ffee" + "0" * 34


class Count:
    """Tells the bench how many tasks have ended; a step is atomic under the interpreter's lock."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._steps = itertools.count(1)

    def one(self) -> None:
        if next(self._steps) % A_COUNT == 0:
            os.write(self._fd, b".")


@dataclass(frozen=True, slots=True)
class NoOpRun:
    """A run that is over when it is waited for."""

    order: Order
    lease: WorkLease
    is_busy: bool = False
    was_left_lying: bool = False
    failure: str = ""

    def wait(self) -> bool:
        outcome = Outcome(
            target=self.order.item,
            state=RunState.NO_CHANGE,
            reason=Reason.APPLIED,
            message="no changes",
            revision=REVISION,
            was_applied=True,
        )
        now = self.lease.clock.now().isoformat()
        line = outcome_to_line(outcome, tools={}, document_hash="0" * 64, digest="")
        return self.lease.complete(
            RunEnd(result=line, exit=0, interrupted=Interruption.NONE, started_at=now, ended_at=now)
        )

    def stop(self) -> None:
        """Nothing is under way."""


@dataclass(frozen=True, slots=True)
class NoOpLauncher:
    """Starts such runs."""

    fleet: Fleet

    def start(self, order: Order) -> NoOpRun:
        return NoOpRun(order, WorkLease(work=self.fleet.work, order=order, clock=SystemClock()))

    def close(self) -> None:
        """Nothing was started."""


@dataclass(frozen=True, slots=True)
class CountedRuns:
    """The fleet's runner, counted."""

    runner: FleetRunner
    count: Count

    def run(self, item: str) -> str | None:
        run = self.runner.run(item)
        self.count.one()
        return run

    def wind_down(self) -> None:
        self.runner.wind_down()

    def stop(self) -> None:
        self.runner.stop()

    def close(self) -> None:
        self.runner.close()


def make_app(settings: Settings, count: Count) -> FleetApp:
    """Return the fleet's application with no-op runs, and the raw task beside."""

    def make_runs(settings: Settings, waker: Waker | None) -> CountedRuns:
        fleet = Fleet(settings, waker)
        runner = FleetRunner(work=fleet.work, launcher=NoOpLauncher(fleet), settings=settings, clock=SystemClock())
        return CountedRuns(runner, count)

    app = create_app(settings, make_runs=make_runs)
    app.task(name=RAW_TASK)(count.one)
    return app


if __name__ == "__main__":
    sys.exit(run_worker(make_app(load_settings(), Count(int(sys.argv[1]))), "bench"))
