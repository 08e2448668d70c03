"""The load generator: a process of its own that plays bursts of requests over kept-alive loopback connections.

It speaks as much HTTP as it needs: a request is bytes made before the clock starts, an answer is a status and a
Content-Length. Bursts are bounded in count and time, and each connection has one request under way.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from tests.bench.children import ROOT, environment
from tests.bench.pushes import requests

_BURST_SECONDS = 60.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_READ_SIZE = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """What the generator is told to play."""

    port: int
    path: str
    repositories: int
    count: int
    connections: int


@dataclass(frozen=True, slots=True)
class Generator:
    """The generator, seen from the bench."""

    process: subprocess.Popen[str]

    def play(self, burst: Burst) -> float:
        """Play a burst and return its seconds; raises when an answer was anything but 202."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the load generator has no pipes")
        self.process.stdin.write(json.dumps(asdict(burst)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the load generator ended; its error is above")
        told = json.loads(line)
        if told["statuses"] != {"202": burst.count}:
            raise RuntimeError(f"not every delivery to {burst.path} was answered 202: {told['statuses']}")
        return float(told["seconds"])


@contextmanager
def generator() -> Iterator[Generator]:
    """A running load generator."""
    command = [sys.executable, "-m", "tests.bench.load"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment({}), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:  # leaving the block closes its stdin, at which it ends
        yield Generator(process)


def main() -> int:
    """Be the generator: one burst a line of stdin, its figures as a line of stdout."""
    for line in sys.stdin:
        seconds, statuses = _play(Burst(**json.loads(line)))
        sys.stdout.write(json.dumps({"seconds": seconds, "statuses": statuses}) + "\n")
        sys.stdout.flush()
    return 0


def _play(burst: Burst) -> tuple[float, Counter[str]]:
    todo = list(requests(burst.path, burst.repositories, burst.count))
    statuses: Counter[str] = Counter()
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        lines = [_connected(stack, burst.port) for _ in range(min(burst.connections, burst.count))]
        for line in lines:
            selector.register(line, selectors.EVENT_READ, bytearray())
        begin = time.perf_counter()
        for line in lines:
            line.sendall(todo.pop())
        while statuses.total() < burst.count:
            if time.perf_counter() - begin > _BURST_SECONDS:
                raise TimeoutError(f"{statuses.total()} of {burst.count} answers after {_BURST_SECONDS:g} s")
            for key, _ in selector.select(1.0):
                _read(key, statuses, todo)
        return time.perf_counter() - begin, statuses


def _connected(stack: ExitStack, port: int) -> socket.socket:
    line = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5.0))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


def _read(key: selectors.SelectorKey, statuses: Counter[str], todo: list[bytes]) -> None:
    line: socket.socket = key.fileobj  # type: ignore[assignment]  # only sockets are registered
    chunk = line.recv(_READ_SIZE)
    if not chunk:
        raise ConnectionError(f"the server closed a connection after {statuses.total()} answers")
    answer: bytearray = key.data
    answer += chunk
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        return
    length = _LENGTH.search(head)
    if length is None or len(body) < int(length[1]):
        return
    statuses[head[9:12].decode()] += 1
    answer.clear()
    if todo:
        line.sendall(todo.pop())


if __name__ == "__main__":
    sys.exit(main())
