"""Reading request bodies of strangers: bounded in size, in time, and in how much all of them together may hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import Message, Receive

from gitops_services.receiver.base import Headers, RawBody

_SMALL_BYTES = 64 * 1024


class BodyError(Exception):
    """The body is not taken; `status` is the answer."""

    def __init__(self, status: int, reason: str) -> None:
        """Keep the answer."""
        super().__init__(reason)
        self.status = status
        self.reason = reason


class DisconnectedError(Exception):
    """The sender went away before it had sent the whole body; nobody is there to be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How much is taken. Together, bodies hold at most `at_once * 64 KiB + held_bytes` of memory."""

    body_bytes: int
    """Of one body: forges send up to 25 MiB."""
    held_bytes: int
    """Of all bodies together, not counting the first 64 KiB of each: slow senders hold only what they have sent."""
    at_once: int = 512
    """How many bodies are held at once."""
    seconds: float = 10.0
    """For a whole body: no forge waits longer for its answer."""


class Bodies:
    """Reads bodies within limits that all requests of this process share."""

    def __init__(self, limits: BodyLimits) -> None:
        """Start with nothing held."""
        self._limits = limits
        self._count = 0
        self._held = 0

    @asynccontextmanager
    async def read(self, headers: Headers, receive: Receive) -> AsyncIterator[RawBody]:
        """Read the whole body, and count it as held until the end of the block.

        Raises:
            BodyError: 413 at the first byte over the limit, 408 when it takes too long, 503 when too much is held, 400
                when its length is given twice or is no number.
            DisconnectedError: the sender went away.

        """
        declared = _declared_length(headers)
        if declared > self._limits.body_bytes:
            raise self._too_large()
        if self._count >= self._limits.at_once:
            raise BodyError(503, "too many bodies are being read")
        body = _Growing()
        self._count += 1
        try:
            yield await self._within_time(body, receive)
        finally:
            self._count -= 1
            self._held -= body.counted

    async def _within_time(self, body: _Growing, receive: Receive) -> RawBody:
        try:
            async with asyncio.timeout(self._limits.seconds):
                while body.more:
                    self._take(body, await receive())
        except TimeoutError:
            raise BodyError(408, f"the body took longer than {self._limits.seconds:g} seconds") from None
        return body.content

    def _take(self, body: _Growing, message: Message) -> None:
        if message["type"] != "http.request":
            raise DisconnectedError
        body.add(message.get("body", b""), more=message.get("more_body", False))
        size = len(body.content)
        if size > self._limits.body_bytes:
            raise self._too_large()
        growth = max(0, size - _SMALL_BYTES) - body.counted
        if self._held + growth > self._limits.held_bytes:
            raise BodyError(503, "too many large bodies are being read")
        self._held += growth
        body.counted += growth

    def _too_large(self) -> BodyError:
        return BodyError(413, f"the body is larger than {self._limits.body_bytes} bytes")


class _Growing:
    """A body as far as it has come; most come in one piece, which is not copied."""

    __slots__ = ("content", "counted", "more")

    def __init__(self) -> None:
        self.content: RawBody = b""
        self.counted = 0
        self.more = True

    def add(self, chunk: bytes, *, more: bool) -> None:
        self.more = more
        if not self.content:
            self.content = chunk
        else:
            if isinstance(self.content, bytes):
                self.content = bytearray(self.content)
            self.content += chunk


def _declared_length(headers: Headers) -> int:
    values = headers.all(b"content-length")
    if not values:
        return 0
    if len(values) > 1 or not (values[0].isascii() and values[0].isdigit()):
        raise BodyError(400, "Content-Length is no single number")
    return int(values[0][:20])
