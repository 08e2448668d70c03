"""The server of runs: dies, freezes, is replaced and closed."""

import logging
import os
import resource
import signal
import sys
import threading
from pathlib import Path

import pytest

from gitops_reconciler.errors import NotBuiltError, ReconcileError
from gitops_reconciler.supervise.procfs import Identity
from gitops_reconciler.supervise.zygote import Zygote
from tests.support.supervise_runs import ENVIRONMENT, PARTS, Start, order_in, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")


def test_a_dead_zygote_is_replaced_and_said_once_and_its_runs_go_on(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with Zygote(PARTS, ENVIRONMENT) as zygote, caplog.at_level(logging.WARNING):
        run = start("sleep", zygote=zygote, target="one", payload={"seconds": 1})
        run.until_started()
        first = Identity.of(zygote.pid)
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: not first.is_alive, 5, "the zygote is dead")

        runs = [start("sleep", zygote=zygote, target=name, payload={"seconds": 0}) for name in ("two", "three")]

        assert [run.answer() for run in (*runs, run)] == [True, True, True]
        assert zygote.pid != first.pid
        assert [record.message for record in caplog.records] == ["the server of runs is gone, a new one is started"]


def test_an_order_that_died_with_a_zygote_is_given_to_the_next_one(start: Start) -> None:
    with Zygote(PARTS, ENVIRONMENT) as zygote:
        os.kill(zygote.pid, signal.SIGSTOP)
        run = start("sleep", zygote=zygote, payload={"seconds": 0})
        os.kill(zygote.pid, signal.SIGKILL)

        assert run.answer()
        assert run.end["result"] == {"slept": 0}


def test_a_frozen_zygote_is_replaced_and_the_orders_that_it_let_lie_are_run_by_the_next_one(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with Zygote(PARTS, ENVIRONMENT, take_up_seconds=0.5) as zygote, caplog.at_level(logging.WARNING):
        frozen = Identity.of(zygote.pid)
        os.kill(frozen.pid, signal.SIGSTOP)
        fields = {"ttl_seconds": 120.0, "payload": {"seconds": 0}}
        runs = [start("sleep", zygote=zygote, target=name, **fields) for name in ("one", "two", "three")]
        for run in runs:
            run.wait_aside()

        assert [run.answer() for run in runs] == [True, True, True]

        assert [run.end["result"] for run in runs] == [{"slept": 0}] * 3
        assert not frozen.is_alive
        said = [record.message for record in caplog.records]
        assert said == ["the server of runs takes up no orders, a new one is started"]


def test_an_order_that_a_frozen_zygote_let_lie_for_too_long_never_starts(start: Start) -> None:
    with Zygote(PARTS, ENVIRONMENT) as zygote:
        frozen = Identity.of(zygote.pid)
        os.kill(frozen.pid, signal.SIGSTOP)
        run = start("sleep", zygote=zygote, payload={"seconds": 0}, ttl_seconds=1.6, grace_seconds=0.2)

        assert not run.answer()

        assert (run.running.was_left_lying, run.running.failure) == (True, "")
        assert not frozen.is_alive
        assert start("sleep", zygote=zygote, target="other", payload={"seconds": 0}).answer()
        assert not run.has("started")()


def test_a_frozen_zygote_does_not_keep_its_worker_from_ending(start: Start) -> None:
    zygote = Zygote(PARTS, ENVIRONMENT, take_up_seconds=0.5)
    frozen = Identity.of(zygote.pid)
    os.kill(frozen.pid, signal.SIGSTOP)
    run = start("sleep", zygote=zygote, payload={"seconds": 0}, ttl_seconds=120.0)
    run.wait_aside()

    zygote.close()

    assert not run.answer()
    assert not frozen.is_alive
    assert not run.has("started")()


def test_closing_ends_the_zygote_and_no_run(start: Start) -> None:
    zygote = Zygote(PARTS, ENVIRONMENT)
    run = start("sleep", zygote=zygote, payload={"seconds": 0.5})
    run.until_started()
    server = Identity.of(zygote.pid)

    zygote.close()
    zygote.close()

    assert not server.is_alive
    assert run.answer()
    with pytest.raises(ReconcileError, match="the worker ends"):
        zygote.start(run.order)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ("tests.support.supervise_parts:no_such_name", "no_such_name"),
        ("tests.support.no_such_module:make_parts", "no_such_module"),
        ("tests.support.supervise_parts:make_threaded_parts", "1 thread"),
    ],
)
def test_a_zygote_that_can_not_start_says_why(parts: str, reason: str) -> None:
    with pytest.raises(ReconcileError, match=reason):
        Zygote(parts, ENVIRONMENT)


def test_other_systems_are_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(NotBuiltError, match="gitops tick"):
        Zygote(PARTS, ENVIRONMENT)


def test_many_threads_start_and_wait_at_once(zygote: Zygote, tmp_path: Path) -> None:
    answers: list[bool] = []

    def work(number: int) -> None:
        for _ in range(3):
            order = order_in(tmp_path, "sleep", target=f"t{number}", payload={"seconds": 0}, renewal_seconds=1.0)
            answers.append(zygote.start(order).wait())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert answers == [True] * 36


def test_waiting_costs_almost_no_processor_time_and_no_descriptor_is_kept(start: Start) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    run = start("sleep", payload={"seconds": 2})
    run.until_started()
    begin = resource.getrusage(resource.RUSAGE_THREAD)

    assert run.running.wait()

    end = resource.getrusage(resource.RUSAGE_THREAD)
    assert end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime < 0.05
    assert end.ru_nvcsw - begin.ru_nvcsw < 10
    assert len(list(Path("/proc/self/fd").iterdir())) == before
