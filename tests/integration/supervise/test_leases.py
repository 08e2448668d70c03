"""Leases, deadlines and wishes: when a supervised run is interrupted, and who does it."""

import signal
import sys

import pytest

from gitops_reconciler.clock import boottime
from tests.support.supervise_runs import MARGIN, RENEWAL, TTL, WINDOW, Start, is_locked, living, start_tool, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")


def test_a_held_lease_is_renewed_in_time_and_the_run_goes_on(start: Start) -> None:
    run = start("sleep", payload={"seconds": WINDOW + 0.5})

    assert run.answer()

    assert run.end["interrupted"] == ""
    assert len((run.folder / "renewals").read_text().splitlines()) >= 5


def test_a_refused_renewal_interrupts_at_once(start: Start) -> None:
    run = start("sleep", payload={"seconds": 60})
    run.until_started()

    (run.folder / "renew-answer").write_text("lost")
    refused_at = boottime()

    assert run.answer()
    assert run.end["interrupted"] == "lease"
    assert run.time_of("interrupted") - refused_at < RENEWAL + 0.5


def test_without_confirmations_the_run_is_interrupted_so_that_it_is_over_before_its_lease(start: Start) -> None:
    run = start("sleep", payload={"seconds": 60}, answers={"renew": "away"})

    assert run.answer()

    assert run.end["interrupted"] == "lease"
    assert WINDOW <= run.time_of("interrupted") - run.order.claimed_at < WINDOW + 0.8
    assert boottime() < run.order.claimed_at + TTL


def test_a_store_that_comes_back_in_time_interrupts_nothing(start: Start) -> None:
    run = start("sleep", payload={"seconds": WINDOW + 0.8}, answers={"renew": "away"})
    until(lambda: boottime() > run.order.claimed_at + WINDOW / 2, WINDOW, "half of the window has passed")

    (run.folder / "renew-answer").unlink()

    assert run.answer()
    assert run.end["interrupted"] == ""


@pytest.mark.req("R0.57")
def test_the_deadline_counts_from_the_claim_and_a_tool_that_ignores_it_is_killed_with_its_children(
    start: Start,
) -> None:
    run = start_tool(
        start, "sh", "-c", "trap '' INT; sleep 600 & wait; sleep 600", processes=3,
        deadline_seconds=5.0, claimed_at=boottime() - 3.5,
    )  # fmt: skip
    work = run.work(3)

    assert run.answer()

    assert run.end["interrupted"] == "deadline"
    assert run.order.claimed_at + 5.0 <= run.time_of("interrupted") < run.order.claimed_at + 5.8
    assert not living(work)
    assert not is_locked(run)


def test_a_run_whose_lease_ran_out_before_it_began_does_not_begin(start: Start) -> None:
    run = start("sleep", payload={"seconds": 0}, claimed_at=boottime() - TTL, deadline_seconds=1.0)

    assert run.answer()

    assert (run.end["result"], run.end["interrupted"]) == (None, "deadline")
    assert not run.has("started")()


def test_a_run_can_be_stopped(start: Start) -> None:
    run = start("sleep", payload={"seconds": 60})
    run.until_started()

    run.running.stop()

    assert run.answer()
    assert (run.end["interrupted"], run.end["exit"]) == ("stopped", 130)


def test_sigterm_for_a_keeper_stops_the_run(start: Start) -> None:
    run = start("sleep", payload={"seconds": 60})
    run.until_started()

    run.kill("guard", number=signal.SIGTERM)

    assert run.answer()
    assert run.end["interrupted"] == "stopped"


def test_an_interrupted_tool_gets_sigint_exactly_once(start: Start) -> None:
    run = start("count interrupts", deadline_seconds=1.5, grace_seconds=1.0, renewal_seconds=0.5)

    assert run.answer()

    assert (run.folder / "count").read_text() == "1"


def test_a_frozen_supervisor_is_overtaken_by_the_guard_in_time_and_killed_later(start: Start) -> None:
    run = start_tool(start, "sh", "-c", "sleep 600 & wait", processes=3)
    work = run.work(3)
    run.wait_aside()

    run.kill("supervisor", number=signal.SIGSTOP)
    frozen_at = boottime()

    until(lambda: not living(work), TTL + MARGIN, "all processes are gone")
    assert boottime() < frozen_at + TTL, "the lease would be over"
    assert not run.answer(TTL + 5 + MARGIN)
    assert not is_locked(run)


def test_when_guard_and_supervisor_are_frozen_the_worker_acts(start: Start) -> None:
    run = start_tool(start, "sh", "-c", "sleep 600 & wait", processes=3)
    work = run.work(3)
    run.wait_aside()

    run.kill("guard", "supervisor", number=signal.SIGSTOP)
    frozen_at = boottime()

    until(lambda: not living(work), TTL + MARGIN, "all processes are gone")
    assert boottime() < frozen_at + TTL, "the lease would be over"
    run.kill("guard", "supervisor", number=signal.SIGCONT)
    assert run.answer()
    assert run.end["interrupted"] == "lease"


def test_all_frozen_beyond_the_lease_interrupt_before_they_renew(start: Start) -> None:
    run = start("sleep", payload={"seconds": 60}, ttl_seconds=2.0, grace_seconds=0.3, renewal_seconds=0.2)
    run.until_started()
    until(run.has("renewals"), 1, "the lease was renewed")
    run.kill("guard", "supervisor", number=signal.SIGSTOP)
    frozen_at = boottime()
    until(lambda: boottime() > frozen_at + 2.0, 5, "the lease is over")
    assert not run.has("interrupted")()

    renewals = (run.folder / "renewals").read_text()
    assert renewals
    run.kill("supervisor", "guard", number=signal.SIGCONT)

    assert run.answer()
    assert run.end["interrupted"] == "lease"
    after = (run.folder / "renewals").read_text().removeprefix(renewals).split()
    assert all(float(at) > run.time_of("interrupted") - 0.05 for at in after)
