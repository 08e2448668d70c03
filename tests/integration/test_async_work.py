"""The asynchronous half of the work protocol: the same answers as the blocking one, and no harm to neighbours."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from redis import Redis

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.work.base import Answer, Cause, ItemSpec
from gitops_reconciler.work.redis import RedisWork, WorkOptions
from gitops_reconciler.work.redis_async import AsyncRedisWork
from tests.support.redis_server import running_redis

CAUSE = Cause(trigger=Trigger.WEBHOOK, actor="github:ann")


def register(client: Redis, *names: str) -> None:
    for name in names:
        spec = ItemSpec(item=name, kind="x", pool="custom", repository="f/r", refs=(f"f/r#{name}", "f/r#all"))
        RedisWork(client).register(spec, first_due_in_ms=None)


def run(url: str, scene: Callable[[AsyncRedisWork], Awaitable[Any]], **options: Any) -> Any:
    async def play() -> Any:
        client = redis.asyncio.Redis.from_url(url, decode_responses=True)
        try:
            return await scene(AsyncRedisWork(client, **options))
        finally:
            await client.aclose()

    return asyncio.run(play())


@pytest.mark.req("RM.1")
def test_push_and_request_answer_as_the_blocking_client_does(redis_client: Redis, redis_url: str) -> None:
    register(redis_client, "default/a", "default/b")

    async def scene(work: AsyncRedisWork) -> list[Any]:
        return [
            await work.push(["f/r#all"], CAUSE, delivery="d1"),
            await work.push(["f/r#all"], CAUSE, delivery="d1"),
            await work.push(["f/r#none"], CAUSE, delivery="d2"),
            await work.request(["default/a", "default/none"], CAUSE),
            await work.request([], CAUSE),
        ]

    first, again, none, asked, nothing = run(redis_url, scene)
    assert [(ask.item, ask.answer, ask.generation) for ask in first] == [
        ("default/a", Answer.QUEUED, 1),
        ("default/b", Answer.QUEUED, 1),
    ]
    assert (again, none, nothing) == (None, [], [])
    assert [(ask.answer, ask.generation) for ask in asked] == [(Answer.COALESCED, 2), (Answer.UNKNOWN, 0)]
    blocking = RedisWork(redis_client)
    assert blocking.push(["f/r#all"], CAUSE, delivery="d1") is None


def test_asks_that_come_together_each_get_their_own_answer(redis_client: Redis, redis_url: str) -> None:
    names = [f"default/t{number:03}" for number in range(200)]
    register(redis_client, *names)

    async def scene(work: AsyncRedisWork) -> Any:
        return await asyncio.gather(*(work.push([f"f/r#{name}"], CAUSE, delivery=name) for name in names))

    assert [ask.item for (ask,) in run(redis_url, scene)] == names


def test_one_that_can_not_be_sent_or_has_gone_harms_no_other(redis_client: Redis, redis_url: str) -> None:
    register(redis_client, "default/a")

    async def scene(work: AsyncRedisWork) -> Any:
        good, bad, gone = (
            asyncio.ensure_future(work.push([ref], CAUSE, delivery=None)) for ref in ("f/r#all", "\ud800", "f/r#all")
        )
        await asyncio.sleep(0)
        gone.cancel()
        return await asyncio.gather(good, bad, gone, return_exceptions=True)

    good, bad, gone = run(redis_url, scene)
    assert [ask.item for ask in good] == ["default/a"]
    assert isinstance(bad, UnicodeEncodeError)
    assert isinstance(gone, asyncio.CancelledError)


def test_with_a_broker_elsewhere_the_waker_sends_the_messages(redis_client: Redis, redis_url: str) -> None:
    register(redis_client, "default/a")
    woken: list[tuple[str, str]] = []

    async def scene(work: AsyncRedisWork) -> Any:
        return await work.push(["f/r#all"], CAUSE, delivery=None)

    run(redis_url, scene, options=WorkOptions(pushes=False), waker=woken.extend)
    assert woken == [("default/a", "custom")]


def test_a_redis_that_is_away_is_said_to_each_and_tried_again_by_the_next() -> None:
    with running_redis() as server:

        async def scene(work: AsyncRedisWork) -> Any:
            await work.push([], CAUSE, delivery=None)
            server.stop()
            away = await asyncio.gather(
                *(work.push([], CAUSE, delivery=None) for _ in range(3)), return_exceptions=True
            )
            server.start()
            return away, await work.push([], CAUSE, delivery=None)

        away, back = run(server.url, scene)
    assert [type(error) for error in away] == [StoreUnavailableError] * 3
    assert back == []
