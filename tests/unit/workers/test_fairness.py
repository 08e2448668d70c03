"""Who may take a slot: the first one always, any further one only while enough are left for the others."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gitops_workers.fairness import FairCycle, Slots


def slots_of(total: int, in_use: str, held: str) -> Slots:
    made = Slots(total)
    made.keep_for(in_use)
    for queue in held:
        made.take(queue)
    return made


@pytest.mark.parametrize(
    ("total", "in_use", "held", "may", "may_not"),
    [
        pytest.param(4, "a", "aaa", "a", "", id="alone, a pool may have them all"),
        pytest.param(4, "abc", "a", "abc", "", id="two are left for two others"),
        pytest.param(4, "abc", "aa", "bc", "a", id="the last two are kept"),
        pytest.param(4, "abc", "aab", "c", "ab", id="the last one is kept"),
        pytest.param(4, "abc", "aabc", "", "abc", id="none is left"),
        pytest.param(4, "abc", "bc", "abc", "", id="one that runs needs no slot kept"),
        pytest.param(1, "abc", "", "abc", "", id="the only slot is for whoever comes first"),
        pytest.param(3, "abcdef", "ab", "cdef", "ab", id="more pools than slots: one each"),
        pytest.param(4, "abc", "aa", "x", "a", id="one that nobody knew of yet may have its first"),
    ],
)
def test_a_pool_may_take_more_only_while_enough_is_left(
    total: int, in_use: str, held: str, may: str, may_not: str
) -> None:
    slots = slots_of(total, in_use, held)
    assert [queue for queue in may + may_not if slots.may_take(queue)] == list(may)


@given(total=st.integers(1, 8), pools=st.integers(1, 8), steps=st.lists(st.tuples(st.booleans(), st.integers(0, 7))))
def test_with_enough_slots_a_pool_without_a_run_always_finds_a_free_one(
    total: int, pools: int, steps: list[tuple[bool, int]]
) -> None:
    names = [str(number) for number in range(min(pools, total))]
    slots, held = slots_of(total, "", ""), dict.fromkeys(names, 0)
    slots.keep_for(names)
    for wants, number in steps:
        name = names[number % len(names)]
        if wants and slots.may_take(name):
            slots.take(name)
            held[name] += 1
        elif not wants and held[name]:
            slots.free(name)
            held[name] -= 1
        assert sum(held.values()) <= total
        assert all(slots.may_take(idle) for idle in names if not held[idle])


@dataclass
class Wire:
    """The connection on which a channel of kombu blocks, and the clients beside it."""

    id: int | Exception = 7
    sent: list[tuple[str, ...]] = field(default_factory=list)
    unblocked: list[int] = field(default_factory=list)
    is_away: bool = False
    _sock: object = field(default_factory=object)
    _in_poll: Any = None

    @property
    def client(self) -> "Wire":
        return self

    @property
    def connection(self) -> "Wire":
        return self

    def send_command(self, *words: str) -> None:
        self.sent.append(words)

    def read_response(self) -> int:
        if isinstance(self.id, Exception):
            raise self.id
        return self.id

    @contextmanager
    def conn_or_acquire(self) -> Iterator["Wire"]:
        if self.is_away:
            raise RedisConnectionError
        yield self

    def client_unblock(self, client_id: int) -> None:
        self.unblocked.append(client_id)

    def asks(self, cycle: FairCycle) -> list[str]:
        """Begin the next blocking call."""
        asked = cycle.consume(len(cycle.items))
        self._in_poll = self
        return asked


def cycle_over(wire: Wire, slots: Slots) -> FairCycle:
    cycle = FairCycle(wire, slots)
    cycle.update(["a", "b", "c"])
    return cycle


def test_what_may_take_no_more_is_not_asked_for_and_the_order_is_kept() -> None:
    cycle = cycle_over(Wire(), slots_of(4, "abc", "aa"))
    assert cycle.consume(3) == ["b", "c"]
    cycle.rotate("b")
    assert cycle.consume(3) == ["c", "b"]


def test_a_slot_that_gets_free_for_a_queue_that_was_left_out_ends_the_call_once() -> None:
    wire, slots = Wire(), slots_of(4, "abc", "aa")
    cycle = cycle_over(wire, slots)
    assert wire.asks(cycle) == ["b", "c"]
    cycle.reconsider()
    assert wire.unblocked == []
    slots.free("a")
    cycle.reconsider()
    cycle.reconsider()
    assert wire.unblocked == [7]
    assert wire.asks(cycle) == ["a", "b", "c"]


def test_no_call_is_ended_that_leaves_nothing_out_and_none_where_there_is_none() -> None:
    wire, slots = Wire(), slots_of(4, "abc", "a")
    cycle = cycle_over(wire, slots)
    assert wire.asks(cycle) == ["a", "b", "c"]
    slots.free("a")
    cycle.reconsider()
    wire._in_poll = None
    slots.take("a")
    slots.take("a")
    cycle.consume(3)
    slots.free("a")
    cycle.reconsider()
    assert wire.unblocked == []


def test_the_server_is_asked_for_its_name_of_us_once_a_connection() -> None:
    wire = Wire()
    cycle = cycle_over(wire, slots_of(4, "abc", ""))
    for _ in range(3):
        wire.asks(cycle)
    assert wire.sent == [("CLIENT", "ID")]
    wire._sock = object()
    wire.asks(cycle)
    assert len(wire.sent) == 2


def test_a_server_that_tells_no_id_or_does_not_answer_costs_a_second_and_nothing_else() -> None:
    slots = slots_of(4, "abc", "aa")
    silent, away = Wire(id=ResponseError("NOPERM")), Wire(is_away=True)
    for wire in (silent, away):
        cycle = cycle_over(wire, slots)
        assert wire.asks(cycle) == ["b", "c"]
    slots.free("a")
    for wire in (silent, away):
        cycle.reconsider()
        assert wire.unblocked == []
