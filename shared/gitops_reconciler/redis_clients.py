"""Clients of the fleet's Redis, made in one place: TCP, TLS, socket or Sentinel, always with bounded waits.

A server that turned into a read-only replica answers, but it is not the one to talk to: its connection is closed, and
the next attempt asks again who the master is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import AbstractBackoff, ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import Sentinel

from gitops_reconciler.redis_address import SentinelAddress, sentinel_address

_TRIED_AGAIN = (RedisConnectionError, RedisTimeoutError, ReadOnlyError)
TRIED_AGAIN = (*_TRIED_AGAIN, OSError)
"""After these a client connects anew; nothing that is sent twice does harm (DESIGN section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client waits, and how often it tries again before it tells."""

    answer_seconds: float = 5.0
    retries: int = 0
    health_seconds: int = 0
    """Connections that were idle for longer are tried before use; 0: never."""

    def backoff(self) -> AbstractBackoff:
        """Return the waits between tries."""
        return ExponentialWithJitterBackoff(cap=1.0, base=0.05) if self.retries > 1 else NoBackoff()


def blocking_client(url: str, patience: Patience) -> redis.Redis:
    """Return a client that answers text; nothing is connected yet."""
    options = _options(patience) | {"retry": Retry(patience.backoff(), patience.retries, TRIED_AGAIN)}
    if not url.startswith("sentinel://"):
        return redis.Redis.from_url(url, **options)
    address = sentinel_address(url)
    sentinel: Any = Sentinel  # redis-py left it without types
    found: redis.Redis = sentinel(address.sentinels, sentinel_kwargs=_sentinel_login(address, patience)).master_for(
        address.service, redis_class=redis.Redis, **options, **_server_login(address)
    )
    return found


def async_client(url: str, patience: Patience, **more: Any) -> redis.asyncio.Redis:
    """Return an asynchronous client that answers text; nothing is connected yet."""
    options = _options(patience) | {"retry": AsyncRetry(patience.backoff(), patience.retries, _TRIED_AGAIN), **more}
    if not url.startswith("sentinel://"):
        return redis.asyncio.Redis.from_url(url, **options)
    address = sentinel_address(url)
    sentinel: Any = AsyncSentinel
    found: redis.asyncio.Redis = sentinel(
        address.sentinels, sentinel_kwargs=_sentinel_login(address, patience)
    ).master_for(address.service, redis_class=redis.asyncio.Redis, **options, **_server_login(address))
    return found


def _options(patience: Patience) -> dict[str, Any]:
    return {
        "decode_responses": True,
        "socket_timeout": patience.answer_seconds,
        "socket_connect_timeout": patience.answer_seconds,
        "health_check_interval": patience.health_seconds,
    }


def _server_login(address: SentinelAddress) -> dict[str, Any]:
    return {"db": address.database, "username": address.username, "password": address.password}


def _sentinel_login(address: SentinelAddress, patience: Patience) -> dict[str, Any]:
    return {
        "username": address.sentinel_username,
        "password": address.sentinel_password,
        "socket_timeout": patience.answer_seconds,
        "socket_connect_timeout": patience.answer_seconds,
    }
