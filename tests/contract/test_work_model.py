"""Promises 1 to 4 of DESIGN section 3, held against everything at once: a state machine over the real scripts.

Hypothesis drives the scripts on a real Redis beside a model in plain Python (tests/support/work_model.py). After every
step both must agree; what the promises say is checked beside that, on what was granted and asked. In the end everybody
who holds a lease is dead, a few sweeps and workers remain, and all that is open must run.

Nothing sleeps: time passes by moving all that the store remembers into the past. Between two rules real time passes as
well, a few milliseconds; all times here are multiples of 10 s, so that this decides nothing.

GITOPS_MODEL_EXAMPLES=2000 runs more examples than the 150 of a normal run, and other ones each time.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gitops_reconciler import keys
from gitops_reconciler.errors import LeaseLostError
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.work.base import Answer, Cause, Claim, Completion, Guard, ItemSpec, Mark, Refusal, Suspension
from gitops_reconciler.work.redis import RedisWork
from tests.support.work_model import ENDS, TTL, Ended, Held, Model

EXAMPLES = int(os.environ.get("GITOPS_MODEL_EXAMPLES", "0"))
USUAL_EXAMPLES = 150
ITEMS = ("s/one", "s/two", "s/three")
POOLS = ("east", "west")
REFS = {"s/one": ("forge/r#main",), "s/two": ("forge/r#main", "forge/r#dev"), "s/three": ("forge/r#dev",)}
DRAIN_ROUNDS = 60

item_names = st.sampled_from(ITEMS)
pools = st.sampled_from(POOLS)
intervals = st.sampled_from([None, 600, 1200])
triggers = st.sampled_from(list(Trigger))
numbers = st.integers(0, 30)
marks = st.lists(st.sampled_from(list(Mark)), min_size=1, max_size=2) | st.just([Mark.ABSENT, Mark.STALE])

_AGE = """
local P, ms = KEYS[1] .. ':', tonumber(ARGV[1])
local function move(key, field)
  local at = redis.call('HGET', key, field)
  if at and tonumber(at) then redis.call('HSET', key, field, string.format('%.0f', tonumber(at) - ms)) end
end
for _, index in ipairs({'due', 'queued', 'leases'}) do
  for _, item in ipairs(redis.call('ZRANGE', P .. index, 0, -1)) do redis.call('ZINCRBY', P .. index, -ms, item) end
end
for _, item in ipairs(redis.call('ZRANGE', P .. 'items', 0, -1)) do
  move(P .. 'item:' .. item, 'queued_at')
  move(P .. 'item:' .. item, 'due_anew')
