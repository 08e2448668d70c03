"""What the faces share: one Redis, and the clients for reads (blocking), asks and streams (asynchronous)."""

from __future__ import annotations

from dataclasses import dataclass

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from gitops_reconciler.settings import Settings
from gitops_reconciler.store.listings import Listing
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.store.tokens import Tokens
from gitops_reconciler.wiring import broker_is_store, redis_client, work_options
from gitops_reconciler.work.redis import RedisWork, Waker
from gitops_reconciler.work.redis_async import AsyncRedisWork
from gitops_services.receiver.routes import secret_files
from gitops_services.receiver.secret_files import SecretFiles

_ANSWER_SECONDS = 5.0  # a forge waits 10 seconds for us
_STREAM_SECONDS = 30.0  # longer than a blocking read of the event stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that the faces work with."""

    settings: Settings
    client: redis.Redis
    asking: redis.asyncio.Redis
    streaming: redis.asyncio.Redis
    """For blocking reads: one connection for each listener."""
    store: RedisStore
    listing: Listing
    tokens: Tokens
    work: RedisWork
    async_work: AsyncRedisWork
    webhook_secrets: SecretFiles

    async def close(self) -> None:
        """Close all connections."""
        self.client.close()
        await self.asking.aclose()
        await self.streaming.aclose()


def open_parts(settings: Settings) -> Parts:
    """Return the parts over the Redis of these settings; nothing is connected before it is used.

    Raises:
        SettingsError: no store is set.

    """
    client = redis_client(settings)
    client.set_retry(Retry(NoBackoff(), 1))  # whoever asked has to be answered, or told to try again
    url = settings.redis_url.get_secret_value() if settings.redis_url else ""
    waker = _broker_waker(settings)
    asking = redis.asyncio.Redis.from_url(
        url, decode_responses=True, socket_timeout=_ANSWER_SECONDS, retry=AsyncRetry(NoBackoff(), 1)
    )
    streaming = redis.asyncio.Redis.from_url(
        url, decode_responses=True, protocol=2, socket_timeout=_STREAM_SECONDS, retry=AsyncRetry(NoBackoff(), 0)
    )
    options = work_options(settings)
    return Parts(
        settings=settings,
        client=client,
        asking=asking,
        streaming=streaming,
        store=RedisStore(client),
        listing=Listing(client),
        tokens=Tokens(client),
        work=RedisWork(client, options=options, waker=waker),
        async_work=AsyncRedisWork(asking, options=options, waker=waker),
        webhook_secrets=secret_files(settings),
    )


def _broker_waker(settings: Settings) -> Waker | None:
    """Return what sends messages where the broker is another database than the store."""
    if broker_is_store(settings):
        return None
    from gitops_workers.app import create_app  # Celery is only loaded where it is needed

    return create_app(settings).waker
