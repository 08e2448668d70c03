"""Keeps open pages up to date: one look at Redis for all of them, and to each only what changed for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError
from starlette.concurrency import run_in_threadpool

from gitops_reconciler import keys
from gitops_services.console.screens import Screen, Shown, TargetScreen
from gitops_services.streams import KEEP_ALIVE, KEEP_ALIVE_SECONDS, Streams, message

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
_PAUSE_SECONDS = 1.0  # between two patches of one page, however much happens
_LOG_SECONDS = 2.0  # a running target's log grows without an event


class Pulse:
    """Notices that something changed in the fleet; looks only while somebody watches."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        """Look through this client."""
        self._client = client
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._beat = asyncio.Event()
        self.version = 0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look while this block lasts."""
        self._watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def changed(self, seen: int, seconds: float) -> bool:
        """Wait until something changed since that version; False when nothing did for so long."""
        if self.version != seen:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._beat.wait()
        return self.version != seen

    async def _look(self) -> None:
        last: Any = None
        while True:
            try:
                signature = await self._signature()
            except (RedisError, OSError):
                signature = "redis does not answer"
            if signature != last:
                last = signature
                self.version += 1
                self._beat.set()
                self._beat = asyncio.Event()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _signature(self) -> Any:
        """Return what differs after every change that a page shows: an event, a claim, an ask, a registration."""
        pipe = self._client.pipeline(transaction=False)
        pipe.xrevrange(keys.EVENTS, count=1)
        pipe.zrange(keys.LEASES, 0, -1)
        pipe.zcard(keys.ITEMS)
        pipe.zcard(keys.QUEUED)
        pipe.hlen(keys.SOURCES)
        pipe.get(keys.PAUSED)
        pipe.hgetall(keys.DEAD_POOLS)
        latest, *rest = await pipe.execute()
        return [latest[0][0] if latest else "", *rest]


async def follow(screen: Screen, pulse: Pulse, streams: Streams) -> AsyncIterator[str]:
    """Yield a patch of the whole screen, then one for each change; ends at shutdown or when Redis is away."""
    async with streams.opened(), pulse.watched():
        sent = Shown(parts={})
        while not streams.closing.is_set():
            seen = pulse.version
            try:
                shown = await run_in_threadpool(screen.show, seen)
            except (RedisError, OSError):
                return  # the page says so, and comes back
            except ValueError:
                return
            patch = _difference(sent, shown)
            sent = shown
            yield message("patch", patch) if patch else KEEP_ALIVE
            await asyncio.sleep(_PAUSE_SECONDS)
            await _until_change(screen, pulse, streams, seen)


async def _until_change(screen: Screen, pulse: Pulse, streams: Streams, seen: int) -> None:
    quiet = _LOG_SECONDS if isinstance(screen, TargetScreen) else KEEP_ALIVE_SECONDS
    changed = asyncio.ensure_future(pulse.changed(seen, quiet))
    closing = asyncio.ensure_future(streams.closing.wait())
    try:
        await asyncio.wait({changed, closing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()
        closing.cancel()


def _difference(sent: Shown, shown: Shown) -> dict[str, Any]:
    """Return what a page needs to become what is shown; `{}` when it is that already."""
    parts = {name: html for name, html in shown.parts.items() if sent.parts.get(name) != html}
    rows = {name: html for name, html in shown.rows.items() if sent.rows.get(name) != html}
    patch: dict[str, Any] = {"parts": parts} if parts else {}
    if rows or list(sent.rows) != list(shown.rows):
        patch |= {"rows": rows, "order": list(shown.rows)}
    return patch
