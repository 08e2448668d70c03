"""Beat's tick: what it sleeps, and that nothing ends it."""

import logging
from dataclasses import dataclass, field

import pytest

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.work.base import Swept
from gitops_workers.sweeping import Sweeper


@dataclass
class Store:
    """Answers sweeps as it is told to."""

    more: bool = False
    error: Exception | None = None
    sweeps: list[tuple[int, int]] = field(default_factory=list)

    def sweep(self, *, limit: int, rewake_after_ms: int, ttl_ms: int) -> Swept:
        self.sweeps.append((limit, ttl_ms))
        if self.error is not None:
            raise self.error
        return Swept(asked=0, reclaimed=0, rewoken=0, more=self.more)


@dataclass
class Time:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def sweeper(store: Store, *, time: Time | None = None, cared: list[float] | None = None) -> Sweeper:
    clock, log = time or Time(), cared if cared is not None else []
    return Sweeper(store, interval_seconds=0.5, ttl_seconds=60, care=lambda: log.append(clock.now), clock=clock)


def test_a_tick_sweeps_once_and_sleeps_the_interval() -> None:
    store = Store()
    assert sweeper(store).tick() == 0.5
    assert store.sweeps == [(500, 60_000)]


def test_while_there_is_more_to_do_beat_does_not_sleep() -> None:
    assert sweeper(Store(more=True)).tick() == 0


def test_the_rest_is_looked_after_every_two_seconds_however_fast_the_ticks() -> None:
    time, cared = Time(), list[float]()
    beat = sweeper(Store(more=True), time=time, cared=cared)
    for step in range(50):
        time.now = 100 + step / 10
        beat.tick()
    assert cared == [100, 102, 104]


def test_an_outage_of_the_store_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(error=StoreUnavailableError("redis did not answer"))
    beat = sweeper(store)
    with caplog.at_level(logging.INFO):
        assert [beat.tick() for _ in range(5)] == [0.5] * 5
        store.error = None
        beat.tick()
        beat.tick()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_a_bug_in_one_tick_leaves_its_traceback_and_the_schedule_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(error=ZeroDivisionError("oops"))
    beat = sweeper(store)
    assert beat.tick() == 0.5
    assert "ZeroDivisionError" in caplog.text
    store.error = None
    assert beat.tick() == 0.5


def test_what_fails_while_looking_after_the_rest_does_not_end_the_sweeps() -> None:
    def fail() -> None:
        raise StoreUnavailableError("redis did not answer")

    store = Store()
    beat = Sweeper(store, interval_seconds=0.5, ttl_seconds=60, care=fail)
    assert beat.tick() == 0.5
    assert len(store.sweeps) == 1
