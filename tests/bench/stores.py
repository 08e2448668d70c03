"""The Redis of a bench: its own server, with the persistence of a fleet's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.support.redis_server import running_redis

_AS_IN_A_FLEET = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")


@contextlib.contextmanager
def bench_redis() -> Iterator[str]:
    """The address of an empty server. Skips where the machine has none."""
    with running_redis(_AS_IN_A_FLEET) as server:
        yield server.url
