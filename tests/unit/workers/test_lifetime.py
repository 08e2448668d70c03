"""The wishes to end are heard one by one, whatever the first one is still busy with."""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gitops_workers.lifetime import ENDING_SIGNALS, Ending
from tests.support.processes import eventually

LONG = 600.0
BOUND = 30.0


@dataclass
class Acts:
    """What an ending did; its first act may be held up."""

    done: list[str] = field(default_factory=list)
    may_go_on: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def begin(self) -> None:
        self.done.append("begin")
        self.may_go_on.wait(BOUND)
        if self.error is not None:
            raise self.error

    def hurry(self) -> None:
        self.done.append("hurry")

    def are(self, *names: str) -> Callable[[], bool]:
        return lambda: self.done == list(names)


def start(acts: Acts, grace_seconds: float, last_seconds: float = LONG) -> threading.Thread:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)  # as in a role; a thread begins with our mask
    try:
        ending = Ending(
            grace_seconds=grace_seconds,
            last_seconds=last_seconds,
            begin=acts.begin,
            hurry=acts.hurry,
            leave=lambda: acts.done.append("leave"),
        )
        return ending.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def send(thread: threading.Thread, number: signal.Signals) -> None:
    """Send to the one thread: the others of the test run do not block it."""
    assert thread.ident is not None
    signal.pthread_kill(thread.ident, number)


@pytest.mark.parametrize("attempt", range(20))
def test_a_second_wish_that_comes_while_the_first_is_carried_out_is_a_second_one(attempt: int) -> None:
    acts = Acts()
    thread = start(acts, LONG)
    send(thread, signal.SIGTERM)
    assert eventually(acts.are("begin"), within=BOUND)
    send(thread, signal.SIGTERM if attempt % 2 else signal.SIGINT)
    acts.may_go_on.set()
    assert eventually(acts.are("begin", "hurry"), within=BOUND)


def test_without_a_second_wish_the_end_of_the_grace_is_one() -> None:
    acts = Acts()
    acts.may_go_on.set()
    send(start(acts, 0.05), signal.SIGTERM)
    assert eventually(acts.are("begin", "hurry"), within=BOUND)


def test_a_third_wish_changes_nothing() -> None:
    acts = Acts()
    acts.may_go_on.set()
    thread = start(acts, 0.0)
    for names in (("begin", "hurry"), ("begin", "hurry")):
        send(thread, signal.SIGTERM)
        assert eventually(acts.are(*names), within=BOUND)
    assert thread.is_alive()


def test_who_has_not_ended_after_all_that_can_be_waited_for_leaves() -> None:
    acts = Acts()
    acts.may_go_on.set()
    send(start(acts, 0.0, 0.05), signal.SIGTERM)
    assert eventually(acts.are("begin", "hurry", "leave"), within=BOUND)


def test_a_first_act_that_fails_does_not_cost_the_second_one() -> None:
    acts = Acts(error=RuntimeError("as planned"))
    acts.may_go_on.set()
    send(start(acts, 0.0), signal.SIGTERM)
    assert eventually(acts.are("begin", "hurry"), within=BOUND)