end
move(P .. 'swept', 'at')
local gap = redis.call('GET', P .. 'gap_until')
if gap then redis.call('SET', P .. 'gap_until', tonumber(gap) - ms, 'KEEPTTL') end
local ends = redis.call('KEYS', P .. 'lease:*')
ends[#ends + 1] = P .. 'gap_until'
for _, key in ipairs(ends) do
  local left = redis.call('PTTL', key)
  if left - ms <= 0 then redis.call('DEL', key) elseif left > 0 then redis.call('PEXPIRE', key, left - ms) end
end
"""
_LOOK = """
local P, clock, seen = KEYS[1] .. ':', redis.call('TIME'), {}
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function score(index, item)
  local at = redis.call('ZSCORE', P .. index, item)
  return at and (tonumber(at) - now) / 1000 or cjson.null
end
for index = 1, #ARGV do
  local item = ARGV[index]
  local row = redis.call('HMGET', P .. 'item:' .. item, 'kind', 'requested', 'observed', 'status', 'token', 'run',
    'queued_pool', 'pool')
  for column = 1, 8 do row[column] = row[column] or '' end
  row[9], row[10], row[11] = score('due', item), score('queued', item), score('leases', item)
  row[12], row[13] = redis.call('GET', P .. 'lease:' .. item) or '', redis.call('PTTL', P .. 'lease:' .. item) / 1000
  seen[index] = row
end
return cjson.encode({seen, redis.call('HGETALL', P .. 'queued_in'), redis.call('HGETALL', P .. 'owners')})
"""


@dataclass
class Grant:
    """A lease as its holder knows it; `boot` is the holders' clock, which no jump of the store's moves."""

    name: str
    run: str
    token: int
    generation: int
    interval: int | None
    confirmed_at: int
    order: int
    life: int
    is_over: bool = False


@dataclass(frozen=True)
class Asked:
    """A request that was accepted."""

    name: str
    generation: int
    order: int
    life: int


@dataclass(frozen=True)
class Seen:
    """One item as the store has it."""

    kind: str
    requested: str
    observed: str
    status: str
    token: str
    run: str
    queued_pool: str
    pool: str
    due: float | None
    queued: float | None
    indexed: float | None
    lease: str
    lease_left: float


class WorkMachine(RuleBasedStateMachine):
    """Everything that may happen to a fleet of three items in two pools."""

    def __init__(self, client: TextRedis) -> None:
        super().__init__()
        self.client, self.model = client, Model()
        self.work = RedisWork(client)
        self._age, self._look = client.register_script(_AGE), client.register_script(_LOOK)
        self.grants: list[Grant] = []
        self.asked: list[Asked] = []
        self.lives: Counter[str] = Counter()
        self.boot = 0
        self.highest = dict.fromkeys(ITEMS, 0)
        self._orders, self._runs = count(), count()
        self._begin()

    def _begin(self) -> None:
        self.client.flushall()
        self.model.forget_all()
        for number, name in enumerate(ITEMS):
            self._register(name, POOLS[number % 2], 600 if number else None)
        self.sweep()

    # --- asking --------------------------------------------------------------------------------------------------

    @rule(names=st.lists(item_names, min_size=1, max_size=3), trigger=triggers, actor=st.sampled_from(["ann", "bob"]))
    def request(self, names: list[str], trigger: Trigger, actor: str) -> None:
        asks = self.work.request(names, Cause(trigger=trigger, actor=actor))
        for name, ask in zip(names, asks, strict=True):
            assert (ask.answer, ask.generation) == self.model.ask(name, trigger)
            self._remember(name, ask.answer, ask.generation)

    @rule(ref=st.sampled_from(["main", "dev", "none"]))
    def push(self, ref: str) -> None:
        asks = self.work.push([f"forge/r#{ref}"], Cause(trigger=Trigger.WEBHOOK), delivery=None)
        expected = [name for name in sorted(self.model.items) if f"forge/r#{ref}" in REFS[name]]
        assert asks is not None
        assert [ask.item for ask in asks] == expected
        for ask in asks:
            assert (ask.answer, ask.generation) == self.model.ask(ask.item, Trigger.WEBHOOK)
            self._remember(ask.item, ask.answer, ask.generation)

    def _remember(self, name: str, answer: Answer, generation: int) -> None:
        if answer in {Answer.QUEUED, Answer.COALESCED, Answer.DEFERRED}:
            self.asked.append(Asked(name, generation, next(self._orders), self.lives[name]))

    # --- messages ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_anything_queued)
    @rule(pool=pools, number=numbers, served=pools | st.just("*"))
    def deliver(self, pool: str, number: int, served: str) -> None:
        """A worker takes a message: usually the oldest, sometimes another one."""
        name = self._take(pool, number if number % 3 == 0 else 0)
        if name is not None:
            self._claim(name, self._new_run(), served)

    @rule(name=item_names, trigger=triggers)
    def start(self, name: str, trigger: Trigger) -> None:
        """Asked for and taken at once, as mostly."""
        self.request([name], trigger, "ann")
        self._claim(name, self._new_run(), "*")

    @property
    def is_anything_queued(self) -> bool:
        return any(item.is_queued for item in self.model.items.values())

    @precondition(lambda self: self.is_anything_queued)
    @rule(pool=pools, number=numbers, what=st.sampled_from(["drop", "drop all", "double", "reorder"]))
    def tamper(self, pool: str, number: int, what: str) -> None:
        raw = self.client.lrange(f"tick.{pool}", 0, -1)
        chosen = raw[number % len(raw)] if raw else None
        if what == "drop" and chosen:
            self._take(pool, number)
        elif what == "double" and chosen:
            self.client.lpush(f"tick.{pool}", chosen)
        elif what == "reorder" and raw:
            self.client.delete(f"tick.{pool}")
            for message in (*raw[number % len(raw) :], *raw[: number % len(raw)]):
                self.client.lpush(f"tick.{pool}", message)
        elif what == "drop all":
            self.client.delete(f"tick.{pool}")

    @rule(name=item_names)
    def stray(self, name: str) -> None:
        """A message from long ago."""
        self._claim(name, self._new_run(), "*")

    @precondition(lambda self: self.is_anything_queued)
    @rule(pool=pools)
    def hand_back(self, pool: str) -> None:
        """A worker that stops takes a message, and gives it back."""
        if (name := self._take(pool, 0)) is not None:
            item = self.model.items.get(name)
            assert self.work.hand_back(name) is (item is not None and item.is_queued)

    def _take(self, pool: str, number: int) -> str | None:
        queue = f"tick.{pool}"
        raw = self.client.lrange(queue, 0, -1)[::-1]
        if not raw:
            return None
        chosen = raw.pop(number % len(raw))
        self.client.delete(queue)
        for message in raw:
            self.client.lpush(queue, message)
        return str(json.loads(json.loads(chosen)["body"])[0][0])

    # --- runs ----------------------------------------------------------------------------------------------------

    def _new_run(self) -> str:
        return f"run{next(self._runs)}"

    def _claim(self, name: str, run: str, served: str) -> Claim | None:
        item = self.model.items.get(name)
        is_served = served == "*" or (item is not None and item.pool == served)
        expected = self.model.claim(name, run, is_served=is_served)
        told = self.work.claim(name, run, ttl_ms=TTL * 1000, holder="here", pools=(served,))
        if isinstance(expected, Refusal):
            assert told is expected
            return None
        assert isinstance(told, Claim), (told, expected)
        if isinstance(expected, Held):  # asked again by the run that holds it
            assert (told.token, told.generation) == (expected.token, expected.generation)
            grant = next(grant for grant in self.grants if grant.token == told.token)
            grant.confirmed_at = self.boot if not grant.is_over else grant.confirmed_at
            return told
        assert item is not None
        self._granted(told, item.interval)
        self.model.claimed(name, run, told.token)
        return told

    def _granted(self, claim: Claim, interval: int | None) -> None:
        """Promise 1: nobody else can believe to hold it, and the token is higher than any before it."""
        name, life = claim.item, self.lives[claim.item]
        for other in self.grants:
            is_rival = other.name == name and not other.is_over and self.boot < other.confirmed_at + TTL
            assert not is_rival, f"{other.run} may still hold {name}"
        assert claim.token > self.highest[name]
        assert claim.generation == self.model.items[name].requested
        assert claim.is_wanted is not self.model.items[name].is_absent
        self.highest[name] = claim.token
        order = next(self._orders)
        grant = Grant(name, claim.run, claim.token, claim.generation, interval, self.boot, order, life)
        self.grants.append(grant)

    def _grant(self, number: int) -> Grant:
        """Mostly one that goes on; also one that is over, or was never begun anew after its loss."""
        alive = [grant for grant in self.grants if self.model.held(grant.name, grant.token, grant.run)]
        chosen = alive if alive and number % 3 else self.grants[-6:]
        return chosen[number % len(chosen)]

    @precondition(lambda self: self.grants)
    @rule(number=numbers)
    def claim_again(self, number: int) -> None:
        """The answer to a claim was lost on the way, and the same run asks again."""
        grant = self._grant(number)
        self._claim(grant.name, grant.run, "*")

    @precondition(lambda self: self.grants)
    @rule(number=numbers)
    def renew(self, number: int) -> None:
        self._renew(self._grant(number))

    def _renew(self, grant: Grant) -> None:
        told = self.work.renew(grant.name, grant.token, grant.run, ttl_ms=TTL * 1000)
        assert told is self.model.renew(grant.name, grant.token, grant.run)
        if told.value == "lost":
            grant.is_over = grant.is_over or self._is_beaten(grant)
        else:
            grant.confirmed_at = self.boot

    @precondition(lambda self: self.grants)
    @rule(number=numbers, is_run_forged=st.booleans(), is_end=st.booleans())
    def forge(self, number: int, *, is_run_forged: bool, is_end: bool) -> None:
        """Somebody has the half of what makes a holder."""
        grant = self._grant(number)
        token, run = (grant.token, f"not {grant.run}") if is_run_forged else (grant.token - 1, grant.run)
        if is_end:
            end = ENDS["changed"]
            told = self.work.complete(grant.name, token, run, _completion(end, None))
            assert told is self.model.complete(grant.name, token, run, end, None)
        else:
            told_of = self.work.renew(grant.name, token, run, ttl_ms=TTL * 1000)
            assert told_of is self.model.renew(grant.name, token, run)

    def _is_beaten(self, grant: Grant) -> bool:
        return self.highest[grant.name] > grant.token

    @precondition(lambda self: self.grants)
    @rule(number=numbers, how=st.sampled_from([*ENDS, "changed", "changed"]))
    def complete(self, number: int, how: str) -> None:
        self._complete(self._grant(number), how)

    def _complete(self, grant: Grant, how: str) -> None:
        held = self.model.items[grant.name].held if grant.name in self.model.items else None
        is_destroy = held is not None and held.token == grant.token and not held.is_wanted
        if (how == "destroyed") is not is_destroy and how in {"destroyed", "changed"}:
            how = "destroyed" if is_destroy else "changed"
        end = ENDS[how]
        due_in = grant.interval if end.next_ask.value in {"interval", "stalled"} else None
        before = self._messages()[grant.name]
        told = self.work.complete(grant.name, grant.token, grant.run, _completion(end, due_in))
        assert told is self.model.complete(grant.name, grant.token, grant.run, end, due_in)
        assert self._messages()[grant.name] <= before + 1  # promise 3: one more run at most, however many asked
        grant.is_over = True

    @precondition(lambda self: self.grants)
    @rule(number=numbers, resource=st.sampled_from(["", "state a", "state b"]))
    def own(self, number: int, resource: str) -> None:
        self._own(self._grant(number), resource)

    def _own(self, grant: Grant, resource: str) -> None:
        expected = self.model.own(grant.name, grant.token, grant.run, resource)
        guard = Guard(item=grant.name, token=grant.token, run=grant.run)
        if expected is None:
            with pytest.raises(LeaseLostError):
                self.work.own(guard, resource)
        else:
            assert self.work.own(guard, resource) == expected

    @rule(first=item_names, second=item_names, is_over=st.booleans())
    def rename(self, first: str, second: str, *, is_over: bool) -> None:
        """One goes stale while it runs, or after that, and another one wants what it owned."""
        for name in (first, second):
            self.start(name, Trigger.SOURCE)
        holders = [grant for grant in self.grants if self.model.held(grant.name, grant.token, grant.run)]
        for grant in sorted(holders, key=lambda grant: grant.name != first):
            self._own(grant, "state a")
            if grant.name == first:
                self.mark(first, [Mark.STALE])
                if is_over:
                    self._complete(grant, "failed")
        self.store_and_model_agree()

    @rule(name=item_names, times=st.integers(2, 4))
    def die_again_and_again(self, name: str, times: int) -> None:
        for _ in range(times):
            self.start(name, Trigger.SCHEDULE)
            self.time_passes(8, is_renewed=False)
            self.store_and_model_agree()
        self.stray(name)

    # --- time ----------------------------------------------------------------------------------------------------

    @rule()
    def sweep(self) -> None:
        self.work.sweep(limit=100, rewake_after_ms=10_000, ttl_ms=TTL * 1000)
        self.model.sweep()

    @rule(tens=st.sampled_from([1, 1, 3, 7, 130]), is_renewed=st.booleans())
    def time_passes(self, tens: int, *, is_renewed: bool) -> None:
        """Beats sweep all the while; holders live, or are dead."""
        for _ in range(tens):
            for number, grant in enumerate(self.grants):
                if is_renewed and self.model.held(grant.name, grant.token, grant.run):
                    self._renew(self.grants[number])
            self._pass(10)
            self.sweep()

    @rule(seconds=st.sampled_from([10, 30, 70]))
    def time_passes_without_beat(self, seconds: int) -> None:
        self._pass(seconds)

    @rule(seconds=st.sampled_from([-300, 300]))
    def time_jumps(self, seconds: int) -> None:
        """The store's clock is set, nobody else's; not twice between two sweeps, which would see one jump at most."""
        self.sweep()
        self._pass(seconds)
        self.boot -= seconds
        self._end_forgotten()

    def _end_forgotten(self) -> None:
        """Nobody confirms the lease of a forgotten item: it ends by the store's time, whatever happened to that."""
        for grant in self.grants:
            if grant.life != self.lives[grant.name] and grant.name not in self.model.ghosts:
                grant.is_over = True

    def _pass(self, seconds: int) -> None:
        self._age(keys=[keys.PREFIX], args=[seconds * 1000])
        self.model.move(seconds)
        self.boot += seconds

    @rule()
    def restart_of_the_store(self) -> None:
        if self.model.swept_at is not None:
            self.client.hset(keys.SWEPT, "server", "f00d")
            self.model.is_other_server = True

    @rule(number=numbers)
    def loss_of_the_store(self, number: int) -> None:
        if number == 0:
            for grant in self.grants:
                grant.is_over = True  # where two histories meet, the epoch pauses the fleet
            self.lives.update(ITEMS)
            self._begin()

    # --- what people and sources say -----------------------------------------------------------------------------

    @rule(name=item_names, trigger=triggers)
    def forget_and_return(self, name: str, trigger: Trigger) -> None:
        self.forget(name, 0)
        self._register(name, "east", 600, trigger=trigger)
        self._claim(name, self._new_run(), "*")

    @rule(name=item_names, several=marks)
    def mark(self, name: str, several: list[Mark]) -> None:
        for mark in several:
            assert self.work.mark(name, mark, actor="ann") is self.model.mark(name, mark)
            self.store_and_model_agree()

    @precondition(lambda self: self.grants)
    @rule(number=numbers, several=marks, how=st.none() | st.sampled_from(list(ENDS)))
    def mark_a_running_one(self, number: int, several: list[Mark], how: str | None) -> None:
        grant = self._grant(number)
        self.mark(grant.name, several)
        self._renew(grant)
        if how is not None:
            self._complete(grant, how)

    @rule(
        name=item_names,
        pool=pools,
        interval=intervals,
        trigger=st.none() | triggers,
        suspend=st.sampled_from([None, None, True, False]),
    )
    def register(
        self, name: str, pool: str, interval: int | None, trigger: Trigger | None, suspend: bool | None
    ) -> None:
        self._register(name, pool, interval, trigger=trigger, suspend=suspend)

    def _register(
        self,
        name: str,
        pool: str,
        interval: int | None,
        *,
        trigger: Trigger | None = None,
        suspend: bool | None = None,
    ) -> None:
        schedule = {} if interval is None else {"interval": interval}
        assert self.work.register(
            ItemSpec(item=name, kind="note", pool=pool, repository="forge/r", refs=REFS[name], schedule=schedule),
            first_due_in_ms=None if interval is None else interval * 1000,
            cause=None if trigger is None else Cause(trigger=trigger),
            suspend=None if suspend is None else Suspension(wanted=suspend, actor="source:s", reason=""),
        )
        self.model.register(name, pool, interval, trigger=trigger, suspend=suspend)

    @rule(name=item_names, is_meant=st.integers(0, 3))
    def forget(self, name: str, is_meant: int) -> None:
        if is_meant == 0:
            self.lives[name] += 1
            self.work.forget(name)
            self.model.forget(name)
            self._end_forgotten()

    @rule(is_paused=st.booleans())
    def pause_or_resume(self, *, is_paused: bool) -> None:
        if is_paused:
            self.work.pause("maintenance", actor="ann")
        else:
            self.work.resume(actor="ann")
        self.model.is_paused = is_paused

    # --- after every step ----------------------------------------------------------------------------------------

    def _messages(self) -> Counter[str]:
        raw = [message for pool in POOLS for message in self.client.lrange(f"tick.{pool}", 0, -1)]
        return Counter(json.loads(json.loads(message)["body"])[0][0] for message in raw)

    def _seen(self) -> tuple[dict[str, Seen], dict[str, str], dict[str, str]]:
        rows, queued_in, owners = json.loads(self._look(keys=[keys.PREFIX], args=list(ITEMS)))
        return {name: Seen(*row) for name, row in zip(ITEMS, rows, strict=True)}, _pairs(queued_in), _pairs(owners)

    @invariant()
    def store_and_model_agree(self) -> None:
        seen, queued_in, owners = self._seen()
        assert {name for name, row in seen.items() if row.kind} == set(self.model.items)
        assert owners == self.model.owners
        for name, item in self.model.items.items():
            row = seen[name]
            assert (int(row.requested), int(row.observed)) == (item.requested, item.observed), name
            assert (row.status, row.queued is not None) == (item.status, item.is_queued), name
            assert _near(row.due, None if item.due is None else item.due - self.model.clock), (name, row.due, item.due)
            assert (row.token, row.run) == (("", "") if item.held is None else (str(item.held.token), item.held.run))
            until = item.held.until if item.held is not None else self.model.ghosts.get(name, self.model.clock)
            left = until - self.model.clock
            assert (row.lease != "") is (left > 0), name
            assert left <= 0 or _near(row.lease_left, left), (name, row.lease_left, left)
        _check_indexes(seen, queued_in)
        for name in self.model.open():  # promise 2, at every moment: it waits where a sweep looks
            row = seen[name]
            assert row.queued is not None or row.due is not None or row.indexed is not None, name

    # --- the end -------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Who holds a lease now is dead. Workers take what they are sent, beats sweep, and nothing may stay open."""
        self.pause_or_resume(is_paused=False)
        for _ in range(DRAIN_ROUNDS):
            self.time_passes(1, is_renewed=False)
            for pool in POOLS:
                while (name := self._take(pool, 0)) is not None:
                    claim = self._claim(name, self._new_run(), pool)
                    if claim is not None:
                        self._complete(self.grants[-1], "changed")
            self.store_and_model_agree()
            if not list(self.model.open()):
                break
        assert not list(self.model.open())
        for asked in self.asked:
            self._check_answered(asked)

    def _check_answered(self, asked: Asked) -> None:
        """Promise 2: a run that started after it, or a reason why not."""
        item = self.model.items.get(asked.name)
        if item is None or self.lives[asked.name] != asked.life:
            return
        if item.hindrance is not None or item.status == "stalled":
            return
        assert any(
            grant.name == asked.name
            and grant.life == asked.life
            and grant.order > asked.order
            and grant.generation >= asked.generation
            for grant in self.grants
        ), f"nobody ran for {asked}"


def _completion(end: Ended, due_in: int | None) -> Completion:
    return Completion(
        record={"state": end.state, "reason": "Applied", "message": "", "revision": "a" * 40},
        status=end.status,
        next_ask=end.next_ask,
        due_in_ms=None if due_in is None else due_in * 1000,
        applied=end.applied,
    )


def _pairs(flat: Any) -> dict[str, str]:
    rows = list(flat)
    return dict(zip(rows[::2], rows[1::2], strict=True))


def _near(seen: float | None, expected: int | None) -> bool:
    if seen is None or expected is None:
        return seen is None and expected is None
    return abs(seen - expected) < 5  # half of the smallest step of time


def _check_indexes(seen: dict[str, Seen], queued_in: dict[str, str]) -> None:
    """What the indexes say of an item follows from the item, and the other way round."""
    waiting = Counter(row.queued_pool for row in seen.values() if row.queued is not None)
    assert {pool: int(number) for pool, number in queued_in.items()} == dict(waiting)
    for name, row in seen.items():
        assert not (row.queued is not None and row.token), name  # promise 3: one that runs is not queued as well
        assert not row.token or row.indexed is not None, name  # promise 7: some sweep will find its end
        assert not (row.lease and row.token) or row.lease == f"{row.token}:{row.run}", name
        assert bool(row.queued_pool) is (row.queued is not None), name
        assert row.kind or (row.due, row.queued) == (None, None), name


@pytest.mark.timeout(0 if EXAMPLES else 600)
def test_every_promise_of_the_protocol_holds_after_every_step(redis_client: TextRedis) -> None:
    class Machine(WorkMachine):
        def __init__(self) -> None:
            super().__init__(redis_client)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES or USUAL_EXAMPLES,
            stateful_step_count=40,
            derandomize=not EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
