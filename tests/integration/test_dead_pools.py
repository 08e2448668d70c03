"""Asks in a pool that no live worker serves: two beats, a worker of another pool, then one that serves it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.store.fleet import FleetState
from gitops_reconciler.work.base import Cause, ItemSpec
from gitops_reconciler.work.redis import RedisWork
from tests.support.processes import eventually
from tests.support.redis_server import RedisServer, running_redis
from tests.support.roles import RoleProcess, Roles, running_roles
from tests.support.worker_app import RAN

WORKER = "tests.support.worker_app"
START_SECONDS = 60.0
SOON = 45.0
WEB, API = "default/web", "default/api"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with running_redis() as started:
        yield started


@pytest.fixture
def client(server: RedisServer) -> Iterator[TextRedis]:
    with Redis.from_url(server.url, decode_responses=True) as client:
        yield as_text(client)


@pytest.fixture
def roles(server: RedisServer, tmp_path: Path) -> Iterator[Roles]:
    environ = {"GITOPS_REDIS_URL": server.url, "GITOPS_LEASE_GRACE": "1s", "GITOPS_POOL_DEAD_AFTER": "2s"}
    with running_roles(tmp_path / "roles", **environ) as started:
        yield started


def start_worker(roles: Roles, client: TextRedis, name: str, pools: str) -> RoleProcess:
    worker = roles.start(WORKER, name, environ={"GITOPS_POOLS": pools})

    def lives() -> bool:
        return any(entry.startswith(f"{name}@") for entry in client.hgetall(keys.WORKERS))

    assert eventually(lives, within=START_SECONDS), worker.text()
    return worker


def alerts(client: TextRedis) -> list[str]:
    return [fields["event"] for _, fields in client.xrange(keys.ALERTS)]


def test_a_pool_without_a_live_worker_is_told_once_and_so_is_its_recovery(roles: Roles, client: TextRedis) -> None:
    beats = [roles.start("gitops_workers", "beat") for _ in range(2)]
    other = start_worker(roles, client, "other", "ansible,notify")
    work = RedisWork(Redis.from_url(roles.environ["GITOPS_REDIS_URL"], decode_responses=True))
    for item in (WEB, API):
        work.register(ItemSpec(item=item, kind="x", pool="custom", repository=""), first_due_in_ms=None)
    work.request([API, WEB], Cause(trigger=Trigger.MANUAL, actor="ann"))

    assert eventually(lambda: alerts(client) == ["pool_dead"], within=SOON), beats[0].text()
    (dead,) = FleetState(client).dead_pools()
    assert (dead.pool, dead.waiting, dead.oldest) == ("custom", 2, API)
    assert eventually(lambda: "fleet pool dead: no live worker serves pool 'custom'" in other.text(), within=SOON)

    start_worker(roles, client, "serves", "custom")
    assert eventually(lambda: sorted(client.lrange(RAN, 0, -1)) == [API, WEB], within=SOON)
    assert eventually(lambda: alerts(client) == ["pool_dead", "pool_alive"], within=SOON)
    assert FleetState(client).dead_pools() == ()
    assert eventually(lambda: "fleet pool alive: pool 'custom'" in other.text(), within=SOON)
    assert other.text().count("fleet pool dead") == 1
    assert sum(beat.text().count("no live worker serves pool 'custom'") for beat in beats) == 1
