"""Nobody starves: not a target beside one that asks all the time, not a pool beside one whose runs are slow."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.wiring import Fleet
from gitops_reconciler.work.base import Cause, ItemSpec
from gitops_workers.messages import tick_queue
from tests.support.processes import eventually
from tests.support.redis_server import RedisServer, running_redis
from tests.support.roles import RoleProcess, Roles, running_roles
from tests.support.worker_app import RAN, hold_of

WORKER = "tests.support.worker_app"
BOUND = 60.0
ASK = Cause(trigger=Trigger.MANUAL, actor="ann")
PUSH = Cause(trigger=Trigger.WEBHOOK, actor="hook")
REF = "example.org/mono#refs/heads/main"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as started:
        yield started


@pytest.fixture
def fleet(server: RedisServer) -> Fleet:
    fleet = Fleet(Roles(Path(), {"GITOPS_REDIS_URL": server.url}).settings)
    fleet.client.flushall()
    return fleet


@pytest.fixture
def client(fleet: Fleet) -> TextRedis:
    return as_text(fleet.client)


@pytest.fixture
def roles(server: RedisServer, client: TextRedis, tmp_path: Path) -> Iterator[Roles]:
    with running_roles(tmp_path / "roles", GITOPS_REDIS_URL=server.url) as started:
        yield started
        client.flushall()  # nothing holds the runs that are under way


def start_worker(roles: Roles, client: TextRedis, *, slots: int, pools: str, name: str = "w") -> RoleProcess:
    """Start a worker with simple runs and wait until it says that it lives."""
    environ = {"GITOPS_WORKER_SLOTS": str(slots), "GITOPS_POOLS": pools}
    worker = roles.start(WORKER, name, environ=environ)

    def lives() -> bool:
        return any(entry.startswith(f"{name}@") for entry in client.hgetall(keys.WORKERS))

    assert eventually(lives, within=BOUND), worker.text()
    return worker


def know(fleet: Fleet, pool: str, count: int, *, name: str = "", refs: tuple[str, ...] = ()) -> list[str]:
    """Register targets of a pool, called after it or as told."""
    names = [f"default/{name or pool}-{number:03d}" for number in range(count)]
    for item in names:
        fleet.work.register(ItemSpec(item=item, kind="x", pool=pool, repository="", refs=refs), first_due_in_ms=None)
    return names


def ran(client: TextRedis, pool: str = "") -> list[str]:
    return [item for item in client.lrange(RAN, 0, -1) if item.startswith(f"default/{pool}")]


@contextmanager
def asking_all_the_time(roles: Roles, *, items: list[str] | None = None) -> Iterator[None]:
    """Ask for these, or push to the repository, without pause while the body runs."""
    work, is_over = Fleet(roles.settings).work, threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            if items is None:
                work.push([REF], PUSH, delivery=None)
            else:
                work.request(items, ASK)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_target_that_is_asked_for_without_pause_lets_all_others_run_within_one_round(
    roles: Roles, fleet: Fleet, client: TextRedis
) -> None:
    (noisy,), others = know(fleet, "custom", 1, name="loud"), know(fleet, "custom", 20, name="calm")
    worker = start_worker(roles, client, slots=1, pools="custom")
    with asking_all_the_time(roles, items=[noisy]):
        assert eventually(lambda: len(ran(client, "loud")) >= 5, within=BOUND), worker.text()
        for _ in range(3):
            client.delete(RAN)
            fleet.work.request(others, ASK)
            assert eventually(lambda: len(ran(client, "calm")) == 20, within=BOUND), worker.text()
            order = client.lrange(RAN, 0, -1)
            last = max(index for index, item in enumerate(order) if item != noisy)
            # At most one run that was under way and one message that was before theirs; from then on it is behind them.
            assert order[:last].count(noisy) <= 2, order
    assert worker.end() == 0


def test_a_repository_of_a_hundred_targets_that_is_pushed_without_pause_starves_no_other_target(
    roles: Roles, fleet: Fleet, client: TextRedis
) -> None:
    know(fleet, "custom", 100, name="mono", refs=(REF,))
    (other,) = know(fleet, "custom", 1, name="other")
    worker = start_worker(roles, client, slots=2, pools="custom")
    with asking_all_the_time(roles):
        assert eventually(lambda: len(ran(client, "mono")) >= 150, within=BOUND), worker.text()
        for _ in range(3):
            client.delete(RAN)
            fleet.work.request([other], ASK)
            assert eventually(lambda: bool(ran(client, "other")), within=BOUND), worker.text()
            order = client.lrange(RAN, 0, -1)
            assert order.index(other) <= 104, "a round is all the others once, and what the slots held"
    assert worker.end() == 0


def start_flooded(roles: Roles, fleet: Fleet, client: TextRedis) -> tuple[RoleProcess, list[str], list[str]]:
    """Start a worker of three pools with four slots, of which the first floods it with runs that do not end."""
    slow, second, third = (know(fleet, pool, 10) for pool in ("aa", "bb", "cc"))
    client.set(hold_of("aa"), "1")
    worker = start_worker(roles, client, slots=4, pools="aa,bb,cc")
    fleet.work.request(slow, ASK)
    assert eventually(lambda: len(ran(client, "aa")) == 2, within=BOUND), worker.text()
    return worker, second, third


def run_at_once(fleet: Fleet, client: TextRedis, items: list[str], pool: str) -> None:
    before = len(ran(client, pool))
    fleet.work.request(items, ASK)
    assert eventually(lambda: len(ran(client, pool)) == before + len(items), within=BOUND), client.lrange(RAN, 0, -1)


def test_a_pool_of_slow_runs_takes_what_is_left_and_the_others_run_at_once(
    roles: Roles, fleet: Fleet, client: TextRedis
) -> None:
    worker, second, third = start_flooded(roles, fleet, client)
    for _ in range(2):
        run_at_once(fleet, client, second, "bb")
        run_at_once(fleet, client, third, "cc")
    assert len(ran(client, "aa")) == 2, "the slots of the others are kept, not lent"
    assert client.llen(tick_queue("aa")) == 8, "what can't run here lies where another worker finds it"
    client.delete(hold_of("aa"))
    assert eventually(lambda: len(ran(client, "aa")) == 10, within=BOUND), worker.text()
    assert worker.end() == 0


def test_another_worker_gets_what_this_one_may_not_take(roles: Roles, fleet: Fleet, client: TextRedis) -> None:
    start_flooded(roles, fleet, client)
    start_worker(roles, client, slots=8, pools="aa", name="v")
    assert eventually(lambda: len(ran(client, "aa")) == 10, within=BOUND)


def test_slots_that_no_pool_in_use_needs_are_taken(roles: Roles, fleet: Fleet, client: TextRedis) -> None:
    slow = know(fleet, "aa", 10)
    client.set(hold_of("aa"), "1")
    worker = start_worker(roles, client, slots=4, pools="aa,bb,cc")
    fleet.work.request(slow, ASK)
    assert eventually(lambda: len(ran(client, "aa")) == 4, within=BOUND), worker.text()


def test_it_stays_so_after_the_connections_were_cut(roles: Roles, fleet: Fleet, client: TextRedis) -> None:
    worker, second, third = start_flooded(roles, fleet, client)
    for kind in ("normal", "pubsub"):
        fleet.client.client_kill_filter(_type=kind, skipme=True)
    assert eventually(lambda: worker.text().count("Connected to") >= 2, within=BOUND), worker.text()
    run_at_once(fleet, client, second, "bb")
    run_at_once(fleet, client, third, "cc")
    assert len(ran(client, "aa")) == 2
    client.delete(hold_of("aa"))
    assert eventually(lambda: len(ran(client, "aa")) == 10, within=BOUND), worker.text()
    assert worker.end() == 0


def test_a_slot_that_gets_free_is_used_at_once_and_not_at_the_next_poll(
    roles: Roles, fleet: Fleet, client: TextRedis
) -> None:
    """A hundred runs beside a kept slot: one a second, as long as a blocking call lasts, would be minutes."""
    flood, _ = know(fleet, "aa", 100), know(fleet, "bb", 1)
    worker = start_worker(roles, client, slots=2, pools="aa,bb")
    fleet.client.config_resetstat()
    fleet.work.request(flood, ASK)
    assert eventually(lambda: len(ran(client, "aa")) == 100, within=BOUND), worker.text()
    # Each ends by a message or because a slot got free: nearly none by its second being over.
    assert client.info("commandstats")["cmdstat_client|unblock"]["calls"] > 50
