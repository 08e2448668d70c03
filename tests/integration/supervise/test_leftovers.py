"""The lock of a target, and what a dead run left behind it."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_reconciler.supervise.leftovers import Record, end_leftovers_of
from gitops_reconciler.supervise.procfs import Identity, autogroup_of, machine, read_process
from tests.support.supervise_runs import GRACE, MARGIN, TOOLS, Start, is_locked, living, start_tool, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")


@pytest.mark.req("R0.21")
def test_the_lock_keeps_the_next_run_out_until_all_is_gone(start: Start) -> None:
    run = start_tool(start, "sh", "-c", "sleep 600 & wait", processes=3, closes_lock=True)
    work = run.work(3)
    run.kill("supervisor", "process")

    second = start("sleep", payload={"seconds": 0})

    assert not second.answer()
    assert second.running.is_busy
    assert not second.has("started")()
    assert living(work)
    until(lambda: not living(work), GRACE + MARGIN, "all processes are gone")
    until(lambda: not is_locked(run), 1, "the lock is free")
    assert start("sleep", payload={"seconds": 0}).answer()


@pytest.mark.req("R0.12")
def test_a_living_run_makes_the_next_one_busy_and_is_left_alone(start: Start) -> None:
    run = start("sleep", payload={"seconds": 0.6})
    run.until_started()

    second = start("sleep", payload={"seconds": 0})

    assert not second.answer()
    assert second.running.is_busy
    assert not end_leftovers_of(Path(run.order.lock), Path(run.order.leftover), GRACE)
    assert run.answer()
    assert run.end["interrupted"] == ""


@pytest.mark.req("R0.20")
def test_runs_of_two_targets_do_not_wait_for_each_other(start: Start) -> None:
    first = start("sleep", target="one", payload={"seconds": 600})
    first.until_started()

    assert start("sleep", target="two", payload={"seconds": 0}).answer()

    assert not first.has("end")()
    first.running.stop()
    assert first.answer()


@pytest.mark.parametrize("tool", ["background child", "double fork, empty environ"])
def test_the_next_run_ends_what_a_dead_run_left_when_no_worker_did(start: Start, tool: str) -> None:
    processes, *argv = TOOLS[tool]
    run = start_tool(start, *argv, processes=processes)
    work = run.work(processes)
    run.kill("guard", "supervisor", "process")
    until(lambda: not living({run.guard, run.supervisor}), 5, "the keepers are dead")
    assert living(work)

    second = start("sleep", payload={"seconds": 0})

    assert second.answer()
    assert not living(work)
    assert second.end["result"] == {"slept": 0}


def test_a_local_run_ends_leftovers_by_itself(start: Start) -> None:
    run = start_tool(start, "sh", "-c", "sleep 600 & wait", processes=3)
    work = run.work(3)
    run.kill("guard", "supervisor", "process")
    until(lambda: not living({run.guard, run.supervisor}), 5, "the keepers are dead")

    assert end_leftovers_of(Path(run.order.lock), Path(run.order.leftover), GRACE)

    assert not living(work)
    assert not Path(run.order.leftover).exists()
    assert not is_locked(run)
    assert end_leftovers_of(Path(run.order.lock), Path(run.order.leftover), GRACE)


@pytest.fixture
def stranger() -> Iterator[Identity]:
    """A process that has nothing to do with any run, in a session whose leader is gone."""
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!"], stdout=subprocess.PIPE, start_new_session=True
    )  # fmt: skip
    assert shell.stdout is not None
    who = Identity.of(int(shell.stdout.readline()))
    shell.wait()
    shell.stdout.close()
    yield who
    os.kill(who.pid, signal.SIGKILL)


def test_a_session_number_that_was_used_again_kills_nobody(tmp_path: Path, stranger: Identity) -> None:
    process = read_process(stranger.pid)
    assert process is not None
    lock, leftover = tmp_path / "web.lock", tmp_path / "web.run"
    dead = Identity(process.session, process.started - 1)
    record = Record(run="f" * 32, machine=machine(), guard=dead, supervisor=dead, autogroup="/autogroup-of-another")
    record.write(leftover)

    assert end_leftovers_of(lock, leftover, 0.2)

    assert stranger.is_alive
    assert not leftover.exists()


@pytest.mark.parametrize("is_locked_elsewhere", [True, False])
def test_a_record_of_another_container_is_believed_only_when_the_lock_is_free(
    tmp_path: Path, stranger: Identity, is_locked_elsewhere: bool
) -> None:
    process = read_process(stranger.pid)
    assert process is not None
    lock, leftover = tmp_path / "web.lock", tmp_path / "web.run"
    dead = Identity(process.session, process.started - 1)
    record = Record(
        run="f" * 32, machine="elsewhere", guard=dead, supervisor=dead, autogroup=autogroup_of(stranger.pid)
    )  # fmt: skip
    record.write(leftover)

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if is_locked_elsewhere else fcntl.LOCK_UN)
        assert end_leftovers_of(lock, leftover, 0.2) is not is_locked_elsewhere

    assert stranger.is_alive
    assert leftover.exists() is is_locked_elsewhere
