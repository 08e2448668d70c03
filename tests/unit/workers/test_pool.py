"""The pool wakes the worker's loop when a slot gets free."""

import os
import select
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gitops_workers.pool import TaskPool


@dataclass
class Loop:
    """What the pool needs of Celery's hub."""

    readers: dict[int, Callable[..., None]] = field(default_factory=dict)

    def add_reader(self, fd: int, callback: Callable[..., None]) -> None:
        self.readers[fd] = callback

    def is_woken(self, seconds: float) -> bool:
        return bool(select.select(list(self.readers), [], [], seconds)[0])

    def turn(self) -> None:
        for fd, callback in self.readers.items():
            callback(fd)


@pytest.fixture
def pool() -> Iterator[TaskPool]:
    made = TaskPool(2)
    yield made
    made.on_stop()


def start(pool: TaskPool, target: Callable[[], object]) -> Any:
    return pool.on_apply(target, (), {}, callback=lambda _result: None, accept_callback=lambda *_: None)


def test_the_end_of_a_task_wakes_the_loop_once_and_its_run_does_not(pool: TaskPool) -> None:
    loop, may_end = Loop(), threading.Event()
    pool.register_with_event_loop(loop)
    running = start(pool, lambda: may_end.wait(5))
    assert not loop.is_woken(0)
    may_end.set()
    running.get(5)
    assert loop.is_woken(5)
    loop.turn()
    assert not loop.is_woken(0)


def test_a_task_that_fails_wakes_the_loop_as_well(pool: TaskPool) -> None:
    loop = Loop()
    pool.register_with_event_loop(loop)

    def fail() -> None:
        raise ZeroDivisionError

    start(pool, fail)
    assert loop.is_woken(5)


def test_after_a_reconnect_the_emptied_loop_is_told_of_the_same_pipe(pool: TaskPool) -> None:
    first, second = Loop(), Loop()
    pool.register_with_event_loop(first)
    pool.register_with_event_loop(second)
    assert first.readers.keys() == second.readers.keys()


def test_a_loop_that_does_not_look_for_long_keeps_no_task_from_ending(pool: TaskPool) -> None:
    pool.register_with_event_loop(Loop())
    for _ in range(70_000):  # more than a pipe holds
        pool._wake("", None)
    assert os.get_blocking(pool._writer) is False
