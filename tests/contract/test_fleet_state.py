"""Pausing, resuming and dead pools: the same suite on a real server and on fakeredis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import uuid4

import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import NextAsk, Trigger
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.store.fleet import FleetState
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.work.base import Cause, Claim, Completion, ItemSpec, Mark, Paused, PoolNews, Refusal
from gitops_reconciler.work.redis import RedisWork, WorkOptions

WEB, SOURCE = "default/web", "source:default"
MANUAL = Cause(trigger=Trigger.MANUAL, actor="ann")
OLD, OLDER = "a" * 32, "b" * 32
NOTHING_NEW = PoolNews(dead=(), alive=())


@pytest.fixture
def work(client: TextRedis) -> RedisWork:
    made = RedisWork(client)
    know(made, WEB)
    return made


def know(work: RedisWork, item: str, pool: str = "custom", kind: str = "x", due_in_ms: int | None = None) -> None:
    schedule = {"interval": 600} if due_in_ms is not None else {}
    work.register(
        ItemSpec(item=item, kind=kind, pool=pool, repository="", schedule=schedule), first_due_in_ms=due_in_ms
    )


def claim(work: RedisWork, item: str = WEB) -> Claim | Refusal:
    return work.claim(item, uuid4().hex, ttl_ms=60_000, holder="here")


def end(work: RedisWork, claimed: Claim | Refusal) -> None:
    assert isinstance(claimed, Claim), claimed
    completion = Completion(
        record={"state": "changed"}, status="ready", next_ask=NextAsk.INTERVAL, due_in_ms=600_000, applied=True
    )
    assert work.complete(claimed.item, claimed.token, claimed.run, completion)


def sweep(work: RedisWork) -> int:
    return work.sweep(limit=100, rewake_after_ms=1_000_000, ttl_ms=60_000).asked


def messages(client: TextRedis, pool: str = "custom") -> list[str]:
    return [json.loads(json.loads(raw)["body"])[0][0] for raw in client.lrange(f"tick.{pool}", 0, -1)]


def alerts(client: TextRedis) -> list[str]:
    return [fields["event"] for _, fields in client.xrange(keys.ALERTS)]


def serve(client: TextRedis, pools: Sequence[str], *, name: str = "w@h", silent_ms: int = 0) -> None:
    seconds, micros = client.time()
    sign = {"pools": list(pools), "at": seconds * 1000 + micros // 1000 - silent_ms, "slots": 4, "busy": 1}
    client.hset(keys.WORKERS, name, json.dumps(sign))


class TestPause:
    def test_a_person_is_told_once_however_often_it_is_said(self, work: RedisWork, client: TextRedis) -> None:
        assert work.pause("migration", actor="ann") is Paused.PAUSED
        assert work.pause("again", actor="bob") is Paused.KNOWN
        pause = FleetState(client).pause()
        assert pause is not None
        assert (pause.reason, pause.actor, pause.is_by_person) == ("migration", "ann", True)
        assert alerts(client) == ["paused"]
        assert client.xrange(keys.ALERTS)[0][1]["message"] == "by ann: migration"

    def test_sources_are_synced_while_no_target_is_claimed(self, work: RedisWork, client: TextRedis) -> None:
        know(work, SOURCE, "source", "source", due_in_ms=0)
        know(work, "default/due", due_in_ms=0)
        work.pause("migration", actor="ann")
        work.request([WEB], MANUAL)
        assert claim(work) is Refusal.PAUSED
        assert sweep(work) == 1
        assert messages(client, "source") == [SOURCE]
        assert isinstance(claim(work, SOURCE), Claim)

    def test_what_was_asked_for_meanwhile_is_woken_although_its_message_is_gone(
        self, work: RedisWork, client: TextRedis
    ) -> None:
        names = [f"default/t{index:04}" for index in range(1203)]  # more than one page of a resume
        for name in names:
            know(work, name)
        work.pause("migration", actor="ann")
        work.request(names, MANUAL)
        client.delete("tick.custom")
        assert work.resume(actor="ann", reason="done")
        assert sorted(messages(client)) == names
        assert client.hgetall(keys.QUEUED_IN) == {"custom": str(len(names))}
        end(work, claim(work, names[-1]))

    def test_what_was_asked_for_is_sent_through_a_broker_of_its_own_too(self, client: TextRedis) -> None:
        sent: list[tuple[str, str]] = []
        work = RedisWork(client, options=WorkOptions(pushes=False), waker=sent.extend)
        know(work, WEB)
        work.pause("migration", actor="ann")
        work.request([WEB], MANUAL)
        sent.clear()
        work.resume(actor="ann")
        assert (WEB, "custom") in sent

    def test_resuming_asks_for_nothing_that_nobody_asked_for(self, work: RedisWork, client: TextRedis) -> None:
        work.pause("migration", actor="ann")
        assert work.resume(actor="ann")
        assert messages(client) == []
        assert sweep(work) == 0
        assert alerts(client) == ["paused", "resumed"]

    def test_a_fleet_that_is_not_paused_can_not_be_resumed(self, work: RedisWork, client: TextRedis) -> None:
        assert not work.resume(actor="ann")
        assert alerts(client) == []


class TestEpochs:
    def test_a_host_of_this_store_pauses_nothing(self, work: RedisWork, client: TextRedis) -> None:
        ours = RedisStore(client).epoch()
        assert work.pause("another store", actor="h1", epoch=ours) is Paused.SAME
        assert FleetState(client).pause() is None

    def test_hosts_that_come_from_another_store_pause_it_with_one_alert(
        self, work: RedisWork, client: TextRedis
    ) -> None:
        RedisStore(client).epoch()
        assert work.pause("emptied", actor="h1", advice="look", epoch=OLD) is Paused.PAUSED
        assert work.pause("emptied", actor="h2", advice="look", epoch=OLD) is Paused.KNOWN
        assert work.pause("emptied", actor="h3", advice="look", epoch=OLDER) is Paused.KNOWN
        assert alerts(client) == ["paused"]
        assert client.xrange(keys.ALERTS)[0][1]["message"] == "emptied; look"

    def test_once_a_person_has_resumed_the_fleet_these_hosts_adopt_the_store_and_others_do_not(
        self, work: RedisWork, client: TextRedis
    ) -> None:
        RedisStore(client).epoch()
        work.pause("emptied", actor="h1", epoch=OLD)
        assert work.resume(actor="ann")
        assert work.pause("emptied", actor="h1", epoch=OLD) is Paused.ADOPT
        assert FleetState(client).pause() is None
        assert work.pause("emptied", actor="h9", epoch=OLDER) is Paused.PAUSED

    def test_a_pause_by_a_person_does_not_hide_that_the_store_is_another_one(
        self, work: RedisWork, client: TextRedis
    ) -> None:
        work.pause("migration", actor="ann")
        assert work.pause("emptied", actor="h1", epoch=OLD) is Paused.PAUSED
        pause = FleetState(client).pause()
        assert pause is not None
        assert (pause.reason, pause.is_by_person) == ("emptied", False)
        assert alerts(client) == ["paused", "paused"]

    def test_after_another_store_every_item_is_asked_for_once(self, work: RedisWork, client: TextRedis) -> None:
        know(work, "default/later", due_in_ms=600_000)
        know(work, "default/suspended")
        work.mark("default/suspended", Mark.SUSPEND, actor="ann")
        work.pause("swapped", actor="h1", epoch=OLD)
        work.resume(actor="ann")
        assert sweep(work) == 2
        assert sorted(messages(client)) == ["default/later", WEB]
        assert sweep(work) == 0


class TestPools:
    def look(self, work: RedisWork, dead_after_ms: int = 0) -> PoolNews:
        return work.look_at_pools(dead_after_ms=dead_after_ms, silent_after_ms=20_000)

    def die(self, work: RedisWork) -> PoolNews:
        """Let a pool be noticed, then be dead."""
        assert self.look(work) == NOTHING_NEW, "a pool that was never seen without a worker has not waited yet"
        return self.look(work)

    def test_asks_that_nobody_takes_are_told_once_whoever_looks(self, work: RedisWork, client: TextRedis) -> None:
        know(work, "default/api")
        work.request(["default/api", WEB], MANUAL)
        serve(client, ["ansible"])
        news = self.die(work)
        assert [pool for pool, _ in news.dead] == ["custom"]
        assert self.look(RedisWork(client)) == NOTHING_NEW
        (dead,) = FleetState(client).dead_pools()
        assert (dead.pool, dead.waiting, dead.oldest) == ("custom", 2, "default/api")
        ((_, fields),) = client.xrange(keys.ALERTS)
        assert (fields["event"], fields["item"], fields["pool"], fields["waiting"]) == ("pool_dead", "", "custom", "2")
        assert (
            "no live worker serves pool 'custom', where 2 asks wait: 'default/api' is the oldest" in fields["message"]
        )
        assert "GITOPS_POOLS=custom" in fields["message"]

    def test_a_worker_that_serves_it_ends_the_alarm(self, work: RedisWork, client: TextRedis) -> None:
        work.request([WEB], MANUAL)
        self.die(work)
        serve(client, ["custom"])
        assert self.look(work) == PoolNews(dead=(), alive=("custom",))
        assert self.look(work) == NOTHING_NEW
        assert FleetState(client).dead_pools() == ()
        assert alerts(client) == ["pool_dead", "pool_alive"]

    def test_so_does_an_ask_that_waits_no_more(self, work: RedisWork, client: TextRedis) -> None:
        work.request([WEB], MANUAL)
        self.die(work)
        work.mark(WEB, Mark.SUSPEND, actor="ann")
        assert self.look(work).alive == ("custom",)

    def test_a_pool_without_asks_needs_no_worker(self, work: RedisWork) -> None:
        assert self.die(work) == NOTHING_NEW

    def test_a_worker_that_has_gone_silent_serves_nothing(self, work: RedisWork, client: TextRedis) -> None:
        work.request([WEB], MANUAL)
        serve(client, ["custom"], silent_ms=19_000)
        assert self.die(work) == NOTHING_NEW
        serve(client, ["custom"], silent_ms=21_000)
        assert [pool for pool, _ in self.die(work).dead] == ["custom"]
        assert FleetState(client).workers() == ()

    def test_a_worker_that_comes_back_in_time_starts_the_wait_anew(self, work: RedisWork, client: TextRedis) -> None:
        work.request([WEB], MANUAL)
        assert self.look(work) == NOTHING_NEW
        serve(client, ["custom"])
        assert self.look(work) == NOTHING_NEW
        client.delete(keys.WORKERS)
        assert self.look(work) == NOTHING_NEW
        assert self.look(work, dead_after_ms=600_000) == NOTHING_NEW
        assert [pool for pool, _ in self.look(work).dead] == ["custom"]

    def test_signs_of_life_that_can_not_be_read_are_none(self, work: RedisWork, client: TextRedis) -> None:
        work.request([WEB], MANUAL)
        for name, text in (("a", "{"), ("b", "[]"), ("c", '{"pools": "custom", "at": 9e15}'), ("d", "null")):
            client.hset(keys.WORKERS, name, text)
        assert [pool for pool, _ in self.die(work).dead] == ["custom"]
        assert not any("custom" in worker.pools for worker in FleetState(client).workers())

    def test_of_a_paused_fleet_no_pool_is_called_dead(self, work: RedisWork, client: TextRedis) -> None:
        work.request([WEB], MANUAL)
        self.look(work)
        work.pause("migration", actor="ann")
        assert self.die(work) == NOTHING_NEW
        work.resume(actor="ann")
        assert [pool for pool, _ in self.die(work).dead] == ["custom"]
