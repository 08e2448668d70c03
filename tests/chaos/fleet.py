"""The fleet under test: real roles as a user starts them, behind one of three networks, started again when they end."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis

from gitops_reconciler.clock import boottime
from tests.chaos.plan import Breakage, Plan
from tests.chaos.world import World, environment
from tests.support.redis_server import RedisServer, require_redis_binary
from tests.support.roles import RoleProcess, Roles
from tests.support.tcp_proxy import TcpProxy, running_proxy

SECRET = "chaos-webhook-secret"
NETWORKS = ("faces", "host1", "host2")
"""Who is cut off together: receivers and beats, the workers of host 1, those of host 2."""
PERSISTENCE = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
_LOOK_SECONDS = 0.05
_SLOWEST_RESTART_SECONDS = 1.0
_STOP_SECONDS = 60.0


@dataclass(slots=True)
class Member:
    """One role, over all its lives."""

    name: str
    module: str
    arguments: tuple[str, ...]
    environ: dict[str, str]
    life: RoleProcess | None = None
    not_before: float = 0.0
    lives: int = 0


@dataclass(slots=True)
class Fleet:
    """The members and what keeps them alive, as a service manager does."""

    plan: Plan
    roles: Roles
    members: list[Member]
    redis: RedisServer
    proxies: dict[str, TcpProxy]
    ports: tuple[int, int]
    rng: random.Random
    folder: Path
    _is_over: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None

    @property
    def store(self) -> Redis:
        """A way to the store past all networks; for whoever injects faults, never for what is judged."""
        return Redis.from_url(self.redis.url, decode_responses=True, socket_timeout=5)

    def start(self) -> None:
        """Start all members, and a thread that starts them again."""
        self._keeper = threading.Thread(target=self._keep, name="service-manager", daemon=True)
        self._keeper.start()

    def living(self, prefix: str) -> list[RoleProcess]:
        """The running members whose names begin so."""
        lives = [member.life for member in self.members if member.name.startswith(prefix) and member.life is not None]
        return [life for life in lives if life.process.poll() is None]

    def leave_out(self, prefix: str) -> None:
        """End members for good."""
        gone = [member for member in self.members if member.name.startswith(prefix)]
        self.members[:] = [member for member in self.members if member not in gone]
        for member in gone:
            if member.life is not None:
                member.life.end(signal.SIGKILL)

    def stop(self) -> None:
        """End all members in an orderly way, as an operator would."""
        self._is_over.set()
        if self._keeper is not None:
            self._keeper.join()
        for member in self.members:
            if member.life is not None and member.life.process.poll() is None:
                member.life.process.send_signal(signal.SIGCONT)
                member.life.ask_to_end()
        for member in self.members:
            if member.life is not None:
                member.life.process.wait(_STOP_SECONDS)

    def _keep(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            for member in list(self.members):
                self._look_after(member)

    def _look_after(self, member: Member) -> None:
        if member.life is not None:
            if member.life.process.poll() is None:
                return
            member.life = None
            member.not_before = boottime() + self.rng.uniform(0.1, _SLOWEST_RESTART_SECONDS)
        if boottime() >= member.not_before:
            member.life = self.roles.start(member.module, *member.arguments, environ=member.environ)
            member.lives += 1


@contextlib.contextmanager
def running_fleet(folder: Path, plan: Plan, world: World) -> Iterator[Fleet]:
    """A fleet that is starting; it is ended with the block, whatever happens."""
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="redis-"))  # short enough for a socket
        server = RedisServer(require_redis_binary(), Path(data), PERSISTENCE)
        server.start()
        stack.callback(server.stop)
        proxies = {name: stack.enter_context(running_proxy(server.url)) for name in NETWORKS}
        ports = (_free_port(), _free_port())
        roles = Roles(_made(folder / "logs"), environment(folder))
        stack.callback(roles.end_all)
        fleet = Fleet(
            plan=plan,
            roles=roles,
            members=_members(folder, plan, world, proxies, ports),
            redis=server,
            proxies=proxies,
            ports=ports,
            rng=random.Random(plan.seed + 1),
            folder=folder,
        )
        stack.callback(fleet._is_over.set)
        yield fleet


def _members(
    folder: Path, plan: Plan, world: World, proxies: dict[str, TcpProxy], ports: tuple[int, int]
) -> list[Member]:
    common = _settings(folder, plan, world)
    states = {network: _made(folder / network) for network in NETWORKS}

    def member(name: str, module: str, network: str, *arguments: str, **more: str) -> Member:
        here = {"GITOPS_STATE_DIR": str(states[network]), "GITOPS_REDIS_URL": proxies[network].url}
        return Member(name, module, arguments, {**common, **here, **more})

    worker = "tests.chaos.broken_worker" if plan.breakage is Breakage.FLOCK else "gitops_workers"
    third = "host2" if plan.hosts > 1 else "host1"
    return [
        *(member(f"receiver{n}", "gitops_services", "faces", GITOPS_PORT=str(port)) for n, port in enumerate(ports)),
        *(member(f"beat{n}", "gitops_workers", "faces", "beat") for n in range(2)),
        member("worker1", worker, "host1", "worker", "--name", "worker1"),
        member("worker2", worker, "host1", "worker", "--name", "worker2"),
        member("worker3", worker, third, "worker", "--name", "worker3"),
    ]


def _settings(folder: Path, plan: Plan, world: World) -> dict[str, str]:
    secrets = _made(folder / "webhooks")
    (secrets / "github").write_text(SECRET + "\n", encoding="utf-8")
    return {
        "GITOPS_REPO_URL": world.documents.url,
        "GITOPS_GIT_ALLOW_LOCAL": str(world.folder),
        "GITOPS_SYNC_INTERVAL_SEC": "120",
        "GITOPS_WEBHOOK_SECRETS_DIR": str(secrets),
        "GITOPS_LEASE_TTL": f"{plan.ttl:g}s",
        "GITOPS_LEASE_RENEWAL": f"{plan.renewal:g}s",
        "GITOPS_LEASE_GRACE": f"{plan.grace:g}s",
        "GITOPS_SWEEP_INTERVAL": f"{plan.sweep:g}s",
        "GITOPS_WORKER_SLOTS": str(plan.slots),
        "GITOPS_RUN_HISTORY": "10000",
    }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(fleet: Fleet, world: World, within: float) -> None:
    """Wait until every target has had a good run once; raises when that takes too long."""
    things = fleet.folder / "things"
    give_up = time.monotonic() + within
    while sum(path.stat().st_size > 0 for path in things.iterdir()) < len(world.targets):
        if time.monotonic() > give_up:
            text = "\n".join(member.life.text()[-2000:] for member in fleet.members if member.life is not None)
            raise TimeoutError(f"the fleet did not start within {within:g} s:\n{text}")
        time.sleep(0.2)
