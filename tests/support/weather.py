"""A fleet of a test in bad weather: one Redis, a proxy in front of it where the network matters, and its roles."""

import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.settings import Settings
from gitops_reconciler.store.redis import ItemView
from gitops_reconciler.wiring import Fleet
from gitops_reconciler.work.base import Ask, Cause, ItemSpec
from tests.support.processes import eventually
from tests.support.redis_server import RedisServer, running_redis
from tests.support.roles import RoleProcess, Roles, running_roles
from tests.support.tcp_proxy import TcpProxy, running_proxy
from tests.support.weather_worker import DIRECT, HOLD, PROCESSES, RAN, RECEIVED

WITHIN = 60.0
"""Seconds: a bound for whatever must happen at all."""
DURABLE = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
_SHORT_LEASES = {"GITOPS_LEASE_TTL": "8s", "GITOPS_LEASE_RENEWAL": "1s", "GITOPS_LEASE_GRACE": "2s"}


@dataclass
class Weather:
    """What a test acts on, always past the proxy."""

    server: RedisServer
    roles: Roles
    proxy: TcpProxy | None = None

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet(Settings.model_validate({"redis_url": self.server.url, "state_dir": self.roles.folder / "state"}))

    @property
    def client(self) -> TextRedis:
        return as_text(self.fleet.client)

    def worker(self, name: str = "w", **environ: str) -> RoleProcess:
        """Start a worker and wait until it serves."""
        worker = self.roles.start("tests.support.weather_worker", name, environ=environ)
        assert eventually(lambda: f"{name}@{socket.gethostname()} ready" in worker.text(), within=WITHIN), worker.text()
        return worker

    def beat(self) -> RoleProcess:
        """Start a beat and wait until it has swept."""
        before = self.client.hgetall(keys.SWEPT)
        beat = self.roles.start("gitops_workers", "beat")
        assert eventually(lambda: self.client.hgetall(keys.SWEPT) != before, within=WITHIN), beat.text()
        return beat

    def know(self, item: str, *, due_in_ms: int | None = None) -> str:
        """Register an item."""
        spec = ItemSpec(item=item, kind="stdshell", pool="custom", repository="", schedule={"interval": 3600})
        self.fleet.work.register(spec, first_due_in_ms=due_in_ms)
        return item

    def ask(self, item: str) -> Ask:
        """Ask for an item, which gets known with it."""
        (ask,) = self.fleet.work.request([self.know(item)], Cause(trigger=Trigger.MANUAL, actor="ann"))
        return ask

    def runs(self, item: str) -> int:
        """How many runs began."""
        return int(self.client.get(f"{RAN}:{item}") or 0)

    def received(self, item: str) -> int:
        """How many messages were taken, by whomever."""
        names = self.client.keys(f"{RECEIVED}:*:{item}")
        return sum(int(self.client.get(name) or 0) for name in names)

    def has_run(self, item: str, times: int = 1) -> bool:
        """Whether an item runs, or has run, within the bound."""
        return eventually(lambda: self.runs(item) >= times, within=WITHIN)

    def view(self, item: str) -> ItemView:
        found = self.fleet.store.item(item)
        assert found is not None
        return found

    def is_ready(self, item: str) -> bool:
        """Whether all that was asked for an item is done, within the bound."""

        def done() -> bool:
            view = self.view(item)
            return view.status == "ready" and view.observed == view.requested

        return eventually(done, within=WITHIN)

    def run_process(self, item: str) -> int:
        return int(self.client.hget(PROCESSES, item) or 0)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Long runs do not end meanwhile."""
        self.client.set(HOLD, "1")
        try:
            yield
        finally:
            self.client.delete(HOLD)

    def restart_redis(self) -> None:
        """Kill the server and start it again."""
        self.server.stop(signal.SIGKILL)
        self.server.start()

    def let_pass(self, seconds: float) -> None:
        """Wait by the server's clock, which stands still while it is frozen."""

        def now() -> float:
            seconds, micros = self.client.time()
            return seconds + micros / 1e6

        end = now() + seconds
        assert eventually(lambda: now() >= end, within=WITHIN)


@contextlib.contextmanager
def bad_weather(
    folder: Path, environ: Mapping[str, str] | None = None, *, through_proxy: bool = False
) -> Iterator[Weather]:
    """A fleet over a server of its own that keeps what it has confirmed; its roles use the proxy if there is one."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_redis(DURABLE))
        proxy = stack.enter_context(running_proxy(server.url)) if through_proxy else None
        url = server.url if proxy is None else proxy.url
        variables = {"GITOPS_REDIS_URL": url, DIRECT: server.url, **_SHORT_LEASES, **(environ or {})}
        roles = stack.enter_context(running_roles(folder / "roles", **variables))
        yield Weather(server=server, roles=roles, proxy=proxy)
