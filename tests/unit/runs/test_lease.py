"""The lease of a supervisor: what it promises when a run ends."""

from __future__ import annotations

from pathlib import Path

import fakeredis

from gitops_reconciler import keys
from gitops_reconciler.clock import SystemClock
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import as_text
from gitops_reconciler.runs.lease import WorkLease
from gitops_reconciler.supervise.order import Interruption, Order, RunEnd
from gitops_reconciler.work.base import Cause, Claim, ItemSpec
from gitops_reconciler.work.redis import RedisWork

RUN = "a" * 32


def test_a_log_that_can_not_be_removed_does_not_undo_the_record(tmp_path: Path) -> None:
    client = as_text(fakeredis.FakeRedis(decode_responses=True))
    work = RedisWork(client)
    work.register(ItemSpec(item="default/web", kind="note", pool="custom", repository=""), first_due_in_ms=None)
    work.request(["default/web"], Cause(trigger=Trigger.MANUAL, actor="ann"))
    claim = work.claim("default/web", RUN, ttl_ms=60_000, holder="here")
    assert isinstance(claim, Claim)
    order = Order(
        run=RUN,
        item="default/web",
        kind="note",
        token=claim.token,
        generation=claim.generation,
        ttl_seconds=60,
        renewal_seconds=10,
        grace_seconds=25,
        deadline_seconds=120,
        claimed_at=0,
        lock="",
        leftover="",
        log=str(tmp_path),  # a folder: unlink fails
    )
    ended = RunEnd(
        result={"state": "odd"}, exit=0, interrupted=Interruption.NONE, started_at="", ended_at="", failure=""
    )

    assert WorkLease(work=work, order=order, clock=SystemClock()).complete(ended)

    assert client.hgetall(keys.run(RUN))["reason"] == "RunCrashed"
