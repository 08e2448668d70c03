"""When things are due: what registrations, ends of runs and sweeps make of schedules. The same on both servers."""

from __future__ import annotations

import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import NextAsk, Trigger
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.work.base import Cause, Claim, Completion, ItemSpec, Mark
from gitops_reconciler.work.redis import RedisWork

WEB = "default/web"
HOUR_MS = 3_600_000
ASK = Cause(trigger=Trigger.MANUAL, actor="ann")


@pytest.fixture
def work(client: TextRedis) -> RedisWork:
    return RedisWork(client)


def know(work: RedisWork, seconds: int | None, item: str = WEB) -> None:
    """Register an item with an interval, due first when it is over; None: off."""
    schedule = {} if seconds is None else {"interval": seconds}
    spec = ItemSpec(item=item, kind="x", pool="custom", repository="", schedule=schedule)
    work.register(spec, first_due_in_ms=None if seconds is None else seconds * 1000)


def due_in_ms(client: TextRedis, item: str = WEB) -> float | None:
    at = client.zscore(keys.DUE, item)
    seconds, micros = client.time()
    return None if at is None else at - (seconds * 1000 + micros // 1000)


def is_about(found: float | None, wanted_ms: float) -> bool:
    """Whether it is as far away as it should be, less what this test took."""
    return found is not None and wanted_ms - 60_000 < found <= wanted_ms + 1


def start(work: RedisWork, item: str = WEB) -> Claim:
    work.request([item], ASK)
    claim = work.claim(item, f"run of {item}", ttl_ms=60_000, holder="here")
    assert isinstance(claim, Claim)
    return claim


def end(work: RedisWork, claim: Claim, *, after_ms: int | None, next_ask: NextAsk = NextAsk.INTERVAL) -> None:
    """End a run by the schedule that it began with."""
    record = {"state": "changed", "reason": "Applied", "message": "done", "revision": ""}
    completion = Completion(record=record, status="ready", next_ask=next_ask, due_in_ms=after_ms, applied=True)
    assert work.complete(claim.item, claim.token, claim.run, completion)


def sweep(work: RedisWork) -> int:
    return work.sweep(limit=500, rewake_after_ms=5000, ttl_ms=60_000).asked


@pytest.mark.parametrize(("before", "after"), [(36_000, 3600), (3600, 36_000), (None, 3600)])
def test_a_changed_interval_takes_effect_at_once(
    work: RedisWork, client: TextRedis, before: int | None, after: int
) -> None:
    know(work, before)
    know(work, after)
    assert is_about(due_in_ms(client), after * 1000)


def test_a_schedule_that_is_switched_off_leaves_no_entry_and_switched_on_it_is_back(
    work: RedisWork, client: TextRedis
) -> None:
    know(work, 3600)
    know(work, None)
    assert due_in_ms(client) is None
    know(work, 7200)
    assert is_about(due_in_ms(client), 2 * HOUR_MS)


@pytest.mark.parametrize(("before", "after"), [(36_000, 3600), (3600, 36_000), (None, 3600), (3600, None)])
def test_an_interval_that_changes_during_a_run_counts_when_the_run_ends(
    work: RedisWork, client: TextRedis, before: int | None, after: int | None
) -> None:
    know(work, before)
    claim = start(work)
    know(work, after)
    end(work, claim, after_ms=None if before is None else before * 1000)
    if after is None:
        assert due_in_ms(client) is None
    else:
        assert is_about(due_in_ms(client), after * 1000)
    end(work, start(work), after_ms=7 * HOUR_MS)  # the run after it began with the new one
    assert is_about(due_in_ms(client), 7 * HOUR_MS)


def test_a_run_that_is_tried_again_soon_is_so_whatever_became_of_its_interval(
    work: RedisWork, client: TextRedis
) -> None:
    know(work, 3600)
    claim = start(work)
    know(work, 36_000)
    end(work, claim, after_ms=HOUR_MS, next_ask=NextAsk.BACKOFF)
    assert is_about(due_in_ms(client), 10_000)


def test_registered_again_as_it_was_an_item_is_due_when_it_was(work: RedisWork, client: TextRedis) -> None:
    know(work, 3600)
    client.zadd(keys.DUE, {WEB: 1})
    know(work, 3600)
    assert client.zscore(keys.DUE, WEB) == 1


@pytest.mark.parametrize("how", ["suspended", "stale", "absent", "forgotten"])
def test_what_does_not_run_leaves_no_entry(work: RedisWork, client: TextRedis, how: str) -> None:
    know(work, 3600)
    if how == "forgotten":
        work.forget(WEB)
    else:
        mark = {"suspended": Mark.SUSPEND, "stale": Mark.STALE, "absent": Mark.ABSENT}[how]
        work.mark(WEB, mark, actor="ann")
    assert due_in_ms(client) is None
    if how in {"suspended", "absent"}:  # a new interval is no reason to run
        know(work, 60)
        assert due_in_ms(client) is None


@pytest.mark.parametrize("mark", [Mark.SUSPEND, Mark.STALE])
def test_what_stops_to_run_during_a_run_has_no_entry_afterwards(work: RedisWork, client: TextRedis, mark: Mark) -> None:
    know(work, 3600)
    claim = start(work)
    work.mark(WEB, mark, actor="ann")
    end(work, claim, after_ms=HOUR_MS)
    assert due_in_ms(client) is None


def test_a_destroyed_target_has_no_entry(work: RedisWork, client: TextRedis) -> None:
    know(work, 3600)
    work.mark(WEB, Mark.ABSENT, actor="ann")
    claim = start(work)
    record = {"state": "changed", "reason": "Destroyed", "message": "gone", "revision": ""}
    completion = Completion(record=record, status="destroyed", next_ask=NextAsk.NEVER, due_in_ms=None, applied=False)
    assert work.complete(WEB, claim.token, claim.run, completion)
    assert due_in_ms(client) is None


@pytest.mark.req("R4.40")
def test_times_that_were_missed_collapse_into_one_ask(work: RedisWork, client: TextRedis) -> None:
    know(work, 600)
    seconds, _ = client.time()
    client.zadd(keys.DUE, {WEB: (seconds - 10 * 600) * 1000})  # nobody swept for ten intervals
    assert sweep(work) == 1
    assert sweep(work) == 0
    assert client.hget(keys.item(WEB), "requested") == "1"
    end(work, start(work), after_ms=600_000)
    assert is_about(due_in_ms(client), 600_000)


def test_an_entry_of_something_unknown_is_dropped(work: RedisWork, client: TextRedis) -> None:
    client.zadd(keys.DUE, {"default/never-heard-of": 1})
    sweep(work)
    assert client.zcard(keys.DUE) == 0
    assert client.exists(keys.item("default/never-heard-of")) == 0


def test_a_clock_that_was_set_back_makes_every_item_be_asked_once(work: RedisWork, client: TextRedis) -> None:
    know(work, 600)
    sweep(work)
    seconds, _ = client.time()
    client.hset(keys.SWEPT, "at", (seconds + 86_400) * 1000)
    client.zadd(keys.DUE, {WEB: (seconds + 86_400) * 1000})
    assert sweep(work) == 1
    assert sweep(work) == 0


def test_a_beat_that_may_not_ask_which_server_it_is_makes_no_restart_of_it(work: RedisWork, client: TextRedis) -> None:
    know(work, 600)
    sweep(work)
    before = client.hget(keys.SWEPT, "server")
    client.hset(keys.SWEPT, "server", "")
    assert sweep(work) == 0
    if before:
        assert client.hget(keys.SWEPT, "server") == before
