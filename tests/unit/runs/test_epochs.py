"""What a host keeps of its store's epoch, and what it does when the store is another one."""

from __future__ import annotations

import logging
import stat
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import fakeredis
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from gitops_reconciler import keys
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.runs.epochs import EpochFile, HostEpoch
from gitops_reconciler.store.fleet import FleetState, Pause
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.work.base import ItemSpec, Paused
from gitops_reconciler.work.redis import RedisWork

EPOCH, OTHER = "a" * 32, "b" * 32


@pytest.fixture
def file(tmp_path: Path) -> EpochFile:
    return EpochFile(tmp_path / "state" / "epoch")


@pytest.fixture
def client() -> TextRedis:
    return as_text(fakeredis.FakeRedis(decode_responses=True))


def host(client: TextRedis, file: EpochFile, name: str = "h1") -> HostEpoch:
    """A process of a host: what it knows is in the file."""
    return HostEpoch(file, RedisStore(client), RedisWork(client), host=name)


def pause_of(client: TextRedis) -> Pause | None:
    return FleetState(client).pause()


class TestFile:
    def test_what_was_written_is_read_and_nobody_else_may(self, file: EpochFile) -> None:
        file.write(EPOCH)
        file.write(OTHER)
        assert file.read() == OTHER
        assert [path.name for path in file.path.parent.iterdir()] == ["epoch"], "nothing half written is left"
        assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700

    @pytest.mark.parametrize("content", [b"", b"\n", b"\x00\xff\xfe", b"a" * 31, b"A" * 32, b"a" * 32 + b"\nmore"])
    def test_what_is_no_epoch_counts_as_none(
        self, file: EpochFile, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert file.read() is None
        file.path.parent.mkdir()
        file.path.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            assert file.read() is None
        assert "there is no epoch in" in caplog.text

    def test_a_folder_that_can_not_be_written_is_said_and_stops_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "state").write_text("a file, where the folder should be")
        blocked = EpochFile(tmp_path / "state" / "epoch")
        with caplog.at_level(logging.WARNING):
            blocked.write(EPOCH)
        assert "can't be kept" in caplog.text
        assert blocked.read() is None


class TestHost:
    def test_the_first_start_adopts_the_store_and_pauses_nothing(self, client: TextRedis, file: EpochFile) -> None:
        assert host(client, file).check()
        assert file.read() == client.get(keys.EPOCH)
        assert pause_of(client) is None

    def test_a_restart_finds_its_store_again(self, client: TextRedis, file: EpochFile) -> None:
        host(client, file).check()
        before = file.path.stat().st_mtime_ns
        assert host(client, file).check()
        assert file.path.stat().st_mtime_ns == before
        assert pause_of(client) is None

    def test_a_store_that_was_emptied_pauses_the_fleet_and_says_what_is_gone(
        self, client: TextRedis, file: EpochFile
    ) -> None:
        first = host(client, file)
        first.check()
        old = file.read()
        client.flushall()
        assert not first.check()
        pause = pause_of(client)
        assert pause is not None
        assert pause.reason.startswith("the store was emptied, or is a new one: host h1 worked with epoch")
        for lost in ("gitops source add", "suspensions", "API tokens", "history of runs", "gitops resume --fleet"):
            assert lost in pause.advice
        assert file.read() == old, "it is kept until a person has resumed the fleet"

    def test_a_store_with_targets_of_its_own_is_called_another_one(self, client: TextRedis, file: EpochFile) -> None:
        file.write(EPOCH)
        spec = ItemSpec(item="default/web", kind="x", pool="custom", repository="")
        RedisWork(client).register(spec, first_due_in_ms=None)
        assert not host(client, file).check()
        pause = pause_of(client)
        assert pause is not None
        assert "the store is another one" in pause.reason
        assert "GITOPS_REDIS_URL" in pause.advice

    def test_a_source_that_came_back_does_not_make_an_emptied_store_another_one(
        self, client: TextRedis, file: EpochFile
    ) -> None:
        file.write(EPOCH)
        spec = ItemSpec(item="source:default", kind="source", pool="source", repository="")
        RedisWork(client).register(spec, first_due_in_ms=None)
        RedisStore(client).put_source("default", {})
        host(client, file).check()
        pause = pause_of(client)
        assert pause is not None
        assert "was emptied" in pause.reason

    def test_all_hosts_adopt_the_store_once_a_person_has_resumed_the_fleet(
        self, client: TextRedis, file: EpochFile, tmp_path: Path
    ) -> None:
        other_file = EpochFile(tmp_path / "other" / "epoch")
        hosts = [host(client, file), host(client, file, "h1 too"), host(client, other_file, "h2")]
        assert all(one.check() for one in hosts)
        client.flushall()
        assert not any(one.check() for one in hosts)
        assert RedisWork(client).resume(actor="ann")
        assert all(one.check() for one in hosts)
        assert file.read() == other_file.read() == client.get(keys.EPOCH)
        assert pause_of(client) is None
        assert [fields["event"] for _, fields in client.xrange(keys.ALERTS)] == ["paused", "resumed"]

    def test_a_host_without_a_file_goes_on_beside_one_that_has_the_epoch(
        self, client: TextRedis, file: EpochFile, tmp_path: Path
    ) -> None:
        host(client, file).check()
        assert host(client, EpochFile(tmp_path / "new" / "epoch"), "h2").check()
        assert pause_of(client) is None

    def test_emptied_again_while_paused_it_is_paused_again(self, client: TextRedis, file: EpochFile) -> None:
        only = host(client, file)
        only.check()
        for _ in range(2):
            client.flushall()
            assert not only.check()
            assert pause_of(client) is not None

    def test_a_process_notices_it_where_the_file_could_not_be_kept(self, client: TextRedis, tmp_path: Path) -> None:
        (tmp_path / "state").write_text("a file, where the folder should be")
        only = host(client, EpochFile(tmp_path / "state" / "epoch"))
        assert only.check()
        client.flushall()
        assert not only.check()

    def test_a_claim_under_another_epoch_is_not_ours_until_the_host_has_adopted_it(
        self, client: TextRedis, file: EpochFile
    ) -> None:
        only = host(client, file)
        old = RedisStore(client).epoch()
        assert only.is_ours(old)
        client.flushall()
        new = RedisStore(client).epoch()
        assert not only.is_ours(new)
        assert not only.is_ours("")
        RedisWork(client).resume(actor="ann")
        assert only.is_ours(new)
        assert not only.is_ours(old)

    def test_what_is_ours_costs_no_look_at_the_store(self, file: EpochFile) -> None:
        @dataclass
        class Store:
            looks: list[str] = field(default_factory=list)

            def epoch(self) -> str:
                self.looks.append("epoch")
                return EPOCH

            def has_targets(self) -> bool:
                return False

        @dataclass
        class Work:
            def pause(self, reason: str, *, actor: str, advice: str = "", epoch: str = "") -> Paused:
                raise AssertionError(f"{reason}, {actor}, {advice}, {epoch}")

        store = Store()
        only = HostEpoch(file, store, Work())
        assert all(only.is_ours(EPOCH) for _ in range(5))
        assert store.looks == ["epoch"]

    def test_a_store_that_is_away_is_neither_ours_nor_another_one(self, client: TextRedis, file: EpochFile) -> None:
        class Away(RedisStore):
            def epoch(self) -> str:
                raise RedisConnectionError(uuid4().hex)

        with pytest.raises(StoreUnavailableError, match="did not tell its epoch"):
            HostEpoch(file, Away(client), RedisWork(client)).check()
        assert file.read() is None
