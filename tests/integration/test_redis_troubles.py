"""What may happen to Redis under a running fleet: full, emptied, replaced, restarted; no role falls over."""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from redis import Redis
from redis.exceptions import RedisError

from gitops_reconciler import keys
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.outcomes import NextAsk, Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.wiring import Fleet
from gitops_reconciler.work.base import Cause, Claim, Completion, ItemSpec, Renewal
from tests.support.processes import eventually
from tests.support.redis_kinds import running_sentinel
from tests.support.redis_server import RedisServer, running_redis
from tests.support.roles import RoleProcess, Roles, running_roles
from tests.support.worker_app import RAN

WAIT_SECONDS = 60.0
MENDED = "sweeps work again"
ASK = Cause(trigger=Trigger.MANUAL, actor="ann")
WEB, SITE, OWN = "default/web", "default/site", "default/ours"
WITH_AOF = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")


def well(**more: str) -> Completion:
    """The good end of a run."""
    record = {"state": "changed", "reason": "Applied", "message": "done", "revision": "", **more}
    return Completion(record=record, status="ready", next_ask=NextAsk.INTERVAL, due_in_ms=600_000, applied=True)


@dataclass
class Scene:
    """A worker with simple runs, a beat and a receiver."""

    roles: Roles
    worker: RoleProcess
    beat: RoleProcess
    receiver: RoleProcess

    def __post_init__(self) -> None:
        self.fleet = Fleet(self.roles.settings)
        self.client: TextRedis = as_text(self.fleet.client)

    def everything(self) -> str:
        return "\n".join(role.text() for role in self.roles.started)

    def comes_true(self, holds: Callable[[], bool]) -> bool:
        """Whether it holds in time; an answer that Redis does not give counts as no."""

        def asked() -> bool:
            try:
                return holds()
            except (RedisError, StoreUnavailableError):
                return False

        return eventually(asked, within=WAIT_SECONDS)

    def lives(self) -> bool:
        """Whether all three do their work, and say so."""
        return self.client.hlen(keys.WORKERS) == 1 and self.client.exists(keys.SWEPT) == 1 and bool(self.url)

    @property
    def url(self) -> str:
        found = re.search(r"listening on (http://\S+)", self.receiver.text())
        return found[1] if found else ""

    def know(self, item: str, *, pool: str = "custom", due_in_ms: int | None = None) -> None:
        spec = ItemSpec(item=item, kind="x", pool=pool, repository="", schedule={"interval": 600})
        self.fleet.work.register(spec, first_due_in_ms=due_in_ms)

    def claimed(self, item: str) -> Claim:
        """A claim of our own, of an item that the worker does not serve."""
        self.know(item, pool="ours")
        self.fleet.work.request([item], ASK)
        claim = self.fleet.work.claim(item, "a-run", ttl_ms=60_000, holder="here")
        assert isinstance(claim, Claim)
        return claim

    def ask(self, item: str) -> httpx.Response:
        return httpx.post(f"{self.url}/api/v1/targets/{item}/tick", timeout=30)

    def ran(self) -> list[str]:
        return self.client.lrange(RAN, 0, -1)

    def has_run(self, item: str) -> bool:
        return item in self.ran()

    def status(self, item: str) -> str | None:
        return self.client.hget(keys.item(item), "status")

    def end(self) -> None:
        """All of them end as they should, and none of them had fallen over."""
        assert [role.end() for role in (self.receiver, self.beat, self.worker)] == [0, 0, 0], self.everything()
        assert "Traceback" not in self.everything()
        assert "CRITICAL" not in self.everything()


@contextmanager
def running_scene(folder: Path, url: str) -> Iterator[Scene]:
    environ = {"GITOPS_REDIS_URL": url, "GITOPS_PORT": "0", "GITOPS_LEASE_GRACE": "1s", "GITOPS_POOLS": "custom,notify"}
    with running_roles(folder, **environ) as roles:
        scene = Scene(
            roles,
            roles.start("tests.support.worker_app", "w"),
            roles.start("gitops_workers", "beat"),
            roles.start("gitops_services"),
        )
        assert scene.comes_true(scene.lives), scene.everything()
        yield scene


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis(WITH_AOF) as started:
        yield started


