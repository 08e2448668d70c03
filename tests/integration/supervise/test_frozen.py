"""Frozen processes (SIGSTOP): a run goes on without those that it does not need, and nothing stays stopped for ever."""

import signal
import sys
from pathlib import Path

import pytest

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.procfs import send
from tests.support.supervise_runs import MARGIN, TOOLS, TTL, Start, is_locked, living, start_tool, until
from tests.support.supervise_workers import running_worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")


def test_a_run_does_not_need_its_guard_which_does_not_stay_frozen_after_it(start: Start) -> None:
    run = start("sleep", payload={"seconds": 1})
    run.until_started()
    run.wait_aside()

    run.kill("guard", number=signal.SIGSTOP)

    assert run.answer()
    assert run.end["result"] == {"slept": 1}
    until(lambda: not run.guard.is_alive, MARGIN, "the guard is gone")
    assert not is_locked(run)
    assert not Path(run.order.leftover).exists()


def test_frozen_tools_are_killed_when_their_time_is_up(start: Start) -> None:
    run = start_tool(start, "sh", "-c", "sleep 600 & wait", processes=3, deadline_seconds=2.0)
    work = run.work(3)
    for who in work:
        send(who, signal.SIGSTOP)

    assert run.answer()

    assert run.end["interrupted"] == "deadline"
    assert not living(work)
    assert not is_locked(run)


def test_runs_go_on_while_their_worker_and_its_zygote_are_frozen_beyond_the_lease(tmp_path: Path) -> None:
    with running_worker(tmp_path, *TOOLS) as worker:
        worker.signal("worker", "zygote", number=signal.SIGSTOP)
        frozen_at = boottime()
        until(lambda: boottime() > frozen_at + TTL, MARGIN, "the leases would be over")
        assert living(worker.work) == worker.work

        worker.signal("supervisor", number=signal.SIGTERM)

        until(lambda: not living(worker.work), MARGIN, "the runs are over")
        until(lambda: not living(worker.named("guard")), MARGIN, "their guards, too")
        assert not any(run.leftover.exists() for run in worker.runs.values())
        worker.signal("worker", "zygote", number=signal.SIGCONT)
        until(lambda: not living(worker.named("worker") | worker.named("zygote")), MARGIN, "the worker has heard of it")
