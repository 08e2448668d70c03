"""Connections of strangers: bounded in how long and how large the head of a request may be.

The server bounds neither: a peer that sends a header line a minute would hold its connection for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class CarefulProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers do not come to an end soon."""

    head_seconds = 15.0
    head_bytes = 64 * 1024

    _head_timer: asyncio.TimerHandle | None = None
    _head_read = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent has it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._head_is_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes while a head is expected."""
        if self._head_timer is not None:
            self._head_read += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_read > self.head_bytes:
            self._give_up()

    def on_message_begin(self) -> None:
        """Expect a head, also of a later request on the same connection."""
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """The head is complete; a body has limits of its own."""
        self._head_is_there()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head_read = 0
        self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_is_there()
        if not self.transport.is_closing():
            self.transport.close()
