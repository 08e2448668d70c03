"""The fleet's events as they happen, resumable: each stream reads Redis at its own pace and holds nothing back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from redis.exceptions import RedisError
from starlette.responses import Response

from gitops_reconciler import keys
from gitops_reconciler.store.redis import event_view
from gitops_services.api.views import EventEntry, event_entry
from gitops_services.parts import Parts
from gitops_services.problems import ProblemError, unavailable
from gitops_services.streams import KEEP_ALIVE, KEEP_ALIVE_SECONDS, Streams, message, stream_response

_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?", re.ASCII)
_BATCH = 200
OLDEST = "0-0"


class EventRoutes:
    """The route `/events`."""

    def __init__(self, parts: Parts, streams: Streams) -> None:
        """Serve from these parts."""
        self._parts = parts
        self._streams = streams

    def add_to(self, router: APIRouter) -> None:
        """Register the route."""
        router.add_api_route(
            "/events",
            self.follow,
            summary="Events as they happen",
            response_class=Response,
            responses={
                200: {
                    "description": "Server-sent events; `data` is an EventEntry, `id` goes into Last-Event-ID",
                    "content": {"text/event-stream": {"schema": EventEntry.model_json_schema()}},
                }
            },
        )

    async def follow(
        self,
        after: Annotated[
            str | None,
            Query(max_length=60, description="Begin after this id (`0`: the oldest that is kept); else now"),
        ] = None,
        target: Annotated[str, Query(max_length=400, description="Only events of this target (full name)")] = "",
        last_event_id: Annotated[str | None, Header(max_length=60, description="Goes before `after`")] = None,
    ) -> Response:
        """Events as server-sent events; who reconnects with Last-Event-ID misses none of those that are kept."""
        start = last_event_id or after
        if start is not None and not _ID.fullmatch(start):
            raise ProblemError(400, "invalid_event_id", "the id is none of this stream (`<milliseconds>-<number>`)")
        self._streams.check()
        try:
            begin = start or await self._latest()
        except (RedisError, OSError):
            raise unavailable() from None
        return stream_response(self._follow(begin, target))

    async def _latest(self) -> str:
        found = await self._parts.asking.xrevrange(keys.EVENTS, count=1)
        return str(found[0][0]) if found else OLDEST

    async def _follow(self, last: str, target: str) -> AsyncIterator[str]:
        async with self._streams.opened():
            while not self._streams.closing.is_set():
                try:
                    entries = await self._next(last)
                except (RedisError, OSError):
                    return  # the client comes back with the last id that it saw
                if not entries:
                    yield KEEP_ALIVE
                for entry_id, fields in entries:
                    last = entry_id
                    if not target or fields.get("item") == target:
                        entry = event_entry(event_view(entry_id, fields))
                        yield message("event", entry.model_dump(mode="json"), event_id=entry_id)

    async def _next(self, last: str) -> list[tuple[str, dict[str, str]]]:
        """Wait for entries after this one; `[]` after a while without any, or at shutdown."""
        block = int(KEEP_ALIVE_SECONDS * 1000)
        reading = asyncio.ensure_future(self._parts.streaming.xread({keys.EVENTS: last}, count=_BATCH, block=block))
        closing = asyncio.ensure_future(self._streams.closing.wait())
        try:
            await asyncio.wait({reading, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return []
            found: Any = reading.result()  # pairs of stream and entries
        finally:
            reading.cancel()
            closing.cancel()
        return [entry for _, entries in found for entry in entries]
