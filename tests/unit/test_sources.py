"""Registering a source is three writes; a crash between two of them must leave nothing that never syncs."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.redis_text import as_text
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.sources import SourceRegistration, register_source, seed_default
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.work.redis import RedisWork

INFRA = SourceRegistration(name="default", repo="https://forge.example/acme/infra.git", branch="live")


class Fleet:
    def __init__(self) -> None:
        client = as_text(fakeredis.FakeRedis(decode_responses=True))
        self.store, self.work = RedisStore(client), RedisWork(client)


class CrashingWork(RedisWork):
    """Dies at its first registration."""

    def register(self, *_: Any, **__: Any) -> bool:
        raise StoreUnavailableError("redis went away")


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def settings() -> Settings:
    return load_settings(repo_url="https://forge.example/acme/other.git")


def test_a_registration_that_is_cut_off_leaves_no_source_that_is_known_but_never_synced(
    fleet: Fleet, settings: Settings
) -> None:
    broken = CrashingWork(fleet.store._client)
    with pytest.raises(StoreUnavailableError):
        register_source(fleet.store, broken, INFRA, settings)
    assert fleet.store.sources() == {}
    assert fleet.store.item("source:default") is None

    assert seed_default(fleet.store, fleet.work, settings)
    assert fleet.store.queued() == ["source:default"]


def test_a_source_that_is_known_but_has_no_item_is_repaired_as_it_was_registered(
    fleet: Fleet, settings: Settings
) -> None:
    fleet.store.put_source("default", INFRA.model_dump(mode="json"))

    assert seed_default(fleet.store, fleet.work, settings)

    item = fleet.store.item("source:default")
    assert item is not None
    assert (item.fields["url"], item.fields["ref"]) == (INFRA.repo, "refs/heads/live")
    assert fleet.store.queued() == ["source:default"]


def test_a_source_that_is_whole_is_left_alone(fleet: Fleet, settings: Settings) -> None:
    register_source(fleet.store, fleet.work, INFRA, settings)
    assert not seed_default(fleet.store, fleet.work, settings)
    assert fleet.store.sources()["default"]["repo"] == INFRA.repo


def test_without_a_url_nothing_is_seeded(fleet: Fleet) -> None:
    assert not seed_default(fleet.store, fleet.work, load_settings())
    assert fleet.store.sources() == {}
