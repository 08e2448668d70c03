"""Schedules of many targets, and several beats at once: each due time is asked for exactly once."""

import json
import signal
from itertools import cycle
from pathlib import Path

import pytest

from gitops_reconciler import keys
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.work.redis import RedisWork
from tests.support.processes import eventually
from tests.support.roles import running_roles

WAIT_SECONDS = 60.0
MANY = 20_000
FEW = 2000
MOST_AT_ONCE = 1000


def know_many(client: TextRedis, count: int) -> None:
    """Write what `register` writes, in bulk."""
    schedule = json.dumps({"interval": 600})
    with client.pipeline(transaction=False) as pipe:
        for number in range(count):
            fields: dict[str, str | int] = {"kind": "x", "pool": "custom", "schedule": schedule, "repository": ""}
            pipe.hset(keys.item(name(number)), mapping={**fields, "status": "pending", "requested": 0, "observed": 0})
        pipe.execute()
    for first in range(0, count, 1000):
        client.zadd(keys.ITEMS, {name(number): 0 for number in range(first, min(first + 1000, count))})


def name(number: int) -> str:
    return f"default/t{number:06}"


def asked(client: TextRedis, count: int) -> list[int]:
    """How often each was asked for."""
    with client.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.hget(keys.item(name(number)), "requested")
        return [int(text) for text in pipe.execute()]


def sweep(work: RedisWork) -> bool:
    """One tick of a beat; whether there is more to do."""
    return work.sweep(limit=500, rewake_after_ms=600_000, ttl_ms=60_000).more


@pytest.mark.req("RM.2")
def test_each_due_time_is_asked_for_once_by_several_beats_one_of_which_is_killed(
    redis_url: str, redis_client: TextRedis, tmp_path: Path
) -> None:
    with running_roles(tmp_path, GITOPS_REDIS_URL=redis_url) as roles:
        beats = [roles.start("gitops_workers", "beat") for _ in range(3)]
        assert eventually(lambda: all("beat sweeps" in beat.text() for beat in beats), within=WAIT_SECONDS)
        know_many(redis_client, FEW)
        seconds, _ = redis_client.time()
        redis_client.zadd(keys.DUE, {name(number): seconds * 1000 + 2 * number for number in range(FEW)})
        assert eventually(lambda: redis_client.zcard(keys.DUE) < FEW * 2 // 3, within=WAIT_SECONDS)
        beats[0].process.send_signal(signal.SIGKILL)
        assert eventually(lambda: redis_client.zcard(keys.DUE) == 0, within=WAIT_SECONDS)
        assert asked(redis_client, FEW) == [1] * FEW
        assert redis_client.llen("tick.custom") == FEW
        assert [beat.end() for beat in beats[1:]] == [0, 0]


def test_after_a_restart_every_target_is_asked_for_once_a_part_at_a_time_whoever_sweeps(
    redis_client: TextRedis,
) -> None:
    know_many(redis_client, MANY)
    redis_client.hset(keys.item(name(5)), "suspended", "1")
    first, second = RedisWork(redis_client), RedisWork(redis_client)
    sweep(first)
    redis_client.hset(keys.SWEPT, "server", "another-life")
    steps = 0
    for work in cycle((first, second)):
        known = redis_client.zcard(keys.DUE)
        has_more = sweep(work)
        steps += 1
        assert redis_client.zcard(keys.DUE) - known <= MOST_AT_ONCE
        if steps == MANY // MOST_AT_ONCE // 2:
            second = first = RedisWork(redis_client)  # a beat that ended midway, and one that comes new
        if not has_more:
            break
    assert steps >= MANY // MOST_AT_ONCE
    expected = [1] * MANY
    expected[5] = 0
    assert asked(redis_client, MANY) == expected
    assert redis_client.exists(keys.ASKING_ALL) == 0
    assert not sweep(first)


def test_a_sweep_of_many_targets_of_which_nothing_is_due_writes_nothing_but_its_time(
    redis_client: TextRedis,
) -> None:
    know_many(redis_client, MANY)
    seconds, _ = redis_client.time()
    for first in range(0, MANY, 1000):
        later = {name(number): (seconds + 600) * 1000 for number in range(first, first + 1000)}
        redis_client.zadd(keys.DUE, later)
    work = RedisWork(redis_client)
    sweep(work)
    before = redis_client.info("commandstats")
    assert not sweep(work)
    after = redis_client.info("commandstats")
    changed = {command for command in after if after[command]["calls"] != before.get(command, {"calls": 0})["calls"]}
    reads = {"hmget", "time", "exists", "get", "zrangebyscore", "evalsha", "info"}
    assert {command.removeprefix("cmdstat_") for command in changed} <= reads | {"hset"}
