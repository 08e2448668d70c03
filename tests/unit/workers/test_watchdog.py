"""When a worker counts as hanging: only in looks that all say so, one after the other."""

import pytest

from gitops_workers.watchdog import DEAF, HANGS, LOOKS, Judge, Vitals


class Worker:
    """What a judge looks at."""

    def __init__(self) -> None:
        self.turns = self.received = 0
        self.has_free_slot = True
        self.waiting: int | None = 0
        self.judge = Judge()
        self.look()

    def look(self, times: int = 1) -> str:
        """Let the judge look; answers its last word."""
        word = ""
        for _ in range(times):
            vitals = Vitals(turns=self.turns, received=self.received, has_free_slot=self.has_free_slot)
            word = self.judge.look(vitals, lambda: self.waiting)
        return word

    def turn(self, looks: int) -> str:
        """Let its loop turn before each look."""
        word = ""
        for _ in range(looks):
            self.turns += 1
            word = self.look()
        return word


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_loop_that_stands_still_in_all_looks_hangs_whatever_waits(worker: Worker) -> None:
    assert worker.look(LOOKS - 1) == ""
    assert worker.look() == HANGS


def test_a_loop_hangs_as_well_when_all_slots_are_taken(worker: Worker) -> None:
    worker.has_free_slot = False
    assert worker.look(LOOKS) == HANGS


def test_one_turn_begins_the_count_anew_so_that_a_frozen_process_may_wake_up(worker: Worker) -> None:
    worker.look(LOOKS - 1)
    worker.turn(1)
    assert worker.look(LOOKS - 1) == ""


def test_a_broker_that_is_away_begins_the_count_anew(worker: Worker) -> None:
    worker.look(LOOKS - 1)
    worker.waiting = None
    assert worker.look(2 * LOOKS) == ""
    worker.waiting = 0
    assert worker.look(LOOKS - 1) == ""
    assert worker.look() == HANGS


def test_messages_that_wait_for_a_worker_with_free_slots_make_it_deaf(worker: Worker) -> None:
    worker.waiting = 1
    assert worker.turn(LOOKS - 1) == ""
    assert worker.turn(1) == DEAF


def test_nothing_to_do_is_no_deafness(worker: Worker) -> None:
    assert worker.turn(3 * LOOKS) == ""


def test_taking_one_of_many_messages_is_no_deafness(worker: Worker) -> None:
    worker.waiting = 1000
    for _ in range(3):
        assert worker.turn(LOOKS - 1) == ""
        worker.received += 1
        assert worker.turn(1) == ""


def test_messages_that_wait_for_a_slot_are_no_deafness(worker: Worker) -> None:
    worker.waiting, worker.has_free_slot = 5, False
    assert worker.turn(3 * LOOKS) == ""


def test_each_emptied_queue_begins_the_count_anew(worker: Worker) -> None:
    worker.waiting = 1
    worker.turn(LOOKS - 1)
    worker.waiting = 0
    worker.turn(1)
    worker.waiting = 1
    assert worker.turn(LOOKS - 1) == ""
