"""A worker whose guards do not take the flock of their target, for `--break flock`; nothing else of it differs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.supervise import guard
from gitops_reconciler.supervise.zygote import Zygote
from gitops_reconciler.wiring import FleetParts, fleet_runner
from gitops_reconciler.work.redis import Waker
from gitops_workers.app import Runs, create_app
from gitops_workers.roles import run_worker


def _take_nothing(lock: Path, leftover: Path, grace_seconds: float) -> int:
    """Open the file and leave it at that."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    return os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)


def parts_without_flock() -> FleetParts:
    """What the warm server loads: the fleet's parts, and a guard that does not lock."""
    assert "take_lock" in vars(guard)
    vars(guard)["take_lock"] = _take_nothing
    return FleetParts()


def make_runs(settings: Settings, waker: Waker | None) -> Runs:
    """The fleet's runner over such a server."""
    runner = fleet_runner(settings, waker)
    runner.launcher.close()
    return replace(runner, launcher=Zygote(parts="tests.chaos.broken_worker:parts_without_flock"))


if __name__ == "__main__":
    sys.exit(run_worker(create_app(load_settings(), make_runs=make_runs), sys.argv[-1]))
