"""Whoever is killed, nothing of a supervised run is left."""

import os
import signal
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from gitops_reconciler.supervise.procfs import Identity, read_process
from tests.support.supervise_runs import (
    ENVIRONMENT,
    GRACE,
    MARGIN,
    ROOT,
    TOOLS,
    Run,
    Start,
    is_held,
    is_locked,
    living,
    start_tool,
    until,
)
from tests.support.supervise_workers import Kept, is_at_work, running_worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")


CHAIN = ("worker", "zygote", "guard", "supervisor", "process")
KILLED = [*combinations(CHAIN, 1), *combinations(CHAIN, 2), CHAIN[2:], CHAIN]


@pytest.mark.req("R0.12", "R0.21")
@pytest.mark.parametrize("victims", KILLED, ids=" ".join)
def test_whoever_is_killed_no_run_begins_before_all_of_the_last_one_is_gone(
    start: Start, tmp_path: Path, victims: tuple[str, ...]
) -> None:
    with running_worker(tmp_path, *TOOLS) as worker:
        worker.signal(*victims)

        until(lambda: not any(living(worker.named(name)) for name in victims), MARGIN, "they are dead")
        if not {"supervisor", "process"} & {*victims}:
            assert living(worker.work) == worker.work, "a run goes on as long as it has a supervisor"
            worker.signal("supervisor", number=signal.SIGTERM)
        for target, run in worker.runs.items():
            follower = start_when_free(start, target, run)
            assert follower.end["result"] == {"at work": []}
            assert not living(run.work)
            assert not run.leftover.exists()


def start_when_free(start: Start, target: str, last: Kept) -> Run:
    """The first run of the target that is not kept out by the last one; each one that is says that it is busy."""

    def is_over() -> bool:
        assert is_held(last.lock) or not any(map(is_at_work, last.work)), "the flock of who still works is free"
        run = start("witness", target=target, payload={"others": sorted(last.work)})
        started[:] = [run]
        was_seen_through = run.answer()
        assert was_seen_through or run.running.is_busy, run.running.failure
        return was_seen_through

    started: list[Run] = []
    until(is_over, MARGIN, "the target is free")
    return started[0]


@pytest.mark.parametrize("victims", ["supervisor", "process", "guard supervisor", "guard supervisor process"])
def test_a_worker_that_waits_for_a_run_hears_whether_its_supervisor_saw_it_through(start: Start, victims: str) -> None:
    run = start_tool(start, "setsid", "sleep", "600", processes=2)
    work = run.work(2)
    run.wait_aside()

    run.kill(*victims.split())

    assert run.answer() is (victims == "process")
    assert not living(work)
    assert not Path(run.order.leftover).exists()
    assert not is_locked(run)


def test_a_killed_supervisor_is_no_failure_of_its_run(start: Start) -> None:
    run = start_tool(start, "sleep", "600", processes=2)
    run.kill("supervisor")
    assert run.answer() is False
    assert run.running.failure == ""


@pytest.mark.parametrize("victims", ["supervisor", "supervisor process"])
def test_a_tool_that_left_everything_behind_is_still_below_the_guard(start: Start, victims: str) -> None:
    run = start_tool(
        start, "sh", "-c", "(env -i setsid sleep 600 &); sleep 600 & wait", processes=4, closes_lock=True
    )  # fmt: skip
    work = run.work(4)

    run.kill(*victims.split())

    until(lambda: not living(work), GRACE + MARGIN, "all processes are gone")


def test_a_fork_that_left_session_and_lock_is_known_by_its_environ(start: Start) -> None:
    run = start("daemonize")
    until(lambda: run.board.group.pid, 5, "the run process is there")
    run.guard, run.supervisor, run.process = run.board.guard, run.board.supervisor, run.board.group
    work = run.work(2)
    until(lambda: any(is_out_of_session(who, run) for who in work), 5, "the daemon has left")
    run.wait_aside()

    run.kill("guard", "supervisor", "process")

    until(lambda: not living(work), GRACE + MARGIN, "all processes are gone")
    assert not run.answer()


def is_out_of_session(who: Identity, run: Run) -> bool:
    process = read_process(who.pid)
    return process is not None and process.session != run.supervisor.pid


def test_the_death_of_the_guard_alone_changes_nothing(start: Start) -> None:
    run = start("sleep", payload={"seconds": 1})
    run.until_started()

    run.kill("guard")

    assert run.answer()
    assert run.end["result"] == {"slept": 1}
    assert not is_locked(run)
    assert not Path(run.order.leftover).exists()


@pytest.mark.parametrize("victims", ["supervisor", "guard supervisor"])
def test_a_tool_gets_one_sigint_also_when_its_keepers_are_killed(start: Start, victims: str) -> None:
    run = start("count interrupts", grace_seconds=1.0, renewal_seconds=0.5)
    run.until_started()
    run.work(2)
    run.wait_aside()

    run.kill(*victims.split())

    until(run.has("count"), 1.0 + MARGIN, "the tool has ended by itself")
    assert (run.folder / "count").read_text() == "1"


WORKER = """
import pathlib, sys, threading
from tests.support.supervise_runs import ENVIRONMENT, PARTS, Zygote, order_in
zygote = Zygote(PARTS, ENVIRONMENT)
order = order_in(pathlib.Path(sys.argv[1]), "sleep", payload={"seconds": 1.2})
running = zygote.start(order)
threading.Thread(target=running.wait).start()
print(zygote.pid, order.run, flush=True)
"""


def test_a_run_outlives_its_worker_and_holds_none_of_its_pipes(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        zygote, run = worker.stdout.readline().decode().split()
        server = Identity.of(int(zygote))
        until((tmp_path / run / "started").exists, 5, "the body has started")

        os.killpg(worker.pid, signal.SIGKILL)

        assert (worker.stdout.read(), worker.stderr.read()) == (b"", b"")
        assert not (tmp_path / run / "end").exists()
    until((tmp_path / run / "end").exists, 5, "the run was completed")
    assert '"slept": 1.2' in (tmp_path / run / "end").read_text()
    until(lambda: not server.is_alive, 5, "the zygote has ended with its worker")


def test_a_run_process_without_keepers_and_worker_ends_its_own_group(start: Start) -> None:
    run = start_tool(start, "sh", "-c", "sleep 600 & wait", processes=3)
    work = run.work(3)
    run.kill("guard")
    until(lambda: not run.guard.is_alive, 5, "the guard is dead")
    assert living(work) == work

    run.kill("supervisor")

    until(lambda: not living(work), GRACE + MARGIN, "all processes are gone")
    assert run.has("interrupted")()
