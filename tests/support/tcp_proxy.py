"""A bad network between a server and its clients: passes, slows down, holds, cuts and strands TCP connections.

What is held is delivered once the network passes again, also for a client that gave up meanwhile: so TCP does after an
outage, and a command may be carried out long after its sender's timeout.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

_READ_SIZE = 1 << 16
_CALL_SECONDS = 30.0
_T = TypeVar("_T")


class _Link:
    """One connection of a client, and the one to the server that goes with it."""

    def __init__(self, delay_seconds: float, *, passes: bool) -> None:
        self.passes = asyncio.Event()
        if passes:
            self.passes.set()
        self.delay_seconds = delay_seconds
        self.is_stranded = False
        self.to_client: asyncio.StreamWriter | None = None
        self.to_server: asyncio.StreamWriter | None = None

    async def carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Pass on what comes, and its end, whenever the network lets it."""
        while True:
            chunk = await source.read(_READ_SIZE)
            await asyncio.sleep(self.delay_seconds)
            await self.passes.wait()
            if not chunk:
                sink.write_eof()
                return
            sink.write(chunk)
            await sink.drain()

    def abort(self) -> None:
        for writer in (self.to_client, self.to_server):
            if writer is not None:
                writer.transport.abort()


class TcpProxy:
    """A port of loopback in front of a server; each method acts on open connections at once. Call them from a test."""

    def __init__(self, server: str | tuple[str, int]) -> None:
        """Stand in front of a unix socket's path or a (host, port)."""
        self.port = 0
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay_seconds = 0.0
        self._passes, self._refuses = True, False
        self._listener: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)

    @property
    def url(self) -> str:
        """The address for redis-py."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def connections(self) -> int:
        """How many connections can still be used."""
        return self._call(self._count())

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self._call(self._listen())

    def stop(self) -> None:
        """Cut everything and end."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)
        self._loop.close()

    def let_pass(self, *, delay_seconds: float = 0.0) -> None:
        """Pass everything on, each chunk so much later; what was held comes first."""
        self._call(self._change(passes=True, delay_seconds=delay_seconds))

    def hold(self) -> None:
        """Be a black hole: connections stay open and can be opened, and nothing comes through."""
        self._call(self._change(passes=False))

    def cut(self) -> None:
        """Drop the open connections, and each new one, until `let_pass`."""
        self._call(self._change(passes=True, refuses=True))

    def cut_once(self) -> None:
        """Drop the open connections; new ones pass."""
        self._call(self._change(passes=True, aborts=True))

    def strand(self) -> int:
        """Let the open connections hang for ever (half open: the peer is gone without a word); new ones pass."""
        return self._call(self._strand())

    def half_close(self) -> None:
        """Say to the clients of open connections that the server writes no more, while it still listens to them."""
        self._call(self._half_close())

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_SECONDS)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _accepted(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self._refuses:
            to_client.transport.abort()
            return
        link = _Link(self._delay_seconds, passes=self._passes)
        link.to_client = to_client
        self._links.add(link)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await link.passes.wait()
            from_server, link.to_server = await self._connect()
            await asyncio.gather(link.carry(from_client, link.to_server), link.carry(from_server, to_client))
        except (OSError, RuntimeError, asyncio.CancelledError):  # RuntimeError: written to after a half-close
            pass
        finally:
            link.abort()
            self._links.discard(link)
            self._tasks.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._server, str):
            return await asyncio.open_unix_connection(self._server)
        return await asyncio.open_connection(*self._server)

    async def _change(
        self, *, passes: bool, refuses: bool = False, aborts: bool = False, delay_seconds: float = 0.0
    ) -> None:
        self._passes, self._refuses, self._delay_seconds = passes, refuses, delay_seconds
        for link in [link for link in self._links if not link.is_stranded]:
            link.delay_seconds = delay_seconds
            if refuses or aborts:
                link.abort()
            if passes:
                link.passes.set()
            else:
                link.passes.clear()

    async def _strand(self) -> int:
        usable = [link for link in self._links if not link.is_stranded]
        for link in usable:
            link.is_stranded = True
            link.passes.clear()
        return len(usable)

    async def _half_close(self) -> None:
        for link in self._links:
            if link.to_client is not None and not link.is_stranded:
                link.to_client.write_eof()

    async def _count(self) -> int:
        return sum(not link.is_stranded for link in self._links)

    async def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.contextmanager
def running_proxy(server: str | Path | tuple[str, int]) -> Iterator[TcpProxy]:
    """A proxy in front of a unix socket, `redis://host:port` or (host, port)."""
    parts = urlsplit(str(server)) if isinstance(server, str) else None
    if parts is not None and parts.scheme in {"redis", "rediss"}:
        server = (parts.hostname or "127.0.0.1", parts.port or 6379)
    proxy = TcpProxy(server if isinstance(server, tuple) else str(server).removeprefix("unix://"))
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