@pytest.fixture(scope="module")
def scene(server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One fleet that has to live through all of it, and ends as if nothing had been."""
    with running_scene(tmp_path_factory.mktemp("roles"), server.url) as running:
        yield running
        running.end()


@pytest.fixture
def admin(server: RedisServer, scene: Scene) -> Iterator[Redis]:
    """Who may do everything; afterwards the server is as it was, and the fleet works."""
    with Redis.from_url(server.url, decode_responses=True) as client:
        yield client
        client.replicaof("NO", "ONE")
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
        client.delete(RAN)
        scene.fleet.work.resume(actor="ann")


@pytest.mark.req("R0.12")
def test_with_memory_full_runs_end_and_asks_are_refused_in_clear_words_and_it_mends_itself(
    scene: Scene, admin: Redis
) -> None:
    scene.know(SITE)
    claim = scene.claimed(OWN)

    admin.config_set("maxmemory", 1)
    answer = scene.ask(SITE)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert "redis is full" in answer.json()["message"]
    assert int(answer.headers["retry-after"]) > 0
    assert scene.comes_true(lambda: "redis is full" in scene.beat.text()), scene.beat.text()
    assert scene.comes_true(lambda: "redis is full" in scene.worker.text()), scene.worker.text()
    assert scene.fleet.work.renew(OWN, claim.token, claim.run, ttl_ms=60_000) is Renewal.HELD
    admin.delete(keys.lease(OWN))  # expired, and nobody has claimed since
    assert scene.fleet.work.renew(OWN, claim.token, claim.run, ttl_ms=60_000) is Renewal.HELD
    assert scene.fleet.work.complete(OWN, claim.token, claim.run, well(log="x" * 60_000))
    assert (scene.status(OWN), admin.exists(keys.lease(OWN))) == ("ready", 0)
    assert admin.hget(keys.run(claim.run), "log") == "x" * 60_000
    assert admin.hget(keys.item(SITE), "requested") == "0"

    late = scene.roles.start("tests.support.worker_app", "late")
    assert scene.comes_true(lambda: "Error" in late.text() or "redis is full" in late.text()), late.text()
    admin.config_set("maxmemory", 0)
    assert scene.comes_true(lambda: MENDED in scene.beat.text()), scene.beat.text()
    assert scene.ask(SITE).status_code == 202
    assert scene.comes_true(lambda: scene.status(SITE) == "ready"), scene.everything()
    assert scene.comes_true(lambda: admin.hlen(keys.WORKERS) == 2), late.text()
    assert late.end() == 0


def test_a_server_that_evicts_keys_is_refused_by_every_role(tmp_path: Path) -> None:
    arguments = [*WITH_AOF, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]
    with running_redis(arguments) as server, running_roles(tmp_path, GITOPS_REDIS_URL=server.url) as roles:
        started = [
            roles.start("gitops_workers", "worker"),
            roles.start("gitops_workers", "beat"),
            roles.start("gitops_services"),
            roles.start("gitops_reconciler.cli", "up"),
        ]
        for role in started:
            assert role.process.wait(WAIT_SECONDS) == 2, role.text()
            assert "maxmemory-policy volatile-lru" in role.text()
            assert "set maxmemory-policy noeviction" in role.text()
            assert role.text().count("\n") == 1, role.text()


def test_forgotten_scripts_are_sent_again_by_every_role(scene: Scene, admin: Redis) -> None:
    for number in range(5):
        item = f"default/t{number}"
        scene.know(item, due_in_ms=1)
        admin.script_flush()
        assert scene.comes_true(lambda item=item: scene.status(item) == "ready"), scene.everything()  # type: ignore[misc]
        admin.script_flush()
        assert scene.ask(item).status_code == 202
        admin.script_flush()


def test_a_replica_that_takes_no_writes_is_left_and_all_goes_on_once_there_is_a_master(
    scene: Scene, admin: Redis
) -> None:
    scene.know(WEB)
    mended = scene.beat.text().count(MENDED)
    admin.replicaof("127.0.0.1", 1)
    assert scene.comes_true(lambda: "read-only replica" in scene.beat.text()), scene.beat.text()
    assert scene.comes_true(lambda: "ReadOnlyError" in scene.worker.text()), scene.worker.text()
    assert scene.ask(WEB).status_code == 503
    admin.replicaof("NO", "ONE")
    assert scene.comes_true(lambda: scene.beat.text().count(MENDED) > mended), scene.beat.text()
    assert scene.ask(WEB).status_code == 202
    assert scene.comes_true(lambda: scene.has_run(WEB)), scene.everything()


def test_a_restart_that_takes_its_time_to_load_keeps_everything_and_all_reconnect(
    server: RedisServer, scene: Scene, admin: Redis
) -> None:
    scene.know(WEB)
    scene.know(OWN, due_in_ms=3_600_000)
    admin.mset({f"ballast:{number}": number for number in range(4000)})
    admin.bgrewriteaof()
    assert eventually(lambda: not admin.info("persistence")["aof_rewrite_in_progress"], within=WAIT_SECONDS)
    before = admin.hgetall(keys.item(OWN))
    mended = scene.beat.text().count(MENDED)
    server.stop(signal.SIGKILL)
    server.start("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
    assert scene.comes_true(lambda: "redis is still loading" in scene.everything()), scene.beat.text()
    assert scene.comes_true(lambda: scene.beat.text().count(MENDED) > mended), scene.beat.text()
    assert admin.hget(keys.item(OWN), "schedule") == before["schedule"]
    assert admin.exists(keys.PAUSED) == 0
    # After the gap every target is asked once, whatever it was due at.
    assert scene.comes_true(lambda: scene.has_run(OWN) and scene.has_run(WEB)), scene.everything()
    assert scene.ran().count(OWN) == 1


def test_a_server_that_begins_to_evict_is_said_and_once_keys_are_gone_the_fleet_is_paused(
    scene: Scene, admin: Redis
) -> None:
    admin.config_set("maxmemory-policy", "volatile-ttl")  # what expires next is thrown away first
    admin.config_set("maxmemory", "1gb")
    assert scene.comes_true(lambda: "redis throws keys away" in scene.beat.text()), scene.beat.text()
    assert admin.exists(keys.PAUSED) == 0
    for number in range(200):
        admin.set(f"somebody-elses:{number}", "x" * 10_000, ex=30)
    admin.config_set("maxmemory", int(admin.info("memory")["used_memory"]) - 500_000)
    assert scene.comes_true(lambda: admin.exists(keys.PAUSED) == 1), scene.beat.text()
    assert "keys away" in scene.beat.text() + str(admin.get(keys.PAUSED))


def test_an_emptied_store_fells_no_role_and_what_is_registered_anew_is_run(scene: Scene, admin: Redis) -> None:
    claim = scene.claimed(OWN)
    scene.know("default/web-fails")
    assert scene.ask("default/web-fails").status_code == 202
    alerts = "default/web-fails failed"
    assert scene.comes_true(lambda: scene.worker.text().count(alerts) == 1), scene.worker.text()

    admin.flushall()
    assert scene.fleet.work.renew(OWN, claim.token, claim.run, ttl_ms=60_000) is Renewal.LOST
    assert not scene.fleet.work.complete(OWN, claim.token, claim.run, well())
    assert admin.keys(f"{keys.PREFIX}:run:*") == []
    assert not admin.exists(keys.item(OWN))
    assert scene.comes_true(lambda: admin.exists(keys.PAUSED) == 1 and scene.lives()), scene.everything()
    scene.fleet.work.resume(actor="ann")
    scene.know("default/web-fails")
    scene.know(WEB)
    for item in ("default/web-fails", WEB):
        assert scene.ask(item).status_code == 202
    assert scene.comes_true(lambda: scene.status(WEB) == "ready"), scene.everything()
    assert scene.comes_true(lambda: scene.worker.text().count(alerts) == 2), scene.worker.text()


def test_a_fail_over_of_sentinels_is_followed_by_every_role(tmp_path: Path) -> None:
    with running_sentinel() as servers, running_scene(tmp_path / "roles", servers.url) as scene:
        scene.know(WEB)
        assert scene.ask(WEB).status_code == 202
        assert scene.comes_true(lambda: scene.status(WEB) == "ready"), scene.everything()
        servers.master.stop(signal.SIGKILL)
        assert eventually(lambda: servers.master_port() == servers.ports["replica"], within=WAIT_SECONDS)
        assert scene.comes_true(scene.lives), scene.everything()
        scene.know(SITE, due_in_ms=1)
        assert scene.comes_true(lambda: scene.status(SITE) == "ready"), scene.everything()
        assert scene.comes_true(scene.lives), scene.everything()
        assert scene.ask(WEB).status_code == 202
        scene.end()
