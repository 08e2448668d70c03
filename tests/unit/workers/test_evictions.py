"""What beat does about a store that throws keys away."""

import logging

import pytest

from gitops_reconciler.redis_text import as_text
from gitops_workers.evictions import EvictionWatch


class Store:
    """A server whose INFO can be changed."""

    def __init__(self) -> None:
        self.said: dict[str, object] = {"maxmemory_policy": "noeviction", "maxmemory": 10**9, "evicted_keys": 5}

    def info(self, _section: str) -> dict[str, object]:
        return self.said


class Scene:
    def __init__(self) -> None:
        self.store, self.now, self.paused = Store(), 0.0, list[str]()
        client = as_text(self.store)  # type: ignore[arg-type]  # as much of a client as is asked
        self.watch = EvictionWatch(client, self.paused.append, clock=lambda: self.now)

    def look(self, **said: object) -> None:
        self.store.said.update(said)
        self.now += 10
        self.watch.look()


def test_a_policy_that_evicts_is_said_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO):
        for policy in ("noeviction", "volatile-lru", "volatile-lru", "noeviction", "noeviction"):
            scene.look(maxmemory_policy=policy)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert scene.paused == []


def test_the_fleet_is_paused_once_keys_were_thrown_away_meanwhile() -> None:
    scene = Scene()
    scene.look(maxmemory_policy="allkeys-lru")
    assert scene.paused == []  # those of before are of before
    scene.look(evicted_keys=12)
    assert scene.paused == ["redis threw 7 keys away, perhaps leases and asks of the fleet"]


def test_a_server_that_began_to_count_anew_pauses_nothing() -> None:
    scene = Scene()
    scene.look(maxmemory_policy="allkeys-lru")
    scene.look(evicted_keys=0)
    assert scene.paused == []
