"""Schedules, messages and tasks: what asks for a tick, and how little travels with it."""

from __future__ import annotations

import inspect
import json

import fakeredis
import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.work.base import Cause, Claim, ItemSpec
from gitops_reconciler.work.redis import RedisWork


@pytest.fixture
def client() -> TextRedis:
    return as_text(fakeredis.FakeRedis(decode_responses=True))


def spec(item: str, seconds: int) -> ItemSpec:
    return ItemSpec(item=item, kind="note", pool="custom", repository="", schedule={"interval": seconds})


@pytest.mark.req("R0.27", "T15")
def test_targets_keep_their_own_schedules(client: TextRedis) -> None:
    work = RedisWork(client)
    for item, seconds in (("default/fast", 60), ("default/slow", 300)):
        work.register(spec(item, seconds), first_due_in_ms=seconds * 1000)
    fast, slow = client.zscore(keys.DUE, "default/fast"), client.zscore(keys.DUE, "default/slow")
    assert fast is not None
    assert slow is not None
    assert 239_000 < slow - fast < 241_000


@pytest.mark.req("RM.2")
def test_a_sweep_asks_for_what_is_due_and_for_nothing_else(client: TextRedis) -> None:
    work = RedisWork(client)
    work.register(spec("default/due", 60), first_due_in_ms=0)
    work.register(spec("default/later", 60), first_due_in_ms=60_000)
    swept = work.sweep(limit=10, rewake_after_ms=10_000, ttl_ms=60_000)
    assert swept.asked == 1
    claim = work.claim("default/due", "a" * 32, ttl_ms=60_000, holder="here")
    assert isinstance(claim, Claim)
    assert [cause.trigger for cause in claim.causes] == [Trigger.SCHEDULE]


@pytest.mark.req("T19", "RM.8")
def test_a_message_carries_the_name_of_its_target_and_nothing_else(client: TextRedis) -> None:
    work = RedisWork(client)
    canary = ItemSpec(
        item="default/web",
        kind="note",
        pool="custom",
        repository="",
        facts={"document": '{"password": "s3cret-canary"}'},
    )
    work.register(canary, first_due_in_ms=None)
    work.request(["default/web"], Cause(trigger=Trigger.MANUAL, actor="ann"))
    (raw,) = client.lrange("tick.custom", 0, -1)
    arguments, options, _ = json.loads(json.loads(raw)["body"])
    assert (arguments, options) == (["default/web"], {})
    assert "s3cret-canary" not in raw
    assert "ann" not in raw


@pytest.mark.req("T4")
def test_the_tick_task_is_one_tick_and_has_no_retry_of_its_own() -> None:
    from gitops_workers import tasks

    source = inspect.getsource(tasks)
    assert "retry" not in source.replace("max_retries", "")
    assert "while " not in source
    assert "sleep" not in source
