"""Bench `schedule`: 10,000 due targets among 100,000 asked for by sweeps, against the least that does it from outside.

The reference looks for what is due with a plain ZRANGEBYSCORE and moves it to a queue with pipelined commands: no
generation, no coalescing, no lost message found again, and two such loops would ask twice.
"""

from __future__ import annotations

import json
import time
from typing import Any

from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.work.redis import RedisWork
from tests.bench.base import Bench, Effort
from tests.bench.pairs import Measure, Pair, interleaved
from tests.bench.stores import bench_redis

_TARGETS, _DUE = 100_000, 10_000
_LIMIT = 500
_PLAIN_DUE, _PLAIN_QUEUE = "bench:due", "bench:queue"


def run(effort: Effort) -> list[Pair]:
    """Make the same targets due for both in turns."""
    with bench_redis() as url, Redis.from_url(url, decode_responses=True) as client:
        targets, due = effort.work(_TARGETS), effort.work(_DUE)
        _know(client, targets)
        work = RedisWork(client)
        return interleaved(
            lambda: _rate_of_sweeps(client, work, due), lambda: _rate_of_a_plain_loop(client, due), effort.pairs
        )


def _name(number: int) -> str:
    return f"default/t{number:06}"


def _know(client: Redis, targets: int) -> None:
    later = (time.time() + 86_400) * 1000
    fields: dict[Any, Any] = {
        "kind": "x",
        "pool": "custom",
        "schedule": json.dumps({"interval": 600}),
        "requested": 0,
        "observed": 0,
    }
    for first in range(0, targets, 1000):
        names = [_name(number) for number in range(first, min(first + 1000, targets))]
        with client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hset(keys.item(name), mapping={**fields, "repository": "", "status": "pending"})
            pipe.zadd(keys.ITEMS, dict.fromkeys(names, 0))
            for index in (keys.DUE, _PLAIN_DUE):
                pipe.zadd(index, dict.fromkeys(names, later))
            pipe.execute()


def _make_due(client: Redis, index: str, due: int) -> None:
    client.delete("tick.custom", keys.QUEUED, keys.QUEUED_IN, _PLAIN_QUEUE)
    client.zadd(index, {_name(number): 1 for number in range(due)})


def _rate_of_sweeps(client: Redis, work: RedisWork, due: int) -> float:
    _make_due(client, keys.DUE, due)
    begin = time.perf_counter()
    while work.sweep(limit=_LIMIT, rewake_after_ms=600_000, ttl_ms=60_000).more:
        pass
    seconds = time.perf_counter() - begin
    if client.llen("tick.custom") != due:
        raise RuntimeError(f"{client.llen('tick.custom')} of {due} targets were asked for")
    return due / seconds


def _rate_of_a_plain_loop(client: Redis, due: int) -> float:
    _make_due(client, _PLAIN_DUE, due)
    begin = time.perf_counter()
    while names := client.zrangebyscore(_PLAIN_DUE, "-inf", time.time() * 1000, 0, _LIMIT):
        with client.pipeline(transaction=False) as pipe:
            for name in map(str, names):
                pipe.zrem(_PLAIN_DUE, name)
                pipe.lpush(_PLAIN_QUEUE, json.dumps({"task": keys.TICK_TASK, "args": [name]}))
            pipe.execute()
    seconds = time.perf_counter() - begin
    if client.llen(_PLAIN_QUEUE) != due:
        raise RuntimeError(f"the reference moved {client.llen(_PLAIN_QUEUE)} of {due}")
    return due / seconds


BENCH = Bench(
    name="schedule",
    about="10,000 due of 100,000 targets asked for by sweeps, against a plain ZRANGEBYSCORE loop",
    measure=Measure.RATIO,
    goal=0.50,
    run=run,
)
