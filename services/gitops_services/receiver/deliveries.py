"""The last accepted and the last rejected delivery of each endpoint, for people who wonder whether their hook works.

Written at most some times a second, whatever comes in: a storm of forged deliveries does not reach Redis or the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from gitops_reconciler import keys

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.5
ACCEPTED, REJECTED = "accepted", "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of one delivery; no part of its body but the event's name."""

    endpoint: str
    fate: str
    """`accepted` or `rejected`."""
    status: int
    answer: str
    """`queued`, `ignored` …, or why it was rejected."""
    event: str = ""
    delivery: str = ""
    targets: int = 0


class Deliveries:
    """Keeps them in Redis: a field `<endpoint>:<fate>` for each."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        """Write through this client."""
        self._client = client
        self._last: dict[str, tuple[datetime, Delivery]] = {}
        self._counts: Counter[str] = Counter()
        self._writer: asyncio.Task[None] | None = None

    def note(self, delivery: Delivery) -> None:
        """Remember what became of a delivery; it is written soon, unless a later one comes first."""
        name = f"{delivery.endpoint}:{delivery.fate}"
        self._counts[name] += 1
        self._last[name] = (datetime.now(UTC), delivery)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_soon())

    async def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.cancel()
        await self._write()

    async def _write_soon(self) -> None:
        while self._last:
            await self._write()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _write(self) -> None:
        last, self._last = self._last, {}
        counts, self._counts = self._counts, Counter()
        if not last:
            return
        for name, (_, delivery) in last.items():
            _log.log(
                logging.INFO if delivery.fate == ACCEPTED else logging.WARNING,
                "webhook deliveries %s",
                delivery.fate,
                extra={"endpoint": delivery.endpoint, "count": counts[name], "answer": delivery.answer},
            )
        fields: dict[Any, Any] = {name: _record(at, delivery) for name, (at, delivery) in last.items()}
        try:
            await self._client.hset(keys.DELIVERIES, mapping=fields)
        except (RedisError, OSError):
            _log.debug("the last deliveries were not noted: redis does not answer")


def _record(at: datetime, delivery: Delivery) -> str:
    return json.dumps(
        {
            "at": at.isoformat(timespec="milliseconds"),
            "status": delivery.status,
            "answer": delivery.answer,
            "event": delivery.event,
            "delivery": delivery.delivery,
            "targets": delivery.targets,
        }
    )
