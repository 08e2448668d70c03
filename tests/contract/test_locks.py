"""The lock of (kind, target): one suite over the flock of one host and the lease in Redis."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from uuid import uuid4

import fakeredis
import pytest

from gitops_reconciler.layout import Layout
from gitops_reconciler.locks.base import Held, Locks
from gitops_reconciler.locks.flock import FileLocks, backend_lock
from gitops_reconciler.outcomes import NextAsk, Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.work.base import Cause, Claim, Completion, ItemSpec
from gitops_reconciler.work.redis import RedisWork


@dataclass
class LeaseLocks:
    """The work protocol under the contract of `Locks`: ask, claim, complete."""

    work: RedisWork

    @contextmanager
    def hold(self, kind: str, target: str) -> Iterator[Held | None]:
        self.work.register(ItemSpec(item=target, kind=kind, pool=kind, repository=""), first_due_in_ms=None)
        self.work.request([target], Cause(trigger=Trigger.MANUAL))
        claim = self.work.claim(target, uuid4().hex, ttl_ms=60_000, holder="here")
        if not isinstance(claim, Claim):
            yield None
            return
        try:
            yield Held(kind=kind, target=target, token=claim.token)
        finally:
            done = Completion(
                record={"state": "no_change"}, status="ready", next_ask=NextAsk.NEVER, due_in_ms=None, applied=True
            )
            self.work.complete(target, claim.token, claim.run, done)


@pytest.fixture(params=["flock", "redis", "fakeredis"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> Locks:
    if request.param == "flock":
        return FileLocks(Layout(tmp_path))
    if request.param == "redis":
        client: TextRedis = request.getfixturevalue("redis_client")
        return LeaseLocks(RedisWork(client))
    return LeaseLocks(RedisWork(as_text(fakeredis.FakeRedis(decode_responses=True))))


@pytest.mark.req("R0.12", "R0.20", "RM.4")
def test_a_held_lock_is_busy_for_the_same_target_and_free_for_others(locks: Locks) -> None:
    with locks.hold("terraform", "a") as first:
        assert first is not None
        with locks.hold("terraform", "a") as second:
            assert second is None
        with locks.hold("pi", "b") as other:
            assert other is not None


def test_a_lock_is_free_again_after_its_body(locks: Locks) -> None:
    with locks.hold("terraform", "a"):
        pass
    with locks.hold("terraform", "a") as again:
        assert again is not None


def test_tokens_rise_with_each_holder(locks: Locks) -> None:
    tokens = []
    for _ in range(5):
        with locks.hold("terraform", "a") as held:
            assert held is not None
            tokens.append(held.token)
    assert tokens == sorted(set(tokens))


@pytest.mark.req("R0.22")
@pytest.mark.parametrize("error", [BlockingIOError("mine"), ValueError("mine"), KeyboardInterrupt()])
def test_an_error_inside_the_body_surfaces_as_itself_and_frees_the_lock(locks: Locks, error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, locks.hold("terraform", "a"):
        raise error
    assert raised.value is error
    with locks.hold("terraform", "a") as again:
        assert again is not None


@pytest.mark.req("R0.20")
def test_on_one_host_a_name_may_have_one_lock_per_kind(tmp_path: Path) -> None:
    locks = FileLocks(Layout(tmp_path))
    with locks.hold("terraform", "a") as one, locks.hold("pi", "a") as other:
        assert one is not None
        assert other is not None


def _hold_for_ever(root: str, is_held: Event) -> None:
    context: AbstractContextManager[Held | None] = FileLocks(Layout(Path(root))).hold("terraform", "a")
    with context:
        is_held.set()
        signal.pause()


@pytest.mark.req("R0.21")
def test_a_killed_holder_frees_the_flock_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    is_held = spawn.Event()
    holder = spawn.Process(target=_hold_for_ever, args=(str(tmp_path), is_held))
    holder.start()
    locks = FileLocks(Layout(tmp_path))
    try:
        assert is_held.wait(20)
        with locks.hold("terraform", "a") as busy:
            assert busy is None
    finally:
        os.kill(holder.pid or 0, signal.SIGKILL)
        holder.join(20)
    with locks.hold("terraform", "a") as free:
        assert free is not None


@pytest.mark.req("R0.12")
def test_backend_lock_yields_whether_it_was_free(state_dir: Path) -> None:
    with backend_lock("terraform", "web") as is_ours, backend_lock("terraform", "web") as is_theirs:
        assert (is_ours, is_theirs) == (True, False)
    assert (state_dir / "locks" / "terraform" / "web.lock").exists()
