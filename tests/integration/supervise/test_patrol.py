"""What runs leave whose keepers and worker died together: another worker of the host ends it."""

import signal
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.leftovers import Record, end_leftovers_of
from gitops_reconciler.supervise.order import Order
from gitops_reconciler.supervise.patrol import LOOK_SECONDS, Patrol
from gitops_reconciler.supervise.procfs import Identity, send
from tests.support.supervise_runs import GRACE, MARGIN, TOOLS, Start, is_locked, living, start_tool, until
from tests.support.supervise_workers import running_worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")

PROMISED_SECONDS = 5
"""From its supervisor's death until a run's processes are signalled (DESIGN section 3, promise 6)."""


@pytest.fixture
def patrols(tmp_path: Path) -> Iterator[list[Patrol]]:
    """Three workers of one host; none has started to look."""
    made = [Patrol(tmp_path / "locks", grace_seconds=GRACE, frozen_seconds=1.0) for _ in range(3)]
    yield made
    for patrol in made:
        patrol.close()


@pytest.mark.parametrize("victims", ["worker guard supervisor", "worker zygote guard supervisor process"])
def test_when_all_who_watched_are_killed_another_worker_ends_the_tools_unasked(
    patrols: list[Patrol], tmp_path: Path, victims: str
) -> None:
    for patrol in patrols:
        patrol.start()
    with running_worker(tmp_path, *TOOLS) as worker:
        worker.signal(*victims.split())

        until(lambda: not living(worker.work), MARGIN, "the tools are gone")

        records = [run.leftover for run in worker.runs.values()]
        until(lambda: not any(record.exists() for record in records), MARGIN, "the records are gone")


def test_of_many_workers_that_find_a_leftover_one_tells_it_once(
    patrols: list[Patrol], start: Start, tmp_path: Path
) -> None:
    run = start("count interrupts", grace_seconds=1.0, renewal_seconds=0.5)
    run.until_started()
    work = run.work(2)
    patrols[:] = [Patrol(tmp_path / "locks", grace_seconds=60, frozen_seconds=1.0) for _ in patrols]
    run.kill("guard", "supervisor", "process")

    for patrol in patrols:
        patrol.start()

    until(lambda: not living(work), MARGIN, "the tool has ended by itself")
    assert (run.folder / "count").read_text() == "1"


def test_a_worker_that_starts_finds_what_was_left_before(patrols: list[Patrol], start: Start) -> None:
    run = start_tool(start, "sh", "-c", "sleep 600 & wait", processes=3)
    work = run.work(3)
    run.kill("guard", "supervisor", "process")
    until(lambda: not living({run.guard, run.supervisor, run.process}), MARGIN, "the keepers are dead")
    assert living(work)

    patrols[0].start()

    until(lambda: not living(work), MARGIN, "the tools are gone")
    until(lambda: not Path(run.order.leftover).exists(), MARGIN, "the record is gone")
    assert not is_locked(run)


@pytest.mark.parametrize("dead", ["", "guard", "process"])
def test_a_run_with_a_living_keeper_is_left_alone(patrols: list[Patrol], start: Start, dead: str) -> None:
    run = start_tool(
        start, "setsid", "sh", "-c", "trap '' INT; sleep 600", processes=2, grace_seconds=10.0, ttl_seconds=25.0
    )
    work = run.work(2)
    run.kill(*dead.split())
    until(lambda: not living({getattr(run, name) for name in dead.split()}), MARGIN, "it is dead")

    for _ in range(3):
        patrols[0]._look()
        assert not patrols[0]._since, "nothing was found to end"

    assert living(work) == work - ({run.process} if dead == "process" else set())
    assert Path(run.order.leftover).exists()


def test_records_of_another_machine_and_broken_ones_are_left_alone(patrols: list[Patrol], tmp_path: Path) -> None:
    folder = tmp_path / "locks" / "terraform" / "_other.run"  # a source may be called anything
    folder.mkdir(parents=True)
    dead = Identity(1, 1)
    Record(run="f" * 32, machine="elsewhere", guard=dead, supervisor=dead, autogroup="").write(folder / "web.run")
    (folder / "api.run").write_text("{")

    for _ in range(3):
        patrols[0]._look()
        assert not patrols[0]._since, "nothing of ours was found"

    assert sorted(path.name for path in folder.iterdir()) == ["api.run", "web.run"]


@pytest.mark.parametrize("frozen", ["guard supervisor", "guard supervisor process", "supervisor"])
def test_keepers_that_stay_frozen_without_a_worker_are_killed_and_their_run_is_ended(
    patrols: list[Patrol], start: Start, frozen: str
) -> None:
    run = start_tool(start, "sh", "-c", "sleep 600 & wait", processes=3)
    work = run.work(3)
    if frozen == "supervisor":
        run.kill("guard")
    run.kill(*frozen.split(), number=signal.SIGSTOP)
    if "process" in frozen:
        for who in work:
            send(who, signal.SIGSTOP)

    patrols[0].start()

    until(lambda: not living(work | {run.guard, run.supervisor}), MARGIN, "nothing stays stopped for ever")
    until(lambda: not is_locked(run), MARGIN, "the lock is free")


def test_a_leftover_is_told_within_the_promised_time() -> None:
    assert 2 * LOOK_SECONDS < PROMISED_SECONDS


def test_a_leftover_is_told_while_the_lease_still_covers_its_grace() -> None:
    defaults: dict[str, Any] = {field.name: field.default for field in fields(Order)}
    assert defaults["slack_seconds"] > 2 * LOOK_SECONDS


def test_what_was_told_to_end_long_ago_and_lives_is_killed(start: Start) -> None:
    run = start_tool(start, "sh", "-c", "trap '' INT; sleep 600 & wait; sleep 600", processes=3)
    work = run.work(3)
    run.kill("guard", "supervisor", "process")
    until(lambda: not living({run.guard, run.supervisor, run.process}), MARGIN, "the keepers are dead")
    leftover = Path(run.order.leftover)
    record = Record.parse(leftover.read_bytes())
    assert record is not None
    told = Record(**{**{name: getattr(record, name) for name in Record.__slots__}, "ending_at": boottime() - 1000})
    told.write(leftover)

    assert end_leftovers_of(Path(run.order.lock), leftover, GRACE)

    assert not living(work)
