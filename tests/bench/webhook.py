"""Bench `webhook`: signed pushes, each matched among 1,000 targets and asked for, against a bare app.

Both servers are a process of their own behind the same uvicorn settings, over the same Redis, and get the same bursts.
Every target tracks a repository of its own, so that each delivery of a burst asks for another target; between the
bursts, outside the clock, the asks are taken back, so that every delivery queues a message.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.git.urls import repository_keys
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.work.base import ItemSpec
from gitops_reconciler.work.redis import RedisWork
from tests.bench.base import Bench, Effort
from tests.bench.children import Child, running
from tests.bench.load import Burst, Generator, generator
from tests.bench.pairs import Measure, Pair, interleaved
from tests.bench.pushes import SECRET, repository_url
from tests.bench.stores import bench_redis

TARGETS = 1000
BURSTS_A_PAIR = 4
CONNECTIONS = 32
POOL = "resources"


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Both servers and what drives them."""

    store: TextRedis
    load: Generator
    ports: dict[str, int]
    deliveries: int

    def rate(self, which: str) -> float:
        """Return answered deliveries a second of a burst."""
        self.store.delete(keys.QUEUED, keys.TICK_QUEUE_PREFIX + POOL)
        burst = Burst(
            port=self.ports[which],
            path="/webhooks/github",
            repositories=TARGETS,
            count=self.deliveries,
            connections=CONNECTIONS,
        )
        seconds = self.load.play(burst)
        queued = self.store.llen(keys.TICK_QUEUE_PREFIX + POOL)
        if queued != (self.deliveries if which == "product" else 0):
            raise RuntimeError(f"{queued} of {self.deliveries} deliveries to the {which} app queued a message")
        return self.deliveries / seconds


def run(effort: Effort) -> list[Pair]:
    """Measure both servers in turns."""
    with bench_redis() as url, Redis.from_url(url, decode_responses=True) as client, _servers(url) as ports:
        store = as_text(client)
        _register(store)
        with generator() as load:
            servers = Servers(store=store, load=load, ports=ports, deliveries=effort.work(TARGETS))
            pairs = effort.pairs * effort.work(BURSTS_A_PAIR)  # short ones, so that a busy moment hurts few
            return interleaved(lambda: servers.rate("product"), lambda: servers.rate("bare"), pairs, warm_ups=2)


def _register(store: TextRedis) -> None:
    work = RedisWork(store)
    for number in range(TARGETS):
        key = min(repository_keys(repository_url(number)))
        work.register(
            ItemSpec(
                item=f"default/target-{number:04d}",
                kind="resources",
                pool=POOL,
                repository=key,
                refs=(f"{key}#refs/heads/main",),
                schedule={"interval": 600},
            ),
            first_due_in_ms=None,
        )


@contextlib.contextmanager
def _servers(url: str) -> Iterator[dict[str, int]]:
    """Return the ports of both servers, which answer."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.ExitStack() as stack:
        secrets = Path(folder) / "webhooks"
        secrets.mkdir()
        (secrets / "github").write_bytes(SECRET)
        settings = {
            "GITOPS_STATE_DIR": folder,
            "GITOPS_REDIS_URL": url,
            "GITOPS_WEBHOOK_SECRETS_DIR": str(secrets),
        }
        yield {which: stack.enter_context(_server(which, settings)) for which in ("product", "bare")}


@contextlib.contextmanager
def _server(which: str, settings: dict[str, str]) -> Iterator[int]:
    port = _free_port()
    with running("webhook_server", which, settings={**settings, "GITOPS_PORT": str(port)}) as child:
        _await_answer(child, port)
        yield port


def _free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port: int = line.getsockname()[1]
        return port


def _await_answer(child: Child, port: int) -> None:
    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
        return False

    child.wait_until(listens)


BENCH = Bench(
    name="webhook",
    about=f"signed pushes, each matched among {TARGETS:,} targets and asked, against a bare FastAPI app",
    measure=Measure.RATIO,
    goal=0.6,
    run=run,
)
