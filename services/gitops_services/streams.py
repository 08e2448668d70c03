"""Server-sent events: bounded in number, ended at shutdown, kept alive, and resumable where the source has ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import StreamingResponse

from gitops_services.problems import RETRY_AFTER_SECONDS, ProblemError

_RECONNECT_MS = 2000
KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = ": still here\n\n"


@dataclass(slots=True)
class Streams:
    """All open streams of this process."""

    most: int = 200
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at shutdown: streams end, so that the server can."""
    _open: int = 0

    def check(self) -> None:
        """Refuse another stream when there are too many. Raises a 503 problem."""
        if self._open >= self.most or self.closing.is_set():
            raise ProblemError(
                503,
                "too_many_streams",
                "too many event streams are open",
                headers={"retry-after": str(RETRY_AFTER_SECONDS)},
            )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Count a stream while it is open."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


def message(event: str, data: Any, *, event_id: str = "") -> str:
    """Return one message of a stream; JSON never holds a raw newline, so that data can't forge a second message."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {event}\ndata: {json.dumps(data)}\n\n"


def stream_response(content: AsyncIterator[str]) -> StreamingResponse:
    """Return a stream as an answer that no proxy holds back."""
    return StreamingResponse(
        _with_head(content),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _with_head(content: AsyncIterator[str]) -> AsyncIterator[str]:
    yield f"retry: {_RECONNECT_MS}\n\n"
    async for part in content:
        yield part
