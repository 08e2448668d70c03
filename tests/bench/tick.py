"""Bench `tick`: request → message → claim → complete with a no-op step, against raw Celery no-ops.

One worker process of the fleet serves both, with the settings, pool and queues that it always has. A round begins with
the first request, or the first task sent, and ends with the last completion, or the last task done; both sides ask one
at a time, from this process, while the worker already works.
"""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from celery import Celery
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.settings import load_settings
from gitops_reconciler.work.base import Answer, Cause, ItemSpec
from gitops_reconciler.work.redis import RedisWork
from gitops_workers.app import celery_settings
from tests.bench.base import Bench, Effort
from tests.bench.children import Child, running
from tests.bench.counts import A_COUNT, RAW_POOL, RAW_TASK, TICK_POOL
from tests.bench.pairs import Measure, Pair, interleaved
from tests.bench.stores import bench_redis

TICKS = 2000
_ROUND_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """A worker and what it is fed with."""

    store: TextRedis
    sender: Celery
    worker: Child
    counts: int
    """The pipe from the worker."""
    ticks: int

    def ticked(self) -> float:
        """Return ticks a second from the first request to the last completion."""
        work, names = RedisWork(self.store), [_item(number) for number in range(self.ticks)]
        begin = time.perf_counter()
        for name in names:
            if work.request([name], Cause(trigger=Trigger.SCHEDULE))[0].answer is not Answer.QUEUED:
                raise RuntimeError(f"{name} was asked for and was not idle")
        seconds = self._all_counted(begin)
        self.worker.wait_until(lambda: not self.store.llen(keys.NOTIFY_QUEUE))  # or it would slow the reference down
        ended = {self.store.hget(keys.item(name), "observed") for name in names}
        if len(ended) != 1 or self.store.zcard(keys.LEASES):
            raise RuntimeError(f"not every target was ticked exactly once: {ended}")
        return self.ticks / seconds

    def did_nothing(self) -> float:
        """Return raw no-op tasks a second, from the first one sent to the last one done."""
        queue = keys.TICK_QUEUE_PREFIX + RAW_POOL
        with self.sender.producer_pool.acquire(block=True) as producer:
            begin = time.perf_counter()
            for _ in range(self.ticks):
                self.sender.send_task(RAW_TASK, queue=queue, producer=producer, ignore_result=True)
            return self.ticks / self._all_counted(begin)

    def _all_counted(self, begin: float) -> float:
        missing = self.ticks // A_COUNT
        while missing:
            if not select.select([self.counts], [], [], 1.0)[0]:
                self.worker.require_life()
                if time.perf_counter() - begin > _ROUND_SECONDS:
                    raise TimeoutError(f"{missing * A_COUNT} tasks have not ended: {self.worker.quoted()}")
                continue
            told = os.read(self.counts, missing)
            if not told:
                raise RuntimeError(f"the worker went away: {self.worker.quoted()}")
            missing -= len(told)
        return time.perf_counter() - begin


def run(effort: Effort) -> list[Pair]:
    """Measure both in turns."""
    ticks = effort.work(TICKS)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(bench_redis())
        client = stack.enter_context(Redis.from_url(url, decode_responses=True))
        worker, counts = stack.enter_context(_worker(url))
        _register(as_text(client), ticks)
        settings = load_settings(redis_url=url)
        sender = stack.enter_context(Celery(set_as_current=False))
        sender.conf.update(celery_settings(settings), task_create_missing_queues=True)
        rounds = Rounds(store=as_text(client), sender=sender, worker=worker, counts=counts, ticks=ticks)
        return interleaved(rounds.ticked, rounds.did_nothing, effort.pairs)


def _item(number: int) -> str:
    return f"default/target-{number:04d}"


def _register(store: TextRedis, count: int) -> None:
    work = RedisWork(store)
    for number in range(count):
        spec = ItemSpec(
            item=_item(number),
            kind="resources",
            pool=TICK_POOL,
            repository="github.com/bench/infra",
            schedule={"interval": 600},
        )
        work.register(spec, first_due_in_ms=None)


@contextlib.contextmanager
def _worker(url: str) -> Iterator[tuple[Child, int]]:
    """A running worker, and the pipe on which it counts."""
    counts, its = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, counts)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        settings = {"GITOPS_STATE_DIR": folder, "GITOPS_REDIS_URL": url, "GITOPS_POOLS": f"*,{RAW_POOL}"}
        try:
            worker = stack.enter_context(running("tick_worker", str(its), settings=settings, pass_fds=(its,)))
        finally:
            os.close(its)
        yield worker, counts


BENCH = Bench(
    name="tick",
    about="request → message → claim → complete, against raw Celery tasks on the same worker",
    measure=Measure.RATIO,
    goal=0.4,
    run=run,
)
