"""The work protocol: the same suite on a real server and on fakeredis, so that fakeredis may be trusted elsewhere."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.errors import LeaseLostError, Reason
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState, Trigger, target_status
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.work.base import (
    Answer,
    Cause,
    Claim,
    Completion,
    Guard,
    ItemSpec,
    Mark,
    Refusal,
    Renewal,
    Suspension,
    Swept,
)
from gitops_reconciler.work.redis import RedisWork, WorkOptions

TTL_MS = 60_000
WEB = "default/web"
REF = "forge.example/acme/infra#refs/heads/main"
MANUAL = Cause(trigger=Trigger.MANUAL, actor="ann")


@pytest.fixture
def work(client: TextRedis) -> RedisWork:
    made = RedisWork(client)
    made.register(spec(WEB), first_due_in_ms=None)
    return made


def spec(item: str, **changes: object) -> ItemSpec:
    fields: dict[str, object] = {
        "item": item,
        "kind": "stdshell",
        "pool": "custom",
        "repository": "forge.example/acme/infra",
        "refs": (REF,),
        "schedule": {"interval": 600},
    }
    return ItemSpec(**{**fields, **changes})  # type: ignore[arg-type]  # a table of fields


def run_id() -> str:
    return uuid4().hex


def claimed(work: RedisWork, item: str = WEB, ttl_ms: int = TTL_MS) -> Claim:
    claim = work.claim(item, run_id(), ttl_ms=ttl_ms, holder="here")
    assert isinstance(claim, Claim), claim
    return claim


def ended(state: str = "changed", status: str | None = "ready", **changes: object) -> Completion:
    fields: dict[str, object] = {
        "record": {"state": state, "reason": "Applied", "message": "done", "revision": "a" * 40},
        "status": status,
        "next_ask": NextAsk.INTERVAL,
        "due_in_ms": 600_000,
        "applied": status == "ready",
    }
    return Completion(**{**fields, **changes})  # type: ignore[arg-type]  # a table of fields


def complete(work: RedisWork, claim: Claim, completion: Completion | None = None) -> bool:
    return work.complete(claim.item, claim.token, claim.run, completion or ended())


def expire_lease(client: TextRedis, item: str = WEB) -> None:
    """Let the lease end now, as its expiry would."""
    client.delete(keys.lease(item))
    client.zadd(keys.LEASES, {item: 1})


def seconds_until_due(client: TextRedis, item: str = WEB) -> int:
    seconds, micros = client.time()
    return round((client.zscore(keys.DUE, item) or 0) / 1000 - seconds - micros / 1e6)


def messages(client: TextRedis, pool: str = "custom") -> list[str]:
    return [json.loads(json.loads(raw)["body"])[0][0] for raw in client.lrange(f"tick.{pool}", 0, -1)]


def event_names(client: TextRedis) -> list[str]:
    return [fields["event"] for _, fields in client.xrange(keys.EVENTS) if fields["event"] != "ended"]


def test_an_ask_raises_the_generation_and_sends_one_message_with_the_name_alone(
    work: RedisWork, client: TextRedis
) -> None:
    (ask,) = work.request([WEB], MANUAL)
    assert (ask.answer, ask.generation) == (Answer.QUEUED, 1)
    assert messages(client) == [WEB]
    body = json.loads(json.loads(client.lrange("tick.custom", 0, 0)[0])["body"])
    assert body[0] == [WEB]
    assert body[1] == {}


def test_asks_before_the_claim_are_coalesced_into_one_run(work: RedisWork, client: TextRedis) -> None:
    answers = [work.request([WEB], MANUAL)[0].answer for _ in range(5)]
    assert answers == [Answer.QUEUED] + [Answer.COALESCED] * 4
    assert messages(client) == [WEB]
    claim = claimed(work)
    assert claim.generation == 5
    assert complete(work, claim)
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.NOTHING_TO_DO


@pytest.mark.req("R4.40")
def test_many_asks_during_a_run_cause_exactly_one_more_run(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    client.delete("tick.custom")
    answers = [work.request([WEB], Cause(trigger=Trigger.WEBHOOK))[0].answer for _ in range(7)]
    assert answers == [Answer.DEFERRED] * 7
    assert messages(client) == []
    assert complete(work, claim)
    assert messages(client) == [WEB]
    again = claimed(work)
    assert again.generation == 8
    assert complete(work, again)
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.NOTHING_TO_DO


@pytest.mark.req("RM.4")
def test_a_held_lease_keeps_every_other_claim_out(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    claimed(work)
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="there") is Refusal.BUSY


def test_of_many_claims_at_once_exactly_one_is_given(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="x"), range(16)))
    assert sum(isinstance(answer, Claim) for answer in answers) == 1
    assert all(answer is Refusal.BUSY for answer in answers if not isinstance(answer, Claim))


def test_a_doubled_message_finds_nothing_to_do(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    complete(work, claimed(work))
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.NOTHING_TO_DO


def test_tokens_rise_and_an_old_token_is_refused_everywhere(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    old = claimed(work)
    expire_lease(client)
    new = claimed(work)
    assert new.token > old.token
    assert work.renew(WEB, old.token, old.run, ttl_ms=TTL_MS) is Renewal.LOST
    assert not complete(work, old)
    assert work.renew(WEB, new.token, new.run, ttl_ms=TTL_MS) is Renewal.HELD_ASKED_AGAIN
    assert client.hget(keys.run(old.run), "state") == "lost"


def test_a_refused_completion_is_an_ask_and_fills_in_only_its_own_run(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    old = claimed(work)
    expire_lease(client)
    new = claimed(work)
    assert not complete(work, old, ended("changed"))
    assert client.hget(keys.run(old.run), "late_state") == "changed"
    assert client.hget(keys.item(WEB), "status") == "running"
    assert complete(work, new)
    assert messages(client).count(WEB) >= 1
    assert claimed(work).generation > new.generation


def test_the_token_rises_even_when_the_store_forgot_the_claim(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    before = claimed(work)
    client.flushdb()
    work.register(spec(WEB), first_due_in_ms=None)
    work.request([WEB], MANUAL)
    assert claimed(work).token > before.token


def test_a_renewal_says_that_more_was_asked_for(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    assert work.renew(WEB, claim.token, claim.run, ttl_ms=TTL_MS) is Renewal.HELD
    work.request([WEB], MANUAL)
    assert work.renew(WEB, claim.token, claim.run, ttl_ms=TTL_MS) is Renewal.HELD_ASKED_AGAIN


def test_the_same_holder_may_confirm_an_expired_lease_that_nobody_claimed(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    expire_lease(client)
    assert work.renew(WEB, claim.token, claim.run, ttl_ms=TTL_MS) is Renewal.HELD
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="there") is Refusal.BUSY


def test_another_run_with_the_same_token_is_not_the_holder(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    assert work.renew(WEB, claim.token, run_id(), ttl_ms=TTL_MS) is Renewal.LOST
    assert not work.complete(WEB, claim.token, run_id(), ended())


@pytest.mark.req("RM.6", "R0.16")
def test_the_end_writes_run_revision_status_and_event_in_one_go(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    assert complete(work, claim)
    store = RedisStore(client)
    view = store.item(WEB)
    assert view is not None
    assert (view.status, view.applied_revision, view.requested, view.observed) == ("ready", "a" * 40, 1, 1)
    assert view.due_at is not None
    run = store.run(claim.run)
    assert run is not None
    assert run.state == "changed"
    assert json.loads(run.fields["causes"]) == [{"trigger": "manual", "actor": "ann"}]
    assert "changed" in event_names(client)
    assert store.runs(WEB)[0].run == claim.run


@pytest.mark.req("R0.17")
def test_a_failure_keeps_what_was_applied_last(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    complete(work, claimed(work))
    work.request([WEB], MANUAL)
    record = {"state": "failed", "message": "no", "revision": "b" * 40}
    failure = ended("failed", "failed", applied=False, record=record)
    complete(work, claimed(work), failure)
    store = RedisStore(client)
    applied, attempt = store.applied(WEB), store.last_attempt(WEB)
    assert applied is not None
    assert attempt is not None
    assert (applied.sha, attempt.revision, attempt.state) == ("a" * 40, "b" * 40, "failed")


@pytest.mark.req("RM.7")
def test_one_alert_when_it_breaks_and_one_recovery_when_it_is_well(work: RedisWork, client: TextRedis) -> None:
    bad = ended("failed", "failed", applied=False)
    for completion in (bad, bad, bad, ended("no_change")):
        work.request([WEB], MANUAL)
        complete(work, claimed(work), completion)
    assert event_names(client) == ["failed", "recovered"]


def test_a_due_item_is_asked_for_once_and_missed_times_collapse(client: TextRedis) -> None:
    work = RedisWork(client)
    work.register(spec(WEB), first_due_in_ms=0)
    swept = [work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS) for _ in range(3)]
    assert [sweep.asked for sweep in swept] == [1, 0, 0]
    assert [cause.trigger for cause in claimed(work).causes] == [Trigger.SCHEDULE]


def test_an_expired_lease_is_reclaimed_and_its_target_asked_again(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    dead = claimed(work)
    client.delete("tick.custom")
    expire_lease(client)
    assert work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS).reclaimed == 1
    assert client.hget(keys.run(dead.run), "state") == "lost"
    assert messages(client) == [WEB]
    again = claimed(work)
    assert again.generation == dead.generation
    assert Cause(trigger=Trigger.RETRY, actor="lost") in again.causes


def test_a_renewed_lease_is_not_reclaimed_though_the_index_says_it_ended(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    client.zadd(keys.LEASES, {WEB: 1})
    assert work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS).reclaimed == 0
    assert complete(work, claim)


def test_three_lost_runs_in_a_row_stall_the_target_until_a_person_asks(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], Cause(trigger=Trigger.SCHEDULE))
    for backoff in (0, 10, None):
        claimed(work)
        expire_lease(client)
        work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
        if backoff:
            assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.NOTHING_TO_DO
            assert seconds_until_due(client) == backoff
            client.zadd(keys.DUE, {WEB: 1})
            work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
    assert client.hget(keys.item(WEB), "status") == "stalled"
    assert "stalled" in event_names(client)
    client.delete("tick.custom")
    assert work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS).asked == 0
    assert messages(client) == []
    work.request([WEB], MANUAL)
    assert complete(work, claimed(work))
    assert client.hget(keys.item(WEB), "status") == "ready"
    assert event_names(client)[-1] == "changed"
    assert "recovered" in event_names(client)


def test_the_first_loss_that_a_worker_saw_is_tried_again_at_once_and_the_second_after_a_backoff(
    work: RedisWork, client: TextRedis
) -> None:
    work.request([WEB], Cause(trigger=Trigger.SCHEDULE))
    due = []
    for _ in range(2):
        lost = ended("lost", None, next_ask=NextAsk.BACKOFF, due_in_ms=None, applied=False)
        assert complete(work, claimed(work), lost)
        due.append(seconds_until_due(client))
        client.zadd(keys.DUE, {WEB: 1})
        work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
    assert due == [0, 20]


def test_a_lost_message_is_sent_again(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    client.delete("tick.custom")
    client.zadd(keys.QUEUED, {WEB: 1})
    assert work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS).rewoken == 1
    assert messages(client) == [WEB]


def test_a_message_that_waits_in_its_queue_is_not_doubled(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    seconds, _ = client.time()
    client.zadd(keys.QUEUED, {WEB: seconds * 1000 - 20_000})
    assert work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS).rewoken == 0
    assert messages(client) == [WEB]


def test_after_a_gap_of_sweeps_no_expired_lease_is_taken_over(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
    client.hset(keys.SWEPT, "at", int(client.hget(keys.SWEPT, "at") or 0) - 60_000)
    expire_lease(client)
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="there") is Refusal.GAP
    assert work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS).reclaimed == 0
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="there") is Refusal.GAP
    assert work.renew(WEB, claim.token, claim.run, ttl_ms=TTL_MS) is Renewal.HELD_ASKED_AGAIN
    assert complete(work, claim)
    assert messages(client)[0] == WEB


def test_an_end_before_the_apply_is_asked_again_with_a_doubling_backoff(work: RedisWork, client: TextRedis) -> None:
    waits = []
    for _ in range(3):
        work.request([WEB], Cause(trigger=Trigger.SCHEDULE))
        complete(work, claimed(work), ended("failed", "failed", next_ask=NextAsk.BACKOFF, applied=False))
        waits.append(seconds_until_due(client))
    assert waits == [10, 20, 40]


def test_a_manual_ask_forgets_the_backoff(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], Cause(trigger=Trigger.SCHEDULE))
    complete(work, claimed(work), ended("failed", "failed", next_ask=NextAsk.BACKOFF, applied=False))
    (ask,) = work.request([WEB], MANUAL)
    assert ask.answer is Answer.QUEUED
    assert claimed(work).early_ends == 0


def test_who_asked_for_a_skipped_run_is_kept_for_the_next(work: RedisWork) -> None:
    work.request([WEB], Cause(trigger=Trigger.WEBHOOK, actor="github"))
    complete(work, claimed(work), ended("skipped", None, next_ask=NextAsk.BACKOFF, applied=False))
    work.request([WEB], Cause(trigger=Trigger.SOURCE))
    assert [cause.trigger for cause in claimed(work).causes] == [Trigger.WEBHOOK, Trigger.SOURCE]


def test_a_suspended_target_is_neither_claimed_nor_woken_and_resume_asks(work: RedisWork, client: TextRedis) -> None:
    assert work.mark(WEB, Mark.SUSPEND, actor="ann", reason="holiday")
    assert work.request([WEB], MANUAL)[0].answer is Answer.SUSPENDED
    assert messages(client) == []
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.SUSPENDED
    assert work.mark(WEB, Mark.RESUME, actor="ann")
    assert messages(client) == [WEB]
    assert claimed(work).generation == 2


@pytest.mark.req("R4.17", "R4.23")
def test_a_stale_target_keeps_its_record_and_is_not_run(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    complete(work, claimed(work))
    assert work.mark(WEB, Mark.STALE, actor="source:default")
    view = RedisStore(client).item(WEB)
    assert view is not None
    assert (view.status, view.applied_revision) == ("stale", "a" * 40)
    assert work.request([WEB], MANUAL)[0].answer is Answer.STALE
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.STALE
    assert client.zscore(keys.DUE, WEB) is None
    assert event_names(client).count("stale") == 1


def test_a_wish_to_be_absent_is_read_at_claim_and_leaves_no_due_time(work: RedisWork, client: TextRedis) -> None:
    assert work.mark(WEB, Mark.ABSENT, actor="ann")
    claim = claimed(work)
    assert not claim.is_wanted
    complete(work, claim, ended("changed", "destroyed", next_ask=NextAsk.NEVER, due_in_ms=None, applied=False))
    assert client.zscore(keys.DUE, WEB) is None
    assert "destroyed" in event_names(client)


def test_unlock_revokes_renewals_and_lets_the_lease_run_out(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    assert work.mark(WEB, Mark.UNLOCK, actor="ann")
    assert work.renew(WEB, claim.token, claim.run, ttl_ms=TTL_MS) is Renewal.LOST
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="there") is Refusal.BUSY


@pytest.mark.req("RM.1")
def test_a_push_asks_for_exactly_the_items_that_watch_the_ref(work: RedisWork) -> None:
    other = "forge.example/acme/infra#refs/heads/dev"
    work.register(spec("default/dev", refs=(other,)), first_due_in_ms=None)
    cause = Cause(trigger=Trigger.WEBHOOK, actor="github")
    asks = work.push([REF], cause, delivery="d1")
    assert asks is not None
    assert [ask.item for ask in asks] == [WEB]
    assert work.push([REF], cause, delivery="d1") is None
    assert work.push(["forge.example/acme/infra#refs/heads/none"], cause, delivery="d2") == []


def test_a_target_that_changes_its_repository_no_longer_answers_to_the_old_one(work: RedisWork) -> None:
    moved = "forge.example/acme/other#refs/heads/main"
    work.register(spec(WEB, refs=(moved,), repository="forge.example/acme/other"), first_due_in_ms=None)
    cause = Cause(trigger=Trigger.WEBHOOK)
    assert work.push([REF], cause, delivery=None) == []
    assert len(work.push([moved], cause, delivery=None) or []) == 1


def test_the_claim_tells_how_often_the_repository_was_asked_for(work: RedisWork, client: TextRedis) -> None:
    epoch = RedisStore(client).epoch()
    work.register(spec("default/api"), first_due_in_ms=None)
    work.request([WEB, "default/api"], MANUAL)
    assert claimed(work).asked == (epoch, 2)


def test_a_changed_schedule_takes_effect_at_once(work: RedisWork, client: TextRedis) -> None:
    work.register(spec(WEB, schedule={"interval": 60}), first_due_in_ms=60_000)
    first = client.zscore(keys.DUE, WEB)
    work.register(spec(WEB, schedule={}), first_due_in_ms=None)
    assert first is not None
    assert client.zscore(keys.DUE, WEB) is None


def test_a_write_behind_a_lost_lease_is_refused(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    guard = Guard(item=WEB, token=claim.token, run=claim.run)
    assert work.register(spec("default/new"), first_due_in_ms=0, guard=guard)
    expire_lease(client)
    claimed(work)
    assert not work.register(spec("default/newer"), first_due_in_ms=0, guard=guard)
    assert RedisStore(client).item("default/newer") is None


def test_a_forgotten_item_leaves_no_key_behind(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    complete(work, claimed(work))
    RedisStore(client).set_marker(WEB, "hash")
    work.forget(WEB)
    assert not [key for key in client.keys("*") if WEB in key]
    for index in (keys.DUE, keys.QUEUED, keys.LEASES, keys.ITEMS):
        assert client.zscore(index, WEB) is None
    assert work.request([WEB], MANUAL)[0].answer is Answer.UNKNOWN


def test_a_paused_fleet_claims_nothing_and_loses_nothing(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    work.pause("the store was emptied", actor="ann")
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.PAUSED
    assert work.resume(actor="ann")
    assert claimed(work).generation == 1


def test_the_history_of_runs_is_bounded(client: TextRedis) -> None:
    work = RedisWork(client, options=WorkOptions(kept_runs=3))
    work.register(spec(WEB), first_due_in_ms=None)
    runs = []
    for _ in range(5):
        work.request([WEB], MANUAL)
        claim = claimed(work)
        runs.append(claim.run)
        complete(work, claim)
    assert [run.run for run in RedisStore(client).runs(WEB)] == runs[:1:-1]
    assert client.exists(keys.run(runs[0])) == 0


def test_a_separate_broker_is_sent_the_wakes_by_the_caller(client: TextRedis) -> None:
    sent: list[tuple[str, str]] = []
    work = RedisWork(client, options=WorkOptions(pushes=False), waker=sent.extend)
    work.register(spec(WEB), first_due_in_ms=None)
    work.request([WEB], MANUAL)
    assert sent == [(WEB, "custom")]
    assert messages(client) == []


def test_a_claim_whose_answer_was_lost_may_be_made_again_by_the_same_run(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    run = run_id()
    first = work.claim(WEB, run, ttl_ms=TTL_MS, holder="here")
    again = work.claim(WEB, run, ttl_ms=TTL_MS, holder="here")
    assert isinstance(first, Claim)
    assert isinstance(again, Claim)
    assert (again.token, again.generation, again.causes) == (first.token, first.generation, first.causes)


def test_a_completion_that_is_sent_twice_is_taken_once_and_asks_for_nothing(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    client.delete("tick.custom")
    assert complete(work, claim)
    assert complete(work, claim)
    assert messages(client) == []
    assert client.hget(keys.item(WEB), "requested") == "1"


def test_a_pool_without_workers_does_not_fill_its_queue(client: TextRedis) -> None:
    work = RedisWork(client)
    for number in range(30):
        work.register(spec(f"default/t{number}"), first_due_in_ms=None)
    work.request([f"default/t{number}" for number in range(30)], MANUAL)
    for hour in range(1, 6):
        for name in client.zrange(keys.QUEUED, 0, -1):
            client.zadd(keys.QUEUED, {name: 1})
            client.hset(keys.item(name), "queued_at", 1 + hour)
        work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
    assert len(messages(client)) == 30


def test_a_message_lost_behind_others_is_sent_again(client: TextRedis) -> None:
    work = RedisWork(client)
    names = [f"default/t{number}" for number in range(5)]
    for name in names:
        work.register(spec(name), first_due_in_ms=None)
    work.request(names, MANUAL)
    client.lpop("tick.custom")
    for name in names:
        client.zadd(keys.QUEUED, {name: 1})
        client.hset(keys.item(name), "queued_at", 1)
    ran = set()
    for _ in range(2 * len(names)):
        work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
        name = messages(client)[-1]
        client.ltrim("tick.custom", 0, -2)
        if isinstance(claim := work.claim(name, run_id(), ttl_ms=TTL_MS, holder="here"), Claim):
            complete(work, claim)
            ran.add(name)
        for waiting in client.zrange(keys.QUEUED, 0, -1):
            client.zadd(keys.QUEUED, {waiting: 1})
        if ran == set(names):
            break
    assert ran == set(names)


def test_ordinary_ends_do_not_push_an_alert_out_of_its_stream(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    complete(work, claimed(work), ended("failed", "failed", applied=False))
    work.register(spec("default/other"), first_due_in_ms=None)
    for _ in range(3):
        work.request(["default/other"], MANUAL)
        complete(work, claimed(work, "default/other"), ended("no_change"))
    assert [fields["event"] for _, fields in client.xrange(keys.ALERTS)] == ["failed"]


def test_a_paused_fleet_keeps_an_ask_whose_run_was_lost_meanwhile(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claimed(work)
    expire_lease(client)
    work.pause("the store was emptied", actor="ann")
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.PAUSED
    work.resume(actor="ann")
    client.delete("tick.custom")
    work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
    assert messages(client) == [WEB]


def test_a_message_in_the_queue_of_another_pool_starts_nothing_there(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    work.register(spec(WEB, pool="prod"), first_due_in_ms=None)
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here", pools=("custom",)) is Refusal.ELSEWHERE
    assert messages(client, "prod") == [WEB]
    assert isinstance(work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="there", pools=("prod",)), Claim)


def test_a_destroyed_target_is_not_destroyed_again_by_pushes_and_syncs(work: RedisWork, client: TextRedis) -> None:
    work.mark(WEB, Mark.ABSENT, actor="ann")
    done = ended("changed", "destroyed", next_ask=NextAsk.NEVER, due_in_ms=None, applied=False)
    complete(work, claimed(work), done)
    client.delete("tick.custom")
    assert work.request([WEB], Cause(trigger=Trigger.WEBHOOK))[0].answer is Answer.DESTROYED
    assert messages(client) == []
    assert work.request([WEB], MANUAL)[0].answer is Answer.QUEUED


def test_a_destroy_that_ends_early_is_tried_again(work: RedisWork, client: TextRedis) -> None:
    work.mark(WEB, Mark.ABSENT, actor="ann")
    complete(work, claimed(work), ended("failed", "failed", next_ask=NextAsk.BACKOFF, due_in_ms=600_000, applied=False))
    assert client.zscore(keys.DUE, WEB) is not None


def test_a_target_that_goes_stale_while_it_runs_is_not_run_again(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    work.request([WEB], MANUAL)
    client.delete("tick.custom")
    work.mark(WEB, Mark.STALE, actor="source:default", reason="gone")
    complete(work, claim)
    assert messages(client) == []
    assert client.zscore(keys.DUE, WEB) is None
    assert client.hget(keys.item(WEB), "message") == "gone"


def test_who_asked_is_not_pushed_out_by_retries(work: RedisWork) -> None:
    work.request([WEB], Cause(trigger=Trigger.WEBHOOK, actor="github"))
    for _ in range(30):
        complete(work, claimed(work), ended("skipped", None, next_ask=NextAsk.BACKOFF, applied=False))
        work.request([WEB], Cause(trigger=Trigger.RETRY))
    assert Cause(trigger=Trigger.WEBHOOK, actor="github") in claimed(work).causes


def test_a_document_and_its_suspension_are_one_step(work: RedisWork, client: TextRedis) -> None:
    declared = Suspension(wanted=True, actor="source:default", reason="declared in its document")
    work.register(spec("default/new"), first_due_in_ms=1000, cause=MANUAL, suspend=declared)
    assert messages(client) == []
    assert client.zscore(keys.DUE, "default/new") is None
    work.register(
        spec("default/new"), first_due_in_ms=1000, cause=MANUAL, suspend=dataclasses.replace(declared, wanted=False)
    )
    assert messages(client) == ["default/new"]


def test_a_stale_target_that_is_registered_again_is_fresh_and_due(work: RedisWork, client: TextRedis) -> None:
    work.mark(WEB, Mark.STALE, actor="source:default", reason="gone")
    work.register(spec(WEB), first_due_in_ms=5000)
    view = RedisStore(client).item(WEB)
    assert view is not None
    assert view.status == "pending"
    assert view.due_at is not None


def test_a_name_that_comes_back_does_not_run_beside_its_old_run(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    claimed(work)
    work.forget(WEB)
    work.register(spec(WEB), first_due_in_ms=None)
    work.request([WEB], MANUAL)
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.BUSY


def test_an_index_entry_without_its_lease_does_not_stop_the_sweeps(work: RedisWork, client: TextRedis) -> None:
    client.zadd(keys.LEASES, {WEB: 1})
    work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
    assert client.zscore(keys.LEASES, WEB) is None


def test_a_separate_broker_is_woken_after_ever_longer_waits(client: TextRedis) -> None:
    sent: list[tuple[str, str]] = []
    work = RedisWork(client, options=WorkOptions(pushes=False), waker=sent.extend)
    work.register(spec(WEB), first_due_in_ms=None)
    work.request([WEB], MANUAL)
    seconds, _ = client.time()
    for waited in (5, 25, 25, 45, 45):
        client.zadd(keys.QUEUED, {WEB: 1})
        client.hset(keys.item(WEB), "queued_at", (seconds - waited) * 1000)
        work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
    assert len(sent) == 3


def test_after_a_restart_of_the_store_everything_is_asked_once_and_says_why(redis_client: TextRedis) -> None:
    work = RedisWork(redis_client)
    work.register(spec(WEB, schedule={}), first_due_in_ms=None)
    work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)
    redis_client.hset(keys.SWEPT, "server", "another life of the server")
    assert [work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS).asked for _ in range(2)] == [1, 0]
    assert claimed(work).causes == (Cause(trigger=Trigger.RETRY, actor="store restarted"),)


def test_a_run_that_was_interrupted_alerts_nobody_and_keeps_the_status(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    complete(work, claimed(work))
    work.request([WEB], MANUAL)
    stopped = Outcome(target="web", state=RunState.ABORTED, reason=Reason.INTERRUPTED, next_ask=NextAsk.BACKOFF)
    status = target_status(stopped)
    complete(work, claimed(work), ended("aborted", status, next_ask=NextAsk.BACKOFF, applied=False))
    assert client.hget(keys.item(WEB), "status") == "ready"
    assert client.xlen(keys.ALERTS) == 0
    assert client.zscore(keys.DUE, WEB) is not None


def test_a_run_that_ends_without_a_word_keeps_the_revision_that_it_noted(work: RedisWork, client: TextRedis) -> None:
    store = RedisStore(client)
    work.request([WEB], MANUAL)
    claim = claimed(work)
    store.note_revision(claim.run, "c" * 40)
    record = {"state": "failed", "reason": "RunCrashed", "message": "no word", "revision": "", "document_hash": "h"}
    complete(work, claim, ended("failed", "failed", next_ask=NextAsk.STALLED, applied=False, record=record))
    run, view = store.run(claim.run), store.item(WEB)
    assert run is not None
    assert view is not None
    assert (run.fields["revision"], view.revision, view.fields["stalled_at"]) == ("c" * 40, "c" * 40, "c" * 40 + " h")


def test_a_skipped_run_does_not_count_as_one_that_saw_the_revision(work: RedisWork, client: TextRedis) -> None:
    store = RedisStore(client)
    work.request([WEB], MANUAL)
    claim = claimed(work)
    store.note_revision(claim.run, "c" * 40)
    complete(work, claim, ended("skipped", None, next_ask=NextAsk.BACKOFF, applied=False, record={"state": "skipped"}))
    view = store.item(WEB)
    assert view is not None
    assert view.revision == ""


def sweep(work: RedisWork) -> Swept:
    return work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL_MS)


def lose(work: RedisWork, client: TextRedis) -> None:
    """Let a run of what is asked for be lost."""
    claimed(work)
    expire_lease(client)
    sweep(work)


def bring_due(work: RedisWork, client: TextRedis) -> None:
    assert client.zscore(keys.DUE, WEB) is not None
    client.zadd(keys.DUE, {WEB: 1})
    sweep(work)


def test_who_asked_for_a_lost_run_is_kept_for_the_next(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    lose(work, client)
    assert [cause.trigger for cause in claimed(work).causes] == [Trigger.MANUAL, Trigger.RETRY]


def test_a_claim_that_is_asked_for_again_counts_from_then(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    first = claimed(work)
    client.pexpire(keys.lease(WEB), 1000)
    assert isinstance(work.claim(WEB, first.run, ttl_ms=TTL_MS, holder="here"), Claim)
    assert client.pttl(keys.lease(WEB)) > TTL_MS - 5000
    expire_lease(client)
    again = work.claim(WEB, first.run, ttl_ms=TTL_MS, holder="here")
    assert isinstance(again, Claim)
    assert again.token == first.token
    assert client.pttl(keys.lease(WEB)) > 0


def test_a_revoked_run_can_not_claim_again_and_may_still_complete(work: RedisWork) -> None:
    work.request([WEB], MANUAL)
    claim = claimed(work)
    work.mark(WEB, Mark.UNLOCK, actor="ann")
    assert work.claim(WEB, claim.run, ttl_ms=TTL_MS, holder="here") is Refusal.BUSY
    assert complete(work, claim)


def test_no_claim_after_a_restart_is_quicker_than_the_first_sweep(redis_client: TextRedis) -> None:
    work = RedisWork(redis_client)
    work.register(spec(WEB), first_due_in_ms=None)
    work.request([WEB], MANUAL)
    claim = claimed(work)
    sweep(work)
    redis_client.hset(keys.SWEPT, "server", "f00d")
    expire_lease(redis_client)
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="there") is Refusal.GAP
    assert work.renew(WEB, claim.token, claim.run, ttl_ms=TTL_MS) is Renewal.HELD


def test_a_stray_message_starts_nothing_that_waits_for_its_backoff(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], Cause(trigger=Trigger.SCHEDULE))
    lose(work, client)
    lose(work, client)
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.NOTHING_TO_DO
    bring_due(work, client)
    lose(work, client)
    assert client.hget(keys.item(WEB), "status") == "stalled"
    assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.NOTHING_TO_DO


@pytest.mark.parametrize("mark", [Mark.SUSPEND, Mark.ABSENT])
def test_losses_give_no_due_time_to_what_must_not_have_one(work: RedisWork, client: TextRedis, mark: Mark) -> None:
    work.request([WEB], Cause(trigger=Trigger.SCHEDULE))
    lose(work, client)
    lose(work, client)
    bring_due(work, client)
    claimed(work)
    work.mark(WEB, mark, actor="ann")
    client.hset(keys.item(WEB), "lost_ends", 2)
    expire_lease(client)
    sweep(work)
    assert client.hget(keys.item(WEB), "status") == "stalled"
    assert client.zscore(keys.DUE, WEB) is None


def test_losses_that_a_worker_saw_stall_the_target_as_well(work: RedisWork, client: TextRedis) -> None:
    lost = ended("lost", None, next_ask=NextAsk.BACKOFF, due_in_ms=None, applied=False)
    client.hset(keys.item(WEB), "document_hash", "h")
    for _ in range(3):
        work.request([WEB], Cause(trigger=Trigger.SCHEDULE))
        complete(work, claimed(work), lost)
    view = RedisStore(client).item(WEB)
    assert view is not None
    assert (view.status, view.fields["stalled_at"]) == ("stalled", "a" * 40 + " h")
    assert "3 times in a row" in view.message
    assert event_names(client).count("stalled") == 1


def test_a_refusal_that_is_heard_twice_is_one_ask(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    old = claimed(work)
    expire_lease(client)
    claimed(work)
    assert [complete(work, old) for _ in range(3)] == [False] * 3
    assert client.hget(keys.item(WEB), "requested") == "2"


def test_a_refusal_is_an_ask_also_where_nothing_is_known_of_the_run(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    old = claimed(work)
    client.flushdb()
    work.register(spec(WEB), first_due_in_ms=None)
    assert not complete(work, old)
    assert messages(client) == [WEB]


def test_a_target_that_goes_stale_is_torn_down_all_the_same(work: RedisWork) -> None:
    work.mark(WEB, Mark.ABSENT, actor="ann")
    work.mark(WEB, Mark.STALE, actor="source:default", reason="gone")
    assert not claimed(work).is_wanted


def test_a_resumed_target_that_is_destroyed_is_not_destroyed_again(work: RedisWork, client: TextRedis) -> None:
    work.mark(WEB, Mark.ABSENT, actor="ann")
    complete(work, claimed(work), ended("changed", "destroyed", next_ask=NextAsk.NEVER, due_in_ms=None, applied=False))
    client.delete("tick.custom")
    work.mark(WEB, Mark.SUSPEND, actor="ann")
    work.mark(WEB, Mark.RESUME, actor="ann")
    assert messages(client) == []


def test_a_document_that_lifts_a_suspension_has_its_target_run(work: RedisWork, client: TextRedis) -> None:
    work.mark(WEB, Mark.SUSPEND, actor="ann")
    lifted = Suspension(wanted=False, actor="source:default", reason="declared")
    work.register(spec(WEB), first_due_in_ms=1000, suspend=lifted)
    assert messages(client) == [WEB]


def test_what_was_asked_while_a_target_was_stale_is_run_when_it_is_back(work: RedisWork, client: TextRedis) -> None:
    work.mark(WEB, Mark.STALE, actor="source:default", reason="gone")
    work.request([WEB], MANUAL)
    work.register(spec(WEB, schedule={}), first_due_in_ms=None)
    assert messages(client) == [WEB]
    assert MANUAL in claimed(work).causes


def test_a_queued_target_that_moves_to_another_pool_is_woken_there_at_once(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    work.register(spec(WEB, pool="prod"), first_due_in_ms=None)
    assert messages(client, "prod") == [WEB]


def test_a_lost_message_is_found_in_a_queue_that_is_never_empty(client: TextRedis) -> None:
    work = RedisWork(client)
    work.register(spec(WEB), first_due_in_ms=None)
    work.request([WEB], MANUAL)
    client.delete("tick.custom")
    client.zadd(keys.QUEUED, {WEB: 1})
    for name in ("default/one", "default/two"):
        work.register(spec(name), first_due_in_ms=None)
        work.request([name], MANUAL)
        client.lpush("tick.custom", client.lrange("tick.custom", 0, 0)[0])  # a double makes up for the lost one
    assert sweep(work).rewoken == 1
    assert messages(client)[0] == WEB


def test_a_store_whose_clock_jumps_back_holds_nothing_for_the_length_of_the_jump(
    work: RedisWork, client: TextRedis
) -> None:
    hour = 3_600_000
    work.register(spec("default/two"), first_due_in_ms=hour)
    work.register(spec("default/gone"), first_due_in_ms=None)
    work.request([WEB, "default/gone", "default/two"], MANUAL)
    for name in (WEB, "default/gone"):
        claimed(work, name, ttl_ms=hour)
    work.forget("default/gone")
    client.delete("tick.custom")
    seconds, _ = client.time()
    client.zadd(keys.QUEUED, {"default/two": seconds * 1000 + hour})
    client.hset(keys.SWEPT, "at", seconds * 1000 + hour)
    sweep(work)
    assert max(client.pttl(keys.lease(name)) for name in (WEB, "default/gone")) <= TTL_MS
    assert (client.zscore(keys.QUEUED, "default/two") or 0) < seconds * 1000 + TTL_MS


def owner(work: RedisWork, item: str, resource: str = "s3 state b/k") -> tuple[Claim, str]:
    """Let a run of the item own the resource."""
    work.request([item], MANUAL)
    claim = claimed(work, item)
    return claim, work.own(Guard(item=item, token=claim.token, run=claim.run), resource)


@pytest.fixture
def api(work: RedisWork) -> str:
    """A second target."""
    work.register(spec("default/api"), first_due_in_ms=None)
    return "default/api"


def test_a_resource_belongs_to_one_item_and_the_other_is_told_whose_it_is(work: RedisWork, api: str) -> None:
    claim, told = owner(work, WEB)
    assert told == ""
    assert owner(work, api)[1] == WEB
    complete(work, claim)
    assert owner(work, WEB)[1] == ""


def test_what_is_destroyed_or_forgotten_owns_nothing(work: RedisWork, client: TextRedis, api: str) -> None:
    work.mark(WEB, Mark.ABSENT, actor="ann")
    claim, _ = owner(work, WEB)
    complete(work, claim, ended("changed", "destroyed", next_ask=NextAsk.NEVER, due_in_ms=None, applied=False))
    assert owner(work, api)[1] == ""
    work.forget(api)
    assert client.hgetall(keys.OWNERS) == {}


def test_a_resource_is_given_up_once_another_one_was_applied(work: RedisWork, client: TextRedis) -> None:
    claim, _ = owner(work, WEB, "old")
    complete(work, claim)
    claim, _ = owner(work, WEB, "new")
    complete(work, claim, ended("failed", "failed", applied=False))
    assert set(client.hgetall(keys.OWNERS)) == {"old", "new"}
    claim, _ = owner(work, WEB, "new")
    complete(work, claim)
    assert set(client.hgetall(keys.OWNERS)) == {"new"}
    claim, _ = owner(work, WEB, "")
    complete(work, claim)
    assert client.hgetall(keys.OWNERS) == {}


def test_a_stale_item_leaves_what_it_owned_to_who_asks_but_not_while_it_runs(
    work: RedisWork, client: TextRedis, api: str
) -> None:
    claim, _ = owner(work, WEB)
    work.mark(WEB, Mark.STALE, actor="source:default", reason="gone")
    other, told = owner(work, api)
    assert told == WEB
    complete(work, claim)
    assert work.own(Guard(item=api, token=other.token, run=other.run), "s3 state b/k") == ""
    assert "adopted" in event_names(client)
    work.mark(WEB, Mark.ABSENT, actor="ann")
    assert owner(work, WEB)[1] == api


def test_what_is_wished_absent_is_not_adopted(work: RedisWork, api: str) -> None:
    claim, _ = owner(work, WEB)
    complete(work, claim)
    work.mark(WEB, Mark.STALE, actor="source:default", reason="gone")
    work.mark(WEB, Mark.ABSENT, actor="ann")
    assert owner(work, api)[1] == WEB


def test_a_dead_token_owns_nothing(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], MANUAL)
    dead = claimed(work)
    expire_lease(client)
    claimed(work)
    with pytest.raises(LeaseLostError):
        work.own(Guard(item=WEB, token=dead.token, run=dead.run), "s3 state b/k")
    assert client.hgetall(keys.OWNERS) == {}


class CountingRedis(Redis):
    """Counts what is sent."""

    sent = 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.sent += 1
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped


def test_a_claim_that_finds_nothing_to_do_costs_one_round_trip(redis_url: str, redis_client: TextRedis) -> None:
    with CountingRedis.from_url(redis_url, decode_responses=True) as client:
        work = RedisWork(client)
        work.register(spec(WEB), first_due_in_ms=None)
        assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.NOTHING_TO_DO
        before = client.sent
        assert work.claim(WEB, run_id(), ttl_ms=TTL_MS, holder="here") is Refusal.NOTHING_TO_DO
        assert client.sent == before + 1
