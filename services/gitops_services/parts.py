"""What the faces share: one Redis, and the clients for reads (blocking), asks and streams (asynchronous)."""

from __future__ import annotations

from dataclasses import dataclass

import redis
import redis.asyncio

from gitops_reconciler.redis_clients import Patience, async_client
from gitops_reconciler.settings import Settings
from gitops_reconciler.store.fleet import FleetState
from gitops_reconciler.store.listings import Listing
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.store.tokens import Tokens
from gitops_reconciler.wiring import broker_is_store, redis_client, work_options
from gitops_reconciler.work.redis import RedisWork, Waker
from gitops_reconciler.work.redis_async import AsyncRedisWork
from gitops_services.outages import Outages
from gitops_services.receiver.routes import secret_files
from gitops_services.receiver.secret_files import SecretFiles

_ANSWER_SECONDS = 1.25  # and once more on a new connection; a forge waits 10 seconds for us, a person less
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
    fleet: FleetState
    tokens: Tokens
    work: RedisWork
    async_work: AsyncRedisWork
    webhook_secrets: SecretFiles
    outages: Outages

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
    patience = Patience(answer_seconds=_ANSWER_SECONDS, retries=1)  # who asked is answered, or told to try again
    client = redis_client(settings, patience=patience)
    url = settings.redis_url.get_secret_value() if settings.redis_url else ""
    waker = _broker_waker(settings)
    asking = async_client(url, patience)
    streaming = async_client(url, Patience(answer_seconds=_STREAM_SECONDS), protocol=2)
    options = work_options(settings)
    return Parts(
        settings=settings,
        client=client,
        asking=asking,
        streaming=streaming,
        store=RedisStore(client),
        listing=Listing(client),
        fleet=FleetState(client),
        tokens=Tokens(client),
        work=RedisWork(client, options=options, waker=waker),
        async_work=AsyncRedisWork(asking, options=options, waker=waker),
        webhook_secrets=secret_files(settings),
        outages=Outages(),
    )


def _broker_waker(settings: Settings) -> Waker | None:
    """Return what sends messages where the broker is another database than the store."""
    if broker_is_store(settings):
        return None
    from gitops_workers.app import create_app  # Celery is only loaded where it is needed

    return create_app(settings).waker
